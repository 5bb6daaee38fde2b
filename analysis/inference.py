"""Tests of a difference between two models over few seeds, and corrections where there are many.

Paired tests need the same seeds on both sides. With few of them the smallest p there can be is large: of the
sign-flip test 2/2^n (0.0078 with 8 seeds), of McNemar's 2/2^d with d seeds that only one of the two solves (so 6
of 8 must differ, all one way, for p < 0.05).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from statelab.analysis.statistics import CONFIDENCE, student

RESAMPLES = 9999
_SEED = 20_260_101


def bootstrap_interval(
    values: npt.ArrayLike, resamples: int = RESAMPLES, *, expand: bool = True
) -> tuple[float, float]:
    """Bounds of the mean of `values` [n], by the bias-corrected and accelerated bootstrap (Efron 1987).

    A plain BCa interval is too short over few values, as a z-interval without its t and n − 1 is. `expand`
    takes the quantiles at which the percentile bootstrap of a normal sample would give Student's interval
    (Hesterberg, Am. Stat. 69 (2015) 371, §5.2). Simulated coverage is in tests/analysis/test_coverage.py.
    (NaN, NaN) for fewer than 3 values or equal ones, whose resamples do not vary. The same values always
    give the same bounds.
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    n = x.size
    if n < 3 or x.min() == x.max():
        return np.nan, np.nan
    normal = NormalDist()
    tail = (1 - CONFIDENCE) / 2
    if expand:
        tail = normal.cdf(-math.sqrt(n / (n - 1)) * float(student(n - 1)))
    means = np.sort(x[_draws(n, resamples)].mean(axis=-1))
    share = float(((means < x.mean()).sum() + (means <= x.mean()).sum()) / (2 * resamples))
    if not 0 < share < 1:
        return np.nan, np.nan  # no spread but for rounding
    bias = normal.inv_cdf(share)
    # What is left where one value is left out differs from these only by a factor, which cancels.
    away = x - x.mean()
    skew = float((away**3).sum() / (6 * (away**2).sum() ** 1.5))
    reaches = (bias + normal.inv_cdf(tail), bias - normal.inv_cdf(tail))
    low, high = np.quantile(means, [normal.cdf(bias + reach / (1 - skew * reach)) for reach in reaches])
    return float(low), float(high)


@lru_cache(maxsize=4)
def _draws(n: int, resamples: int) -> npt.NDArray[np.int64]:
    """Places in a sample of n, drawn with replacement [resamples, n]: the same for every sample of that size."""
    return np.random.default_rng(_SEED).integers(0, n, (resamples, n))


def sign_flip_test(differences: npt.ArrayLike, resamples: int = RESAMPLES) -> float:
    """Two-sided p of a mean difference of 0 where each difference [n] is as likely to have the other sign.

    Exact while 2^n <= `resamples` (n <= 13), by random signs beyond. NaN where n = 0.
    """
    d = np.asarray(differences, dtype=np.float64).ravel()
    if d.size < 2:
        return 1.0 if d.size else np.nan
    signs = _signs(d.size, resamples)
    exact = len(signs) == 2**d.size
    # Means that are equal but for rounding count as equal.
    slack = np.abs(d).mean() * 100 * np.finfo(np.float64).eps
    means = (signs @ d) / d.size
    at_most, at_least = (means <= d.mean() + slack).sum(), (means >= d.mean() - slack).sum()
    # Random signs leave out the ones that were seen, which are as likely as any.
    seen = 0 if exact else 1
    return float(min(2 * (min(at_most, at_least) + seen) / (len(signs) + seen), 1.0))


@lru_cache(maxsize=4)
def _signs(n: int, resamples: int) -> npt.NDArray[np.float64]:
    """All the signs there are of n values, or as many random ones as `resamples` where there are more."""
    if 2**n <= resamples:
        bits = np.arange(2**n)[:, None] >> np.arange(n) & 1
    else:
        pairs = np.tile(np.arange(2), (resamples, n, 1))
        bits = np.random.default_rng(_SEED).permuted(pairs, axis=-1)[..., 0]
    return np.array(1 - 2 * bits, np.float64)


