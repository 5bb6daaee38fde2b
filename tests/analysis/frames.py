"""Made-up lanes, as sweeps.record collects them, for the tests of the analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from statelab.sweeps.record import CURVE_COLUMNS, LANE_COLUMNS, LENGTH_COLUMNS, LaneFolder

THRESHOLD = 0.9
CHANCE = 0.5

Accuracy = Callable[[str, str, float, int], float | None]
"""(task, model, rate, seed) to the final accuracy; None for a lane that diverged before it was evaluated."""


def lane(
    task: str, model: str, rate: float, seed: int, accuracy: float | None, **others: object
) -> dict[str, object]:
    """One row of `collect`; a lane without accuracy has diverged."""
    row: dict[str, object] = {
        "id": f"{task}-{model}-{rate:g}-{seed}",
        "study": "made-up",
        "task": task,
        "model": model,
        "seed": seed,
        "learning_rate": rate,
        "weight_decay": 0.1,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "clip": None,
        "warmup": 0,
        "floor": 0.0,
        "schedule": "cosine",
        "steps": 600,
        "batch": 64,
        "arithmetic": "float32",
        "length": 16,
        "threshold": THRESHOLD,
        "status": "diverged" if accuracy is None else "finished",
        "diverged_at": 7 if accuracy is None else None,
        "accuracy": accuracy,
        "scaled_accuracy": None if accuracy is None else (accuracy - CHANCE) / (1 - CHANCE),
        "loss": None if accuracy is None else 1 - accuracy,
        "escape_step": 300 if accuracy is not None and accuracy >= THRESHOLD else None,
        "parameters": 5000,
        "state_size": 64,
        "seconds": 1.5,
        "device": "cpu",
    }
    return row | others


def lanes_of(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(LANE_COLUMNS))


def grid(
    tasks: Sequence[str], models: Sequence[str], rates: Sequence[float], seeds: int, accuracy: Accuracy
) -> pd.DataFrame:
    """Every lane of a study, in the order of a spec."""
    return lanes_of(
        [
            lane(task, model, rate, seed, accuracy(task, model, rate, seed))
            for task in tasks
            for model in models
            for rate in rates
            for seed in range(seeds)
        ]
    )


def by_length(lanes: pd.DataFrame, lengths: Sequence[int], decay: float = 0.2) -> pd.DataFrame:
    """Rows of `collect_lengths`: accuracy falls towards chance by the share `decay` with each length."""
    rows = [
        {
            **{name: row[name] for name in ("id", "study", "task", "model", "seed", "learning_rate")},
            "train_length": row["length"],
            "length": length,
            "accuracy": CHANCE + (row["accuracy"] - CHANCE) * (1 - decay) ** place,
            "loss": 0.1,
        }
        for _, row in lanes.iterrows()
        for place, length in enumerate(lengths)
        if not pd.isna(row["accuracy"])
    ]
    return pd.DataFrame(rows, columns=list(LENGTH_COLUMNS))


def curves_of(lanes: pd.DataFrame, every: int = 100) -> pd.DataFrame:
    """Rows of `collect_curves`: chance until the escape step, the final accuracy from then on."""
    rows = []
    for _, row in lanes.iterrows():
        if pd.isna(row["accuracy"]):
            continue
        escape = row["escape_step"] if not pd.isna(row["escape_step"]) else row["steps"]
        for step in range(every, int(row["steps"]) + 1, every):
            accuracy = row["accuracy"] if step >= escape else CHANCE
            losses = {"train_loss": 1 - accuracy, "loss": 1 - accuracy}
            key = {name: row[name] for name in CURVE_COLUMNS[:6]}
            rows.append(key | {"step": step, "accuracy": accuracy} | losses)
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS))


def write_study(folder: Path, lanes: pd.DataFrame, lengths: pd.DataFrame) -> Path:
    """The same lanes as a study's folder of records."""
    curves = curves_of(lanes)
    for _, row in lanes.astype(object).where(lanes.notna(), None).iterrows():
        of_lane = lengths[lengths["id"] == row["id"]]
        record = LaneFolder(folder, row["id"])
        points = curves.loc[curves["id"] == row["id"], list(CURVE_COLUMNS[6:])]
        record.start({"made": "up"}, points.to_dict("records"))
        tests = of_lane[["length", "accuracy", "loss"]].to_dict("records")
        measured = [test | {"metrics": {"prefix_exact": [1.0, 0.5]}} for test in tests]
        ranges = [test | {"shortest": 4} for test in tests]
        run = {"population": 8, "torch": "2.13.0", "statelab": "0.1", "finished": "2026-01-02T03:04:05+00:00"}
        record.commit({"row": row.drop("id").to_dict(), "lengths": measured, "ranges": ranges, "run": run})
    folder.mkdir(exist_ok=True)
    return folder
