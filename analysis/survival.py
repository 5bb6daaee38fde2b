"""Times to an event that some lanes do not reach before their training ends: they are *censored*, not missing.

Times are steps [n]; `observed` [n] says whether the event was reached at that time (True) or the lane was followed
so far without it (False). Evaluations come at intervals, so times are rounded up to the next of them and tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from statelab.analysis.statistics import NORMAL, MeanInterval, wilson_interval

Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

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
    at, at_risk, events, censored = _counted(t, event)
    survival = np.cumprod((at_risk - events) / at_risk, dtype=np.float64)
    low, high = _band(survival, at_risk, events)
    for i in np.flatnonzero(~np.isfinite(low) | ~np.isfinite(high)):
        followed = int(at_risk[i] + events[:i].sum())
        low[i], high[i] = wilson_interval(round(float(survival[i]) * followed), followed)
    columns = (at, at_risk, events, censored, survival, low, high)
    return pd.DataFrame(dict(zip(CURVE_COLUMNS, columns, strict=True)))


def _counted(t: Times, event: Flags) -> tuple[Times, Counts, Counts, Counts]:
    """The distinct times, and at each how many are at risk, reach the event, and are followed no further."""
    at, place = np.unique(t, return_inverse=True)
    events, ended = np.bincount(place[event], minlength=at.size), np.bincount(place, minlength=at.size)
    return at, np.cumsum(ended[::-1])[::-1], events, ended - events


def _band(survival: Times, at_risk: Counts, events: Counts) -> tuple[Times, Times]:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(survival)
        spread = np.sqrt(np.cumsum(events / (at_risk * (at_risk - events)))) / -logs
        middle = np.log(-logs)
        low, high = (np.exp(-np.exp(middle + z * spread)) for z in (NORMAL, -NORMAL))
    return low, high


def median_time(curve: pd.DataFrame) -> float:
    """The first time by which half have reached the event, of a kaplan_meier curve; NaN where fewer ever do."""
    reached = curve.loc[curve["survival"] <= 0.5 + 1e-12, "time"]
    return float(reached.iloc[0]) if len(reached) else np.nan


def log_rank(times: Times, observed: Flags, other_times: Times, other_observed: Flags) -> float:
    """Two-sided p that two sides reach the event at the same rate all along (Mantel 1966).

    NaN where a side is empty or no event was observed.
    """
    compared = _compared(times, observed, other_times, other_observed)
    if compared is None or not compared.events.size:
        return np.nan
    n, d = compared.at_risk.sum(axis=0), compared.events.sum(axis=0)
    first, events = compared.at_risk[0], compared.events[0]
    several = n > 1
    variance = (first * (n - first) * d * (n - d))[several] / (n**2 * (n - 1))[several]
    # Where all that are at risk reach the event at once there is nothing to compare, and no variance.
    if not variance.sum():
        return 1.0
    away = (events - first * d / n).sum() / np.sqrt(variance.sum())
    return math.erfc(abs(away) / math.sqrt(2))


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
    half_width = NORMAL * spread if t.size > 1 and spread else np.nan
    return MeanInterval(n=t.size, mean=float(areas.sum()), half_width=half_width)


def hazard_ratio(times: Times, observed: Flags, other_times: Times, other_observed: Flags) -> HazardRatio:
    """Cox's proportional hazards of two sides (1972), ties by Efron's method (1977).

    Above 1 the first side reaches the event sooner. The profile likelihood gives a bound on the other side where
    the ratio itself is 0 or infinite.
    """
    compared = _compared(times, observed, other_times, other_observed)
    if compared is None or not compared.events.size:
        return HazardRatio(ratio=np.nan, low=np.nan, high=np.nan)
    likelihood = _PartialLikelihood(compared)
    beta = _crossing(likelihood.slope)
    # A side without events drives the estimate to the end of the search.
    top, *ends = likelihood(np.array([beta, -_MOST, _MOST]))
    ratio = 0.0 if ends[0] >= top - 1e-9 else np.inf if ends[1] >= top - 1e-9 else float(np.exp(beta))
    drop = top - NORMAL**2 / 2
    low, high = 0.0, np.inf
    if ends[0] < drop:
        low = float(np.exp(_crossing(lambda b: drop - likelihood(b), high=beta)))
    if ends[1] < drop:
        high = float(np.exp(_crossing(lambda b: likelihood(b) - drop, low=beta)))
    return HazardRatio(ratio=ratio, low=low, high=high)


def _crossing(falling: Callable[[Times], Times], low: float = -_MOST, high: float = _MOST) -> float:
    """Where a falling function of [k] values crosses 0; an end where it does not."""
    while high - low > 1e-10:
        points = np.linspace(low, high, 33)
        below = np.flatnonzero(falling(points) < 0)
        after = int(below[0]) if below.size else 32
        if after == 0:
            return low
        low, high = float(points[after - 1]), float(points[after])
    return (low + high) / 2


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Both sides at the distinct times of an event of either: at risk [2, times] and events [2, times]."""

    at_risk: Counts
    events: Counts


def _compared(times: Times, observed: Flags, other_times: Times, other_observed: Flags) -> _Compared | None:
    """The two sides' counts; None where one is empty."""
    sides = [_checked(times, observed), _checked(other_times, other_observed)]
    if not all(t.size for t, _ in sides):
        return None
    at = np.unique(np.concatenate([t[event] for t, event in sides]))
    at_risk = [t.size - np.searchsorted(np.sort(t), at) for t, _ in sides]
    events = [np.bincount(np.searchsorted(at, t[event]), minlength=at.size) for t, event in sides]
    return _Compared(at_risk=np.array(at_risk), events=np.array(events))


class _PartialLikelihood:
    """Efron's log partial likelihood of log hazard ratios [k], its sum over events as whole arrays."""

    def __init__(self, compared: _Compared) -> None:
        self.events = int(compared.events[0].sum())
        tied = compared.events.sum(axis=0)
        place = np.repeat(np.arange(tied.size), tied)
        # Of d events at one time, the k-th finds k / d of them gone already.
        shares = (np.arange(place.size) - np.repeat(np.cumsum(tied) - tied, tied)) / tied[place]
        self.firsts, self.seconds = compared.at_risk[:, place] - shares * compared.events[:, place]

    def __call__(self, beta: Times) -> Times:
        total = self.firsts * np.exp(beta)[:, None] + self.seconds
        found: Times = self.events * beta - np.log(total).sum(axis=1)
        return found

    def slope(self, beta: Times) -> Times:
        """The derivative by beta, which falls: the likelihood has one top."""
        weighed = self.firsts * np.exp(beta)[:, None]
        found: Times = self.events - (weighed / (weighed + self.seconds)).sum(axis=1)
        return found


def _checked(times: npt.ArrayLike, observed: npt.ArrayLike) -> tuple[Times, Flags]:
    t, event = np.asarray(times, dtype=np.float64).ravel(), np.asarray(observed, dtype=bool).ravel()
    if t.size != event.size:
        raise ValueError(f"times and observed must be of one size, got {t.size} and {event.size}")
    if t.size and not (np.isfinite(t).all() and (t >= 0).all()):
        raise ValueError("times must be finite and not negative")
    return t, event
