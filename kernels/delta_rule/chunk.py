"""The gated delta rule by chunks of time, through the values that a chunk's steps really write.

Legend: B rows, S steps, T of them read, C chunks, L steps of a chunk, M of them read, H heads, K key width, V value
width.

With G_i the log decays summed up to step i of a chunk, step i adds k_i u_iᵀ to the state, where
    u_i = β_i (v_i − e^{G_i} S₀ᵀ k_i − Σ_{j<i} e^{G_i − G_j} (k_i·k_j) u_j),
a unit lower-triangular system (I + A) U = β ⊙ (V − e^G ⊙ K S₀). It is solved for V and for K of all chunks at
once, which leaves one product per chunk to do in order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.chunks import decay_between, join, split

LENGTH = 16
"""Steps of a chunk: the triangular solve grows with its square, and takes most of the time on a CPU."""


def chunk(
    q_BTHK: Tensor,
    k_BSHK: Tensor,
    v_BSHV: Tensor,
    log_decay_BSH: Tensor,
    beta_BSH: Tensor,
    state_BHKV: Tensor,
    length: int = LENGTH,
    *,
    fresh: bool = False,
) -> tuple[Tensor, Tensor]:
    """See `delta_rule`; queries are scaled and every tensor has the state's dtype.

    With J times as many steps as queries, the J-th, 2J-th … step is read (J = 1 for the delta rule itself).
    `fresh`: the state is zeros, so that a single chunk need not read it.
    """
    time, steps, values = q_BTHK.shape[1], k_BSHK.shape[1], v_BSHV.shape[-1]
    every = steps // time
    length = min(max(length // every, 1) * every, steps)
    read_at = slice(every - 1, None, every)
    q_CBHMK = split(q_BTHK, length // every)
    k_CBHLK, v_CBHLV = split(k_BSHK, length), split(v_BSHV, length)
    # Filled-up steps have decay 1 and β 0, so the last state is that of the last true step.
    beta_CBHL1 = split(beta_BSH, length).unsqueeze(-1)
    cum_CBHL = split(log_decay_BSH, length).cumsum(dim=-1)
    decayed_CBHL1 = cum_CBHL.exp().unsqueeze(-1)
    keys_CBHKL = k_CBHLK.transpose(-1, -2)
    decay_CBHLL = decay_between(cum_CBHL).exp()
    parts = (length, length // every)

    # Every product of queries and keys with keys, [C, B, H, L + M, K] @ [C, B, H, K, L], in one.
    kk_CBHLL, qk_CBHML = (torch.cat((k_CBHLK, q_CBHMK), dim=-2) @ keys_CBHKL).split(parts, dim=-2)
    mix_CBHML = qk_CBHML * decay_CBHLL[..., read_at, :]
    # solve_triangular with unitriangular=True takes the diagonal for 1 and reads nothing above it.
    system_CBHLL = beta_CBHL1 * (kk_CBHLL * decay_CBHLL)
    alone = fresh and q_CBHMK.shape[0] == 1
    right_CBHLW = v_CBHLV if alone else torch.cat((v_CBHLV, decayed_CBHL1 * k_CBHLK), dim=-1)
    solved_CBHLW = torch.linalg.solve_triangular(
        system_CBHLL, beta_CBHL1 * right_CBHLW, upper=False, unitriangular=True
    )
    written_keys_CBHKL = (k_CBHLK * (cum_CBHL[..., -1:] - cum_CBHL).exp().unsqueeze(-1)).transpose(-1, -2)
    if alone:
        return join(mix_CBHML @ solved_CBHLW, time), (written_keys_CBHKL @ solved_CBHLW).squeeze(0)

    own_CBHLV, seen_CBHLK = solved_CBHLW.split((values, solved_CBHLW.shape[-1] - values), dim=-1)
    # [C, B, H, L + M, K]: what reads the state at a chunk's start
    readers_CBHJK = torch.cat((seen_CBHLK, q_CBHMK * decayed_CBHL1[..., read_at, :]), dim=-2)
    chunk_decay_CBH11 = cum_CBHL[..., -1, None, None].exp()
    outputs = []
    for c in range(q_CBHMK.shape[0]):
        # [B, H, L + M, K] @ [B, H, K, V] -> [B, H, L + M, V]
        held_BHLV, carried_BHMV = (readers_CBHJK[c] @ state_BHKV).split(parts, dim=-2)
        u_BHLV = own_CBHLV[c] - held_BHLV
        outputs.append(carried_BHMV + mix_CBHML[c] @ u_BHLV)
        state_BHKV = chunk_decay_CBH11[c] * state_BHKV + written_keys_CBHKL[c] @ u_BHLV
    return join(torch.stack(outputs), time), state_BHKV
