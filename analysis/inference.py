"""Tests of a difference between two models over few seeds, and corrections where there are many.

Paired tests need the same seeds on both sides. With few of them the smallest p there can be is large: of the
sign-flip test 2/2^n (0.0078 with 8 seeds), of McNemar's 2/2^d with d seeds that only one of the two solves (so 6
of 8 must differ, all one way, for p < 0.05).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

from statelab.analysis.statistics import CONFIDENCE

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
    level = CONFIDENCE
    if expand:
        level = 1 - 2 * stats.norm.sf(np.sqrt(n / (n - 1)) * stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))
    rng = np.random.default_rng(_SEED)
    with warnings.catch_warnings():
        # A sample with no spread but for rounding.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (x,), np.mean, n_resamples=resamples, confidence_level=level, method="BCa", rng=rng
        )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def sign_flip_test(differences: npt.ArrayLike, resamples: int = RESAMPLES) -> float:
    """Two-sided p of a mean difference of 0 where each difference [n] is as likely to have the other sign.

    Exact while 2^n <= `resamples` (n <= 13), by random signs beyond. NaN where n = 0.
    """
    d = np.asarray(differences, dtype=np.float64).ravel()
    if d.size < 2:
        return 1.0 if d.size else np.nan
    found = stats.permutation_test(
        (d,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        n_resamples=resamples,
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    )
    return float(found.pvalue)


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
    return float(stats.binomtest(only_first, only_first + only_second, 0.5).pvalue)


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
    table = [[solved_first, solved_second], [n_first - solved_first, n_second - solved_second]]
    # Rounding in the search of the worst common rate can pass 1.
    return min(float(stats.boschloo_exact(table).pvalue), 1.0)


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
