"""Every row of the service's error table, as a foreign client sees it."""

import math

import pytest
import rpc
import windows
from routepack.v1 import plan_pb2, window_pb2
from routepack.v1 import planner_service_pb2 as service


def create(stub, window, timeout=rpc.TIMEOUT):
    return stub.CreatePlan(windows.create(window), timeout=timeout)


def check_nothing_stored(stub, key):
    error = rpc.failure(lambda: stub.GetPlan(service.GetPlanRequest(key=key)))
    assert error.code().name == "NOT_FOUND"


# --- INVALID_ARGUMENT: one spoilt field, and the path that must be named ---


def _dense(sample):
    return sample.counts.dense.values


def sample_longer_than_the_cap(w):
    w.samples[3].tokens = 41
    w.header.counts.partial_counts = True


def experts_not_divisible(w):
    w.header.num_experts = 10
    del w.samples[:]
    w.samples.add(id=1, tokens=1).counts.u8 = bytes(20)


def count_above_tokens(w):
    # 11 tokens, 22 choices.
    _dense(w.samples[3])[0:8] = [12, 10, 0, 0, 0, 0, 0, 0]


def layer_sum_wrong(w):
    _dense(w.samples[3])[0] -= 1


def sparse_expert_out_of_range(w):
    w.samples[1].counts.sparse.layers[0].experts[0] = 8


def sparse_expert_twice(w):
    experts = w.samples[1].counts.sparse.layers[1].experts
    experts[1] = experts[0]


def raw_id_out_of_range(w):
    ids = bytearray(w.samples[13].counts.routed_experts.u8)
    ids[0] = 200
    w.samples[13].counts.routed_experts.u8 = bytes(ids)


def raw_ids_of_too_few_tokens(w):
    routed = w.samples[13].counts.routed_experts
    routed.u8 = routed.u8[:-4]


def counts_of_another_shape(w):
    w.samples[5].counts.u8 += b"\0"


def counts_missing(w):
    w.samples[9].ClearField("counts")


def counts_without_encoding(w):
    w.samples[9].counts.Clear()
    w.samples[9].counts.SetInParent()


def slot_in_two_shards(w):
    shards = w.header.topology.shards
    shards.dp_slots, shards.ep_ranks = 4, 4
    shards.shards.add(slots=[0, 1, 2])
    shards.shards.add(slots=[2, 3])


def slot_in_no_shard(w):
    shards = w.header.topology.shards
    shards.dp_slots, shards.ep_ranks = 4, 4
    shards.shards.add(slots=[0, 1])
    shards.shards.add(slots=[3])


def stages_of_other_layers(w):
    w.header.topology.mesh.pp = 2
    w.header.topology.moe_layers_per_stage[:] = [w.header.num_layers, 1]


def no_topology(w):
    w.header.ClearField("topology")


def mesh_that_does_not_divide(w):
    w.header.topology.mesh.dp = 6


def coefficient(name, value):
    def spoil(w):
        setattr(w.header.attention.stages[0], name, value)

    spoil.__name__ = f"{name}_{value}"
    return spoil


def duplicate_id(w):
    w.samples[7].id = w.samples[2].id


def no_tokens(w):
    w.samples[0].tokens = 0


def cap_too_large(w):
    w.header.token_cap = (1 << 26) + 1


def load_beyond_32_bits(w):
    # 4 slots * 2^26 tokens * 16 experts
    w.header.token_cap = 1 << 26
    w.header.num_experts = 16
    w.header.top_k = 16
    del w.samples[:]
    w.samples.add(id=1, tokens=1).counts.u8 = bytes([1] * 32)


def score_beyond_64_bits(w):
    w.header.attention.stages[0].beta = 1e18


def unknown_policy(w):
    w.header.options.placement = 99


def negative_time_limit(w):
    w.header.options.time_limit.seconds = -1


def rows_out_of_range(w):
    w.header.options.min_rows = 2**32 - 1


def search_option(name, value):
    def spoil(w):
        setattr(w.header.options.search, name, value)

    spoil.__name__ = f"search_{name}_{value}"
    return spoil


def search_options_out_of_range(w):
    search = w.header.options.search
    search.steps, search.levels = (1 << 40) + 1, 1
    search.relocation_probability = math.inf


