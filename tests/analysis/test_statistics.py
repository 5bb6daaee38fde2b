from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from statelab.analysis.statistics import mean_interval, paired_difference, wilson_interval

VALUES = st.lists(st.floats(0, 1), min_size=3, max_size=30).filter(lambda x: max(x) - min(x) > 1e-3)


@given(VALUES)
def test_mean_interval_is_that_of_the_t_test(values: list[float]) -> None:
    found = mean_interval(values)
    bounds = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.n == len(values)
    assert found.mean - found.half_width == pytest.approx(bounds.low, abs=1e-12)
    assert found.mean + found.half_width == pytest.approx(bounds.high, abs=1e-12)


def test_mean_interval_by_hand() -> None:
    # s = 1 and t(0.975, 2) = 4.302653 (tables), so 4.302653 / sqrt(3).
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.n, found.mean) == (3, 2.0)
    assert found.half_width == pytest.approx(2.484138, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "n", "mean"),
    [
        ([], 0, math.nan),
        ([np.nan], 0, math.nan),
        ([0.4], 1, 0.4),
        ([0.4, np.nan], 1, 0.4),
        ([1.0] * 8, 8, 1.0),
    ],
    ids=["none", "only NaN", "one", "one and NaN", "all equal"],
)
def test_no_half_width_where_the_spread_is_not_known(values: list[float], n: int, mean: float) -> None:
    found = mean_interval(values)
    assert found.n == n
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert math.isnan(found.half_width)


def test_equal_values_that_do_not_sum_exactly_have_no_half_width() -> None:
    assert math.isnan(mean_interval([0.1] * 7).half_width)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_solves_its_equation(counts: tuple[int, int]) -> None:
    k, n = counts
    z = 1.959963984540054
    centre = (k + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    low, high = wilson_interval(k, n)
    assert low == pytest.approx(max(centre - reach, 0), abs=1e-12)
    assert high == pytest.approx(min(centre + reach, 1), abs=1e-12)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(8, 8, 0.68, 1.0), (7, 8, 0.53, 0.98), (0, 4, 0.0, 0.49)]
)
def test_wilson_interval_known_values(k: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(k, n) == pytest.approx((low, high), abs=0.005)


def test_wilson_interval_of_nothing_is_nan() -> None:
    assert all(math.isnan(bound) for bound in wilson_interval(0, 0))


@pytest.mark.parametrize("successes", [-1, 5])
def test_wilson_interval_refuses_impossible_counts(successes: int) -> None:
    with pytest.raises(ValueError, match=rf"\[0, 4\], got {successes}"):
        wilson_interval(successes, 4)


def test_paired_difference_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random(9), rng.random(9)
    shuffled = pd.Series(second, range(9)).sample(frac=1, random_state=1)
    found = paired_difference(pd.Series(first, range(9)), shuffled)
    bounds = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.difference.n, found.unmatched) == (9, 0)
    assert found.difference.mean - found.difference.half_width == pytest.approx(bounds.low)
    assert found.difference.mean + found.difference.half_width == pytest.approx(bounds.high)


def test_paired_difference_counts_what_it_leaves_out() -> None:
    first = pd.Series({0: 0.5, 1: 0.7, 2: math.nan, 3: 0.9})
    second = pd.Series({1: 0.6, 2: 0.1, 3: 0.6, 7: 0.2})
    found = paired_difference(first, second)
    assert (found.difference.n, found.unmatched) == (2, 3)
    assert found.difference.mean == pytest.approx(0.2)


def test_paired_difference_without_a_common_seed() -> None:
    found = paired_difference(pd.Series({0: 0.5}), pd.Series({1: 0.6}))
    assert (found.difference.n, found.unmatched) == (0, 2)
    assert math.isnan(found.difference.mean)


def test_paired_difference_refuses_a_seed_twice() -> None:
    with pytest.raises(ValueError, match=r"second must have each seed once, got twice: \[4\]"):
        paired_difference(pd.Series({4: 0.5}), pd.Series([0.1, 0.2], index=[4, 4]))
