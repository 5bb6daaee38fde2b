"""Means and proportions over few seeds, each with its 95 % interval.

What an interval cannot say it says with NaN: no value at all, one value, or values that are all equal. Equal
values have a t-interval of width zero, which would claim certainty where eight seeds at 100 % allow a true
success rate of 68 %; the Wilson interval of the solved count speaks for them instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

CONFIDENCE = 0.95
NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""A normal value is within as many standard deviations of its mean with that confidence."""


@dataclass(frozen=True, kw_only=True)
class MeanInterval:
    """`mean` ± `half_width` over `n` values: Student's t-interval of confidence 0.95.

    `mean` is NaN where n = 0; `half_width` is NaN where n < 2 or all values are equal.
    """

    n: int
    mean: float
    half_width: float


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """First − second over the seeds that both have: `values` [n], and their mean with its interval.

    `unmatched` counts the seeds that only one of the two has (or has a value for), which are left out.
    """

    values: npt.NDArray[np.float64]
    difference: MeanInterval
    unmatched: int


def mean_interval(values: npt.ArrayLike) -> MeanInterval:
    """The mean of `values` [n] and its half-width, in the values' unit; NaN values are left out."""
    x = np.asarray(values, dtype=np.float64).ravel()
    x = x[~np.isnan(x)]
    n = int(x.size)
    if n == 0:
        return MeanInterval(n=0, mean=np.nan, half_width=np.nan)
    half_width = np.nan
    if n > 1 and x.min() < x.max():
        half_width = float(student(n - 1) * x.std(ddof=1) / np.sqrt(n))
    return MeanInterval(n=n, mean=float(x.mean()), half_width=half_width)


def student(degrees: int | npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """How many standard errors Student's interval reaches to either side, by its degrees of freedom."""
    from scipy import special  # here, since drawing figures of given tables can do without

    return np.asarray(special.stdtrit(np.asarray(degrees, np.float64), (1 + CONFIDENCE) / 2), np.float64)


@lru_cache(maxsize=1 << 16)
def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Bounds of the success rate, in [0, 1], after `successes` of `n`; (NaN, NaN) where n = 0.

    Wilson, J. Am. Stat. Assoc. 22 (1927) 209, without continuity correction. Raises ValueError unless
    0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"wilson_interval: successes must lie in [0, n] = [0, {n}], got {successes}")
    if n == 0:
        return np.nan, np.nan
    z = NORMAL
    centre = (successes + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * math.sqrt(successes * (n - successes) / n + z * z / 4)
    return max(centre - reach, 0.0), min(centre + reach, 1.0)


def exact_interval(successes: int, n: int) -> tuple[float, float]:
    """As wilson_interval, but never covering less than 95 %, and so wider: Clopper and Pearson's.

    Biometrika 26 (1934) 404.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"exact_interval: successes must lie in [0, n] = [0, {n}], got {successes}")
    if n == 0:
        return np.nan, np.nan
    from scipy import special

    tail = (1 - CONFIDENCE) / 2
    low = special.betaincinv(successes, n - successes + 1, tail) if successes else 0.0
    high = special.betaincinv(successes + 1, n - successes, 1 - tail) if successes < n else 1.0
    return float(low), float(high)


def interquartile_mean(values: npt.ArrayLike) -> float:
    """The mean without the lowest and the highest quarter of `values` [n], rounded down; NaN values are left out.

    Between the mean, which one bad seed moves, and the median, which half of the seeds cannot: Agarwal et al.,
    "Deep RL at the edge of the statistical precipice" (2021). NaN where n = 0.
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    x = np.sort(x[~np.isnan(x)])
    cut = x.size // 4
    return float(x[cut : x.size - cut].mean()) if x.size else np.nan


def paired_difference(first: pd.Series[float], second: pd.Series[float]) -> PairedDifference:
    """First − second, paired where their indices (seeds) agree.

    Raises ValueError if a seed occurs twice on one side, since then there is no telling the pairs.
    """
    for name, side in (("first", first), ("second", second)):
        if not side.index.is_unique:
            twice = sorted(set(side.index[side.index.duplicated()]))
            raise ValueError(f"paired_difference: {name} must have each seed once, got twice: {twice}")
    both = pd.concat([first.dropna(), second.dropna()], axis=1, keys=["first", "second"], join="outer")
    matched = both.dropna()
    seeds = first.index.union(second.index)
    values = (matched["first"] - matched["second"]).to_numpy()
    return PairedDifference(
        values=values, difference=mean_interval(values), unmatched=len(seeds) - len(matched)
    )
