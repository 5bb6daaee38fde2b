"""Where a ledger may lie: journal files, PostgreSQL, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from statelab.sweeps import extras
from statelab.sweeps.doctor import examine
from statelab.sweeps.errors import UserError
from statelab.sweeps.keeper import Keeper
from statelab.sweeps.read import parse_spec
from statelab.sweeps.record import LaneFolder, collect, collect_curves
from statelab.sweeps.storage import Storage, checked_url, without_password
from tests.sweeps import database
from tests.sweeps.specs import small
from tests.sweeps.test_plan import finish

needs_postgres = pytest.mark.skipif(database.missing() is not None, reason=str(database.missing()))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with database.postgres() as url:
        yield url


@pytest.fixture
def keeper() -> Iterator[Callable[..., Keeper]]:
    """Makes keepers of the small study, in a folder and at a URL."""
    made: list[Keeper] = []

    def make(folder: Path, url: str, **changes: object) -> Keeper:
        made.append(Keeper(parse_spec(small(**changes), ""), folder, url, lambda text: None))
        return made[-1]

    yield make
    for each in made:
        each.ledger.close()


@needs_postgres
def test_records_travel_through_a_database_to_workers_that_share_no_folder(
    tmp_path: Path, url: str, keeper: Callable[..., Keeper]
) -> None:
    one, two = keeper(tmp_path / "one", url), keeper(tmp_path / "two", url)
    assert one.start() == 12
    claimed = one.ledger.claim(one.cells(), 99)
    assert claimed is not None
    cell, lanes = claimed
    finish(tmp_path / "one", (cell,), lambda rate, seed: seed / 10)
    for lane in lanes:
        record = LaneFolder(tmp_path / "one", cell.lane_id(lane))
        record.add_point({"step": 5, "train_loss": 1.0, "loss": 0.5, "accuracy": 0.25})
        one.ledger.tell(record.id, lane.seed / 10)
    assert two.start() == 6
    for collected in (collect, collect_curves):
        pd.testing.assert_frame_equal(collected(tmp_path / "one"), collected(tmp_path / "two"))
    assert len(collect(tmp_path / "two")) == 6
    theirs = two.ledger.claim(two.cells(), 99)
    assert theirs == (two.cells()[1], two.cells()[1].lanes)


@needs_postgres
def test_the_lock_of_a_database_keeps_others_out(tmp_path: Path, url: str) -> None:
    psycopg = extras.need("psycopg", "postgres")
    storage = Storage(tmp_path, url)
    with storage.lock("a study"), psycopg.connect(url, autocommit=True) as other:
        held = other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        assert held.fetchone() == (1,)
    storage.close()


@needs_postgres
def test_doctor_tells_a_storage_that_answers_from_one_that_does_not(url: str) -> None:
    assert "PostgreSQL" in examine(url)
    gone = "postgresql://me:secret@127.0.0.1:9/none"
    said = examine(gone)
    assert "postgresql://me@127.0.0.1:9/none cannot be reached" in said
    assert "secret" not in said


@needs_postgres
def test_a_study_remembers_its_storage_without_the_password(
    tmp_path: Path, url: str, keeper: Callable[..., Keeper]
) -> None:
    keeper(tmp_path, url.replace("statelab@", "statelab:secret@"), training__steps=11).start()
    text = (tmp_path / "study.json").read_text()
    assert url in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("sqlite:///x.db", "SQLite locks fail between workers"),
        ("mysql://me@host/db", "a storage is given as postgresql://"),
        ("journal.log", "a storage is given as postgresql://"),
        ("postgresql://me:secret@[::1/db", r"^storage 'postgresql://…' is no URL"),
    ],
)
def test_another_kind_of_storage_is_answered(url: str, answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        checked_url(url)


def test_a_url_is_shown_without_its_password() -> None:
    assert without_password("postgresql://me:pa:ss@h:1/db?x=1") == "postgresql://me@h:1/db?x=1"
    assert without_password("postgresql://h/db") == "postgresql://h/db"
    assert (
        without_password("postgresql://h/db?password=x&sslmode=require")
        == "postgresql://h/db?sslmode=require"
    )


@pytest.mark.parametrize("extra", extras.EXTRAS)
def test_a_missing_extra_answers_with_its_install_line(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = extras.EXTRAS[extra][0]

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(UserError, match=rf"pip install 'statelab\[{extra}\]'"):
        extras.need(module, extra)
