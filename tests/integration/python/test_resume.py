"""Uploads that break off and go on."""

import grpc
import rpc
import windows
from routepack.v1 import planner_service_pb2, planner_service_pb2_grpc


def test_a_broken_upload_goes_on_at_next_chunk(stub, new_key):
    window = windows.random_window(new_key(), samples=40)
    header = windows.header_record(window)
    chunks = windows.chunk_records(window, per_chunk=5)
    upload, accepted = rpc.opened(stub, header)
    assert accepted.next_chunk == 0
    for record in chunks[:3]:
        upload.send(record)
    upload.end()  # the stream ends before the seal
    assert rpc.failure(upload.events).code().name == "ABORTED"

    upload, accepted = rpc.opened(stub, header)
    assert accepted.next_chunk == 3
    assert accepted.state == planner_service_pb2.PLAN_STATE_UPLOADING
    for record in [*chunks[3:], windows.seal_record(len(chunks))]:
        upload.send(record)
    resumed = upload.events()[-1].plan

    window.header.key.CopyFrom(new_key())
    whole = stub.CreatePlan(windows.create(window), timeout=rpc.TIMEOUT).plan
    assert windows.without_key(resumed) == windows.without_key(whole)


def test_a_connection_that_dies_leaves_its_chunks(stub, new_key, server):
    window = windows.random_window(new_key(), samples=30)
    header = windows.header_record(window)
    chunks = windows.chunk_records(window, per_chunk=10)
    with grpc.insecure_channel(
        server.target, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        doomed = planner_service_pb2_grpc.PlannerServiceStub(channel)
        upload, _ = rpc.opened(doomed, header)
        upload.send(chunks[0])
        # Seen by the server: it has answered what came after.
        wait_for_chunks(stub, window.header.key, 1)
        upload.cancel()

    upload, accepted = rpc.opened(stub, header)
    assert accepted.next_chunk == 1
    for record in [*chunks[1:], windows.seal_record(len(chunks))]:
        upload.send(record)
    assert upload.events()[-1].plan.key == window.header.key


def wait_for_chunks(stub, key, count):
    """Until the server has `count` chunks; a watch says how many."""
    for _ in range(1000):
        watch = stub.WatchPlan(
            planner_service_pb2.WatchPlanRequest(key=key), timeout=rpc.TIMEOUT
        )
        have = next(watch).event.accepted.next_chunk
        watch.cancel()
        if have >= count:
            return
    raise AssertionError(f"chunk {count} did not arrive")


def test_a_second_stream_takes_the_upload_over(stub, new_key):
    window = windows.random_window(new_key(), samples=20)
    header = windows.header_record(window)
    chunks = windows.chunk_records(window, per_chunk=10)
    first, _ = rpc.opened(stub, header)
    first.send(chunks[0])
    wait_for_chunks(stub, window.header.key, 1)
    second, accepted = rpc.opened(stub, header)
    assert accepted.next_chunk == 1
    error = rpc.failure(first.events)
    assert error.code().name == "ABORTED"
    assert "another stream" in error.details()
    second.send(chunks[1])
    second.send(windows.seal_record(2))
    assert second.events()[-1].WhichOneof("event") == "plan"


def test_a_header_of_a_planned_window_gets_its_plan(stub, new_key):
    window = windows.random_window(new_key())
    events = windows.requests(windows.records(window))
    plan = list(stub.StreamPlan(iter(events), timeout=rpc.TIMEOUT))[
        -1
    ].event.plan
    upload, accepted = rpc.opened(stub, windows.header_record(window))
    assert accepted.state == planner_service_pb2.PLAN_STATE_READY
    assert upload.events()[-1].plan == plan


def test_an_idle_upload_is_dropped(start_server, new_key):
    server = start_server(upload_idle_timeout="200ms")
    window = windows.random_window(new_key())
    upload, _ = rpc.opened(server.stub, windows.header_record(window))
    error = rpc.failure(upload.event)
    upload.end()
    assert error.code().name == "ABORTED"
    assert "silent for 200ms" in error.details()
    info = server.stub.GetServerInfo(
        planner_service_pb2.GetServerInfoRequest(), timeout=5
    )
    assert info.load.open_windows == 0
    assert info.load.window_memory_bytes == 0
