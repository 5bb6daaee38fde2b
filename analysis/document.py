"""The words around the pieces on a report's page: what was asked, how sure it is, where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from statelab.analysis import notes, page
from statelab.analysis.drawing import Picture
from statelab.analysis.findings import Findings
from statelab.analysis.pieces import Piece

_SHOWN = ("steps", "batch", "schedule", "arithmetic", "length", "threshold", "weight_decay", "clip", "warmup")


def document(
    found: Findings | None, pieces: Sequence[Piece], pictures: Mapping[str, Picture], studies: Sequence[Path]
) -> str:
    """The whole page, HTML; `studies` are the folders that it was read from."""
    if found is None:
        names = " and ".join(study.resolve().name for study in studies)
        empty = page.facts({"study": names})
        return page.page(
            title=names, lead=[notes.EMPTY], asked=empty, pieces=[], pictures={}, sure=[], origin=empty
        )
    shown = {name: (p.kind, p.files[p.shown], p.alt) for name, p in pictures.items()}
    return page.page(
        title=found.name,
        lead=_lead(found),
        asked=_asked(found),
        pieces=pieces,
        pictures=shown,
        sure=[
            *notes.study_notes(found.lanes, found.table, found.chosen, found.wanted, found.rule),
            *notes.METHODS,
        ],
        origin=_origin(found, studies),
    )


def _lead(found: Findings) -> list[str]:
    lanes = found.lanes
    diverged = int((lanes["status"] == "diverged").sum())
    best = found.chosen
    counts = (
        f"{len(lanes)} lanes{f' of {found.wanted}' if found.wanted else ''} have finished"
        + (f", {diverged} of them diverged" if diverged else "")
        + f". At the chosen rates {int(best['solved'].sum())} of {int(best['n'].sum())} lanes solved their task."
    )
    return [str(found.spec.get("description", "")), counts]


def _asked(found: Findings) -> str:
    lanes = found.lanes
    facts = {
        "tasks": ", ".join(dict.fromkeys(lanes["task"])),
        "models": ", ".join(dict.fromkeys(lanes["model"])),
        "learning rates": _values(lanes["learning_rate"]),
        "seeds": _seeds(lanes["seed"]),
    }
    facts |= {name.replace("_", " "): _values(lanes[name]) for name in _SHOWN if name in lanes.columns}
    text = page.facts(facts)
    if found.spec:
        text += page.folded("The whole spec, as a file to run again", page.code(page.as_toml(found.spec)))
    return text


def _origin(found: Findings, studies: Sequence[Path]) -> str:
    runs = found.runs
    finished = sorted(str(text) for text in runs["finished"].dropna()) if len(runs) else []
    facts = {
        "statelab": _values(runs["statelab"]),
        "torch": _values(runs["torch"]),
        "device": _values(found.lanes["device"]) if "device" in found.lanes.columns else "",
        "lanes trained together": _values(runs["population"]),
        "finished": ""
        if not finished
        else finished[0]
        if len(finished) == 1
        else f"{finished[0]} to {finished[-1]}",
        "lane-seconds in all": f"{found.lanes['seconds'].astype(float).sum():,.0f}",
    }
    names = [study.resolve().name for study in studies]
    again = [
        f"statelab run {name}.toml    # the spec above; goes on where lanes are missing" for name in names
    ]
    again.append(f"statelab report {' '.join(names)}")
    return page.facts(facts) + "<p>Again:</p>" + page.code("\n".join(again))


def _values(column: pd.Series[Any]) -> str:
    """The distinct values of a column, few in full."""
    values = list(dict.fromkeys(column.dropna()))
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(values)]
    return ", ".join(words) if len(words) <= 8 else f"{', '.join(words[:6])}, … ({len(words)} in all)"


def _seeds(seeds: pd.Series[Any]) -> str:
    values = sorted(set(seeds))
    if len(values) > 2 and values == list(range(values[0], values[-1] + 1)):
        return f"{values[0]} to {values[-1]}"
    return _values(seeds)
