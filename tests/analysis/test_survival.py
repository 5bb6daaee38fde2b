"""Survival against statsmodels, against plain counting where nothing is censored early, and by hand."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from statelab.analysis.statistics import wilson_interval
from statelab.analysis.survival import (
    Flags,
    Times,
    hazard_ratio,
    kaplan_meier,
    log_rank,
    median_time,
    restricted_mean,
)


def made_up(seed: int, n: int, scale: float = 900.0, budget: float = 2000.0) -> tuple[Times, Flags]:
    """Escape times seen at every 200th step; some lanes are cut short, most run to the budget."""
    rng = np.random.default_rng(seed)
    times = np.ceil(rng.exponential(scale, n) / 200) * 200
    ends = np.where(rng.random(n) < 0.3, rng.integers(1, 10, n) * 200.0, budget)
    return np.minimum(times, ends), times <= ends


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [8, 24, 60])
def test_kaplan_meier_against_statsmodels(seed: int, n: int) -> None:
    times, observed = made_up(seed, n)
    curve = kaplan_meier(times, observed).set_index("time")
    other = SurvfuncRight(times, observed.astype(int))
    events = curve[curve["events"] > 0]
    np.testing.assert_array_equal(events.index, other.surv_times)
    np.testing.assert_allclose(events["survival"], other.surv_prob, atol=1e-12)
    np.testing.assert_array_equal(events["at_risk"], other.n_risk)
    inside = (other.surv_prob > 1e-9) & (other.surv_prob < 1)
    s, spread = other.surv_prob[inside], other.surv_prob_se[inside] / other.surv_prob[inside]
    for name, sign in (("low", 1), ("high", -1)):
        expected = s ** np.exp(sign * 1.959963984540054 * spread / -np.log(s))
        np.testing.assert_allclose(events[name][inside], expected, atol=1e-9)


def test_kaplan_meier_by_hand() -> None:
    curve = kaplan_meier([200, 400, 400, 600, 800], [True, True, False, False, True])
    assert curve["survival"].tolist() == pytest.approx([0.8, 0.6, 0.6, 0.0])
    assert curve[["at_risk", "events", "censored"]].to_numpy().tolist() == [
        [5, 1, 0],
        [4, 1, 1],
        [2, 0, 1],
        [1, 1, 0],
    ]
    assert median_time(curve) == 800


@pytest.mark.parametrize(("k", "n"), [(0, 8), (8, 8)])
def test_where_all_or_none_escape_the_band_is_wilsons(k: int, n: int) -> None:
    curve = kaplan_meier([2000.0] * n, [True] * k + [False] * (n - k))
    low, high = wilson_interval(n - k, n)
    assert (curve["low"].item(), curve["high"].item()) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("seed", range(6))
def test_log_rank_against_statsmodels(seed: int) -> None:
    (t, e), (u, f) = made_up(seed, 16), made_up(seed + 100, 12, 2500)
    groups = np.repeat([0, 1], [16, 12])
    _, p = survdiff(np.concatenate([t, u]), np.concatenate([e, f]).astype(int), groups)
    assert log_rank(t, e, u, f) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_hazard_ratio_against_statsmodels(seed: int) -> None:
    (t, e), (u, f) = made_up(seed, 16), made_up(seed + 100, 12, 2500)
    first: npt.NDArray[np.float64] = np.repeat([1.0, 0.0], [16, 12])
    model = PHReg(
        np.concatenate([t, u]), first[:, None], status=np.concatenate([e, f]).astype(int), ties="efron"
    )
    found = hazard_ratio(t, e, u, f)
    assert np.log(found.ratio) == pytest.approx(model.fit(disp=0).params[0], abs=1e-5)
    top = model.loglike(np.log([found.ratio]))
    for bound in (found.low, found.high):
        assert 2 * (top - model.loglike(np.log([bound]))) == pytest.approx(3.841459, abs=1e-4)


def test_hazard_ratio_where_one_side_never_escapes() -> None:
    t, e = made_up(0, 12)
    never = np.zeros(8, dtype=bool)
    end = np.full(8, 2000.0)
    up, down = hazard_ratio(t, e, end, never), hazard_ratio(end, never, t, e)
    assert (up.ratio, up.high, down.ratio, down.low) == (math.inf, math.inf, 0.0, 0.0)
    assert up.low == pytest.approx(1 / down.high, rel=1e-4)
    assert up.low > 1
    assert math.isnan(hazard_ratio(end, never, end, never).ratio)


@pytest.mark.parametrize("seed", range(4))
def test_restricted_mean_of_lanes_cut_at_the_budget_alone_is_that_of_the_cut_times(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.ceil(rng.exponential(1500, 20) / 200) * 200
    found = restricted_mean(np.minimum(times, 2000), times <= 2000, 2000)
    cut = np.minimum(times, 2000)
    assert found.mean == pytest.approx(cut.mean())
    assert found.half_width == pytest.approx(1.959964 * cut.std() / np.sqrt(20), rel=1e-6)


def test_restricted_mean_is_the_area_under_the_curve() -> None:
    times, observed = made_up(3, 30)
    other = SurvfuncRight(times, observed.astype(int))
    grid = np.arange(0, 1500, 0.5) + 0.25
    before = np.searchsorted(other.surv_times, grid, side="right")
    area = np.concatenate([[1.0], other.surv_prob])[before].sum() * 0.5
    assert restricted_mean(times, observed, 1500).mean == pytest.approx(area, rel=1e-9)


def test_nothing_to_follow() -> None:
    none, flags = np.array([]), np.array([], dtype=bool)
    assert kaplan_meier([], []).empty
    assert math.isnan(median_time(kaplan_meier([], [])))
    assert math.isnan(log_rank(none, flags, np.array([5.0]), np.array([True])))
    assert restricted_mean([], [], 100).n == 0
    assert log_rank(np.array([5.0]), np.array([True]), np.array([5.0]), np.array([True])) == 1.0


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="of one size, got 2 and 1"):
        kaplan_meier([1, 2], [True])
    with pytest.raises(ValueError, match="finite and not negative"):
        kaplan_meier([math.nan], [True])
    with pytest.raises(ValueError, match="horizon must be positive, got 0"):
        restricted_mean([1], [True], 0)
