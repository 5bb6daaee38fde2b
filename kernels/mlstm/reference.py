"""The definition of the stabilised mLSTM. Legend: B rows, T time, H heads, K key width, V value width."""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.mlstm.options import Options
from statelab.kernels.orthogonal_read import orthogonal_read


def unit(k_K: Tensor) -> Tensor:
    """A key at length 1; zeros for a key of zeros."""
    unit_K: Tensor = k_K / torch.linalg.vector_norm(k_K, dim=-1, keepdim=True).clamp_min(1e-6)
    return unit_K


def reference(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    input_gate_BTH: Tensor,
    log_forget_BTH: Tensor,
    state: tuple[Tensor, Tensor, Tensor],
    blend: Tensor | None,
    options: Options,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """See `mlstm`; keys are scaled, every tensor has the state's dtype."""
    C_BHKV, n_BHK, m_BH = state
    outputs = []
    for t in range(q_BTHK.shape[1]):
        q_BHK, k_BHK, v_BHV = q_BTHK[:, t], k_BTHK[:, t], v_BTHV[:, t]
        before_BH = log_forget_BTH[:, t] + m_BH
        m_BH = torch.maximum(before_BH, input_gate_BTH[:, t])
        f_BH1 = torch.exp(before_BH - m_BH).unsqueeze(-1)
        i_BH1 = torch.exp(input_gate_BTH[:, t] - m_BH).unsqueeze(-1)
        if options.write == "delta":
            unit_BHK = unit(k_BHK)
            # [B, H, 1, K] @ [B, H, K, V] -> [B, H, 1, V]
            held_BH1V = unit_BHK.unsqueeze(-2) @ C_BHKV
            C_BHKV = C_BHKV - unit_BHK.unsqueeze(-1) * held_BH1V
            n_BHK = n_BHK - unit_BHK * (unit_BHK * n_BHK).sum(dim=-1, keepdim=True)
        # [B, H, K, 1] * [B, H, 1, V] -> [B, H, K, V]
        C_BHKV = f_BH1.unsqueeze(-1) * C_BHKV + (i_BH1 * k_BHK).unsqueeze(-1) * v_BHV.unsqueeze(-2)
        n_BHK = f_BH1 * n_BHK + i_BH1 * k_BHK
        read_BHV = read_memory(C_BHKV, q_BHK, blend, options)
        if options.normaliser:
            floor_BH = torch.exp(-m_BH)
            size_BH = torch.maximum((n_BHK * q_BHK).sum(dim=-1).abs(), floor_BH) + 1e-6
            read_BHV = read_BHV / size_BH.unsqueeze(-1)
        outputs.append(read_BHV)
    return torch.stack(outputs, dim=1), (C_BHKV, n_BHK, m_BH)


def read_memory(C_BHKV: Tensor, q_BHK: Tensor, blend: Tensor | None, options: Options) -> Tensor:
    """r(C, q) `[B, H, V]`."""
    # [B, H, 1, K] @ [B, H, K, V] -> [B, H, 1, V]
    plain_BHV = (q_BHK.unsqueeze(-2) @ C_BHKV).squeeze(-2)
    if options.read == "plain":
        return plain_BHV
    factored_BHV = orthogonal_read(
        C_BHKV,
        q_BHK,
        options.iterations,
        factor=options.factor,
        straight_through=options.straight_through,
    )
    return factored_BHV if blend is None else blend * factored_BHV + (1 - blend) * plain_BHV
