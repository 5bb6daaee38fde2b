"""Mamba-3's recurrence as Mamba-2's, with rotation, trapezoid and ranks folded into its inputs.

Legend: B rows, T time, R ranks (O where they are read, I where they are written), S = T·R, H heads, P head width,
N state width, A rotated pairs.

Past its own step, what step s writes has two parts that decay alike: λ_s Δ_s, and (1 − λ_{s+1}) Δ_{s+1} written one
step later. Writing both at once leaves the outputs of later steps as they are. Ranks are steps of time in a row, of
which only the first decays. Both let a step's own output see too much, or too little: that is R × R numbers a step,
    Σ_I (λ_s Δ_s − scale_s [I ≤ O]) (C̄_O · B̄_I) x_I,
added at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels.mamba3.reference import Part, State, rotate
from statelab.kernels.ssd import ssd


def chunk(
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    angle_BTHA: Tensor | None,
    write_BTRHN: Tensor,
    read_BTRHN: Tensor,
    state: State,
    *,
    fresh: bool = False,
    scan: Callable[..., tuple[Tensor, Tensor]] = partial(ssd, backend="chunk"),  # noqa: B008
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, State]:
    """See `mamba3`; every tensor has the state's dtype. `fresh`: the state is zeros, and need not be read.

    `scan` is Mamba-2's recurrence, over inputs in `dtype` (None: the state's).
    """
    phase_BHA, before_BRHN, x_before_BRHP, h_BHPN = state
    ranks = x_BTRHP.shape[2]
    if angle_BTHA is not None:
        assert isinstance(phase_BHA, Tensor)
        # Summed in float64: a float32 sum over a long piece would lose the digits that the remainder leaves.
        turns_BTHA = phase_BHA.unsqueeze(1).double() + angle_BTHA.double().cumsum(dim=1)
        phase_BTHA = turns_BTHA.remainder(2 * math.pi).to(angle_BTHA.dtype)
        write_BTRHN, read_BTRHN = rotate(write_BTRHN, phase_BTHA), rotate(read_BTRHN, phase_BTHA)
        phase_BHA = phase_BTHA[:, -1]
    own_BTH = scale_BTH = step_BTH
    if weight_BTH is not None:
        own_BTH, later_BTH = weight_BTH * step_BTH, (1 - weight_BTH) * step_BTH
        scale_BTH = own_BTH + F.pad(later_BTH[:, 1:], (0, 0, 0, 1))
        if not fresh:
            h_BHPN = with_input_before(h_BHPN, later_BTH[:, 0], x_before_BRHP, before_BRHN)
        before_BRHN, x_before_BRHP = write_BTRHN[:, -1], x_BTRHP[:, -1]

    decay_BTRH = F.pad(log_decay_BTH.unsqueeze(2), (0, 0, 0, ranks - 1))
    scaled_BTRHP = x_BTRHP * scale_BTH[:, :, None, :, None]
    x_BSHP, write_BSHN, read_BSHN = (
        tensor.to(dtype or tensor.dtype).flatten(1, 2) for tensor in (scaled_BTRHP, write_BTRHN, read_BTRHN)
    )
    y_BSHP, h_BHPN = scan(x_BSHP, decay_BTRH.flatten(1, 2), write_BSHN, read_BSHN, None if fresh else h_BHPN)
    y_BTRHP = y_BSHP.unflatten(1, (-1, ranks))
    if ranks > 1 or weight_BTH is not None:
        y_BTRHP = y_BTRHP + _own_step(x_BTRHP, own_BTH, scale_BTH, write_BTRHN, read_BTRHN)
    return y_BTRHP, (phase_BHA, before_BRHN, x_before_BRHP, h_BHPN)


def with_input_before(h_BHPN: Tensor, later_BH: Tensor, x_BRHP: Part, before_BRHN: Part) -> Tensor:
    """The state with what the first step writes of the input before it, which decays as all of it does."""
    # [B, R, H, P], [B, R, H, N] -> [B, H, P, N]
    return h_BHPN + later_BH[..., None, None] * torch.einsum("brhp,brhn->bhpn", x_BRHP, before_BRHN)


def _own_step(
    x_BTRHP: Tensor, own_BTH: Tensor, scale_BTH: Tensor, write_BTRHN: Tensor, read_BTRHN: Tensor
) -> Tensor:
    """What a step's output must see of its own step, less what it has seen."""
    if x_BTRHP.shape[2] == 1:
        seen_BT1H = (read_BTRHN * write_BTRHN).sum(dim=-1)
        return ((own_BTH - scale_BTH).unsqueeze(2) * seen_BT1H).unsqueeze(-1) * x_BTRHP
    # [B, T, H, O, N] @ [B, T, H, N, I] -> [B, T, H, O, I]
    seen_BTHOI = read_BTRHN.transpose(2, 3) @ write_BTRHN.movedim(2, -1)
    ranks = x_BTRHP.shape[2]
    before_OI = torch.ones(ranks, ranks, dtype=x_BTRHP.dtype, device=x_BTRHP.device).tril()
    error_BTHOI = own_BTH[..., None, None] - scale_BTH[..., None, None] * before_OI
    # [B, T, H, O, I] @ [B, T, H, I, P] -> [B, T, H, O, P]
    return ((error_BTHOI * seen_BTHOI) @ x_BTRHP.transpose(2, 3)).transpose(2, 3)