def model_and_stages(w):
    model = w.header.attention.model
    model.hidden_size, model.moe_intermediate_size = 64, 32
    model.attention.add(
        name="a",
        kind=window_pb2.ATTENTION_KIND_FULL,
        layers=1,
        num_heads=1,
        qk_head_dim=64,
    )


def wrong_number_of_samples(w):
    w.header.num_samples = 15


def empty_job(w):
    w.header.key.job_id = ""


def long_run(w):
    w.header.key.run_id = "x" * 129


def control_character(w):
    w.header.key.job_id = "a\nb"


def map_that_is_none(w):
    layers = w.header.current_placement.map.layers
    for layer in range(2):
        layers.add(layer=layer, slot_of_expert=[0, 1, 2, 3, 4, 5, 6, 6])


INVALID = [
    (sample_longer_than_the_cap, ["samples[3].tokens"]),
    (experts_not_divisible, ["header.num_experts"]),
    (count_above_tokens, ["samples[3].counts"]),
    (layer_sum_wrong, ["samples[3].counts"]),
    (
        sparse_expert_out_of_range,
        ["samples[1].counts.sparse.layers[0].experts[0]"],
    ),
    (sparse_expert_twice, ["samples[1].counts.sparse.layers[1].experts[1]"]),
    (raw_id_out_of_range, ["samples[13].counts.routed_experts.u8"]),
    (raw_ids_of_too_few_tokens, ["samples[13].counts.routed_experts.u8"]),
    (counts_of_another_shape, ["samples[5].counts.u8"]),
    (counts_missing, ["samples[9].counts"]),
    (counts_without_encoding, ["samples[9].counts"]),
    (slot_in_two_shards, ["header.topology.shards.shards[1].slots[0]"]),
    (slot_in_no_shard, ["header.topology.shards.shards"]),
    (no_topology, ["header.topology"]),
    (
        stages_of_other_layers,
        ["header.topology.moe_layers_per_stage"],
    ),
    (mesh_that_does_not_divide, ["header.topology.mesh.ep"]),
    (coefficient("alpha", math.nan), ["header.attention.stages[0].alpha"]),
    (coefficient("beta", math.inf), ["header.attention.stages[0].beta"]),
    (coefficient("alpha", -0.5), ["header.attention.stages[0].alpha"]),
    (duplicate_id, ["samples[7].id"]),
    (no_tokens, ["samples[0].tokens"]),
    (cap_too_large, ["header.token_cap"]),
    (load_beyond_32_bits, ["header.token_cap"]),
    (score_beyond_64_bits, ["header.attention.stages"]),
    (unknown_policy, ["header.options.placement"]),
    (negative_time_limit, ["header.options.time_limit"]),
    (rows_out_of_range, ["header.options.min_rows"]),
    *(
        (search_option(name, value), [f"header.options.search.{name}"])
        for name, value in (
            ("effort", 99),
            ("population", 1025),
            ("candidates", 65537),
            ("choice_width", 65537),
            ("projections", 1025),
            ("diversity_penalty", -1.0),
            ("guided_probability", math.nan),
            ("relocation_probability", 1.5),
        )
    ),
    (
        search_options_out_of_range,
        [
            f"header.options.search.{name}"
            for name in ("steps", "levels", "relocation_probability")
        ],
    ),
    (model_and_stages, ["header.attention"]),
    (wrong_number_of_samples, ["header.num_samples"]),
    (empty_job, ["header.key.job_id"]),
    (long_run, ["header.key.run_id"]),
    (control_character, ["header.key.job_id"]),
    (
        map_that_is_none,
        [
            "header.current_placement.map.layers[0].slot_of_expert[7]",
            "header.current_placement.map.layers[1].slot_of_expert[7]",
        ],
    ),
]
BAD_KEYS = {empty_job, long_run, control_character}


@pytest.mark.parametrize(
    "spoil, expected", INVALID, ids=[spoil.__name__ for spoil, _ in INVALID]
)
def test_create_names_every_offending_field(stub, new_key, spoil, expected):
    window = windows.tiny(new_key())
    spoil(window)
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "INVALID_ARGUMENT", error
    assert rpc.fields(error) == expected
    assert all(description for _, description in rpc.violations(error))
    # The message says it too, for clients that know no details.
    assert expected[0] in error.details()
    if spoil not in BAD_KEYS and spoil is not rows_out_of_range:
        check_nothing_stored(stub, window.header.key)


