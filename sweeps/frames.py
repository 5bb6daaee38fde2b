"""Records as pandas frames with fixed columns, whatever the records lack. Imports pandas when it makes one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

TEXT_COLUMNS = frozenset(
    {"id", "study", "task", "model", "schedule", "arithmetic", "status", "device", "metric"}
    | {"torch", "statelab", "finished"}
)


def frame_of(rows: Iterable[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows as a frame; numbers that may be missing are floats."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(columns))
    numbers = [name for name in columns if name not in TEXT_COLUMNS]
    return frame.astype({name: float for name in numbers if frame[name].isna().any()})


def stacked(
    parts: Iterable[tuple[dict[str, Any], Mapping[str, Collection[Any]]]], columns: tuple[str, ...]
) -> pd.DataFrame:
    """A frame of parts, each a key that its rows share and columns of its own; millions of rows stay small."""
    import numpy as np
    import pandas as pd

    kept = [(key, own) for key, own in parts if all(own.values())]
    if not kept:
        return frame_of([], columns)
    counts = [len(next(iter(own.values()))) for _, own in kept]
    frame = {}
    for name in columns:
        if name in kept[0][1]:
            whole = name in ("step", "index")
            frame[name] = np.concatenate([np.array(own[name], int if whole else float) for _, own in kept])
        else:
            frame[name] = pd.Series([key[name] for key, _ in kept]).repeat(counts).to_numpy()
    return pd.DataFrame(frame)
