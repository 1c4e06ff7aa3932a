"""A routepackd process on loopback."""

import pathlib
import signal
import subprocess
import time

import grpc
from routepack.v1 import planner_service_pb2_grpc

START_SECONDS = 30
STOP_SECONDS = 60


class Server:
    """Runs until stop(). `stub` has gRPC's default limits, as foreign clients
    do."""

    def __init__(self, binary, folder: pathlib.Path, **flags):
        port_file = folder / "port"
        self.log = folder / "log"
        flags = {
            "listen": "127.0.0.1:0",
            "port_file": port_file,
            "threads": 2,
            "drain_timeout": "1s",
            **flags,
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    binary,
                    *(f"--{name}={value}" for name, value in flags.items()),
                ],
                stdout=log,
                stderr=log,
            )
        self.port = self._wait_for_port(port_file)
        self.target = f"127.0.0.1:{self.port}"
        self.channel = grpc.insecure_channel(self.target)
        self.stub = planner_service_pb2_grpc.PlannerServiceStub(self.channel)

    def _wait_for_port(self, port_file):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if port_file.exists():
                return int(port_file.read_text())
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        raise RuntimeError(f"routepackd did not start:\n{self.log.read_text()}")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(timeout=STOP_SECONDS)

    def stop(self):
        """Ends the process; its exit code. May be called again."""
        self.channel.close()
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