# A stream states the number of samples once.
STREAMED = [case for case in INVALID if case[0] is not wrong_number_of_samples]


@pytest.mark.parametrize(
    "spoil, expected", STREAMED, ids=[spoil.__name__ for spoil, _ in STREAMED]
)
def test_streams_name_the_same_fields(stub, new_key, spoil, expected):
    window = windows.tiny(new_key())
    spoil(window)
    requests = windows.requests(windows.records(window, per_chunk=4))
    error = rpc.failure(
        lambda: list(stub.StreamPlan(iter(requests), timeout=rpc.TIMEOUT))
    )
    assert error.code().name == "INVALID_ARGUMENT", error
    assert rpc.fields(error) == expected


def test_violations_of_header_and_samples_come_together(stub, new_key):
    window = windows.tiny(new_key())
    window.header.topology.mesh.dp = 6
    window.header.top_k = 0
    window.header.key.job_id = ""
    error = rpc.failure(lambda: create(stub, window))
    assert rpc.fields(error) == ["header.key.job_id"]
    window.header.key.CopyFrom(new_key())
    window.header.options.row_order = 9
    error = rpc.failure(lambda: create(stub, window))
    assert sorted(rpc.fields(error)) == [
        "header.options.row_order",
        "header.top_k",
        "header.topology.mesh.ep",
    ]
    window = windows.random_window(new_key(), samples=16)
    for sample in window.samples:
        sample.tokens = 401
    window.header.counts.partial_counts = True
    error = rpc.failure(lambda: create(stub, window))
    assert rpc.fields(error) == [f"samples[{i}].tokens" for i in range(16)]


def test_very_many_violations_fit_a_clients_metadata_limit(stub, new_key):
    window = windows.tiny(new_key())
    window.header.counts.partial_counts = True
    del window.samples[:]
    for i in range(512):
        window.samples.add(id=i, tokens=41).counts.u8 = bytes(16)
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "INVALID_ARGUMENT"
    shown = rpc.fields(error)
    assert 20 < len(shown) <= 100
    assert shown == [f"samples[{i}].tokens" for i in range(len(shown))]
    assert "511 more" in error.details()


def test_chunks_out_of_order(stub, new_key):
    window = windows.tiny(new_key())
    chunks = windows.chunk_records(window, per_chunk=4)
    upload, _ = rpc.opened(stub, windows.header_record(window))
    upload.send(chunks[0])
    upload.send(chunks[2])
    error = rpc.failure(upload.events)
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.violations(error) == [("chunk.index", "must be 1, is 2")]
    check_nothing_stored(stub, window.header.key)


@pytest.mark.parametrize(
    "chunks, seal, field",
    [
        pytest.param(3, 3, "seal", id="before_all_samples"),
        pytest.param(4, 5, "seal.num_chunks", id="wrong_number_of_chunks"),
        pytest.param(0, 0, "seal", id="at_once"),
    ],
)
def test_seals_that_do_not_fit(stub, new_key, chunks, seal, field):
    window = windows.tiny(new_key())
    upload, _ = rpc.opened(stub, windows.header_record(window))
    for record in windows.chunk_records(window, per_chunk=4)[:chunks]:
        upload.send(record)
    upload.send(windows.seal_record(seal))
    error = rpc.failure(upload.events)
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == [field]
    check_nothing_stored(stub, window.header.key)


def test_streams_that_are_no_window(stub, new_key):
    window = windows.tiny(new_key())
    header = windows.header_record(window)
    chunk = windows.chunk_records(window)[0]
    empty = window_pb2.WindowRecord(chunk=window_pb2.SampleChunk(index=0))
    cases = [
        ([], "header"),
        ([chunk], "header"),
        ([window_pb2.WindowRecord()], "header"),
        ([header, header], "header"),
        ([header, empty], "chunk.samples"),
        ([header, window_pb2.WindowRecord()], "record"),
        ([header, chunk, chunk], "chunk.index"),
    ]
    for records, field in cases:
        requests = iter(windows.requests(records))
        error = rpc.failure(
            lambda r=requests: list(stub.StreamPlan(r, timeout=rpc.TIMEOUT))
        )
        assert error.code().name == "INVALID_ARGUMENT"
        assert rpc.fields(error) == [field], records


