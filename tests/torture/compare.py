"""Two ways in which one study was run, compared lane by lane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from statelab.sweeps.record import LaneFolder, collect, collect_curves, collect_lengths


def compare(calm: Path, stormy: Path) -> int:
    """Compare two studies lane by lane: bit for bit where the population is the same, else to rounding.

    Returns how many lanes were compared bit for bit.
    """
    for collected, key in (
        (collect, "id"),
        (collect_lengths, ["id", "length"]),
        (collect_curves, ["id", "step"]),
    ):
        left, right = (
            collected(study)
            .drop(columns=["seconds", "study"], errors="ignore")
            .sort_values(key, ignore_index=True)
            for study in (calm, stormy)
        )
        same = left["id"].map(lambda i: _population(calm, i) == _population(stormy, i))
        pd.testing.assert_frame_equal(left[same], right[same], check_exact=True)
        pd.testing.assert_frame_equal(left[["id"]], right[["id"]])
        for name in ("accuracy", "loss"):
            np.testing.assert_allclose(left[name], right[name], rtol=0, atol=1e-7, err_msg=name)
        if collected is collect:
            exact = int(same.sum())
    return exact


def _population(study: Path, lane_id: str) -> int:
    result = LaneFolder(study, lane_id).result()
    assert result is not None
    return int(result["run"]["population"])
