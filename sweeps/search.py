"""How a study looks for settings before it reports: the spec's [search], as plain data. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from statelab.models.settings import OptimiserSettings

Range = tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings are tried on selection seeds, and the best of each cell alone is run on the report seeds.

    The settings that [sweep] lists are tried first. A range [lowest, highest] of a number is drawn from
    uniformly in its logarithm, or evenly where it starts at 0.
    """

    method: Annotated[
        Literal["grid", "log_uniform", "tpe"], "the settings listed; random draws; or Optuna's TPE sampler"
    ] = "grid"
    objective: Annotated[Literal["solved", "accuracy"], "share of seeds solved, or mean accuracy"] = "solved"
    trials: Annotated[int, "settings tried in each cell, those of [sweep] included"] = 16
    together: Annotated[int, "settings that tpe proposes at a time, from the results of all before"] = 4
    halving: Annotated[
        int, "n: settings train n times longer each time the best n-th part of them is kept; 0: all in full"
    ] = 0
    seed: Annotated[int, "seed of the draws"] = 0
    learning_rate: Annotated[Range, "range of the peak learning rate"] = None
    weight_decay: Annotated[Range, "range of the weight decay"] = None
    beta1: Annotated[Range, "range of the decay of the mean of gradients"] = None
    beta2: Annotated[Range, "range of the decay of the mean of squared gradients"] = None
    eps: Annotated[Range, "range of the number added to the root of the mean square"] = None
    clip: Annotated[Range, "range of the largest norm of a gradient"] = None
    warmup: Annotated[Range, "range of the steps of warm-up, in whole steps"] = None
    floor: Annotated[Range, "range of the rate at the end of a cosine, as a fraction of the peak"] = None

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= 10_000:
            raise ValueError(f"trials must lie in 1..10000, got {self.trials}")
        if not 1 <= self.together <= 1000:
            raise ValueError(f"together must lie in 1..1000, got {self.together}")
        if self.halving != 0 and not 2 <= self.halving <= 100:
            raise ValueError(f"halving is 0 for none, or 2..100, got {self.halving}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed must lie in [0, 2**32), got {self.seed}")
        for name, (low, high) in ranges(self).items():
            if not low < high:
                raise ValueError(f"{name}: a range is [lowest, highest], got {[low, high]}")
            for value in (low, high):
                numbers: dict[str, Any] = {"learning_rate": 1e-3, name: value}
                OptimiserSettings(**numbers)


def ranges(search: Any) -> dict[str, tuple[float, float]]:
    """The ranges that a search draws from, by the number's name, in the order of OptimiserSettings."""
    names = [item.name for item in fields(OptimiserSettings)]
    return {name: span for name in names if (span := getattr(search, name)) is not None}


def ranges_of(search: Mapping[str, Any]) -> dict[str, float]:
    """The middle of each range of a spec's [search] as it was written; ranges that are none are left out."""
    middles = {}
    for item in fields(OptimiserSettings):
        match search.get(item.name):
            case [int() | float() as low, int() | float() as high] if 0 <= low < high:
                middles[item.name] = place(item.name, (low, high), 0.5)
    return middles


def place(name: str, span: tuple[float, float], share: float) -> float:
    """The point of a range at a share in [0, 1] of the way: in the logarithm, or evenly from 0 on."""
    low, high = map(float, span)
    value = math.exp(math.log(low) + share * (math.log(high) - math.log(low))) if low > 0 else share * high
    value = min(max(value, low), high)
    return round(value) if name == "warmup" else float(f"{value:.6g}")


def check_search(search: Any, report_seeds: Sequence[int], selection_seeds: Sequence[int]) -> None:
    """Raise ValueError with a sentence where a search's parts do not fit one another."""
    if both := sorted(set(report_seeds) & set(selection_seeds)):
        raise ValueError(
            f"search.seeds: seed {both[0]} is a seed of [sweep] too; a setting chosen on the seeds that are "
            "reported looks better than it is: give others"
        )
    drawn = ranges(search)
    if search.method == "grid" and drawn:
        raise ValueError(
            f"search.{next(iter(drawn))}: a grid has no ranges; list values in [sweep], or use method = "
            '"log_uniform" or "tpe"'
        )
    if search.method != "grid" and not drawn:
        raise ValueError(
            f'search.method {search.method!r} needs a range to draw from, as learning_rate = [1e-4, 1e-1]; or "grid"'
        )
    if search.method == "tpe" and search.halving:
        raise ValueError(
            "search.halving: it compares settings known beforehand; use it with grid or log_uniform"
        )


def rungs(settings: int, halving: int, steps: int) -> list[tuple[int, int]]:
    """The rounds of successive halving, as (settings tried, steps of each); the last one has all steps."""
    counts = [settings]
    while halving and counts[-1] > halving:
        counts.append(math.ceil(counts[-1] / halving))
    last = len(counts) - 1
    return [(count, max(1, steps // max(halving, 1) ** (last - i))) for i, count in enumerate(counts)]


def rule(search: Any, threshold: float) -> str:
    """How a setting was chosen, as the sentence under a table."""
    how = {
        "grid": "the settings listed",
        "log_uniform": "settings listed and drawn at random",
        "tpe": "settings that Optuna's TPE sampler proposed",
    }[search.method]
    halved = (
        f" Successive halving kept the best of every {search.halving} at shorter trainings."
        if search.halving
        else ""
    )
    best = (
        f"most of them solved (accuracy >= {threshold:g}), then the highest mean accuracy"
        if search.objective == "solved"
        else "the highest mean accuracy"
    )
    return (
        f"Each model's setting on a task was chosen among {how}, on {len(search.seeds)} selection seeds that are not "
        f"reported: {best}, then the smaller rate.{halved} The reported seeds were run with it alone, all in full."
    )