def mcnemar_test(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Exact two-sided p of McNemar's test on solved flags [n], paired by place (Psychometrika 12 (1947) 153).

    Only the seeds that one side alone solved tell anything: p = 1 where there is none. Raises ValueError for
    sides of different sizes.
    """
    a, b = np.asarray(first, dtype=bool).ravel(), np.asarray(second, dtype=bool).ravel()
    if a.size != b.size:
        raise ValueError(f"mcnemar_test: sides must be paired, got {a.size} and {b.size} flags")
    if a.size == 0:
        return np.nan
    only_first, only_second = int((a & ~b).sum()), int((b & ~a).sum())
    if only_first + only_second == 0:
        return 1.0
    fewer, both = min(only_first, only_second), only_first + only_second
    return float(min(2 * sum(math.comb(both, k) for k in range(fewer + 1)) / 2**both, 1.0))


@lru_cache(maxsize=4096)
def boschloo_test(solved_first: int, n_first: int, solved_second: int, n_second: int) -> float:
    """Two-sided p that two success rates are equal, seeds not paired (Boschloo, Stat. Neerl. 24 (1970) 1).

    Never less powerful than Fisher's exact test: 8/8 against 4/8 is 0.028 where Fisher says 0.077. Twice the smaller
    one-sided p, at the common rate that makes it largest. NaN where
    a side has no lanes.
    """
    if n_first == 0 or n_second == 0:
        return np.nan
    if solved_first + solved_second in (0, n_first + n_second):
        return 1.0
    sides = [
        _largest_chance(solved_first, n_first, solved_second, n_second),
        _largest_chance(solved_second, n_second, solved_first, n_first),
    ]
    return min(2 * min(sides), 1.0)


def _largest_chance(solved: int, n: int, solved_other: int, n_other: int) -> float:
    """Chance of a Fisher p no larger than the one seen, at the common rate that makes it largest.

    Fisher's p is the chance of so few solved by the first side, given how many solved in all.
    """
    fisher = _fisher(n, n_other)
    seen = fisher[solved + solved_other, solved]
    # Among tables with one number solved in all, those at least as extreme have the largest such p for a chance.
    extreme = np.where(fisher <= seen * (1 + 1e-9), fisher, 0.0).max(axis=1)
    rates = np.clip(np.linspace(0, 1, 1001), 1e-12, 1 - 1e-12)
    for _ in range(4):
        chances = _binomial(n + n_other, rates) @ extreme
        top = int(chances.argmax())
        rates = np.linspace(rates[max(top - 1, 0)], rates[min(top + 1, len(rates) - 1)], 51)
    return float(chances.max())


@lru_cache(maxsize=8)
def _fisher(n: int, n_other: int) -> npt.NDArray[np.float64]:
    """Fisher's one-sided p [solved in all, solved by the first side]; infinite where there is no such table."""
    total, first = np.arange(n + n_other + 1)[:, None], np.arange(n + 1)
    other = total - first
    real = (other >= 0) & (other <= n_other)
    logs = (
        _log_choose(n, first)
        + _log_choose(n_other, np.where(real, other, 0))
        - _log_choose(n + n_other, total)
    )
    return np.where(real, np.cumsum(np.exp(np.where(real, logs, -np.inf)), axis=1), np.inf)


def _binomial(n: int, rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Chances of 0 to n successes [rates, n + 1]."""
    k = np.arange(n + 1)
    return np.exp(_log_choose(n, k) + k * np.log(rates)[:, None] + (n - k) * np.log1p(-rates)[:, None])


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    chosen: npt.NDArray[np.float64] = factorials[n] - factorials[k] - factorials[n - k]
    return chosen


def holm(p_values: Sequence[float]) -> npt.NDArray[np.float64]:
    """The p-values adjusted so that any false finding among all of them has the level's chance.

    Holm, Scand. J. Stat. 6 (1979) 65. NaN stays NaN and does not count as a comparison.
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    ordered = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(ordered), 0, -1)
    adjusted[ordered] = np.minimum(np.maximum.accumulate(p[ordered] * factors), 1)
    return adjusted