def test_more_samples_than_announced(stub, new_key):
    window = windows.tiny(new_key())
    header = windows.header_record(window)
    header.header.num_samples = 15
    upload, _ = rpc.opened(stub, header)
    for record in windows.chunk_records(window):
        upload.send(record)
    error = rpc.failure(upload.events)
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == ["chunk.samples"]


def test_streams_need_the_number_of_samples(stub, new_key):
    record = windows.header_record(windows.tiny(new_key()))
    record.header.num_samples = 0
    upload = rpc.Upload(stub)
    upload.send(record)
    error = rpc.failure(upload.events)
    assert rpc.fields(error) == ["header.num_samples"]


def test_chunks_above_the_limit(start_server, new_key):
    stub = start_server(max_chunk_bytes=1024).stub
    window = windows.random_window(new_key(), samples=40, layers=8)
    upload, accepted = rpc.opened(stub, windows.header_record(window))
    assert accepted.max_chunk_bytes == 1024
    upload.send(windows.chunk_records(window, per_chunk=40)[0])
    error = rpc.failure(upload.events)
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == ["chunk"]
    assert "1024" in error.details()


@pytest.mark.parametrize(
    "request_kwargs, expected",
    [
        ({"dp_slot": 4}, ["dp_slot"]),
        ({"ep_rank": 9}, ["ep_rank"]),
        ({"layers": [0, 2]}, ["layers[1]"]),
        ({"layers": [1, 1]}, ["layers[1]"]),
    ],
    ids=["slot", "rank", "layer", "layer_twice"],
)
def test_rank_plans_of_nobody(stub, new_key, request_kwargs, expected):
    window = windows.tiny(new_key())
    create(stub, window)
    request = service.GetRankPlanRequest(
        key=window.header.key, **request_kwargs
    )
    error = rpc.failure(lambda: stub.GetRankPlan(request, timeout=5))
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == expected


def test_page_tokens_of_another_list(stub, new_key):
    for _ in range(2):
        create(stub, windows.tiny(new_key()))
    job = new_key().job_id
    page = stub.ListPlans(service.ListPlansRequest(job_id=job, page_size=1))
    assert page.next_page_token
    for token in (page.next_page_token, "nonsense"):
        request = service.ListPlansRequest(job_id="other", page_token=token)
        error = rpc.failure(lambda r=request: stub.ListPlans(r))
        assert error.code().name == "INVALID_ARGUMENT"
        assert rpc.fields(error) == ["page_token"]


# --- FAILED_PRECONDITION ---


def test_too_few_samples_name_the_bound_and_the_repair(stub, new_key):
    window = windows.tiny(new_key())
    del window.samples[3:]  # 3 samples, 4 slots
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "FAILED_PRECONDITION"
    violation = rpc.precondition(error)
    assert violation.type == "CELLS_EXCEED_SAMPLES"
    assert "3" in violation.description and "4" in violation.description
    assert "1 filler" in violation.description
    # The error is kept with the window.
    request = service.GetPlanRequest(key=window.header.key)
    summary = stub.GetPlan(request, timeout=5).summary
    assert summary.state == service.PLAN_STATE_FAILED
    assert "filler" in summary.error
    # Whoever waits for the plan learns the same.
    rank = service.GetRankPlanRequest(key=window.header.key)
    error = rpc.failure(lambda: stub.GetRankPlan(rank, timeout=5))
    assert error.code().name == "FAILED_PRECONDITION"
    assert rpc.precondition(error).type == "CELLS_EXCEED_SAMPLES"
    # The repair works, under the same key.
    window.header.options.allow_filler = True
    assert create(stub, window).plan.layout.filler_sample_ids


# --- UNIMPLEMENTED ---


def test_meshes_without_edp_partition(stub, new_key):
    window = windows.tiny(new_key())
    window.header.topology.mesh.tp = 8
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "UNIMPLEMENTED"
    assert "header.topology.mesh" in error.details()
    assert "EDP" in error.details()


