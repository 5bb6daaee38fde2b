"""The checkpoints of a study: which lanes each one holds, told without reading it. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from statelab.sweeps.record import LaneFolder, write_atomically


class Populations:
    """`checkpoints/<hash of its lanes' ids>.ckpt`, each beside a `.lanes` file with the ids in their order."""

    def __init__(self, study: Path) -> None:
        self._study, self._folder = study, study / "checkpoints"

    def path(self, lane_ids: Sequence[str]) -> Path:
        """Where the checkpoint of these lanes, trained together in this order, lies or is to be written."""
        name = hashlib.blake2b("\n".join(lane_ids).encode(), digest_size=8).hexdigest()
        self._folder.mkdir(parents=True, exist_ok=True)
        listed = self._folder / f"{name}.lanes"
        if not listed.exists():
            write_atomically(listed, json.dumps(list(lane_ids)))
        return self._folder / f"{name}.ckpt"

    def groups(self) -> list[list[str]]:
        """The lanes of each checkpoint that there is, in the order of its population."""
        found = (_lanes_of(path.with_suffix(".lanes")) for path in sorted(self._folder.glob("*.ckpt")))
        return [lane_ids for lane_ids in found if lane_ids]

    def forget(self, lane_ids: Sequence[str]) -> None:
        """Remove what is kept of a population."""
        path = self.path(lane_ids)
        for kept in (path, path.with_suffix(".partial"), path.with_suffix(".lanes")):
            kept.unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what is left of populations whose lanes are all recorded."""
        for listed in self._folder.glob("*.lanes"):
            lane_ids = _lanes_of(listed)
            if all(LaneFolder(self._study, lane_id).finished() for lane_id in lane_ids):
                for kept in self._folder.glob(f"{listed.stem}.*"):
                    kept.unlink(missing_ok=True)


def _lanes_of(path: Path) -> list[str]:
    try:
        lane_ids = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [str(lane_id) for lane_id in lane_ids] if isinstance(lane_ids, list) else []
