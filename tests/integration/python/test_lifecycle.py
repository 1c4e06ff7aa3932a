"""Starting, draining and stopping."""

import subprocess

import grpc
import pytest
import rpc
import windows
from routepack.v1 import planner_service_pb2 as service


def test_a_drain_finishes_what_is_open_and_refuses_the_rest(
    start_server, new_key
):
    server = start_server(drain_timeout="30s")
    window = windows.random_window(new_key())
    upload, _ = rpc.opened(server.stub, windows.header_record(window))
    server.terminate()
    wait_until_draining(server.stub)
    refused = windows.tiny(new_key())
    error = rpc.failure(
        lambda: server.stub.CreatePlan(
            windows.create(refused), timeout=rpc.TIMEOUT
        )
    )
    assert error.code().name == "UNAVAILABLE"
    another = rpc.Upload(server.stub)
    another.send(windows.header_record(refused))
    assert rpc.failure(another.event).code().name == "UNAVAILABLE"
    another.end()
    for record in windows.records(window)[1:]:
        upload.send(record)
    assert upload.events()[-1].plan.key == window.header.key
    assert server.wait() == 0


def wait_until_draining(stub):
    for _ in range(1000):
        info = stub.GetServerInfo(service.GetServerInfoRequest(), timeout=5)
        if info.load.draining:
            return
    raise AssertionError("the server does not drain")


def test_a_drain_that_takes_too_long_ends_with_unavailable(
    start_server, new_key
):
    server = start_server(drain_timeout="100ms")
    window = windows.random_window(new_key())
    upload, _ = rpc.opened(server.stub, windows.header_record(window))
    server.terminate()
    error = rpc.failure(lambda: [upload.event() for _ in range(2)])
    upload.end()
    assert error.code().name == "UNAVAILABLE"
    assert server.wait() == 0


def test_an_idle_server_stops_at_once(start_server):
    server = start_server()
    server.terminate()
    assert server.wait() == 0


def test_two_servers_do_not_share_a_port(server):
    binary = server.process.args[0]
    second = subprocess.run(
        [binary, f"--listen={server.target}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 1
    assert server.target in second.stderr


@pytest.mark.parametrize(
    "flag",
    ["--max_chunk_bytes=0", "--listen=nonsense", "--no_such_flag=1", "extra"],
)
def test_wrong_command_lines_are_explained(server, flag):
    binary = server.process.args[0]
    result = subprocess.run(
        [binary, flag], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode not in (0, -6, -11)
    assert (
        flag.removeprefix("--").split("=")[0] in result.stderr + result.stdout
    )


def test_request_ids_come_back(server, stub):
    _, call = stub.GetServerInfo.with_call(
        service.GetServerInfoRequest(), metadata=[("x-request-id", "abc-123")]
    )
    assert ("x-request-id", "abc-123") in list(call.initial_metadata())
    _, call = stub.GetServerInfo.with_call(service.GetServerInfoRequest())
    ids = [
        value
        for name, value in call.initial_metadata()
        if name == "x-request-id"
    ]
    assert len(ids) == 1 and ids[0]
    assert "abc-123" in server.log.read_text()


def test_calls_on_a_stopped_server_are_unavailable(start_server):
    server = start_server()
    server.terminate()
    assert server.wait() == 0
    error = rpc.failure(
        lambda: server.stub.GetServerInfo(
            service.GetServerInfoRequest(), timeout=5
        )
    )
    assert error.code() == grpc.StatusCode.UNAVAILABLE