@pytest.mark.parametrize("field", ["keep_groups_together", "replica_slots"])
def test_reserved_features(stub, new_key, field):
    window = windows.tiny(new_key())
    setattr(window.header.options, field, 1)
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "UNIMPLEMENTED"
    assert f"header.options.{field}" in error.details()


# --- RESOURCE_EXHAUSTED ---


def test_a_full_queue_refuses_headers_with_a_delay(start_server, new_key):
    stub = start_server(max_open_windows=2).stub
    uploads = []
    for _ in range(2):
        window = windows.tiny(new_key())
        uploads.append(
            (window, rpc.opened(stub, windows.header_record(window))[0])
        )
    refused = windows.tiny(new_key())
    # Only the header is sent: the answer does not wait for an upload.
    upload = rpc.Upload(stub)
    upload.send(windows.header_record(refused))
    error = rpc.failure(upload.event)
    assert error.code().name == "RESOURCE_EXHAUSTED"
    assert rpc.retry_seconds(error) > 0
    error = rpc.failure(lambda: create(stub, refused))
    assert error.code().name == "RESOURCE_EXHAUSTED"
    # A window that ends makes room.
    window, upload = uploads[0]
    for record in windows.records(window)[1:]:
        upload.send(record)
    assert upload.events()[-1].plan.rows.rows == 2
    assert create(stub, refused).plan.rows.rows == 2


def test_full_memory_refuses_headers_with_a_delay(start_server, new_key):
    stub = start_server(window_memory_mb=1, threads=1).stub

    def header(samples):
        # [16, 64] counts of 2 bytes, demands of 4 * 8 bytes a layer, and what
        # the search holds: at least 4 and at most 6 KiB a sample.
        window = windows.random_window(
            new_key(), samples=1, layers=16, experts=64, ep=8
        )
        record = windows.header_record(window)
        record.header.num_samples = samples
        return record

    rpc.opened(stub, header(150))
    upload = rpc.Upload(stub)
    upload.send(header(150))
    error = rpc.failure(upload.event)
    assert error.code().name == "RESOURCE_EXHAUSTED"
    assert rpc.retry_seconds(error) > 0
    # What never fits is not told to come again.
    upload = rpc.Upload(stub)
    upload.send(header(1 << 20))
    error = rpc.failure(upload.event)
    assert error.code().name == "RESOURCE_EXHAUSTED"
    assert rpc.retry_seconds(error) is None


# --- messages above the configured size ---


def test_large_unary_windows_are_sent_to_stream_plan(start_server, new_key):
    stub = start_server(max_unary_bytes=2048).stub
    window = windows.random_window(new_key())
    info = stub.GetServerInfo(service.GetServerInfoRequest())
    assert info.limits.max_unary_bytes == 2048
    assert window.ByteSize() > 2048
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "INVALID_ARGUMENT"
    assert rpc.fields(error) == ["window"]
    assert "2048" in error.details() and "StreamPlan" in error.details()
    requests = windows.requests(windows.records(window))
    events = list(stub.StreamPlan(iter(requests), timeout=rpc.TIMEOUT))
    assert events[-1].event.plan.key == window.header.key


def test_the_handler_and_not_grpc_refuses(start_server, new_key):
    # 40 MB, ten times gRPC's own default limit.
    stub = start_server(max_unary_bytes=1 << 20).stub
    window = windows.tiny(new_key())
    window.samples[0].counts.u8 = bytes(40 << 20)
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "INVALID_ARGUMENT"
    assert "StreamPlan" in error.details()


# --- NOT_FOUND ---


def test_unknown_plans(stub, new_key):
    key = new_key()
    calls = [
        lambda: stub.GetPlan(service.GetPlanRequest(key=key), timeout=5),
        lambda: stub.GetRankPlan(
            service.GetRankPlanRequest(key=key), timeout=5
        ),
        lambda: list(
            stub.WatchPlan(service.WatchPlanRequest(key=key), timeout=5)
        ),
        lambda: stub.CancelPlan(service.CancelPlanRequest(key=key), timeout=5),
        lambda: stub.ReportApply(
            service.ReportApplyRequest(key=key, state=service.APPLY_STATE_NEW),
            timeout=5,
        ),
    ]
    for call in calls:
        error = rpc.failure(call)
        assert error.code().name == "NOT_FOUND", error
        assert key.job_id in error.details()


