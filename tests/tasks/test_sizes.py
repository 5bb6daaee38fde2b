"""Any sizes: what the checks let pass can be drawn and is asked rightly."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from statelab.tasks.noisy_recall import NoisyRecall
from statelab.tasks.parity import Parity
from statelab.tasks.rows import Rows
from statelab.tasks.task import Task
from tests.tasks.cases import legal
from tests.tasks.oracles import ORACLES

ints = st.integers
parities = st.one_of(
    st.builds(Parity, modulus=ints(2, 1024), min_length=st.none() | ints(1, 40)),
    st.builds(Parity, modulus=ints(2, 1024), answer=st.just("running")),
)


@st.composite
def recalls(draw: st.DrawFn) -> NoisyRecall:
    noise_vocab, noise = draw(ints(0, 20)), draw(st.sampled_from([0.0, 0.2, 0.8, 0.99, 1.0]))
    multi_query = draw(st.booleans())
    least = noise_vocab + 3 + (not multi_query)
    return NoisyRecall(
        vocab=draw(ints(least, least + 30)),
        noise_vocab=noise_vocab,
        noise=noise if noise_vocab else 0.0,
        multi_query=multi_query,
        loss_on=draw(st.sampled_from(["all", "scored"])),
    )


def check(name: str, task: Task, length: int, seed: int, start: int) -> None:
    batch = task.sample(Rows.span([seed], "train", start, 8), length)
    for i in range(8):
        targets, distance, size = ORACLES[name](task, batch.inputs[0, i].tolist())
        assert batch.targets[0, i].tolist() == targets
        assert batch.length[0, i] == size
        assert distance is None or (batch.distance is not None and batch.distance[0, i].tolist() == distance)


starts = ints(0, 2**62)


@settings(deadline=None, max_examples=60)
@given(task=parities, length=ints(1, 80), seed=ints(0, 2**32 - 1), start=starts)
def test_parity(task: Parity, length: int, seed: int, start: int) -> None:
    assume(legal(task, length))
    check("parity", task, length, seed, start)


@settings(deadline=None, max_examples=60)
@given(task=recalls(), pairs=ints(2, 40), seed=ints(0, 2**32 - 1), start=starts)
def test_noisy_recall(task: NoisyRecall, pairs: int, seed: int, start: int) -> None:
    check("noisy_recall", task, 2 * pairs, seed, start)
