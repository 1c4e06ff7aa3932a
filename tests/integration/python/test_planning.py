"""Windows in, plans out: every method on its good path."""

import os
import subprocess
import threading

import grpc
import pytest
import rpc
import windows
from google.protobuf import json_format
from routepack.v1 import plan_pb2, planner_service_pb2, window_pb2


def plan_of(stub, window):
    return stub.CreatePlan(windows.create(window), timeout=rpc.TIMEOUT).plan


def check_layout(window, plan):
    """Each sample in one cell, cells non-empty and within the cap."""
    tokens = {sample.id: sample.tokens for sample in window.samples}
    left = dict(tokens)
    for row in plan.layout.rows:
        assert len(row.cells) == plan.topology.dp_slots
        for cell in row.cells:
            assert cell.sample_ids
            assert cell.tokens == sum(left.pop(i) for i in cell.sample_ids)
            assert cell.occupancy <= window.header.token_cap
        assert row.tokens == sum(cell.tokens for cell in row.cells)
        assert len(row.shard_cost) == len(plan.topology.shards)
    assert not left
    assert plan.layout.window_tokens == sum(tokens.values())


def check_placement(window, plan):
    experts = list(range(window.header.num_experts))
    assert len(plan.placement.layers) == window.header.num_layers
    for index, layer in enumerate(plan.placement.layers):
        assert layer.layer == index
        assert sorted(layer.slot_of_expert) == experts
        assert [
            layer.expert_of_slot[v] for v in layer.slot_of_expert
        ] == experts


def test_tiny_window_gets_the_golden_plan(stub):
    golden = json_format.Parse(
        (windows.DATA / "tiny_plan.golden.json").read_text(), plan_pb2.Plan()
    )
    plan = plan_of(stub, windows.tiny())
    assert plan.timings
    assert windows.without_timings(plan) == golden


def test_a_plan_is_feasible_and_certified(stub, new_key):
    window = windows.random_window(new_key(), seed=5)
    plan = plan_of(stub, window)
    check_layout(window, plan)
    check_placement(window, plan)
    assert plan.key == window.header.key
    assert plan.rows.outcome == plan_pb2.ROW_OUTCOME_CERTIFIED
    assert plan.rows.rows == len(plan.layout.rows) == plan.rows.rows_lower_bound
    assert plan.rows.proof
    assert [list(shard.slots) for shard in plan.topology.shards] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert plan.reorder.cv_global < plan.baseline.cv_global
    assert plan.routepack.joint <= plan.reorder.joint
    assert plan.bounds.gap_for_placement >= 0
    assert plan.routepack.joint >= plan.bounds.joint_for_placement
    assert (
        plan.bounds.joint_for_placement >= plan.bounds.joint_for_any_placement
    )
    assert plan.backend == "cpu" and plan.algorithm_version


def test_a_pipeline_gets_the_peaks_of_its_stages(stub, new_key):
    window = windows.random_window(new_key(), seed=6)
    assert not plan_of(stub, window).routepack.stages

    layers = window.header.num_layers
    window.header.key.CopyFrom(new_key())
    window.header.topology.mesh.pp = 3
    window.header.topology.moe_layers_per_stage[:] = [1, 0, layers - 1]
    plan = plan_of(stub, window)
    for arm in (plan.baseline, plan.reorder, plan.routepack):
        assert [stage.num_layers for stage in arm.stages] == [1, 0, layers - 1]
        assert sum(stage.ep_peak_sum for stage in arm.stages) == arm.ep_peak_sum
        assert max(stage.tail_peak for stage in arm.stages) == arm.tail_peak
        assert arm.stages[0].tail_peak > 0


def test_the_same_window_again_returns_the_same_plan(stub, new_key):
    window = windows.random_window(new_key())
    first = plan_of(stub, window)
    # Timings too: it is the stored plan, not a new one.
    assert plan_of(stub, window) == first
    # In another encoding it is still the same window.
    for sample in window.samples:
        counts = sample.counts.u16
        values = [
            int.from_bytes(counts[j : j + 2], "little")
            for j in range(0, len(counts), 2)
        ]
        sample.counts.dense.values.extend(values)
    assert plan_of(stub, window) == first


