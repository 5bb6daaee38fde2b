"""Keeps a study's folder, its ledger and its plan in line with one another."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from statelab.sweeps.cells import Cell, study_key
from statelab.sweeps.errors import UserError
from statelab.sweeps.journal import held
from statelab.sweeps.plan import Plan, make_plan
from statelab.sweeps.readable import read_study
from statelab.sweeps.record import LaneFolder, lane_folders, write_atomically
from statelab.sweeps.spec import Spec
from statelab.sweeps.storage import without_password
from statelab.sweeps.study import Ledger


class Keeper:
    """One study as its launcher and every worker see it.

    `url` is the database in which the ledger lies, None for the journal file in the folder.
    """

    def __init__(self, spec: Spec, folder: Path, url: str | None, say: Callable[[str], None]) -> None:
        self.spec, self.folder, self.url, self._say = spec, folder, url, say
        self.name = study_name(spec)
        folder.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(folder, self.name, url)
        if self.ledger.rebuilt:
            say(f"{folder}/journal.log could not be read; it was set aside and made anew from the records")
        self.plan: Plan | None = None
        self._kept: str | None = None

    def start(self, *, retry_failed: bool = False) -> int:
        """Begin, or go on with, the study: say what is new, write study.json; return how many lanes wait."""
        self._tell_what_changed()
        if self.url is not None:
            self.ledger.keep("spec", self.spec.model_dump(mode="json"))
        waiting = self._refresh(retry_failed)
        if self.ledger.lost:
            self._say(
                f"{len(self.ledger.lost)} lanes were finished, but their records are gone or cannot be read "
                f"(the first: lanes/{self.ledger.lost[0]}): they are run again"
            )
        return waiting

    def cells(self) -> Sequence[Cell]:
        """The cells that the results so far ask for; what is new in them is enqueued."""
        self._refresh(False)
        assert self.plan is not None
        return self.plan.cells

    def lane_ids(self) -> list[str]:
        """Every lane that the plan has so far."""
        assert self.plan is not None
        return [*self.plan.ids("report"), *self.plan.ids("selection")]

    def failed(self) -> dict[str, str]:
        """Lanes of the plan that are not tried again, each with its error."""
        known = set(self.lane_ids())
        return {lane_id: error for lane_id, error in self.ledger.failed().items() if lane_id in known}

    def _refresh(self, retry_failed: bool) -> int:
        with held(self.folder / "study.flock"):
            for left in self.folder.glob(".study.json.*.partial"):
                left.unlink(missing_ok=True)  # by a process that was killed while it wrote
            plan, waiting = self._made(), self.ledger.sync(self._made().cells, retry_failed=retry_failed)
            # What the sync found, in a database that workers share, may be what the next cells waited for.
            while plan.cells != (further := self._made()).cells:
                plan, waiting = further, self.ledger.sync(further.cells)
            self.plan = plan
            self._write(plan)
        return waiting

    def _made(self) -> Plan:
        return make_plan(self.spec, self.folder, self.ledger.failed())

    def _write(self, plan: Plan) -> None:
        kept: dict[str, Any] = {
            "name": self.spec.name,
            "study": self.name,
            "storage": None if self.url is None else without_password(self.url),
            "spec": self.spec.model_dump(mode="json"),
            "lanes": plan.ids("report"),
        }
        if plan.rule is not None:
            kept |= {"rule": plan.rule, "selection": plan.ids("selection"), "chosen": plan.choices_as_data()}
            kept["open"] = plan.is_open
        text = json.dumps(kept, indent=2)
        if text != self._kept:
            write_atomically(self.folder / "study.json", text)
            self._kept = text

    def _tell_what_changed(self) -> None:
        try:
            before = read_study(self.folder)
        except UserError as error:
            self._say(f"{error}: now it is")
            return
        if before is None:
            return
        ids = set(make_plan(self.spec, self.folder).ids("report")) | set(before.get("selection", []))
        earlier = {lane.id for lane in lane_folders(self.folder) if lane.finished()} - ids
        if before.get("study") not in (None, self.name):
            changes = ", ".join(_changes(before.get("spec"), self.spec.model_dump(mode="json")))
            self._say(f"{changes or 'training or evaluation'} changed: this is a new study, {self.name}")
        if earlier:
            self._say(
                f"{len(earlier)} finished lanes in {self.folder} have other settings than this spec: "
                "they are kept there and left out of the tables"
            )


def study_name(spec: Spec) -> str:
    """The name of the study in its ledger: the spec's, and a hash of what all of its results depend on."""
    return f"{spec.name}-{study_key(spec)}"


def damaged(folder: Path, lane_ids: Sequence[str]) -> list[str]:
    """Lanes whose result is there and cannot be read."""
    found = (LaneFolder(folder, lane_id) for lane_id in lane_ids)
    return [lane.id for lane in found if (lane.path / "result.json").exists() and lane.result() is None]


def _changes(before: Any, now: dict[str, Any]) -> list[str]:
    found = []
    for section in ("training", "evaluation", "anneal"):
        old, new = before.get(section) if isinstance(before, dict) else None, now[section]
        if isinstance(old, dict) and isinstance(new, dict):
            keys = [key for key in new if old.get(key) != new[key]]
            found += [f"{section}.{key} {old.get(key)} → {new[key]}" for key in keys]
        elif old != new:
            found.append(section)
    return found
