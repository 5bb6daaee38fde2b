"""Tests of differences against statsmodels, scipy.stats and enumeration by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from statelab.analysis.inference import (
    _SEED,
    RESAMPLES,
    bootstrap_interval,
    boschloo_test,
    holm,
    mcnemar_test,
    sign_flip_test,
)
from statelab.analysis.statistics import exact_interval, interquartile_mean, wilson_interval


@pytest.mark.parametrize("n", [1, 4, 8, 24, 100])
def test_intervals_of_a_share_against_statsmodels(n: int) -> None:
    for k in range(n + 1):
        assert wilson_interval(k, n) == pytest.approx(proportion_confint(k, n, method="wilson"), abs=1e-12)
        assert exact_interval(k, n) == pytest.approx(proportion_confint(k, n, method="beta"), abs=1e-12)


def test_the_exact_interval_covers_at_least_95_percent_whatever_the_rate() -> None:
    bounds = [exact_interval(k, 8) for k in range(9)]
    for rate in np.linspace(0.01, 0.99, 50):
        covered = sum(stats.binom.pmf(k, 8, rate) for k in range(9) if bounds[k][0] <= rate <= bounds[k][1])
        assert covered >= 0.95


def test_exact_interval_of_impossible_counts() -> None:
    assert all(math.isnan(bound) for bound in exact_interval(0, 0))
    with pytest.raises(ValueError, match=r"must lie in \[0, n\] = \[0, 8\], got 9"):
        exact_interval(9, 8)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([0, 0, 4, 5, 6, 7, 100, 100], 5.5), ([1, 2, 9], 4.0), ([3], 3.0), ([], math.nan), ([1, math.nan], 1.0)],
)
def test_interquartile_mean(values: list[float], mean: float) -> None:
    assert interquartile_mean(values) == pytest.approx(mean, nan_ok=True)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_mcnemar_against_statsmodels(pairs: list[tuple[bool, bool]]) -> None:
    first, second = ([pair[i] for pair in pairs] for i in (0, 1))
    table = [[pairs.count((a, b)) for b in (True, False)] for a in (True, False)]
    expected = mcnemar(table, exact=True).pvalue
    assert mcnemar_test(first, second) == pytest.approx(expected, abs=1e-12)


def test_mcnemar_of_five_seeds_that_differ_one_way() -> None:
    assert mcnemar_test([True] * 8, [True] * 3 + [False] * 5) == pytest.approx(0.0625)
    assert math.isnan(mcnemar_test([], []))
    with pytest.raises(ValueError, match="must be paired, got 2 and 1"):
        mcnemar_test([True, True], [True])


@pytest.mark.parametrize(("counts", "p"), [((8, 8, 4, 8), 0.0279), ((0, 8, 0, 8), 1.0), ((8, 8, 8, 8), 1.0)])
def test_boschloo_known_values(counts: tuple[int, int, int, int], p: float) -> None:
    assert boschloo_test(*counts) == pytest.approx(p, abs=5e-4)


@pytest.mark.parametrize(("n", "m", "seen"), [(6, 5, (5, 1)), (8, 8, (4, 4)), (4, 9, (1, 8))])
def test_boschloo_by_enumeration(n: int, m: int, seen: tuple[int, int]) -> None:
    """The largest chance, over the common rate, of a table whose Fisher p is no larger than the one seen."""
    one_sided = []
    for side in ("less", "greater"):
        fisher = {
            (a, b): stats.fisher_exact(np.array([[a, b], [n - a, m - b]]), alternative=side).pvalue
            for a in range(n + 1)
            for b in range(m + 1)
        }
        extreme = [table for table, p in fisher.items() if p <= fisher[seen] * (1 + 1e-9)]
        chances = [
            sum(stats.binom.pmf(a, n, rate) * stats.binom.pmf(b, m, rate) for a, b in extreme)
            for rate in np.linspace(0.005, 0.995, 199)
        ]
        one_sided.append(max(chances))
    assert boschloo_test(seen[0], n, seen[1], m) == pytest.approx(min(2 * min(one_sided), 1), rel=2e-3)


@pytest.mark.parametrize("seed", range(12))
def test_boschloo_against_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = (int(size) for size in rng.integers(1, 24, 2))
    a, b = int(rng.integers(0, n + 1)), int(rng.integers(0, m + 1))
    table = [[a, b], [n - a, m - b]]
    expected = 1.0 if a + b in (0, n + m) else min(stats.boschloo_exact(table).pvalue, 1.0)
    assert boschloo_test(a, n, b, m) == pytest.approx(expected, rel=1e-6)


def test_boschloo_where_the_worst_common_rate_is_small() -> None:
    """Only the table that was seen is as extreme: chance p (1 − p)^(N − 1), largest at p = 1 / N."""
    lanes = 3001
    assert boschloo_test(1, 1, 0, lanes - 1) == pytest.approx(2 / lanes * (1 - 1 / lanes) ** (lanes - 1))


def test_boschloo_without_lanes() -> None:
    assert math.isnan(boschloo_test(0, 0, 1, 5))


@pytest.mark.parametrize("seed", range(5))
def test_sign_flips_by_enumeration(seed: int) -> None:
    d = np.random.default_rng(seed).normal(0.4, 1, 8)
    means = [np.mean(np.multiply(signs, d)) for signs in itertools.product((-1, 1), repeat=8)]
    upper = np.mean(np.array(means) >= d.mean() - 1e-12)
    assert sign_flip_test(d) == pytest.approx(min(2 * min(upper, 1 - upper + 1 / 256), 1), abs=1e-9)


def test_sign_flips_at_the_ends() -> None:
    assert sign_flip_test([0.1] * 8) == pytest.approx(2 / 256)
    assert sign_flip_test([0.0] * 8) == 1.0
    assert sign_flip_test([0.3]) == 1.0
    assert math.isnan(sign_flip_test([]))
    many = np.random.default_rng(0).normal(0.5, 1, 24)
    assert sign_flip_test(many) == pytest.approx(stats.ttest_1samp(many, 0).pvalue, abs=0.01)


@pytest.mark.parametrize("n", [2, 9, 13, 14, 24])
def test_sign_flips_against_scipy(n: int) -> None:
    """Whether all the signs are tried or some: the same p, from the same random numbers."""
    for shift in (0.0, 0.5):
        d = np.random.default_rng(n).normal(shift, 1, n).round(1)
        expected = stats.permutation_test(
            (d,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", vectorized=True,
            n_resamples=RESAMPLES, rng=np.random.default_rng(_SEED),
        )  # fmt: skip
        assert sign_flip_test(d) == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_holm_against_statsmodels(n: int) -> None:
    # Squared, so that some are small; rounded, so that some tie.
    p = (np.random.default_rng(n).random(n) ** 2).round(2).tolist()
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], atol=1e-12)


def test_holm_leaves_out_what_is_not_known() -> None:
    np.testing.assert_allclose(holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])
    assert holm([]).size == 0


@pytest.mark.parametrize("n", [3, 8, 24])
@pytest.mark.parametrize("kind", ["normal", "skewed", "heaps"])
def test_bootstrap_against_scipy(kind: str, n: int) -> None:
    """The same bounds, from the same random numbers."""
    rng = np.random.default_rng(n)
    x = {"normal": rng.normal(size=n), "skewed": rng.gamma(1, size=n), "heaps": np.arange(n) % 3 * 0.9}[kind]
    plain = stats.bootstrap((x,), np.mean, method="BCa", rng=np.random.default_rng(_SEED), n_resamples=999)
    assert bootstrap_interval(x, 999, expand=False) == pytest.approx(
        tuple(plain.confidence_interval), abs=1e-12
    )


def test_an_expanded_bootstrap_is_as_wide_as_students_interval() -> None:
    x = np.random.default_rng(1).normal(size=24)
    student = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert bootstrap_interval(x) == pytest.approx((student.low, student.high), abs=0.05)
    assert bootstrap_interval(x) == bootstrap_interval(x)


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.7], [0.5] * 8])
def test_a_bootstrap_without_spread_says_nothing(values: list[float]) -> None:
    assert all(math.isnan(bound) for bound in bootstrap_interval(values))
