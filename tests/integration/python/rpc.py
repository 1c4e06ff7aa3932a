"""Errors with google.rpc details, and streams that tests feed by hand."""

import queue

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from routepack.v1 import planner_service_pb2

TIMEOUT = 60


def failure(call):
    """The RpcError of a call that must fail."""
    with pytest.raises(grpc.RpcError) as info:
        call()
    return info.value


def _details(error, kind):
    for name, value in error.trailing_metadata():
        if name != "grpc-status-details-bin":
            continue
        status = status_pb2.Status.FromString(value)
        assert status.code == error.code().value[0]
        assert status.message == error.details()
        for detail in status.details:
            message = kind()
            if detail.Unpack(message):
                return message
    return None


def violations(error):
    """[(field, description)] of BadRequest."""
    request = _details(error, error_details_pb2.BadRequest)
    if request is None:
        return []
    return [(v.field, v.description) for v in request.field_violations]


def fields(error):
    return [field for field, _ in violations(error)]


def precondition(error):
    """The one violation of PreconditionFailure."""
    failure = _details(error, error_details_pb2.PreconditionFailure)
    assert failure is not None and len(failure.violations) == 1, error
    return failure.violations[0]


def retry_seconds(error):
    """The delay of RetryInfo, or None."""
    info = _details(error, error_details_pb2.RetryInfo)
    return (
        None if info is None else info.retry_delay.ToTimedelta().total_seconds()
    )


class Upload:
    """A StreamPlan call whose records are sent one by one."""

    def __init__(self, stub, timeout=TIMEOUT):
        self._records = queue.SimpleQueue()
        self.call = stub.StreamPlan(
            iter(self._records.get, None), timeout=timeout
        )

    def send(self, record):
        self._records.put(planner_service_pb2.StreamPlanRequest(record=record))

    def end(self):
        """No more records."""
        self._records.put(None)

    def event(self):
        return next(self.call).event

    def events(self):
        """What is left, to the end of the stream."""
        self.end()
        return [response.event for response in self.call]

    def cancel(self):
        self.call.cancel()
        self.end()


def opened(stub, record, timeout=TIMEOUT):
    """An upload whose header is accepted, and the acceptance."""
    upload = Upload(stub, timeout)
    upload.send(record)
    accepted = upload.event().accepted
    return upload, accepted
