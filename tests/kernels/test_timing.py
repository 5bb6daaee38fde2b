"""Clocks of the benchmark: what is timed is a graph's replay where it can be."""

from __future__ import annotations

import time

import pytest
import torch

from statelab.kernels.timing import ceilings, measure, peak


def test_a_call_takes_as_long_as_it_takes() -> None:
    timed = measure(lambda: time.sleep(0.004), torch.device("cpu"))
    assert 4 <= timed.milliseconds < 40
    assert timed.clock == "clock"


@pytest.mark.gpu
def test_graphs_are_timed_where_there_can_be_one() -> None:
    device = torch.device("cuda")
    x = torch.randn(4096, 4096, device=device)
    graph = measure(lambda: x @ x, device)
    eager = measure(lambda: x @ x, device, capture=False)
    assert (graph.clock, eager.clock) == ("graph", "events")
    assert 0.5 < graph.milliseconds / eager.milliseconds < 1.5


@pytest.mark.gpu
def test_a_call_that_waits_is_timed_by_events() -> None:
    x = torch.randn(64, device="cuda")
    assert measure(lambda: (x * 2).sum().item(), x.device).clock == "events"
    assert torch.isfinite(x.sum())
    # A recording that broke off keeps no hold of the generator.
    assert torch.isfinite(torch.randn(64, device="cuda").sum())


@pytest.mark.gpu
def test_memory_and_ceilings() -> None:
    device = torch.device("cuda")
    assert peak(lambda: torch.empty(2**28, device=device), device) == pytest.approx(1.0, abs=0.01)
    found = ceilings(device)
    assert found.bf16 > found.tf32 > 1
    assert 0.1 < found.copy < 20
