"""200 specs that must not run: a typing error, a joke, an attack. Each with what its answer has to name."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.sweeps.specs import SMALL

Case = tuple[str, bytes, str]
"""A readable id, the file, and a pattern of the answer."""

KEYS = {
    "length = 6\n": ("tasks[0].length", "tasks"),
    'answer = "running"\n': ("tasks[0].answer", "tasks"),
    "width = 8\n": ("models[0].width", "models"),
    "steps = 12\n": ("training.steps", "training"),
    "batch = 4\n": ("training.batch", "training"),
    "every = 5\n": ("evaluation.every", "evaluation"),
    "rows = 16\n": ("evaluation.rows", "evaluation"),
    "learning_rate = [3e-3, 1e-2]\n": ("sweep.learning_rate", "sweep"),
    "seeds = 3\n": ("sweep.seeds", "sweep"),
    "threshold = 0.6\n": ("threshold", ""),
    'name = "small"\n': ("name", ""),
}
VALUES = {
    "a date": "1979-05-27",
    "a time": "07:32:00",
    "a moment": "1979-05-27T07:32:00Z",
    "nan": "nan",
    "minus infinity": "-inf",
    "negative": "-3",
    "negative zero": "-0.0",
    "huge": "1" + "0" * 30,
    "a boolean": "true",
    "an empty list": "[]",
    "a table": "{ a = 1 }",
    "a list of lists": "[[1], [2]]",
    "unicode": '"٣ \\u202E ☃"',
    "a path": '"../../../etc/passwd"',
}
SURROUNDINGS = (
    "not toml at all",
    "[[[[",
    "a = ",
    "= 3",
    '"""',
    "[tasks]\n[tasks]",
    "\x00",
    "{}",
    "[]",
    "name = 'x'",
)


def cases() -> list[Case]:
    """All of them, the same every time."""
    found = [*_wrong_values(), *_typos(), *_duplicates(), *_broken_files(), *_structures()]
    assert len({name for name, _, _ in found}) == len(found)
    return found


def _wrong_values() -> Iterator[Case]:
    for line, (path, _) in KEYS.items():
        key = line.split(" = ")[0]
        for kind, value in VALUES.items():
            text = SMALL.replace(line, f"{key} = {value}\n", 1)
            yield f"{path} is {kind}", text.encode(), re.escape(path.split("[")[0])


def _typos() -> Iterator[Case]:
    draw = random.Random(1)
    for line, (path, _) in KEYS.items():
        key = line.split(" = ")[0]
        at = draw.randrange(len(key))
        wrong = key[:at] + draw.choice("qxz") + key[at:]
        yield f"{path} misspelt", SMALL.replace(line, line.replace(key, wrong, 1), 1).encode(), wrong


def _duplicates() -> Iterator[Case]:
    for line, (path, _) in KEYS.items():
        yield f"{path} twice", SMALL.replace(line, line + line, 1).encode(), f"{line.split()[0]}.*twice"


