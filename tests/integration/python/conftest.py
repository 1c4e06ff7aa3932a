"""Python clients against the real server.

ROUTEPACKD names the binary. Stubs are generated from proto/ for each run, so
the tests see the contract that is in the tree.
"""

import itertools
import os
import pathlib
import re
import sys
import tempfile

import pytest
from grpc_tools import protoc

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]


def pytest_configure(config):
    """Generates the stubs, before test modules import them."""
    config.stubs = tempfile.TemporaryDirectory(prefix="routepack-stubs-")
    protos = sorted((ROOT / "proto" / "routepack" / "v1").glob("*.proto"))
    include = pathlib.Path(protoc.__file__).parent / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{ROOT / 'proto'}",
            f"-I{include}",
            f"--python_out={config.stubs.name}",
            f"--grpc_python_out={config.stubs.name}",
            *map(str, protos),
        ]
    )
    if code != 0:
        raise pytest.UsageError("protoc failed on proto/routepack/v1")
    sys.path[:0] = [config.stubs.name, str(HERE)]


def pytest_unconfigure(config):
    config.stubs.cleanup()


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """Starts servers with the flags of a test; all end with the session."""
    from server import Server

    binary = os.environ.get("ROUTEPACKD")
    if not binary:
        pytest.fail("ROUTEPACKD does not name the server's binary")
    servers = []

    def start(**flags):
        server = Server(binary, tmp_path_factory.mktemp("server"), **flags)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(start_server):
    """A server with default limits that tests share; keys keep them apart."""
    return start_server()


@pytest.fixture(scope="session")
def stub(server):
    return server.stub


@pytest.fixture
def new_key(request):
    """Makes keys that no other test uses."""
    from routepack.v1 import window_pb2

    job = re.sub(r"[^\w.-]", "-", request.node.name)[:100]
    steps = itertools.count(1)
    return lambda: window_pb2.PlanKey(
        job_id=f"{job}-{os.getpid()}", run_id="r1", step=next(steps)
    )
