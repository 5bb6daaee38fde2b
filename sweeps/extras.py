"""Optional packages: imported only when asked for, and a missing one answers with its install line."""

from __future__ import annotations

import importlib
from typing import Any

from statelab.sweeps.errors import UserError

EXTRAS = {
    "dashboard": ("optuna_dashboard", "optuna-dashboard", "the ledger in a browser: statelab dashboard"),
    "postgres": ("psycopg", "psycopg", "a ledger in a database: --storage postgresql://…"),
    "ray": ("ray", "ray", "workers on a Ray cluster: --engine ray"),
    "slurm": ("submitit", "submitit", "workers as Slurm jobs: --engine slurm"),
}
"""For each extra: the module it imports, the package that has it, and what it is for."""


def need(module: str, extra: str) -> Any:
    """The module. Raises UserError with the install line where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise UserError(
            f"{module} is not installed: pip install 'statelab[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
        ) from None
