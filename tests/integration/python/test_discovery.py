"""What tools find out about a server without stubs: info, health, reflection,
and buf curl, which needs nothing but a URL."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import rpc
import windows
from google.protobuf import descriptor_pb2, json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from routepack.v1 import plan_pb2
from routepack.v1 import planner_service_pb2 as service

SERVICE = "routepack.v1.PlannerService"


def test_server_info_states_version_limits_and_load(stub):
    info = stub.GetServerInfo(service.GetServerInfoRequest(), timeout=5)
    assert info.version and info.algorithm_version
    assert info.backend == "cpu"
    assert info.threads == 2
    assert info.uptime.ToNanoseconds() > 0
    assert info.limits.max_unary_bytes == 16 << 20
    assert info.limits.max_chunk_bytes == 4 << 20
    assert info.limits.max_open_windows > 0
    assert info.limits.window_memory_bytes > 0
    assert info.limits.upload_idle_timeout.seconds > 0
    assert info.limits.plan_history > 0
    assert not info.load.draining


def test_health_is_serving_and_knows_the_service(server):
    health = health_pb2_grpc.HealthStub(server.channel)
    for name in ("", SERVICE):
        answer = health.Check(
            health_pb2.HealthCheckRequest(service=name), timeout=5
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    error = rpc.failure(
        lambda: health.Check(health_pb2.HealthCheckRequest(service="no.such"))
    )
    assert error.code().name == "NOT_FOUND"


def test_reflection_lists_and_describes_the_service(server):
    reflection = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    listed, described = reflection.ServerReflectionInfo(
        iter(requests), timeout=rpc.TIMEOUT
    )
    names = [s.name for s in listed.list_services_response.service]
    assert SERVICE in names and "grpc.health.v1.Health" in names
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(data)
        for data in described.file_descriptor_response.file_descriptor_proto
    ]
    methods = {
        method.name
        for file in files
        for entry in file.service
        if entry.name == "PlannerService"
        for method in entry.method
    }
    assert methods == {
        "CreatePlan",
        "StreamPlan",
        "GetPlan",
        "GetRankPlan",
        "ListPlans",
        "WatchPlan",
        "CancelPlan",
        "ReportApply",
        "GetServerInfo",
    }


def buf_curl(server, tmp_path, method, message):
    """Result of `buf curl` with a JSON message; schema by reflection."""
    beside_python = pathlib.Path(sys.executable).parent / "buf"
    buf = str(beside_python) if beside_python.exists() else shutil.which("buf")
    if buf is None:
        pytest.skip("buf is not installed")
    request = tmp_path / "request.json"
    request.write_text(message)
    return subprocess.run(
        [
            buf,
            "curl",
            "--protocol=grpc",
            "--http2-prior-knowledge",
            f"--data=@{request}",
            f"http://{server.target}/{SERVICE}/{method}",
        ],
        capture_output=True,
        text=True,
        timeout=rpc.TIMEOUT,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        check=False,
    )


def tiny_request(key, **changes):
    """tiny_window.json as a user would paste it, with another key."""
    window = json.loads((windows.DATA / "tiny_window.json").read_text())
    window["header"]["key"] = json_format.MessageToDict(
        key, preserving_proto_field_name=True
    )
    window["header"].update(changes)
    return json.dumps({"window": window})


def test_buf_curl_plans_the_hand_written_window(
    server, stub, new_key, tmp_path
):
    key = new_key()
    result = buf_curl(server, tmp_path, "CreatePlan", tiny_request(key))
    assert result.returncode == 0, result.stderr
    plan = json_format.Parse(result.stdout, service.CreatePlanResponse()).plan
    golden = json_format.Parse(
        (windows.DATA / "tiny_plan.golden.json").read_text(), plan_pb2.Plan()
    )
    assert windows.without_key(plan) == windows.without_key(golden)
    assert stub.GetPlan(service.GetPlanRequest(key=key), timeout=5).plan == plan


def test_buf_curl_shows_what_is_wrong(server, new_key, tmp_path):
    message = tiny_request(new_key(), token_cap=20)
    result = buf_curl(server, tmp_path, "CreatePlan", message)
    assert result.returncode != 0
    error = json.loads(result.stderr)
    assert error["code"] == "invalid_argument"
    assert "samples[0].tokens" in error["message"]
    details = [
        d for d in error["details"] if d["type"] == "google.rpc.BadRequest"
    ]
    assert len(details) == 1


def test_buf_curl_asks_for_server_info(server, tmp_path):
    result = buf_curl(server, tmp_path, "GetServerInfo", "{}")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["backend"] == "cpu"
