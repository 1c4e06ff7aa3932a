"""ReportApply: when a placement counts as live, and what may follow it."""

import pytest
import rpc
import windows
from routepack.v1 import planner_service_pb2 as service

PENDING = service.COMMIT_STATE_PENDING
COMMITTED = service.COMMIT_STATE_COMMITTED
ABORTED = service.COMMIT_STATE_ABORTED
NEW = service.APPLY_STATE_NEW
OLD = service.APPLY_STATE_OLD
TORN = service.APPLY_STATE_TORN


class Ranks:
    """The ranks of one planned window, which report."""

    def __init__(self, stub, window):
        self.stub = stub
        self.key = window.header.key
        self.plan = stub.CreatePlan(
            windows.create(window), timeout=rpc.TIMEOUT
        ).plan

    def report(self, rank, state=NEW, epoch=1, digest=None, version=None):
        return self.stub.ReportApply(
            service.ReportApplyRequest(
                key=self.key,
                placement_version=version or self.plan.placement_version,
                rank=rank,
                epoch=epoch,
                state=state,
                digest=self.plan.placement_digest if digest is None else digest,
            ),
            timeout=rpc.TIMEOUT,
        )

    def commit_state(self):
        request = service.GetPlanRequest(key=self.key)
        return self.stub.GetPlan(request, timeout=rpc.TIMEOUT).summary.commit


@pytest.fixture
def ranks(stub, new_key):
    window = windows.tiny(new_key())
    window.header.participant_ranks.extend([0, 1, 2])
    return Ranks(stub, window)


def test_all_ranks_on_the_new_placement_commit_it(ranks):
    assert ranks.commit_state() == PENDING
    first = ranks.report(1)
    assert (first.commit, first.epoch) == (PENDING, 1)
    assert list(first.missing_ranks) == [0, 2]
    # Saying it again changes nothing.
    assert ranks.report(1) == first
    assert list(ranks.report(0).missing_ranks) == [2]
    last = ranks.report(2)
    assert last.commit == COMMITTED
    assert not last.missing_ranks
    assert ranks.commit_state() == COMMITTED


def test_participants_are_a_set(stub, new_key):
    window = windows.tiny(new_key())
    window.header.participant_ranks.extend([5, 3, 5])
    ranks = Ranks(stub, window)
    assert list(ranks.report(3).missing_ranks) == [5]
    assert ranks.report(5).commit == COMMITTED


@pytest.mark.parametrize("state", [OLD, TORN])
def test_one_rank_that_failed_aborts_until_a_newer_epoch(ranks, state):
    ranks.report(0)
    assert ranks.report(1, state).commit == ABORTED
    assert ranks.report(2).commit == ABORTED
    assert ranks.commit_state() == ABORTED
    for rank in (2, 0):
        assert ranks.report(rank, epoch=5).commit == PENDING
    assert ranks.report(1, epoch=5).commit == COMMITTED


def test_a_rank_with_another_map_aborts(ranks):
    ranks.report(0)
    ranks.report(1)
    assert ranks.report(2, digest="0" * 32).commit == ABORTED


def test_stale_epochs_are_fenced(ranks):
    ranks.report(0, epoch=4)
    error = rpc.failure(lambda: ranks.report(1, epoch=3))
    assert error.code().name == "FAILED_PRECONDITION"
    assert rpc.precondition(error).type == "STALE_EPOCH"
    answer = ranks.report(1, epoch=4)
    assert (answer.epoch, list(answer.missing_ranks)) == (4, [2])


def test_a_rank_cannot_change_its_mind_within_an_epoch(ranks):
    ranks.report(0)
    error = rpc.failure(lambda: ranks.report(0, OLD))
    assert rpc.precondition(error).type == "CONTRADICTORY_REPORT"


def test_nothing_contradicts_a_commit(ranks):
    for rank in range(3):
        ranks.report(rank)
    error = rpc.failure(lambda: ranks.report(0, TORN, epoch=2))
    assert rpc.precondition(error).type == "ALREADY_COMMITTED"
    assert ranks.commit_state() == COMMITTED


def test_reports_name_a_participant_and_a_state(ranks):
    error = rpc.failure(
        lambda: ranks.report(7, service.APPLY_STATE_UNSPECIFIED)
    )
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == ["rank", "state"]


def test_reports_name_a_version_of_the_window(ranks):
    error = rpc.failure(lambda: ranks.report(0, version="x@y"))
    assert error.code().name == "NOT_FOUND"
    assert "x@y" in error.details()


def test_a_window_without_participants_is_never_committed(stub, new_key):
    ranks = Ranks(stub, windows.tiny(new_key()))
    error = rpc.failure(lambda: ranks.report(0))
    assert error.code().name == "FAILED_PRECONDITION"
    assert rpc.precondition(error).type == "NO_PARTICIPANTS"


def test_the_next_window_starts_from_a_committed_placement(ranks, new_key):
    window = windows.tiny(new_key())
    current = window.header.current_placement
    current.committed_version = ranks.plan.placement_version
    error = rpc.failure(lambda: Ranks(ranks.stub, window))
    assert error.code().name == "NOT_FOUND"
    assert "not committed" in error.details()
    for rank in range(3):
        ranks.report(rank)
    # The same samples again: LPT finds the same map, so nothing moves.
    again = Ranks(ranks.stub, window).plan
    assert again.placement == ranks.plan.placement
    assert ranks.plan.placement_change.experts_to_other_slot > 0
    assert again.placement_change.experts_to_other_slot == 0
    part = ranks.stub.GetRankPlan(
        service.GetRankPlanRequest(key=window.header.key), timeout=rpc.TIMEOUT
    ).rank_plan
    assert not part.incoming and not part.outgoing


def test_a_map_can_be_given_instead_of_a_version(ranks, new_key):
    window = windows.tiny(new_key())
    window.header.current_placement.map.CopyFrom(ranks.plan.placement)
    plan = Ranks(ranks.stub, window).plan
    assert plan.placement_change.experts_to_other_slot == 0


def test_versions_of_other_jobs_are_unknown(ranks, new_key):
    for rank in range(3):
        ranks.report(rank)
    window = windows.tiny(new_key())
    window.header.key.job_id += "-other"
    window.header.current_placement.committed_version = (
        ranks.plan.placement_version
    )
    error = rpc.failure(lambda: Ranks(ranks.stub, window))
    assert error.code().name == "NOT_FOUND"


def test_committed_plans_survive_the_history(start_server, new_key):
    server = start_server(plan_history=2)
    window = windows.tiny(new_key())
    window.header.participant_ranks.append(0)
    ranks = Ranks(server.stub, window)
    ranks.report(0)
    for _ in range(5):
        Ranks(server.stub, windows.tiny(new_key()))
    assert ranks.commit_state() == COMMITTED
    window = windows.tiny(new_key())
    window.header.current_placement.committed_version = (
        ranks.plan.placement_version
    )
    assert Ranks(server.stub, window).plan.placement_change.experts_total == 16
