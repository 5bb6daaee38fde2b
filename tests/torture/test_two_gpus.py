"""Two cards do the work of two; skipped with a reason where there are fewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.two_gpus import measure, missing, table


@pytest.mark.gpu
@pytest.mark.slow
def test_two_workers_do_nearly_twice_the_work_and_no_thread_is_pinned(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    measure(tmp_path / "first", 1, 6, "cuda")
    one, two = (measure(tmp_path / str(workers), workers, 1000, "cuda") for workers in (1, 2))
    told = table([one, two])
    assert two.throughput >= 1.9 * one.throughput, told
    assert all(shares[0] < 0.9 for shares in two.busiest().values()), told
