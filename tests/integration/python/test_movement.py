"""What a placement moves, in which rounds, and how it is announced."""

import math

import pytest
import rpc
import windows
from routepack.v1 import plan_pb2, planner_service_pb2, window_pb2

EXPERTS, RANKS = 16, 4
HOSTS = EXPERTS // RANKS  # experts a rank


def moving_window(new_key, policy="INCREMENTAL", seed=6):
    """Two nodes, experts of 3000 parameters, cheap enough to move."""
    window = windows.random_window(new_key(), seed=seed)
    options = window.header.options
    options.placement = window_pb2.PlacementPolicy.Value(
        f"PLACEMENT_POLICY_{policy}"
    )
    options.search.steps = 2000
    options.movement.parameters_per_expert = 3000
    options.movement.ranks_per_node = 4
    options.movement.flop_per_second = 1e6
    return window


def plan_of(stub, window):
    return stub.CreatePlan(windows.create(window), timeout=rpc.TIMEOUT).plan


def test_policies_differ_in_what_they_move(stub, new_key):
    plans = {
        policy: plan_of(stub, moving_window(new_key, policy))
        for policy in ("KEEP", "IDENTITY", "LPT", "LPT_RELABEL", "INCREMENTAL")
    }
    for policy in ("KEEP", "IDENTITY"):
        assert plans[policy].movement.weighted_bytes == 0
        assert plans[policy].transfer[0].min_rounds == 0
    lpt, relabelled = plans["LPT"], plans["LPT_RELABEL"]
    assert lpt.routepack.cv_global == relabelled.routepack.cv_global
    moved = {name: plan.movement.weighted_bytes for name, plan in plans.items()}
    assert 0 < moved["INCREMENTAL"] < moved["LPT_RELABEL"] < moved["LPT"]
    incremental = plans["INCREMENTAL"]
    assert (
        incremental.incremental_stop
        != plan_pb2.INCREMENTAL_STOP_UNSPECIFIED
        == lpt.incremental_stop
    )
    assert (
        incremental.routepack.cv_global < plans["KEEP"].routepack.cv_global / 4
    )


def test_movement_counts_bytes_and_time(stub, new_key):
    window = moving_window(new_key, "LPT")
    plan = plan_of(stub, window)
    moved = plan.movement
    ranks = plan.placement_change.experts_to_other_rank
    # BF16 weights of an expert go along EP in both EDP shards.
    assert moved.kind_bytes[0] == 2 * 3000 * 2 * ranks
    assert sum(moved.kind_bytes) == (
        moved.intra_node_bytes + moved.inter_node_bytes
    )
    assert moved.weighted_bytes == (
        moved.intra_node_bytes + 3 * moved.inter_node_bytes
    )
    assert moved.peak_sum_after < moved.peak_sum_before
    assert moved.break_even_steps == pytest.approx(
        moved.transfer_seconds / moved.saved_seconds
    )


def test_a_budget_and_break_even_hold_movement_back(stub, new_key):
    window = moving_window(new_key)
    free = plan_of(stub, window).movement.weighted_bytes
    window.header.key.CopyFrom(new_key())
    window.header.options.incremental.movement_budget = free / 2
    plan = plan_of(stub, window)
    assert plan.incremental_stop == plan_pb2.INCREMENTAL_STOP_BUDGET
    assert 0 < plan.movement.weighted_bytes <= free / 2
    # Experts that compute in no time never pay for their transfer.
    window = moving_window(new_key)
    window.header.options.movement.flop_per_second = 1e18
    plan = plan_of(stub, window)
    assert plan.incremental_stop == plan_pb2.INCREMENTAL_STOP_BREAK_EVEN
    assert plan.movement.weighted_bytes == 0


def test_the_placement_is_announced_with_its_transfer(stub, new_key):
    window = moving_window(new_key)
    responses = stub.StreamPlan(
        iter(windows.requests(windows.records(window))), timeout=rpc.TIMEOUT
    )
    events = [response.event for response in responses]
    placed = next(
        e for e in events if e.WhichOneof("event") == "placement_ready"
    )
    ready, plan = placed.placement_ready, events[-1].plan
    assert not ready.may_change
    assert ready.placement == plan.placement
    assert ready.movement == plan.movement
    assert list(ready.transfer) == list(plan.transfer)
    assert not plan.HasField("refinement")


