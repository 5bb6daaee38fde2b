"""Times to an event that some lanes do not reach before their training ends: they are *censored*, not missing.

Times are steps [n]; `observed` [n] says whether the event was reached at that time (True) or the lane was followed
so far without it (False). Evaluations come at intervals, so times are rounded up to the next of them and tie.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize, stats

from statelab.analysis.statistics import CONFIDENCE, MeanInterval, wilson_interval

Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CURVE_COLUMNS = ("time", "at_risk", "events", "censored", "survival", "low", "high")
_MOST = 40.0
"""Beyond e^40 a hazard ratio is as good as infinite."""


@dataclass(frozen=True, kw_only=True)
class HazardRatio:
    """How many times the rate of the event is the first side's; bounds of 95 % by the profile likelihood.

    0 or infinity where one side has no event; NaN where neither has.
    """

    ratio: float
    low: float
    high: float


def kaplan_meier(times: npt.ArrayLike, observed: npt.ArrayLike) -> pd.DataFrame:
    """The share that has not reached the event by each time, one row per distinct time, columns CURVE_COLUMNS.

    `low` and `high` are 95 % pointwise: Greenwood's variance on the scale log(−log S). Where that is undefined,
    before the first event and once S is 0, they are Wilson's for the lanes at risk at the start.
    """
    t, event = _checked(times, observed)
    if not t.size:
        return pd.DataFrame(columns=pd.Index(CURVE_COLUMNS), dtype=np.float64)
    at = np.unique(t)
    sf: Any = stats.ecdf(stats.CensoredData.right_censored(t, ~event)).sf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        band = sf.confidence_interval(CONFIDENCE, method="log-log")
        low, high = band.low.evaluate(at), band.high.evaluate(at)
    survival = sf.evaluate(at)
    for i in np.flatnonzero(~np.isfinite(low) | ~np.isfinite(high)):
        followed = int((t >= at[i]).sum() + (event & (t < at[i])).sum())
        low[i], high[i] = wilson_interval(round(float(survival[i]) * followed), followed)
    return pd.DataFrame(
        {
            "time": at,
            "at_risk": [int((t >= time).sum()) for time in at],
            "events": [int(event[t == time].sum()) for time in at],
            "censored": [int((~event[t == time]).sum()) for time in at],
            "survival": survival,
            "low": low,
            "high": high,
        }
    )


def median_time(curve: pd.DataFrame) -> float:
    """The first time by which half have reached the event, of a kaplan_meier curve; NaN where fewer ever do."""
    reached = curve.loc[curve["survival"] <= 0.5 + 1e-12, "time"]
    return float(reached.iloc[0]) if len(reached) else np.nan


def log_rank(times: Times, observed: Flags, other_times: Times, other_observed: Flags) -> float:
    """Two-sided p that two sides reach the event at the same rate all along (Mantel 1966).

    NaN where a side is empty or no event was observed.
    """
    sides = [_checked(times, observed), _checked(other_times, other_observed)]
    if not all(t.size for t, _ in sides) or not any(event.any() for _, event in sides):
        return np.nan
    x, y = (stats.CensoredData.right_censored(t, ~event) for t, event in sides)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = float(stats.logrank(x, y).pvalue)
    # Where all that are at risk reach the event at once there is nothing to compare, and no variance.
    return 1.0 if np.isnan(p) else p


def restricted_mean(times: npt.ArrayLike, observed: npt.ArrayLike, horizon: float) -> MeanInterval:
    """The mean of min(time, horizon), the area under the Kaplan–Meier curve, with its normal 95 % interval.

    Greenwood's variance (Klein and Moeschberger, Survival Analysis, eq. 4.5.2). `half_width` is NaN for n < 2
    and where it would be 0. A horizon beyond the longest time holds the curve at its last value, so choose one
    that all lanes could reach. Raises ValueError unless it is positive.
    """
    if not horizon > 0:
        raise ValueError(f"restricted_mean: the horizon must be positive, got {horizon}")
    t, event = _checked(times, observed)
    if not t.size:
        return MeanInterval(n=0, mean=np.nan, half_width=np.nan)
    curve = kaplan_meier(t, event)
    curve = curve[curve["time"] < horizon]
    edges = np.concatenate([[0.0], curve["time"], [horizon]])
    areas = np.diff(edges) * np.concatenate([[1.0], curve["survival"]])
    beyond = np.cumsum(areas[::-1])[::-1][1:]
    d, at_risk = curve["events"].to_numpy(float), curve["at_risk"].to_numpy(float)
    terms = np.divide(d, at_risk * (at_risk - d), out=np.zeros_like(d), where=at_risk > d)
    spread = float(np.sqrt((beyond**2 * terms).sum()))
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    return MeanInterval(
        n=t.size, mean=float(areas.sum()), half_width=z * spread if t.size > 1 and spread else np.nan
    )


def hazard_ratio(times: Times, observed: Flags, other_times: Times, other_observed: Flags) -> HazardRatio:
    """Cox's proportional hazards of two sides (1972), ties by Efron's method (1977).

    Above 1 the first side reaches the event sooner. The profile likelihood gives a bound on the other side where
    the ratio itself is 0 or infinite.
    """
    sides = [_checked(times, observed), _checked(other_times, other_observed)]
    t = np.concatenate([side[0] for side in sides])
    event = np.concatenate([side[1] for side in sides])
    first = np.repeat([True, False], [side[0].size for side in sides])
    if not event.any() or first.all() or not first.any():
        return HazardRatio(ratio=np.nan, low=np.nan, high=np.nan)
    likelihood = _PartialLikelihood(t, event, first)
    best = optimize.minimize_scalar(lambda b: -likelihood(b), bounds=(-_MOST, _MOST), options={"xatol": 1e-9})
    beta, top = float(best.x), -float(best.fun)
    drop = top - float(stats.chi2.ppf(CONFIDENCE, 1)) / 2
    bounds = []
    for end in (-_MOST, _MOST):
        if likelihood(end) >= drop:
            bounds.append(0.0 if end < 0 else np.inf)
        else:
            bounds.append(float(np.exp(optimize.brentq(lambda b: likelihood(b) - drop, beta, end))))
    ratio = float(np.exp(beta))
    # A side without events drives the estimate to the end of the search.
    if likelihood(-_MOST) >= top - 1e-9:
        ratio = 0.0
    elif likelihood(_MOST) >= top - 1e-9:
        ratio = np.inf
    return HazardRatio(ratio=ratio, low=bounds[0], high=bounds[1])


class _PartialLikelihood:
    """Efron's log partial likelihood of one log hazard ratio, its sum over events as whole arrays."""

    def __init__(self, t: Times, event: Flags, first: Flags) -> None:
        self.events = int((event & first).sum())
        parts = []
        for time in np.unique(t[event]):
            risk, now = t >= time, event & (t == time)
            d = int(now.sum())
            shares = np.arange(d) / d
            parts.append([(risk & side).sum() - shares * (now & side).sum() for side in (first, ~first)])
        self.firsts, self.seconds = (np.concatenate([part[i] for part in parts]) for i in (0, 1))

    def __call__(self, beta: float) -> float:
        return float(self.events * beta - np.log(self.firsts * np.exp(beta) + self.seconds).sum())


def _checked(times: npt.ArrayLike, observed: npt.ArrayLike) -> tuple[Times, Flags]:
    t, event = np.asarray(times, dtype=np.float64).ravel(), np.asarray(observed, dtype=bool).ravel()
    if t.size != event.size:
        raise ValueError(f"times and observed must be of one size, got {t.size} and {event.size}")
    if t.size and not (np.isfinite(t).all() and (t >= 0).all()):
        raise ValueError("times must be finite and not negative")
    return t, event
