"""Tables and figures of finished lanes, from their records alone: nothing here needs torch.

What a notebook wants can be taken from here; each name is imported when first asked for, so that importing
this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelab.analysis.differences import paired_differences as paired_differences
    from statelab.analysis.figures import length_figure as length_figure
    from statelab.analysis.figures import solved_figure as solved_figure
    from statelab.analysis.lengths import length_table as length_table
    from statelab.analysis.report import write_report as write_report
    from statelab.analysis.solved import choose_rates as choose_rates
    from statelab.analysis.solved import solved_table as solved_table

_HOMES = {
    "choose_rates": "solved",
    "length_figure": "figures",
    "length_table": "lengths",
    "paired_differences": "differences",
    "solved_figure": "figures",
    "solved_table": "solved",
    "write_report": "report",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"statelab.analysis has no '{name}'; it has {', '.join(_HOMES)}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
