"""The definition of Mamba-3's recurrence, in the rotated frame in which its state is kept.

Legend: B rows, T time, R ranks, H heads, P head width, N state width, A rotated pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Part = Tensor | tuple[()]
State = tuple[Part, Part, Part, Tensor]
"""Phase φ, the rotated B̄ and the x of the step before, and h; () for a part that nothing needs."""


def rotate(channels_RHN: Tensor, phase_HA: Tensor) -> Tensor:
    """The pairs (2i, 2i + 1) of `[..., R, H, N]` turned by `phase [..., H, A]`; channels from 2A on stay."""
    pairs = phase_HA.shape[-1]
    cos_1HA, sin_1HA = phase_HA.cos().unsqueeze(-3), phase_HA.sin().unsqueeze(-3)
    turned_RHA2 = channels_RHN[..., : 2 * pairs].unflatten(-1, (pairs, 2))
    one_RHA, two_RHA = turned_RHA2.unbind(-1)
    turned_RHA2 = torch.stack(
        (one_RHA * cos_1HA - two_RHA * sin_1HA, one_RHA * sin_1HA + two_RHA * cos_1HA), dim=-1
    )
    return torch.cat((turned_RHA2.flatten(-2), channels_RHN[..., 2 * pairs :]), dim=-1)


def reference(
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    angle_BTHA: Tensor | None,
    write_BTRHN: Tensor,
    read_BTRHN: Tensor,
    state: State,
) -> tuple[Tensor, State]:
    """See `mamba3`; every tensor has the state's dtype."""
    phase_BHA, before_BRHN, x_before_BRHP, h_BHPN = state
    outputs = []
    for t in range(x_BTRHP.shape[1]):
        x_BRHP, write_BRHN, read_BRHN = x_BTRHP[:, t], write_BTRHN[:, t], read_BTRHN[:, t]
        if angle_BTHA is not None:
            assert isinstance(phase_BHA, Tensor)
            phase_BHA = (phase_BHA + angle_BTHA[:, t]).remainder(2 * math.pi)
            write_BRHN, read_BRHN = rotate(write_BRHN, phase_BHA), rotate(read_BRHN, phase_BHA)
        decay_BH11 = log_decay_BTH[:, t, :, None, None].exp()
        step_BH11 = step_BTH[:, t, :, None, None]
        h_BHPN = decay_BH11 * h_BHPN
        # [B, R, H, P], [B, R, H, N] -> [B, H, P, N]
        now_BHPN = step_BH11 * torch.einsum("brhp,brhn->bhpn", x_BRHP, write_BRHN)
        if weight_BTH is not None:
            weight_BH11 = weight_BTH[:, t, :, None, None]
            past_BHPN = step_BH11 * torch.einsum("brhp,brhn->bhpn", x_before_BRHP, before_BRHN)
            h_BHPN = h_BHPN + (1 - weight_BH11) * decay_BH11 * past_BHPN
            now_BHPN = weight_BH11 * now_BHPN
            before_BRHN, x_before_BRHP = write_BRHN, x_BRHP
        h_BHPN = h_BHPN + now_BHPN
        # [B, H, P, N], [B, R, H, N] -> [B, R, H, P]
        outputs.append(torch.einsum("bhpn,brhn->brhp", h_BHPN, read_BRHN))
    return torch.stack(outputs, dim=1), (phase_BHA, before_BRHN, x_before_BRHP, h_BHPN)
