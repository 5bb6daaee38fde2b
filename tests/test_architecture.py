"""Who may import whom. This dictionary is the one place that says it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

OURS = {
    "tasks": {"tasks"},
    "kernels": {"kernels"},
    "models": {"models", "kernels", "tasks"},
    "sweeps": {"sweeps", "tasks", "models"},
    "analysis": {"analysis", "sweeps.record", "sweeps.spec"},
}
"""For each folder, what of ours its files may import."""

OURS_OF_FILE = {
    # What a person sees stands above everything: the command line, its lists, the run that ends in a report.
    "sweeps/cli.py": {"sweeps", "tasks", "models", "analysis"},
    "sweeps/overview.py": {"sweeps", "tasks", "models", "analysis"},
    "sweeps/reports.py": {"sweeps", "models", "analysis"},
    "sweeps/launch.py": {"sweeps", "tasks", "models", "analysis"},
    # Benchmarks lie beside what they measure.
    "sweeps/bench.py": {"sweeps", "tasks", "models", "analysis"},
    "sweeps/cli_lists.py": {"sweeps", "tasks", "models", "kernels", "analysis"},
}
"""Files that may import more than their folder."""

HOMES = {
    "torch": ("tasks/", "kernels/", "models/", "sweeps/"),
    "triton": ("kernels/",),
    "lightning": ("models/learner.py", "sweeps/run.py"),
    "optuna": (
        "sweeps/study.py",
        "sweeps/journal.py",
        "sweeps/storage.py",
        "sweeps/trials.py",
        "sweeps/suggest.py",
    ),
    "pydantic": (
        "sweeps/spec.py",
        "sweeps/parts.py",
        "sweeps/schema.py",
        "sweeps/read.py",
        "sweeps/overview.py",
    ),
    "typer": ("sweeps/cli.py", "sweeps/cli_bench.py", "sweeps/cli_lists.py", "sweeps/cli_studies.py"),
    "seaborn": ("analysis/",),
    "matplotlib": ("analysis/",),
    "scipy": ("analysis/",),
}
"""For each library that is kept in its place, the files and folders that may import it."""

FILES = sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import; write it in full: from statelab.…"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_folder_may(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    allowed = OURS_OF_FILE.get(name, OURS[name.split("/")[0]])
    for imported in imports_of(path):
        parts = imported.split(".")
        if parts[0] in OURS:
            pytest.fail(f"{name} imports {imported}; write it in full: statelab.{imported}")
        if parts[0] == "statelab" and len(parts) > 1 and parts[1] in OURS:
            inner = ".".join(parts[1:]) + "."
            assert any(inner.startswith(a + ".") for a in allowed), (
                f"{name} imports {imported}, but {name.split('/')[0]}/ may import only {sorted(allowed)}"
            )
        if parts[0] in HOMES:
            homes = HOMES[parts[0]]
            assert any(name.startswith(home) for home in homes), (
                f"{name} imports {parts[0]}, which only {', '.join(homes)} may import"
            )


def test_links_make_the_top_level_folders_the_package() -> None:
    for folder in OURS:
        link = ROOT / "statelab" / folder
        assert link.is_symlink()
        assert link.resolve() == ROOT / folder


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import statelab.sweeps.cli", ("torch", "pydantic", "pandas", "optuna")),
        ("from statelab.sweeps.demo import demo_spec_path\n"
         "from statelab.sweeps.read import read_spec\n"
         "from statelab.sweeps.overview import describe\n"
         "describe(read_spec(demo_spec_path()))", ("torch", "lightning", "optuna", "seaborn")),
        ("import statelab.analysis.report, statelab.sweeps.record", ("torch",)),
    ],
    ids=["help", "check", "analysis"],
)  # fmt: skip
def test_quick_parts_import_nothing_heavy(statement: str, unwanted: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint(*(set(sys.modules) & {set(unwanted)!r}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
