"""Interpreted kernels are watched: none may touch memory that is not its arguments'."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kernels.bounds import within_arguments


@pytest.fixture(autouse=True)
def _bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and "_kernel" in request.node.path.name
    if not interpreted:
        yield
        return
    with within_arguments():
        yield
