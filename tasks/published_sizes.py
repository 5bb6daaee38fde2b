"""The sizes at which tasks are published, and how fast the generators there make rows.

The published figures are rows a second of one core of an AMD EPYC virtual machine (Python 3.11, numpy 2.4),
the best of three runs of the generators' own code: `generate_…_instance` of mad-lab for noisy recall, fuzzy
recall and selective copying, zoology's `multiquery_ar` and `cumulative_parity`, the `parity`,
`modular_arithmetic` and `modular_arithmetic_with_brackets` of unlocking_state_tracking (the functions alone,
without their data set's wrapper), DeltaProduct's group words (written to a file, as it does) and RULER's
`niah.py` with a tokenizer that splits at spaces.
"""

from __future__ import annotations

from dataclasses import dataclass

from statelab.tasks.bracket_arithmetic import BracketArithmetic
from statelab.tasks.cycle_navigation import CycleNavigation
from statelab.tasks.even_pairs import EvenPairs
from statelab.tasks.fuzzy_recall import FuzzyRecall
from statelab.tasks.group_word import GroupWord
from statelab.tasks.modular_arithmetic import ModularArithmetic
from statelab.tasks.mqar import MQAR
from statelab.tasks.needle import Needle
from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.parity import Parity
from statelab.tasks.selective_copying import SelectiveCopying
from statelab.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Size:
    """A task at a published size: rows a second of its published generator, and those we aim at, if any."""

    task: Task
    length: int
    published: float | None = None
    target: float | None = None
    step_target: float = 2.0
    """Milliseconds that a step's rows may take on a GPU."""


SIZES = (
    Size(task=BracketArithmetic(min_length=40), length=256, published=1_180, target=15_000),
    Size(task=CycleNavigation(min_length=39), length=255),
    Size(task=EvenPairs(min_length=39), length=255),
    Size(task=FuzzyRecall(), length=128, published=336),
    Size(task=GroupWord(), length=128, published=4_240),
    Size(task=GroupWord(), length=512, published=1_090, target=50_000),
    Size(task=GroupWord(group="S5"), length=128, published=80),
    Size(task=ModularArithmetic(min_length=40, peer_compat=True), length=256, published=6_390, target=50_000),
    Size(task=MQAR(pairs=4), length=64, published=2_750),
    Size(task=MQAR(pairs=64), length=512, published=2_435, target=20_000),
    Size(task=MQAR(pairs=256), length=1024, published=1_423),
    Size(task=Needle(), length=4096),
    Size(task=Needle(variant="multikey_2"), length=4096, published=170),
    Size(task=NoisyRecall(vocab=32, noise=0.2), length=128, published=1_240),
    Size(task=NoisyRecall(), length=512, published=249),
    Size(task=NoisyRecall(vocab=96), length=1024, published=129, target=13_000, step_target=1.0),
    Size(task=Parity(min_length=39), length=255, published=10_240, target=200_000),
    Size(task=Parity(answer="running"), length=255, published=4_520),
    Size(task=SelectiveCopying(), length=256, published=11_200),
)
"""Each task, in the order of their names. Two published figures are of other settings that cost the same:
zoology's cumulative parity of T = 256 has 255 bits, and RULER's 4096 are words."""
