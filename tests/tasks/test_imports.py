"""Reading a spec must stay quick: the registry and the checks of sizes never load torch."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from statelab.tasks import TASKS
for cls in TASKS.values():
    task = cls()
    task.check_length(64)
    assert task.vocab_size and task.num_answers and task.kinds
loaded = {"torch", "numpy"} & set(sys.modules)
assert not loaded, loaded
"""


def test_specs_are_read_without_torch() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)