def test_streaming_and_one_call_give_the_same_plan(stub, new_key):
    window = windows.random_window(new_key(), seed=9)
    events = [
        response.event
        for response in stub.StreamPlan(
            iter(windows.requests(windows.records(window, per_chunk=7))),
            timeout=rpc.TIMEOUT,
        )
    ]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[:2] == ["accepted", "sealed"]
    assert kinds[-1] == "plan"
    assert kinds.count("placement_ready") == 1
    assert kinds.index("placement_ready") < kinds.index("plan")
    assert "progress" in kinds
    accepted = events[0].accepted
    assert accepted.next_chunk == 0
    assert accepted.state == planner_service_pb2.PLAN_STATE_UPLOADING
    assert accepted.max_chunk_bytes == 4 << 20

    streamed = events[-1].plan
    assert events[1].sealed.window_digest == streamed.window_digest
    placed = events[kinds.index("placement_ready")].placement_ready
    assert placed.placement_version == streamed.placement_version
    assert placed.placement_digest == streamed.placement_digest
    assert placed.placement == streamed.placement
    assert placed.placement_change == streamed.placement_change
    for event in events:
        if event.WhichOneof("event") == "progress":
            assert 0 <= event.progress.fraction <= 1

    window.header.key.CopyFrom(new_key())
    created = plan_of(stub, window)
    assert windows.without_key(created) == windows.without_key(streamed)


def test_effort_says_how_hard_to_search(stub, new_key):
    plans = {}
    for effort in ("SEEDS", "FAST", "BALANCED"):
        window = windows.random_window(new_key(), seed=4, samples=60)
        window.header.options.search.effort = window_pb2.Effort.Value(
            f"EFFORT_{effort}"
        )
        plans[effort] = plan_of(stub, window)
    for effort, plan in plans.items():
        used, report = plan.options.search, plan.search_report
        assert window_pb2.Effort.Name(used.effort) == f"EFFORT_{effort}"
        assert used.population and used.guided_probability == 0.8
        # Stages never get worse, and end in the plan's own joint cost.
        joints = [stage.joint for stage in report.stages]
        assert joints == sorted(joints, reverse=True)
        assert joints[0] == plan.reorder.joint
        assert joints[-1] == plan.routepack.joint
        assert report.proposals.steps <= used.steps
        assert report.proposals.steps == sum(
            level.proposals.steps for level in report.levels
        )
    seeds = plans["SEEDS"].search_report
    assert seeds.end == plan_pb2.SEARCH_END_SEEDS_ONLY and not seeds.levels
    assert plans["FAST"].options.search.steps == 20_000
    assert plans["BALANCED"].options.search.steps == 200_000
    assert plans["FAST"].search_report.levels
    assert plans["FAST"].search_report.proposals_per_second > 0
    assert plans["BALANCED"].routepack.joint < plans["SEEDS"].routepack.joint


def test_progress_tells_how_the_search_goes(stub, new_key):
    window = windows.random_window(new_key(), seed=8, samples=120)
    # Progress after every temperature, long before the last one.
    window.header.options.search.steps = 200_000_000
    window.header.options.search.levels = 1024
    events = stub.StreamPlan(
        iter(windows.requests(windows.records(window))), timeout=rpc.TIMEOUT
    )
    seen = []
    with pytest.raises(grpc.RpcError) as error:
        for event in (response.event for response in events):
            progress = event.progress
            if progress.proposals_per_second:
                seen.append(progress)
                stub.CancelPlan(
                    planner_service_pb2.CancelPlanRequest(
                        key=window.header.key
                    ),
                    timeout=rpc.TIMEOUT,
                )
    assert error.value.code().name == "CANCELLED"
    progress = seen[0]
    assert progress.stage == "packing"
    assert 0 < progress.acceptance_rate < 1
    assert progress.gap == pytest.approx(progress.joint / progress.bound - 1)


def test_plans_do_not_depend_on_the_number_of_threads(start_server, new_key):
    window = windows.random_window(new_key(), seed=3, samples=120)
    plans = []
    for threads in (1, 3):
        server = start_server(threads=threads)
        plans.append(windows.without_timings(plan_of(server.stub, window)))
        assert server.stop() == 0
    assert plans[0] == plans[1]


def test_get_plan_has_summary_and_plan(stub, new_key):
    window = windows.random_window(new_key())
    plan = plan_of(stub, window)
    response = stub.GetPlan(
        planner_service_pb2.GetPlanRequest(key=window.header.key),
        timeout=rpc.TIMEOUT,
    )
    assert response.plan == plan
    summary = response.summary
    assert summary.key == window.header.key
    assert summary.state == planner_service_pb2.PLAN_STATE_READY
    assert summary.num_samples == len(window.samples)
    assert summary.rows == plan.rows.rows
    assert summary.joint == plan.routepack.joint
    assert summary.gap == plan.bounds.gap_for_placement
    assert summary.placement_version == plan.placement_version
    assert (
        summary.create_time.ToNanoseconds()
        <= summary.update_time.ToNanoseconds()
    )
    assert summary.commit == planner_service_pb2.COMMIT_STATE_UNSPECIFIED


