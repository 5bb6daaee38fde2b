"""How often the bootstrap interval of a mean paired difference holds the true mean, by simulation.

2,000 made-up studies each. With 24 seeds it holds 94 to 95 % of the time for differences that are normal, skewed, or
in heaps (one model solved where the other did not). With 8 seeds: 94 % of normal ones, 93 % of skewed ones, 98 % of
heaped ones. The plain BCa interval, which is not expanded, holds 92 to 94 % at n = 24 and 88 to 91 % at n = 8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from statelab.analysis.inference import bootstrap_interval

STUDIES = 2000
Draw = Callable[[np.random.Generator, int], np.ndarray]


def heaps(rng: np.random.Generator, n: int) -> np.ndarray:
    """Accuracy differences of two bimodal models: near 0, or near ±0.9 where one alone solved."""
    sides = [np.where(rng.random(n) < share, 0.97, 0.05) for share in (0.75, 0.4)]
    found: np.ndarray = sides[0] - sides[1] + rng.normal(0, 0.02, n)
    return found


DRAWS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(0.2, 0.3, n), 0.2),
    "heaps": (heaps, 0.35 * 0.92),
    "skewed": (lambda rng, n: rng.gamma(2.0, 0.1, n), 0.2),
}


def coverage(draw: Draw, mean: float, n: int, *, expand: bool = True) -> float:
    rng = np.random.default_rng(n)
    held = 0
    for _ in range(STUDIES):
        low, high = bootstrap_interval(draw(rng, n), resamples=1999, expand=expand)
        held += low <= mean <= high
    return held / STUDIES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "least", "most"),
    [
        ("normal", 24, 0.93, 0.97),
        ("heaps", 24, 0.93, 0.97),
        ("skewed", 24, 0.93, 0.97),
        ("normal", 8, 0.91, 0.97),
        ("heaps", 8, 0.93, 0.99),
        ("skewed", 8, 0.88, 0.96),
    ],
)
def test_coverage(name: str, n: int, least: float, most: float) -> None:
    assert least <= coverage(*DRAWS[name], n) <= most


@pytest.mark.slow
def test_without_expansion_eight_seeds_are_covered_too_seldom() -> None:
    assert coverage(*DRAWS["normal"], 8, expand=False) < 0.91
