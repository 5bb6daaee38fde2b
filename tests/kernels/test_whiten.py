"""Whitened queries: the published update, least squares solved outright, and long sequences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.contract import Backend
from statelab.kernels.mlstm import mlstm
from statelab.kernels.whiten import whiten
from tests.kernels.cases import B, H, K, V, assert_near, normal

each_backend = pytest.mark.parametrize("backend", ["reference", "chunk"])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@each_backend
def test_it_is_sherman_and_morrisons_update(backend: Backend) -> None:
    """P ← P − P k̂ k̂ᵀ P / (1 + k̂ᵀ P k̂), from I / ridge; q̃ = P q."""
    q, k = normal(B, 30, H, K), normal(B, 30, H, K)
    got, gram = whiten(q, k, ridge=0.01, backend=backend)
    inverse = torch.eye(K, dtype=torch.float64).expand(B, H, K, K) / 0.01
    for t in range(30):
        key = F.normalize(k[:, t], dim=-1).unsqueeze(-1)
        moved = inverse @ key
        inverse = inverse - moved @ moved.transpose(-1, -2) / (1 + key.transpose(-1, -2) @ moved)
        assert_near([got[:, t]], [(inverse @ q[:, t].unsqueeze(-1)).squeeze(-1)], 1e-9)
    assert_near([gram + 0.01 * torch.eye(K)], [torch.linalg.inv(inverse)], 1e-9)


def ridge_regression(keys: Tensor, values: Tensor, ridge: float) -> Tensor:
    """argmin over W `[K, V]` of ‖keys W − values‖² + ridge ‖W‖², as one least-squares problem."""
    rows = torch.cat((keys, ridge**0.5 * torch.eye(keys.shape[1], dtype=keys.dtype)))
    targets = torch.cat((values, values.new_zeros(keys.shape[1], values.shape[1])))
    solution: Tensor = torch.linalg.lstsq(rows, targets).solution
    return solution


@each_backend
def test_an_mlstm_that_forgets_nothing_reads_the_least_squares_answer(backend: Backend) -> None:
    time, ridge = 25, 0.05
    q, v = normal(B, time, H, K), normal(B, time, H, V)
    k = F.normalize(normal(B, time, H, K), dim=-1)
    open_gate = torch.full((B, time, H), 60.0, dtype=torch.float64)
    whitened, _ = whiten(q, k, ridge=ridge, backend=backend)
    h, _ = mlstm(whitened, k, v, 0 * open_gate, open_gate, normaliser=False, backend=backend)
    for row in range(B):
        for head in range(H):
            for t in (0, 3, 24):
                at = (row, slice(None, t + 1), head)
                wanted = q[row, t, head] @ ridge_regression(k[at], v[at], ridge)
                assert_near([h[row, t, head] * K**0.5], [wanted], 1e-9)


def test_a_value_is_read_back_exactly_although_keys_overlap() -> None:
    """What a plain read cannot do: with fewer keys than dimensions, each key's own value comes back."""
    k = F.normalize(1 + 0.3 * normal(1, K - 2, 1, K), dim=-1)
    v = normal(1, K - 2, 1, V)
    zeros = torch.zeros(1, K - 2, 1, dtype=torch.float64)
    _, gram = whiten(k, k, ridge=1e-9)
    _, (C, _, _) = mlstm(k, k, v, zeros, zeros + 60)
    whitened = torch.linalg.solve(gram + 1e-9 * torch.eye(K), k.transpose(1, 2).transpose(-1, -2))
    read = whitened.transpose(-1, -2) @ C * K**0.5
    assert_near([read[:, 0]], [v[:, :, 0]], 1e-5)
    plain = k.transpose(1, 2) @ C * K**0.5
    assert (plain[:, 0] - v[:, :, 0]).abs().max() > 1


def test_float32_holds_over_ten_thousand_tokens() -> None:
    q, k = torch.randn(1, 10_000, 1, 6), torch.randn(1, 10_000, 1, 6)
    k[..., 5] *= 1e-2
    got, _ = whiten(q, k)
    wanted, _ = whiten(q.double(), k.double())
    assert_near([got[:, -100:]], [wanted[:, -100:]], 1e-3)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="ridge must be > 0, got 0"):
        whiten(normal(1, 2, 1, 3), normal(1, 2, 1, 3), ridge=0)
    with pytest.raises(ValueError, match=r"gram must be \[B, H, K, K\] = \[1, 1, 3, 3\], got \[1, 1, 3, 2\]"):
        whiten(normal(1, 2, 1, 3), normal(1, 2, 1, 3), normal(1, 1, 3, 2))
