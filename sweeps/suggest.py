"""Settings that a search draws: a pure function of the spec and of the results so far."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from statelab.models.settings import OptimiserSettings
from statelab.sweeps.search import place, ranges


def random_settings(search: Any, cell: str, start: OptimiserSettings, count: int) -> list[OptimiserSettings]:
    """`count` draws for a cell, uniform in the logarithm; other numbers are those of `start`."""
    return [_drawn(search, cell, start, index) for index in range(count)]


def tpe_settings(
    search: Any,
    cell: str,
    start: OptimiserSettings,
    tried: Sequence[tuple[OptimiserSettings, float]],
    count: int,
) -> list[OptimiserSettings]:
    """The next `count` settings that TPE proposes after those tried, with the values found for them."""
    spans = {name: _distribution(name, span) for name, span in ranges(search).items()}
    sampler = optuna.samplers.TPESampler(seed=_number(search.seed, cell, len(tried)) % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for setting, value in tried:
        params = {name: getattr(setting, name) for name in spans}
        # A value listed in [sweep] may lie outside the range: TPE cannot learn from it.
        if all(span._contains(span.to_internal_repr(params[name])) for name, span in spans.items()):
            study.add_trial(create_trial(params=params, distributions=spans, value=value))
    asked = [study.ask(spans).params for _ in range(count)]
    return [_changed(start, params) for params in asked]


def _drawn(search: Any, cell: str, start: OptimiserSettings, index: int) -> OptimiserSettings:
    drawn = {
        name: place(name, span, _number(search.seed, cell, index, name) / 2**64)
        for name, span in ranges(search).items()
    }
    return _changed(start, drawn)


def _changed(start: OptimiserSettings, numbers: dict[str, Any]) -> OptimiserSettings:
    rounded = {name: value if name == "warmup" else float(f"{value:.6g}") for name, value in numbers.items()}
    return OptimiserSettings(**(start.__dict__ | rounded))


def _distribution(name: str, span: tuple[float, float]) -> BaseDistribution:
    low, high = span
    if name == "warmup":
        return IntDistribution(round(low), round(high))
    return FloatDistribution(low, high, log=low > 0)


def _number(*parts: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")