def test_refinement_says_what_it_changed(stub, new_key):
    window = moving_window(new_key, seed=8)
    window.header.options.refine_after_announce = True
    # Moves cost nothing.
    window.header.options.incremental.break_even = False
    responses = stub.StreamPlan(
        iter(windows.requests(windows.records(window))), timeout=rpc.TIMEOUT
    )
    events = [response.event for response in responses]
    placed = next(
        e for e in events if e.WhichOneof("event") == "placement_ready"
    )
    ready, plan = placed.placement_ready, events[-1].plan
    assert ready.may_change
    assert plan.refinement.announced_digest == ready.placement_digest
    changed = [
        (layer.layer, expert)
        for layer, before in zip(
            plan.placement.layers, ready.placement.layers, strict=True
        )
        for expert, slot in enumerate(layer.slot_of_expert)
        if slot // HOSTS != before.slot_of_expert[expert] // HOSTS
    ]
    assert changed
    assert plan.refinement.change.experts_to_other_rank == len(changed)
    assert plan.routepack.joint <= plan.reorder.joint


def test_ranks_that_follow_their_rounds_end_in_the_plan(stub, new_key):
    """Each EP rank does only what its own rank plan says."""
    window = moving_window(new_key, "LPT")
    plan = plan_of(stub, window)
    parts = [
        stub.GetRankPlan(
            planner_service_pb2.GetRankPlanRequest(
                key=window.header.key, ep_rank=rank
            ),
            timeout=rpc.TIMEOUT,
        ).rank_plan
        for rank in range(RANKS)
    ]
    slots = {
        (layer, slot): slot for layer in range(3) for slot in range(EXPERTS)
    }
    staged = [set() for _ in range(RANKS)]

    def copy(rank, move):
        if move.HasField("from_slot"):
            assert slots.pop((move.layer, move.from_slot)) == move.expert
        else:
            staged[rank].remove((move.layer, move.expert))
        if move.HasField("to_slot"):
            assert (move.layer, move.to_slot) not in slots
            slots[move.layer, move.to_slot] = move.expert
        else:
            staged[rank].add((move.layer, move.expert))

    for number in range(len(parts[0].rounds)):
        outgoing, incoming = [], []
        for rank, part in enumerate(parts):
            sends = part.rounds[number].sends
            out = [m for m in sends if m.from_slot // HOSTS == rank]
            assert len(out) <= 1 and len(sends) - len(out) <= 1
            outgoing += out
            incoming += [(rank, m) for m in sends if m not in out]
        for _, move in incoming:
            assert move in outgoing
            if not move.staged:
                assert (move.layer, move.to_slot) not in slots
        for move in outgoing:
            assert slots.pop((move.layer, move.from_slot)) == move.expert
        for rank, move in incoming:
            if move.staged:
                staged[rank].add((move.layer, move.expert))
            else:
                slots[move.layer, move.to_slot] = move.expert
        for rank, part in enumerate(parts):
            for move in part.rounds[number].copies:
                copy(rank, move)
            assert len(staged[rank]) <= part.staging_experts <= 4
    for rank, part in enumerate(parts):
        for move in part.final_copies:
            copy(rank, move)
    assert not any(staged)
    assert slots == {
        (layer.layer, slot): expert
        for layer in plan.placement.layers
        for slot, expert in enumerate(layer.expert_of_slot)
    }


def test_movement_options_are_checked_from_the_header(stub, new_key):
    window = moving_window(new_key)
    options = window.header.options
    options.movement.inter_node_cost = math.nan
    options.incremental.horizon_steps = -1
    upload = rpc.Upload(stub)
    upload.send(windows.header_record(window))
    error = rpc.failure(upload.event)
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == [
        "header.options.incremental.horizon_steps",
        "header.options.movement.inter_node_cost",
    ]