def _broken_files() -> Iterator[Case]:
    for text in SURROUNDINGS:
        yield f"the file {text!r}", text.encode(), "spec"
    yield "an empty file", b"", "empty"
    yield "not UTF-8", b'name = "\xff\xfe"', "UTF-8"
    yield "a byte order mark of UTF-16", SMALL.encode("utf-16"), "UTF-8"
    yield "50 MB", b"# " + b"a" * 50_000_000, "50,000,002 bytes"
    yield "deep lists", f"name = {'[' * 20_000}{']' * 20_000}".encode(), "nested"
    yield "deep tables", f"[{'.'.join('a' * 5000)}]\n".encode(), "a: unknown key|nested"
    yield "cut off", SMALL[: len(SMALL) // 2].encode(), "spec|missing"
    yield "a number of 10,000 digits", SMALL.replace("steps = 12", f"steps = {'9' * 10_000}").encode(), "spec"


def _structures() -> Iterator[Case]:
    sections = {
        "tasks as a table": ('[[tasks]]', "[tasks]", "tasks"),
        "training as a list": ("[training]", "[[training]]", "training"),
        "an unknown task": ('task = "parity"', 'task = "pairity"', "Did you mean 'parity'"),
        "a task of 5000 letters": ('task = "parity"', f'task = "{"x" * 5000}"', "unknown task 'xxx"),
        "a key of 5000 letters": ("threshold", f"{'k' * 5000} = 1\nthreshold", "kkk\\.\\.\\.: unknown key"),
        "a task that is a list": ('task = "parity"', f"task = {[1] * 3000}", "unknown task"),
        "a name that clears the screen": ('name = "GRU"', 'name = "\\u001b[2J"', "models\\[0\\].name: a name"),
        "a name of two lines": ('name = "GRU"', 'name = "G\\nRU"', "models\\[0\\].name: a name"),
        "an unknown mixer": ('mixer = "gru"', 'mixer = "grru"', "Did you mean 'gru'"),
        "a mixer's option misspelt": ("conv = 0", "convv = 0", "layers\\[0\\].convv"),
        "a name that escapes": ('name = "small"', 'name = "../small"', "name: only letters"),
        "a name with a slash": ('name = "small"', 'name = "a/b"', "name: only letters"),
        "a hidden name": ('name = "small"', 'name = ".small"', "name: only letters"),
        "a name of 1000 letters": ('name = "small"', f'name = "{"a" * 1000}"', "name"),
        "a name that ends in a line": ('name = "small"', 'name = "small\\n"', "name"),
        "two models of a name": ('name = "Mamba-2"', 'name = "GRU"', "two models"),
        "a seed twice": ("seeds = 3", "seeds = [1, 1]", "sweep.seeds"),
        "a rate twice": ("[3e-3, 1e-2]", "[1e-3, 0.001]", "sweep.learning_rate"),
        "a million lanes": ("seeds = 3", f"seeds = 10000\nbeta1 = {[i / 99 for i in range(99)]}", "lanes"),
        "a test length of 0": ("[6, 9]", "[0]", "test_lengths"),
        "a billion layers": ('[{ mixer = "gru", conv = 0 }]', '[{ repeat = 1000000000, layers = ["gru"] }]', "layers"),
        "layers in layers": ('[{ mixer = "gru", conv = 0 }]', f'{"[" * 50}"gru"{"]" * 50}', "layers"),
        "a layer that is code": ('mixer = "gru", conv = 0', 'mixer = "__import__(\'os\')"', "layers"),
        "retries below 0": ("threshold", "retries = -1\nthreshold", "retries"),
        "a logger of no name": ("[training]", '[[loggers]]\nlogger = "rm -rf /"\n[training]', "loggers"),
        "a logger's folder": ("[training]", '[[loggers]]\nlogger = "CSVLogger"\nsave_dir = "/"\n[training]', "loggers"),
        "a search on the report seeds": ("[training]", "[search]\nseeds = [0]\n[training]", "search.seeds"),
        "a search in no range": ("[training]", '[search]\nseeds = 2\nmethod = "tpe"\n[training]', "search.method"),
        "a range upside down": (
            "[training]", '[search]\nseeds = 2\nmethod = "tpe"\nlearning_rate = [1, 0.1]\n[training]',
            "search.learning_rate",
        ),
        "a range of NaN": (
            "[training]", '[search]\nseeds = 2\nmethod = "tpe"\nlearning_rate = [nan, 0.1]\n[training]',
            "search.learning_rate",
        ),
        "a weight decay of negative zero": ("seeds = 3", "seeds = 3\nweight_decay = -0.0", "negative zero"),
        "halving by 1": ("[training]", "[search]\nseeds = 2\nhalving = 1\n[training]", "search.halving"),
    }  # fmt: skip
    for name, (old, new, answer) in sections.items():
        assert old in SMALL
        yield name, SMALL.replace(old, new, 1).encode(), answer
