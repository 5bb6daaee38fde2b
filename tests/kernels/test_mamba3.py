"""Mamba-3's recurrence written three ways, its parts switched off one by one, and its phases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from statelab.kernels.contract import Backend
from statelab.kernels.mamba3 import mamba3
from statelab.kernels.mamba3.reference import rotate
from statelab.kernels.ssd import ssd
from tests.kernels.cases import B, H, K, V, assert_near, draw_mamba3, normal

each_backend = pytest.mark.parametrize("backend", ["reference", "chunk"])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@each_backend
@pytest.mark.parametrize("ranks", [1, 3])
def test_it_is_the_complex_recurrence(ranks: int, backend: Backend) -> None:
    """Pairs of state channels as complex numbers, each multiplied by e^{ΔA − iθ} at each step (eq. 8, with
    the sign of mamba_ssm); the state itself is turned, nothing else."""
    inputs = draw_mamba3(ranks)(12)[:7]
    y, _ = mamba3(*inputs, backend=backend)  # type: ignore[arg-type]
    x, decay, step, weight, angle, write, read = (tensor.numpy() for tensor in inputs)
    wanted = np.zeros_like(x)
    for row in range(B):
        for head in range(H):
            turning = np.zeros((V, 3), dtype=complex)
            staying = np.zeros((V, K - 6))
            before = np.zeros((V, 3), dtype=complex), np.zeros((V, K - 6))
            for t in range(12):
                at = (row, t, slice(None), head)
                alpha, delta, lam = np.exp(decay[row, t, head]), step[row, t, head], weight[row, t, head]
                turn = alpha * np.exp(-1j * angle[row, t, head])
                now = (
                    x[at].T @ (write[at][:, 0:6:2] + 1j * write[at][:, 1:6:2]),
                    x[at].T @ write[at][:, 6:],
                )
                turning = turn * (turning + (1 - lam) * delta * before[0]) + lam * delta * now[0]
                staying = alpha * (staying + (1 - lam) * delta * before[1]) + lam * delta * now[1]
                before = now
                seen = (read[at][:, 0:6:2] - 1j * read[at][:, 1:6:2]) @ turning.T
                wanted[at] = seen.real + read[at][:, 6:] @ staying.T
    assert_near([y], [torch.from_numpy(wanted)], 1e-12)


@each_backend
def test_it_is_a_masked_matrix(backend: Backend) -> None:
    """Y = (L ⊙ C̄ B̄ᵀ) X with L the decays times a matrix of two bands, λΔ and (1 − λ)Δα: eq. 7."""
    inputs = draw_mamba3(1)(23)[:7]
    x, decay, step, weight, angle, write, read = inputs
    y, _ = mamba3(*inputs, backend=backend)  # type: ignore[arg-type]
    phase = angle.cumsum(1)
    for head in range(H):
        for row in range(B):
            log = decay[row, :, head].cumsum(0)
            decays = (log.unsqueeze(1) - log.unsqueeze(0)).exp().tril()
            now = weight[row, :, head] * step[row, :, head]
            past = (1 - weight[row, :, head]) * step[row, :, head] * decay[row, :, head].exp()
            bands = torch.diag(now) + torch.diag(past[1:], -1)
            turned = [rotate(tensor, phase)[row, :, 0, head] for tensor in (read, write)]
            wanted = (decays @ bands * (turned[0] @ turned[1].T)) @ x[row, :, 0, head]
            assert_near([y[row, :, 0, head]], [wanted], 1e-10)


@each_backend
def test_ranks_are_every_pair_of_single_inputs_and_outputs(backend: Backend) -> None:
    """y_o = Σ_i of the recurrence that B_i and x_i write and C_o reads: arXiv 2603.15569, section 3.3."""
    x, decay, step, weight, angle, write, read = draw_mamba3(3)(20)[:7]
    y, _ = mamba3(x, decay, step, weight, angle, write, read, backend=backend)
    for o in range(3):
        alone = [
            mamba3(x[:, :, [i]], decay, step, weight, angle, write[:, :, [i]], read[:, :, [o]])[0]
            for i in range(3)
        ]
        assert_near([y[:, :, o]], [torch.stack(alone).sum(0).squeeze(2)], 1e-12)


@each_backend
@pytest.mark.parametrize("ranks", [1, 3])
def test_parts_that_are_left_out_do_nothing(ranks: int, backend: Backend) -> None:
    x, decay, step, weight, angle, write, read = draw_mamba3(ranks)(20)[:7]
    ones, zeros = torch.ones_like(weight), torch.zeros_like(angle)
    euler, after = mamba3(x, decay, step, None, angle, write, read, backend=backend)
    wanted, (phase, _, _, h) = mamba3(x, decay, step, ones, angle, write, read, backend=backend)
    assert_near([euler, after[3]], [wanted, h], 1e-13)
    assert after[1] == after[2] == ()
    assert isinstance(after[0], Tensor)
    assert isinstance(phase, Tensor)
    assert_near([after[0]], [phase], 0)
    still, after = mamba3(x, decay, step, weight, None, write, read, backend=backend)
    wanted, (_, _, _, h) = mamba3(x, decay, step, weight, zeros, write, read, backend=backend)
    assert_near([still, after[3]], [wanted, h], 1e-13)
    assert after[0] == ()


@each_backend
def test_without_rotation_and_trapezoid_it_is_mamba2(backend: Backend) -> None:
    x, decay, step, _, _, write, read = draw_mamba3(1)(20)[:7]
    y, _ = mamba3(x, decay, step, None, None, write, read, backend=backend)
    wanted, _ = ssd(x[:, :, 0] * step.unsqueeze(-1), decay, write[:, :, 0], read[:, :, 0])
    assert_near([y[:, :, 0]], [wanted], 1e-13)


@each_backend
def test_half_a_turn_at_each_one_is_parity(backend: Backend) -> None:
    """No decay, one write at the start: the output's sign is the parity of the steps that turn by π."""
    bits = torch.randint(0, 2, (1, 200, 1, 1), dtype=torch.float64)
    bits[:, 0] = 0
    first = torch.zeros(1, 200, 1, dtype=torch.float64)
    first[:, 0] = 1
    pair = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 200, 1, 1, 2)
    y, _ = mamba3(
        torch.ones(1, 200, 1, 1, 1, dtype=torch.float64),
        0 * first,
        first,
        None,
        math.pi * bits,
        pair,
        pair,
        backend=backend,
    )
    assert_near([y.flatten()], [1 - 2 * (bits.flatten().cumsum(0) % 2)], 1e-10)


def test_phases_keep_their_digits_in_float32() -> None:
    """Summed over 5000 steps of about a radian, a float32 has three digits behind the point left."""
    angle = torch.rand(1, 5000, 1, 1) + 0.5
    ones = torch.ones(1, 5000, 1)
    pair = torch.ones(1, 5000, 1, 1, 2)
    _, (phase, *_) = mamba3(
        torch.ones(1, 5000, 1, 1, 1), -ones, ones, None, angle, pair, pair, backend="chunk"
    )
    assert isinstance(phase, Tensor)
    assert phase.dtype == torch.float32
    assert float(phase) == pytest.approx(float(angle.double().sum()) % (2 * math.pi), abs=1e-6)


def test_more_angles_than_pairs_are_refused() -> None:
    x, decay, step, weight, _, write, read = draw_mamba3(1)(3)[:7]
    with pytest.raises(ValueError, match="5 angles turn 10 state channels, more than N = 9"):
        mamba3(x, decay, step, weight, normal(B, 3, H, 5), write, read)
