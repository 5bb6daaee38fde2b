"""Tests marked `gpu` are skipped, saying why, where there is no CUDA device; Triton kernels are interpreted there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before the first kernel is imported, and without importing torch to ask: command-line tests do without it.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; torch sees none"))
