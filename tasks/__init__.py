"""Tasks: pure functions from (seed, split, row) to tokens and targets.

The registry of their classes, importable without torch.
"""

from __future__ import annotations

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

TASKS: dict[str, type[Task]] = {
    "bracket_arithmetic": BracketArithmetic,
    "cycle_navigation": CycleNavigation,
    "even_pairs": EvenPairs,
    "fuzzy_recall": FuzzyRecall,
    "group_word": GroupWord,
    "modular_arithmetic": ModularArithmetic,
    "mqar": MQAR,
    "needle": Needle,
    "noisy_recall": NoisyRecall,
    "parity": Parity,
    "selective_copying": SelectiveCopying,
}
