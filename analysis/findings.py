"""A study's records and all that is worked out from them: what every table and figure of a report reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from statelab.analysis.capacity import capacity_table
from statelab.analysis.differences import paired_differences
from statelab.analysis.escape import escape_times, time_differences, time_table
from statelab.analysis.lengths import chance_levels, length_table, reach_table
from statelab.analysis.published import FILE, PUBLISHED_COLUMNS, compare_published, read_published
from statelab.analysis.solved import choose_from, solved_table
from statelab.analysis.summaries import chosen_ids
from statelab.sweeps.record import (
    Records,
    collect_all,
    collect_curves,
    collect_metrics,
    study_lanes,
    study_rule,
)

Pairs = Sequence[tuple[str, str]]
MOST_CELLS = 8
"""A figure with panels shows no more (task, model) pairs than this; the tables have them all."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A study's records and what follows from them.

    `lanes`, `lengths`, `ranges`, `runs` are of sweeps.record.collect_all, `curves` and `metrics` of collect_curves and
    collect_metrics for the lanes at the chosen settings. The rest: solved.solved_table, solved.choose_rates,
    differences.paired_differences, lengths.length_table, reach_table and chance_levels, escape.escape_times,
    time_table and time_differences, capacity.capacity_table, published.compare_published. `wanted` is how many lanes
    the study's spec asks for, `spec` that spec, and `rule` how it chose settings on seeds of their own, where known.
    """

    name: str
    lanes: pd.DataFrame
    lengths: pd.DataFrame
    ranges: pd.DataFrame
    runs: pd.DataFrame
    curves: pd.DataFrame
    metrics: pd.DataFrame
    table: pd.DataFrame
    chosen: pd.DataFrame
    differences: pd.DataFrame
    by_length: pd.DataFrame
    reach: pd.DataFrame
    times: pd.DataFrame
    by_time: pd.DataFrame
    time_pairs: pd.DataFrame
    capacity: pd.DataFrame
    published: pd.DataFrame
    chance: Mapping[str, float]
    wanted: int | None
    spec: Mapping[str, Any]
    rule: str | None = None

    @cached_property
    def shown(self) -> Findings:
        """The findings with no more (task, model) pairs than a figure of panels shows."""
        if len(self.chosen) <= MOST_CELLS:
            return self
        chosen = self.chosen.head(MOST_CELLS)
        kept = chosen[["task", "model"]]
        frames = ("lanes", "lengths", "ranges", "curves", "metrics", "times", "table")
        fewer = {name: getattr(self, name).merge(kept, on=["task", "model"]) for name in frames}
        return replace(self, chosen=chosen, **fewer)


def find(study: Path) -> Findings | None:
    """Read a study's records and work out what they show; None where no lane has finished."""
    records = collect_all(study)
    if records.lanes.empty:
        return None
    table = solved_table(records.lanes)
    ids = set(chosen_ids(records.lanes, choose_from(table)))
    kept = _kept(study)
    wanted = study_lanes(study)
    return findings_of(
        records,
        table,
        name=str(kept.get("name", study.resolve().name)),
        curves=collect_curves(study, ids),
        metrics=collect_metrics(study, ids),
        published=read_published(study / FILE),
        wanted=None if wanted is None else len(wanted),
        spec=kept.get("spec", {}),
        rule=study_rule(study),
    )


def compare(studies: Sequence[Path]) -> Findings | None:
    """Several studies as one, each model named with its study; None where none has a finished lane.

    Models are compared between the studies that share their name, else every two of different studies. Raises
    ValueError where a folder is given twice.
    """
    if len({study.resolve() for study in studies}) < len(studies):
        raise ValueError(f"a study cannot be compared with itself: {', '.join(map(str, studies))}")
    found = {study: one for study in studies if (one := find(study)) is not None}
    if len(found) < 2:
        return next(iter(found.values()), None)
    names = [one.name for one in found.values()]
    if len(set(names)) < len(names):
        names = [f"{one.name} ({study})" for study, one in found.items()]
    parts = [_labelled(one, name) for name, one in zip(names, found.values(), strict=True)]
    joined = {
        key: pd.concat([getattr(part, key) for part in parts], ignore_index=True)
        for key in ("lanes", "lengths", "ranges", "runs", "curves", "metrics")
    }
    models = [list(dict.fromkeys(one.lanes["model"])) for one in found.values()]
    pairs = _across(names, models)
    records = Records(**{key: joined[key] for key in ("lanes", "lengths", "ranges", "runs")})
    return findings_of(
        records,
        solved_table(records.lanes),
        name=" and ".join(names),
        curves=joined["curves"],
        metrics=joined["metrics"],
        pairs=pairs,
    )


def findings_of(
    records: Records,
    table: pd.DataFrame,
    *,
    name: str,
    curves: pd.DataFrame,
    metrics: pd.DataFrame,
    published: pd.DataFrame | None = None,
    pairs: Pairs | None = None,
    wanted: int | None = None,
    spec: Mapping[str, Any] | None = None,
    rule: str | None = None,
) -> Findings:
    """All that follows from records and their solved table; `pairs` are the models to compare, else every two."""
    lanes, lengths = records.lanes, records.lengths
    chosen = choose_from(table)
    times = escape_times(lanes)
    by_length = length_table(lengths, lanes, chosen)
    return Findings(
        name=name,
        lanes=lanes,
        lengths=lengths,
        ranges=records.ranges,
        runs=records.runs,
        curves=curves,
        metrics=metrics,
        table=table,
        chosen=chosen,
        differences=paired_differences(lanes, chosen, pairs=pairs),
        by_length=by_length,
        reach=reach_table(by_length),
        times=times,
        by_time=time_table(times, chosen),
        time_pairs=time_differences(times, chosen, pairs=pairs),
        capacity=capacity_table(lanes, chosen),
        published=compare_published(
            pd.DataFrame(columns=pd.Index(PUBLISHED_COLUMNS)) if published is None else published,
            lanes,
            lengths,
            chosen,
        ),
        chance=chance_levels(lanes),
        wanted=wanted,
        spec=spec or {},
        rule=rule,
    )


def _labelled(found: Findings, name: str) -> Findings:
    """The records with each model and each lane named after its study, so that two studies' do not mix."""
    frames: dict[str, Any] = {}
    for key in ("lanes", "lengths", "ranges", "runs", "curves", "metrics"):
        frame: pd.DataFrame = getattr(found, key)
        columns = {"id": name + "/" + frame["id"].astype(str)}
        if "model" in frame.columns:
            columns["model"] = frame["model"].astype(str) + f" [{name}]"
        frames[key] = frame.assign(**columns)
    return replace(found, **frames)


def _across(names: Sequence[str], models: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Pairs of labelled models of different studies: of one name where there are any, else all."""
    every = [
        (first, second, f"{first} [{names[i]}]", f"{second} [{names[j]}]")
        for i in range(len(names))
        for j in range(i + 1, len(names))
        for first in models[i]
        for second in models[j]
    ]
    same = [(a, b) for first, second, a, b in every if first == second]
    return same or [(a, b) for _, _, a, b in every]


def _kept(study: Path) -> dict[str, Any]:
    try:
        kept = json.loads((study / "study.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
