"""Chi-square tests at fixed seeds: a fault shows as a p-value that no honest draw would give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats
from torch import Tensor

THRESHOLD = 1e-4


def assert_uniform(ids: Tensor, cells: int) -> None:
    """The ids, in [0, cells), are equally often each."""
    assert_law(ids, [1 / cells] * cells)


def assert_law(ids: Tensor, probabilities: Sequence[float]) -> None:
    """The ids are as often as these probabilities say; cells of probability 0 are empty."""
    law = np.asarray(probabilities, dtype=np.float64)
    assert abs(law.sum() - 1) < 1e-9
    counts = np.bincount(ids.flatten().numpy(), minlength=len(law))
    assert len(counts) == len(law)
    assert not counts[law == 0].any()
    if np.count_nonzero(law) == 1:
        return
    expected = law[law > 0] * counts.sum()
    assert expected.min() > 5, "too few samples for a chi-square test"
    p_value = float(stats.chisquare(counts[law > 0], expected).pvalue)
    assert p_value > THRESHOLD, (
        f"p = {p_value:.2g}: {counts.tolist()} where {expected.tolist()} were expected"
    )


def assert_mean(values: Tensor, mean: float) -> None:
    """The values' mean is this one, by a two-sided normal test."""
    numbers = values.double().flatten()
    z = float((numbers.mean() - mean) / (numbers.std() / len(numbers) ** 0.5))
    assert 2 * stats.norm.sf(abs(z)) > THRESHOLD, f"mean {float(numbers.mean()):.4f}, expected {mean:.4f}"
