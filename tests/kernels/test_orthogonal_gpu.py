"""The orthogonal read's kernels on a card, every configuration in use, against the definition in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.kernels.orthogonal_read import COEFFICIENTS
from tests.kernels.graphs import eager_and_replayed
from tests.kernels.orthogonal import Case, bound, draw, errors

pytestmark = pytest.mark.gpu

ON_CARD: list[Case] = [
    *((37, d, d, "cubic", 5, "off", "bf16") for d in (9, 16, 31, 32, 47, 48, 64)),
    (130, 48, 48, "cubic", 5, "off", "bf16"),
    (63, 48, 33, "cubic", 8, "off", "bf16"),
    (130, 48, 48, "cubic", 5, "off", "bf16x3"),
    (63, 32, 32, "cubic", 5, "off", "bf16x3"),
    (130, 48, 48, "cubic", 5, "off", "tf32"),
    (37, 32, 32, "cubic", 17, "off", "tf32"),
    *((37, d, d, "cubic", 5, "off", "fp16") for d in (16, 32, 47, 48, 64)),
    (130, 48, 48, "cubic", 5, "off", "fp16"),
    (20, 32, 32, "cubic", 5, "forward", "fp16"),
    (33, 16, 16, "quintic", 5, "off", "bf16x3"),
    (33, 32, 32, "quintic", 5, "off", "bf16x3"),
    (63, 48, 48, "quintic", 5, "off", "bf16x3"),
    (33, 32, 32, "quintic", 5, "off", "bf16x6"),
    (20, 32, 32, "cubic", 5, "forward", "bf16"),
    (20, 32, 32, "cubic", 5, "backward", "bf16"),
    (20, 32, 32, "cubic", 0, "off", "bf16"),
]


def poison() -> None:
    torch.full((2**28,), float("nan"), device="cuda")


SLOW: list[Case] = [(33, 64, 64, "quintic", 5, "off", "bf16x3")]
"""Five minutes of compiling."""


@pytest.mark.parametrize(
    "case", [*ON_CARD, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str
)
def test_it_is_the_definition_on_a_card(case: Case) -> None:
    poison()
    assert max(errors(case, "cuda")) < bound(case)


def no_memory(drawn: list[Tensor]) -> None:
    drawn[5].zero_()


def one_key(drawn: list[Tensor]) -> None:
    drawn[1].copy_(drawn[1][:, :1].expand_as(drawn[1]))
    drawn[5].zero_()


def never_forgets(drawn: list[Tensor]) -> None:
    drawn[3].mul_(1e-4)


def forgets_at_once(drawn: list[Tensor]) -> None:
    drawn[3].fill_(-60)
    drawn[4].sub_(20)


@pytest.mark.parametrize("change", [no_memory, one_key, never_forgets, forgets_at_once])
def test_it_is_the_definition_at_the_edges(change: Any) -> None:
    poison()
    found = errors((63, 48, 48, "cubic", 5, "off", "bf16"), "cuda", change)
    # A gate that is shut has a gradient of next to nothing, made of differences: not compared relatively.
    if change is forgets_at_once:
        del found[5], found[6]
    assert max(found) < 5e-3, found


def test_a_memory_of_zeros_reads_zeros() -> None:
    from statelab.kernels.orthogonal_read.scan import orthogonal_scan

    inputs = [tensor.float().cuda() for tensor in draw(17, 32, 32)]
    inputs[2].zero_()
    inputs[5].zero_()
    for tensor in inputs:
        tensor.requires_grad_()
    y, *_ = orthogonal_scan(*inputs, list(COEFFICIENTS["cubic"]), 5, "off", "bf16")
    gradients = torch.autograd.grad(y.sum(), inputs)
    assert y.abs().max() == 0
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_a_captured_graph_replays_it() -> None:
    from statelab.kernels.orthogonal_read.scan import orthogonal_scan

    def step(inputs: Sequence[Tensor]) -> list[Tensor]:
        y, last, _ = orthogonal_scan(*inputs, list(COEFFICIENTS["cubic"]), 5, "off", "bf16")
        return [y, last, *torch.autograd.grad(y.sum() + last.sum(), inputs)]

    def made() -> list[Tensor]:
        return [tensor.float().cuda().requires_grad_() for tensor in draw(37, 32, 32)]

    for one, other in zip(*eager_and_replayed(made, step), strict=True):
        assert torch.equal(one, other)