def test_unknown_placement_versions(stub, new_key):
    window = windows.tiny(new_key())
    window.header.current_placement.committed_version = "job/1.0@0123456789ab"
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "NOT_FOUND"
    assert "header.current_placement.committed_version" in error.details()
    assert "job/1.0@0123456789ab" in error.details()


# --- ALREADY_EXISTS ---


def test_another_window_under_the_same_key(stub, new_key):
    window = windows.tiny(new_key())
    plan = create(stub, window).plan
    other = windows.tiny(window.header.key)
    other.samples[0].id = 4711
    error = rpc.failure(lambda: create(stub, other))
    assert error.code().name == "ALREADY_EXISTS"
    other = windows.tiny(window.header.key)
    other.header.options.seed = 8
    error = rpc.failure(lambda: create(stub, other))
    assert error.code().name == "ALREADY_EXISTS"
    # A map of no window at all is another window as well.
    other = windows.tiny(window.header.key)
    other.header.current_placement.map.layers.add()
    error = rpc.failure(lambda: create(stub, other))
    assert error.code().name == "ALREADY_EXISTS"
    upload = rpc.Upload(stub)
    record = windows.header_record(window)
    record.header.token_cap = 50
    upload.send(record)
    error = rpc.failure(upload.event)
    assert error.code().name == "ALREADY_EXISTS"
    request = service.GetPlanRequest(key=window.header.key)
    assert stub.GetPlan(request, timeout=5).plan == plan


# --- DEADLINE_EXCEEDED ---


def test_waiting_ends_at_the_deadline(stub, new_key):
    window = windows.tiny(new_key())
    upload, _ = rpc.opened(stub, windows.header_record(window))
    request = service.GetRankPlanRequest(key=window.header.key)
    error = rpc.failure(lambda: stub.GetRankPlan(request, timeout=0.2))
    assert error.code().name == "DEADLINE_EXCEEDED"
    # The window is unharmed.
    for record in windows.records(window)[1:]:
        upload.send(record)
    assert upload.events()[-1].plan.rows.rows == 2


def test_a_time_limit_before_any_layout(stub, new_key):
    window = windows.tiny(new_key())
    window.header.options.time_limit.nanos = 1
    error = rpc.failure(lambda: create(stub, window))
    assert error.code().name == "DEADLINE_EXCEEDED"


def check_cut(plan):
    assert plan.truncated
    assert plan.rows.outcome == plan_pb2.ROW_OUTCOME_BEST_KNOWN
    assert plan.rows.rows > plan.rows.rows_lower_bound == 167
    assert len(plan.layout.rows) == plan.rows.rows
    assert any("row search" in warning for warning in plan.warnings)


def test_a_time_limit_returns_the_best_plan_so_far(stub, new_key):
    window = windows.hard_window(new_key())
    window.header.options.time_limit.nanos = 200_000_000
    check_cut(create(stub, window).plan)


def test_a_deadline_without_best_effort(stub, new_key):
    window = windows.hard_window(new_key())
    key = window.header.key
    error = rpc.failure(lambda: create(stub, window, timeout=0.5))
    assert error.code().name == "DEADLINE_EXCEEDED"
    # The window is planned on, until somebody cancels it.
    summary = stub.GetPlan(service.GetPlanRequest(key=key), timeout=5).summary
    assert summary.state == service.PLAN_STATE_PLANNING
    state = stub.CancelPlan(service.CancelPlanRequest(key=key), timeout=5).state
    assert state == service.PLAN_STATE_CANCELLED
    # The worker is free again.
    assert create(stub, windows.tiny(new_key())).plan.rows.rows == 2


@pytest.mark.parametrize("method", ["CreatePlan", "StreamPlan"])
def test_a_deadline_with_best_effort_gets_the_best_plan_so_far(
    stub, new_key, method
):
    window = windows.hard_window(new_key())
    window.header.options.best_effort_at_deadline = True
    if method == "CreatePlan":
        check_cut(create(stub, window, timeout=1.5).plan)
    else:
        requests = windows.requests(windows.records(window, per_chunk=1000))
        events = list(stub.StreamPlan(iter(requests), timeout=1.5))
        check_cut(events[-1].event.plan)
