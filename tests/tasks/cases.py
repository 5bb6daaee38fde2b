"""The settings over which the contract of a task is tested: each registered task's defaults, and odd ones."""

from __future__ import annotations

from typing import NamedTuple

from statelab.tasks import TASKS
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


class Case(NamedTuple):
    name: str
    task: Task
    length: int

    def __str__(self) -> str:
        changed = [f"{k}={v}" for k, v in vars(self.task).items() if v != getattr(type(self.task), k)]
        return "-".join([self.name, *changed, str(self.length)])


def legal(task: Task, length: int) -> bool:
    try:
        task.check_length(length)
    except ValueError:
        return False
    return True


def _defaults() -> list[Case]:
    """Each task as it comes, at the smallest length it allows and at the smallest above 32."""
    tasks = {name: cls() for name, cls in TASKS.items()}
    return [
        Case(name, task, next(n for n in range(least, 4096) if legal(task, n)))
        for name, task in tasks.items()
        for least in (1, 33)
    ]


CASES = [
    *_defaults(),
    Case("bracket_arithmetic", BracketArithmetic(min_length=3), 40),
    Case("bracket_arithmetic", BracketArithmetic(modulus=13, multiply=True, peer_compat=True), 8),
    Case("bracket_arithmetic", BracketArithmetic(multiply=True, min_length=6, peer_compat=True), 61),
    Case("cycle_navigation", CycleNavigation(cycle=7, reach=2, min_length=2), 20),
    Case("cycle_navigation", CycleNavigation(cycle=2, answer="running", min_length=3), 65),
    Case("even_pairs", EvenPairs(min_length=2), 33),
    Case("group_word", GroupWord(peer_compat=True), 8),
    Case("group_word", GroupWord(group="A4xZ5"), 17),
    Case("group_word", GroupWord(group="D4"), 33),
    Case("group_word", GroupWord(group="S5", generators="swaps", peer_compat=True), 21),
    Case("modular_arithmetic", ModularArithmetic(min_length=12, peer_compat=True), 40),
    Case("modular_arithmetic", ModularArithmetic(modulus=2, multiply=False, min_length=4), 13),
    Case("modular_arithmetic", ModularArithmetic(modulus=97, min_length=3), 66),
    Case("parity", Parity(min_length=1), 1),
    Case("parity", Parity(min_length=5), 37),
    Case("parity", Parity(answer="running"), 1),
    Case("parity", Parity(answer="running"), 65),
    Case("parity", Parity(modulus=3, min_length=4), 40),
    Case("parity", Parity(modulus=1000), 5),
    Case("parity", Parity(modulus=12, answer="running"), 33),
    Case("noisy_recall", NoisyRecall(vocab=12, noise_vocab=4, noise=0.4), 16),
    Case("noisy_recall", NoisyRecall(vocab=13, noise_vocab=4, noise=0.4, loss_on="scored"), 30),
    Case("noisy_recall", NoisyRecall(vocab=12, noise_vocab=4, multi_query=False), 16),
    Case("noisy_recall", NoisyRecall(vocab=18, noise_vocab=1, multi_query=False, loss_on="scored"), 34),
    Case("noisy_recall", NoisyRecall(vocab=3, noise_vocab=0, noise=0.0), 10),
    Case("noisy_recall", NoisyRecall(vocab=9, noise_vocab=5, noise=1.0), 12),
    Case("fuzzy_recall", FuzzyRecall(vocab=32, multi_query=False, loss_on="scored"), 128),
    Case("fuzzy_recall", FuzzyRecall(vocab=12, key_tokens=2, noise_vocab=2, noise=0.5), 30),
    Case("fuzzy_recall", FuzzyRecall(vocab=5, key_tokens=1, value_tokens=1, multi_query=False), 5),
    Case("mqar", MQAR(pairs=64), 512),
    Case("mqar", MQAR(vocab=12, pairs=5, filler="zero", power=1.0), 20),
    Case("mqar", MQAR(vocab=4, pairs=1, updates=1), 6),
    Case("mqar", MQAR(vocab=100, pairs=8, updates=8, peer_compat=True, filler="zero"), 60),
    Case("mqar", MQAR(vocab=400, pairs=((16, 2), (32, 2), (32, 5), (32, 8))), 40),
    Case("needle", Needle(variant="single_2", block=1), 65),
    Case("needle", Needle(variant="single_3", loss_on="all"), 300),
    Case("needle", Needle(variant="multikey_1", word_vocab=2, key_tokens=2, value_tokens=1), 33),
    Case("needle", Needle(variant="multikey_2", word_vocab=2, key_tokens=3, value_tokens=1), 40),
    Case("needle", Needle(variant="multikey_3"), 400),
    Case("needle", Needle(variant="multivalue", keys=2, queries=2, value_tokens=2), 100),
    Case("needle", Needle(variant="multiquery", loss_on="all"), 200),
    Case("needle", Needle(variant="single_1", keys=3, values=2, queries=2, block=2, value_tokens=9), 160),
    Case("selective_copying", SelectiveCopying(vocab=4, copies=1), 4),
    Case("selective_copying", SelectiveCopying(vocab=10, copies=7, peer_compat=True), 41),
]
