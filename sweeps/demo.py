"""The demo: its spec, and the sentence that says what its reader sees."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

POSITIVE = ("Mamba-2", "Gated DeltaNet [0,1]")
"""Models of the demo whose state transitions have no negative eigenvalue."""
SIGNED = ("GRU", "Gated DeltaNet [-1,1]")
"""Models of the demo that can flip the sign of what they keep."""


def demo_spec_path() -> Path:
    """The spec that `statelab demo` runs."""
    return Path(str(files("statelab.sweeps") / "specs" / "demo.toml"))


def demo_sentence(lanes: pd.DataFrame, lengths: pd.DataFrame) -> str:
    """What the demo's records show, as counted: all lanes at all rates, none left out."""
    solved = {model: _share(lanes[lanes["model"] == model]) for model in (*POSITIVE, *SIGNED)}
    longest = int(lengths["length"].max())
    far = lengths[lengths["length"] == longest].merge(lanes[["id", "threshold"]], on="id")
    beyond = ", ".join(f"{model} {_share(far[far['model'] == model])}" for model in SIGNED)
    counts = ", ".join(f"{model} {share}" for model, share in solved.items())
    length = int(lanes["length"].iloc[0])
    if all(share.startswith("0/") for model, share in solved.items() if model in POSITIVE) and not any(
        share.startswith("0/") for model, share in solved.items() if model in SIGNED
    ):
        what = (
            "a running parity must flip its state at every one: with only positive transitions no run solved it at "
            f"length {length}, with signed ones they did ({counts} runs)"
        )
    else:
        what = f"runs that solved a running parity at length {length}: {counts}"
    return f"What you see: {what}; of runs trained at {length}, still right at {longest}: {beyond}."


def _share(rows: pd.DataFrame) -> str:
    return f"{int((rows['accuracy'] >= rows['threshold']).sum())}/{len(rows)}"
