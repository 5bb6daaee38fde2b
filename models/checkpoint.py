"""Checkpoints of populations: some lanes of one are a checkpoint of a smaller population."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A Learner's checkpoint, on the CPU; nothing in the file is executed.

    Raises ValueError with a sentence where the file is no readable checkpoint of ours.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} is no readable checkpoint ({type(error).__name__})") from None
    if not isinstance(found, dict) or "statelab" not in found:
        raise ValueError(f"{path} is no checkpoint of statelab")
    return found


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a checkpoint so that its path holds the old file or the new one and nothing between."""
    partial = path.with_suffix(".partial")
    torch.save(checkpoint, partial)
    partial.replace(path)


def select_lanes(checkpoint: dict[str, Any], keep: Sequence[int]) -> dict[str, Any]:
    """The checkpoint of the population that has only lanes `keep`, in that order."""
    lanes = checkpoint["state_dict"]["population.flat"].shape[0]
    kept = dict(checkpoint["statelab"])
    kept["evaluations"] = [_evaluation(plain, keep) for plain in kept["evaluations"]]
    if kept.get("lane_ids") is not None:
        kept["lane_ids"] = [kept["lane_ids"][lane] for lane in keep]
    chosen = dict(checkpoint, statelab=kept)
    for part in ("state_dict", "optimizer_states"):
        chosen[part] = _select(checkpoint[part], list(keep), lanes)
    return chosen


def _evaluation(plain: dict[str, Any], keep: Sequence[int]) -> dict[str, Any]:
    return {k: [v[lane] for lane in keep] if isinstance(v, list) else v for k, v in plain.items()}


def _select(value: Any, keep: list[int], lanes: int) -> Any:
    """Index the lane axis, which is the first of every tensor that has axes."""
    if isinstance(value, Tensor):
        return value[keep].clone() if value.ndim and value.shape[0] == lanes else value
    if isinstance(value, dict):
        return {key: _select(item, keep, lanes) for key, item in value.items()}
    return [_select(item, keep, lanes) for item in value] if isinstance(value, list) else value
