"""Where the built programs are: ROUTEPACKD and ROUTEPACKCTL, set by ctest."""

import os

import pytest


@pytest.fixture
def programs():
    return [os.environ["ROUTEPACKD"], os.environ["ROUTEPACKCTL"]]