def test_rank_plans_together_are_the_plan(stub, new_key):
    window = windows.random_window(new_key(), seed=2)
    plan = plan_of(stub, window)
    hosts = 4  # experts a rank
    arrived = []
    for rank in range(4):
        part = stub.GetRankPlan(
            planner_service_pb2.GetRankPlanRequest(
                key=window.header.key, dp_slot=2 * rank, ep_rank=rank
            ),
            timeout=rpc.TIMEOUT,
        ).rank_plan
        assert part.key == window.header.key
        assert part.placement_version == plan.placement_version
        assert part.placement_digest == plan.placement_digest
        assert part.window_tokens == plan.layout.window_tokens
        assert list(part.layers) == list(plan.placement.layers)
        for row, mine in zip(plan.layout.rows, part.rows, strict=True):
            assert mine.sample_ids == row.cells[2 * rank].sample_ids
            assert mine.tokens == row.cells[2 * rank].tokens
            assert mine.row_tokens == row.tokens
            assert not mine.filler
        for move in part.incoming:
            # The window said nothing: experts came from the identity map.
            assert move.from_slot == move.expert
            assert move.to_slot // hosts == rank
            arrived.append((move.layer, move.expert, move.to_slot))
        assert all(move.from_slot // hosts == rank for move in part.outgoing)
    expected = [
        (layer.layer, expert, slot)
        for layer in plan.placement.layers
        for expert, slot in enumerate(layer.slot_of_expert)
        if slot != expert
    ]
    assert sorted(arrived) == sorted(expected)
    assert len(expected) == plan.placement_change.experts_to_other_slot


def test_rank_plans_of_a_pipeline_stage(stub, new_key):
    window = windows.random_window(new_key())
    plan = plan_of(stub, window)
    part = stub.GetRankPlan(
        planner_service_pb2.GetRankPlanRequest(
            key=window.header.key, layers=[2]
        ),
        timeout=rpc.TIMEOUT,
    ).rank_plan
    assert list(part.layers) == [plan.placement.layers[2]]
    assert {move.layer for move in part.incoming} <= {2}


def test_get_rank_plan_waits_for_the_plan(stub, new_key):
    window = windows.random_window(new_key())
    upload, _ = rpc.opened(stub, windows.header_record(window))
    waiting = stub.GetRankPlan.future(
        planner_service_pb2.GetRankPlanRequest(key=window.header.key),
        timeout=rpc.TIMEOUT,
    )
    assert not waiting.done()
    for record in windows.records(window)[1:]:
        upload.send(record)
    plan = upload.events()[-1].plan
    rank_plan = waiting.result(timeout=rpc.TIMEOUT).rank_plan
    assert rank_plan.placement_digest == plan.placement_digest


def test_watch_follows_a_window_from_upload_to_plan(stub, new_key):
    window = windows.random_window(new_key())
    upload, _ = rpc.opened(stub, windows.header_record(window))
    watch = stub.WatchPlan(
        planner_service_pb2.WatchPlanRequest(key=window.header.key),
        timeout=rpc.TIMEOUT,
    )
    first = next(watch).event
    assert first.accepted.state == planner_service_pb2.PLAN_STATE_UPLOADING
    for record in windows.records(window)[1:]:
        upload.send(record)
    plan = upload.events()[-1].plan
    kinds = []
    for response in watch:
        kinds.append(response.event.WhichOneof("event"))
        last = response.event
    assert kinds[0] == "sealed" and "placement_ready" in kinds
    assert last.plan == plan


def test_watch_of_a_finished_window_replays_it(stub, new_key):
    window = windows.random_window(new_key())
    plan = plan_of(stub, window)
    events = [
        response.event
        for response in stub.WatchPlan(
            planner_service_pb2.WatchPlanRequest(key=window.header.key),
            timeout=rpc.TIMEOUT,
        )
    ]
    assert events[0].accepted.state == planner_service_pb2.PLAN_STATE_READY
    assert events[-1].plan == plan


def test_list_plans_pages_newest_first(stub, new_key):
    keys = [new_key() for _ in range(5)]
    for key in keys:
        plan_of(stub, windows.tiny(key))
    job = keys[0].job_id
    steps, token, pages = [], "", 0
    while True:
        page = stub.ListPlans(
            planner_service_pb2.ListPlansRequest(
                job_id=job, page_size=2, page_token=token
            ),
            timeout=rpc.TIMEOUT,
        )
        pages += 1
        assert len(page.plans) <= 2
        steps += [summary.key.step for summary in page.plans]
        token = page.next_page_token
        if not token:
            break
    assert steps == [key.step for key in reversed(keys)]
    assert pages == 3
    by_run = stub.ListPlans(
        planner_service_pb2.ListPlansRequest(job_id=job, run_id="other"),
        timeout=rpc.TIMEOUT,
    )
    assert not by_run.plans


def test_cancel_ends_an_upload(stub, new_key):
    window = windows.random_window(new_key())
    key = window.header.key
    upload, _ = rpc.opened(stub, windows.header_record(window))
    response = stub.CancelPlan(
        planner_service_pb2.CancelPlanRequest(key=key), timeout=rpc.TIMEOUT
    )
    assert response.state == planner_service_pb2.PLAN_STATE_CANCELLED
    error = rpc.failure(upload.events)
    assert error.code().name == "CANCELLED"
    found = stub.GetPlan(planner_service_pb2.GetPlanRequest(key=key), timeout=5)
    assert found.summary.state == planner_service_pb2.PLAN_STATE_CANCELLED
    assert not found.HasField("plan")
    # The key is free for another attempt.
    check_layout(window, plan_of(stub, window))


def test_cancel_comes_too_late_for_a_plan(stub, new_key):
    window = windows.tiny(new_key())
    plan_of(stub, window)
    response = stub.CancelPlan(
        planner_service_pb2.CancelPlanRequest(key=window.header.key), timeout=5
    )
    assert response.state == planner_service_pb2.PLAN_STATE_READY


def test_fillers_are_added_flagged_and_counted(stub, new_key):
    window = windows.tiny(new_key())
    del window.samples[3:]  # 3 samples, 4 slots
    window.header.options.allow_filler = True
    plan = plan_of(stub, window)
    assert len(plan.layout.filler_sample_ids) == 1
    added = plan.layout.filler_sample_ids[0]
    assert added not in [sample.id for sample in window.samples]
    assert plan.layout.window_tokens == sum(s.tokens for s in window.samples)
    flagged = []
    for slot in range(4):
        part = stub.GetRankPlan(
            planner_service_pb2.GetRankPlanRequest(
                key=window.header.key, dp_slot=slot
            ),
            timeout=5,
        ).rank_plan
        for row in part.rows:
            flags = row.filler or [False] * len(row.sample_ids)
            pairs = zip(row.sample_ids, flags, strict=True)
            flagged += [sample for sample, filler in pairs if filler]
    assert flagged == [added]


def test_missing_counts_can_take_the_window_mean(stub, new_key):
    window = windows.tiny(new_key())
    window.samples[4].ClearField("counts")
    window.header.counts.missing = window_pb2.MISSING_COUNTS_WINDOW_MEAN
    plan = plan_of(stub, window)
    assert list(plan.imputed_sample_ids) == [window.samples[4].id]


@pytest.mark.parametrize("width", [8, 16, 32])
def test_raw_expert_ids_are_counted_by_the_server(stub, new_key, width):
    window = windows.tiny(new_key())
    window.header.num_layers = 1
    digests = set()
    for rows_missing in (0, 1):
        for sample in window.samples:
            ids = []
            for token in range(sample.tokens - rows_missing):
                ids += [token % 8, (token + 3) % 8]
            routed = sample.counts.routed_experts
            data = windows.little_endian(ids, width // 8)
            setattr(routed, "i32" if width == 32 else f"u{width}", data)
        window.header.key.CopyFrom(new_key())
        plan = plan_of(stub, window)
        check_layout(window, plan)
        digests.add(plan.window_digest)
    assert len(digests) == 2


def test_many_callers_of_one_window_share_its_plan(stub, new_key):
    window = windows.random_window(new_key(), samples=100)
    plans = [None] * 8

    def call(index):
        plans[index] = plan_of(stub, window)

    threads = [threading.Thread(target=call, args=(j,)) for j in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(rpc.TIMEOUT)
    assert plans[0] is not None
    assert all(plan == plans[0] for plan in plans)


def lower_score(plan):
    plan.routepack.score.slowest_shard -= 1


def fewer_bytes(plan):
    plan.movement.inter_node_bytes -= 1


def later_send(plan):
    moved = plan.transfer[0].rounds[0].sends.pop()
    plan.transfer[0].rounds[-1].sends.append(moved)


@pytest.mark.parametrize(
    "tamper",
    [None, lower_score, fewer_bytes, later_send],
    ids=["as_sent", "score", "movement", "transfer"],
)
def test_routepackctl_scores_plans_on_its_own(stub, new_key, tmp_path, tamper):
    binary = os.environ.get("ROUTEPACKCTL")
    if not binary:
        pytest.skip("ROUTEPACKCTL does not name the command line client")
    window = windows.random_window(new_key())
    window.header.options.movement.parameters_per_expert = 3000
    window.header.options.movement.ranks_per_node = 2
    window.header.options.incremental.break_even = False
    plan = plan_of(stub, window)
    assert plan.movement.inter_node_bytes
    if tamper is not None:
        tamper(plan)
    for name, message in (("window.json", window), ("plan.json", plan)):
        (tmp_path / name).write_text(json_format.MessageToJson(message))
    result = subprocess.run(
        [binary, "score", tmp_path / "window.json", tmp_path / "plan.json"],
        capture_output=True,
        text=True,
        timeout=rpc.TIMEOUT,
        check=False,
    )
    assert (result.returncode != 0) == (tamper is not None), (
        result.stdout + result.stderr
    )
