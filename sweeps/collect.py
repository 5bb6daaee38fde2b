"""A study's records as files that other programs read."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from statelab.sweeps import record
from statelab.sweeps.errors import UserError
from statelab.sweeps.keeper import damaged

if TYPE_CHECKING:
    import pandas as pd

TABLES: dict[str, Callable[[Path], pd.DataFrame]] = {
    "lanes": record.collect,
    "lengths": record.collect_lengths,
    "ranges": record.collect_ranges,
    "metrics": record.collect_metrics,
    "curves": record.collect_curves,
    "selection": record.collect_selection,
}
FORMATS = ("csv", "parquet")


def write_tables(study: Path, folder: Path, kind: str) -> list[str]:
    """Write each table that has rows into `folder`, whole or not at all; a sentence for each.

    Raises UserError for an unknown format, a folder that is no study, and Parquet without a package for it.
    """
    if kind not in FORMATS:
        raise UserError(f"unknown format {kind!r}; known: {', '.join(FORMATS)}")
    wanted = record.study_lanes(study)
    if wanted is None:
        raise UserError(f"{study} is no study: it has no study.json")
    folder.mkdir(parents=True, exist_ok=True)
    said = []
    for name, table in ((name, collected(study)) for name, collected in TABLES.items()):
        if not table.empty:
            path = folder / f"{name}.{kind}"
            _write(table, path, kind)
            said.append(f"{path}: {len(table):,} rows")
    if broken := damaged(study, wanted):
        said.append(
            f"{len(broken)} records cannot be read and are left out (the first: lanes/{broken[0]}/result.json)"
        )
    return said or [f"{study} has no finished lane yet"]


def _write(table: pd.DataFrame, path: Path, kind: str) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        if kind == "csv":
            table.to_csv(partial, index=False)
        else:
            table.to_parquet(partial, index=False)
        partial.replace(path)
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install pyarrow, or use --format csv") from None
    finally:
        partial.unlink(missing_ok=True)
