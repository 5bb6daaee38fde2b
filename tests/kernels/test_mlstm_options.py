"""What an mLSTM's departures do: delta writes, blends, straight-through halves, no normaliser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.contract import Backend
from statelab.kernels.mlstm import mlstm
from statelab.kernels.mlstm.chunk import chunk
from statelab.kernels.mlstm.options import Options
from tests.kernels.cases import B, H, K, V, assert_near, draw_mlstm, normal, with_gradients

each_backend = pytest.mark.parametrize("backend", ["reference", "chunk"])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def run(inputs: list[Tensor], backend: Backend, **options: Any) -> Tensor:
    h, _ = mlstm(*inputs[:5], **options, backend=backend)  # type: ignore[arg-type, misc]
    return h


@each_backend
def test_delta_writes_are_a_product_of_transitions(backend: Backend) -> None:
    """Unstabilised: C ← σ(f̃) (I − k̂ k̂ᵀ) C + e^ĩ k vᵀ / √K, n alike, from zeros."""
    q, k, v, gate, forget = draw_mlstm(20)[:5]
    h, (C, n, m) = mlstm(q, k, v, gate, forget, write="delta", backend=backend)
    memory = torch.zeros(B, H, K, V + 1, dtype=torch.float64)
    values = F.pad(v, (0, 1), value=1.0)
    for t in range(20):
        unit = F.normalize(k[:, t], dim=-1).unsqueeze(-1)
        erase = torch.eye(K) - unit @ unit.transpose(-1, -2)
        written = k[:, t].unsqueeze(-1) * values[:, t].unsqueeze(-2) / K**0.5
        keep, add = torch.sigmoid(forget[:, t]), gate[:, t].exp()
        memory = keep[..., None, None] * (erase @ memory) + add[..., None, None] * written
        read = (q[:, t].unsqueeze(-2) @ memory).squeeze(-2)
        wanted = read[..., :V] / read[..., V:].abs().clamp_min(1)
        assert_near([h[:, t]], [wanted], 1e-4)  # the denominator's eps of 1e-6, in units of e^-m
    kept = torch.cat((C, n.unsqueeze(-1)), dim=-1) * m.exp()[..., None, None]
    assert_near([kept], [memory], 1e-12)


@each_backend
def test_a_delta_write_replaces_what_its_key_held(backend: Backend) -> None:
    k = normal(B, 1, H, K).expand(B, 3, H, K)
    v, zeros = normal(B, 3, H, V), torch.zeros(B, 3, H, dtype=torch.float64)
    _, (C, _, m) = mlstm(k, k, v, zeros, zeros + 60, write="delta", backend=backend)
    wanted = k[:, 2].unsqueeze(-1) * v[:, 2].unsqueeze(-2) / K**0.5
    assert_near([C * m.exp()[..., None, None]], [wanted], 1e-12)


@each_backend
def test_a_delta_write_survives_a_key_of_zeros_and_shut_gates(backend: Backend) -> None:
    inputs = [tensor.float() for tensor in draw_mlstm(20)[:5]]
    inputs[1][:, 7] = 0
    inputs[3][:, 11] = -300
    inputs[4][:, 13] = -300
    leaves = [tensor.requires_grad_() for tensor in inputs]
    h = run(leaves, backend, write="delta")
    gradients = torch.autograd.grad(h.square().sum(), leaves)
    assert all(torch.isfinite(tensor).all() for tensor in (h, *gradients))


@each_backend
def test_a_blend_is_a_weighted_sum_of_two_reads(backend: Backend) -> None:
    inputs = draw_mlstm(20)
    plain, orthogonal = run(inputs, backend), run(inputs, backend, read="orthogonal")
    for alpha in (0.0, 0.25, 1.0):
        part = torch.tensor(alpha, dtype=torch.float64)
        got = run(inputs, backend, read="orthogonal", blend=part)
        assert_near([got], [alpha * orthogonal + (1 - alpha) * plain], 1e-13)


def test_a_blend_of_0_is_the_plain_read_to_the_last_bit() -> None:
    inputs = draw_mlstm(12)
    got = run(inputs, "chunk", read="orthogonal", blend=torch.tensor(0.0))
    assert torch.equal(got, run(inputs, "chunk"))


@each_backend
def test_lanes_may_blend_differently(backend: Backend) -> None:
    inputs, alphas = draw_mlstm(9), torch.tensor([0.0, 0.4, 1.0])

    def one(alpha: Tensor) -> Tensor:
        return run(inputs, backend, read="orthogonal", blend=alpha)

    assert_near([torch.func.vmap(one)(alphas)], [torch.stack([one(alpha) for alpha in alphas])], 1e-13)


@each_backend
@pytest.mark.parametrize("write", ["add", "delta"])
def test_straight_through_halves_put_out_one_read_and_train_by_the_other(
    write: str, backend: Backend
) -> None:
    """Through one step from a given memory, where the gate of the step reaches h by C and by n alone."""
    inputs = draw_mlstm(1)

    def at(half: str, **options: Any) -> tuple[Tensor, Tensor]:
        leaf = inputs[5].clone().requires_grad_()
        state = (leaf, *inputs[6:])
        h, _ = mlstm(*inputs[:5], state, write=write, straight_through=half, **options, backend=backend)  # type: ignore[arg-type, misc]
        (gradient,) = torch.autograd.grad((h * torch.linspace(-1, 1, V)).sum(), leaf)
        return h, gradient

    plain, orthogonal = at("off", read="plain"), at("off", read="orthogonal")
    assert_near(at("forward", read="orthogonal"), (orthogonal[0], plain[1]), 1e-12)
    assert_near(at("backward", read="orthogonal"), (plain[0], orthogonal[1]), 1e-12)


@pytest.mark.parametrize("half", ["forward", "backward"])
def test_straight_through_is_the_same_by_steps_and_by_chunks(
    half: Literal["forward", "backward"],
) -> None:
    def both(inputs: Sequence[Tensor], backend: Any) -> tuple[Tensor, ...]:
        q, k, v, gate, forget, *state = inputs
        start = (state[0], state[1], state[2])
        gates = (gate, forget)
        h, after = mlstm(q, k, v, *gates, start, read="orthogonal", straight_through=half, backend=backend)
        return h, *after

    inputs = draw_mlstm(40)
    assert_near(with_gradients(both, inputs, "chunk"), with_gradients(both, inputs, "reference"), 1e-10)


@each_backend
def test_without_a_normaliser_a_head_norm_sees_the_same(backend: Backend) -> None:
    inputs = draw_mlstm(20)
    raw, normed = run(inputs, backend, normaliser=False), run(inputs, backend)
    assert (raw - normed).abs().max() > 0.1
    assert_near([F.normalize(raw, dim=-1)], [F.normalize(normed, dim=-1)], 1e-12)


@pytest.mark.parametrize("length", [1, 3, 16, 23])
def test_the_length_of_a_chunk_changes_nothing(length: int) -> None:
    q, k, v, gate, forget, *state = draw_mlstm(23)
    inputs = (q, k, v, gate, F.logsigmoid(forget), (state[0], state[1], state[2]), None)
    options = Options(write="delta", read="orthogonal")
    (one, last), (other, wanted) = (chunk(*inputs, options, length=size) for size in (length, 23))
    assert_near([one, *last], [other, *wanted], 1e-11)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write": "erase"}, "write must be 'add' or 'delta', got 'erase'"),
        ({"factor": "muon"}, "unknown factor 'muon'"),
        ({"straight_through": "both"}, "unknown straight_through 'both'"),
        ({"iterations": -1}, "iterations must be >= 0, got -1"),
        ({"blend": torch.ones(2)}, r"blend must be \[\] = \[\], got \[2\]"),
    ],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mlstm(*draw_mlstm(3)[:5], **options)  # type: ignore[arg-type, misc]
