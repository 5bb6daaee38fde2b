"""The stabilised mLSTM, a matrix memory with exponential input gates, plain or polar read.

Legend: B rows, T time, H heads, K key width, V value width.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, widen
from statelab.kernels.mlstm.chunk import chunk
from statelab.kernels.mlstm.options import Options, Read, Write
from statelab.kernels.mlstm.reference import reference
from statelab.kernels.orthogonal_read import Factor, StraightThrough

State = tuple[Tensor, Tensor, Tensor]


def mlstm(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    input_gate_BTH: Tensor,
    forget_gate_BTH: Tensor,
    state: State | None = None,
    *,
    read: Read = "plain",
    iterations: int = 5,
    factor: Factor = "cubic",
    straight_through: StraightThrough = "off",
    blend: Tensor | None = None,
    write: Write = "add",
    normaliser: bool = True,
    backend: Backend = "auto",
) -> tuple[Tensor, State]:
    """Outputs `h [B, T, H, V]`, in the dtype of `v`, and the last state (C, n, m), in float32 or wider.

        lf = log σ(f̃),    m ← max(lf + m', ĩ),    f = exp(lf + m' − m),    i = exp(ĩ − m)
        C ← f C + i k vᵀ / √K,    n ← f n + i k / √K
        h = r(C, q) / (max(|n·q|, e^{−m}) + 1e-6),    r(C, q) = Cᵀ q

    Beck et al. 2024 (arXiv 2405.04517, eq. 19-27, stabilised as eq. 15-17), in xlstm's form of the step: C is
    `[B, H, K, V]`, its paper's Cᵀ; n is `[B, H, K]`; m is `[B, H]`, a logarithm; ĩ, f̃ are `input_gate`,
    `forget_gate` before their functions. `state` None is C = 0, n = 0, m = 0.
    Gradients are the full ones: kernels published with mLSTM leave out the denominator's.

    Departures, all arXiv 2607.19390's (section 2 and its code):
    `read` "orthogonal": r is `orthogonal_read`(C, q, iterations, factor, straight_through), the numerator alone:
    n stays raw, and nothing is written back. `blend` α, a number as a tensor `[]`: r is α orthogonal + (1 − α) Cᵀ q,
    with C as it is, not normed; None is 1, and 0 is the plain read.
    `write` "delta": C and n first lose what they hold under k̂ = k / ‖k‖, C ← C − k̂ k̂ᵀ C, n ← n − k̂ k̂ᵀ n.
    `normaliser` off: h = r(C, q), with C in units of e^m, as it is kept; a norm of each head behind it sees the
    direction of h alone.

    Raises ValueError for shapes that do not fit together and for options that do not exist.
    """
    parts = state or (None, None, None)
    sizes = check_shapes(
        "mlstm",
        q=(q_BTHK, "B T H K"),
        k=(k_BTHK, "B T H K"),
        v=(v_BTHV, "B T H V"),
        input_gate=(input_gate_BTH, "B T H"),
        forget_gate=(forget_gate_BTH, "B T H"),
        C=(parts[0], "B H K V"),
        n=(parts[1], "B H K"),
        m=(parts[2], "B H"),
        blend=(blend, ""),
    )
    options = Options(
        read=read,
        iterations=iterations,
        factor=factor,
        straight_through=straight_through,
        write=write,
        normaliser=normaliser,
    )
    chosen = choose_backend("mlstm", backend, ("reference", "chunk"))
    run = reference if chosen == "reference" else partial(chunk, fresh=state is None)
    if state is None:
        zeros = [
            widen(v_BTHV).new_zeros([sizes[letter] for letter in axes]) for axes in ("BHKV", "BHK", "BH")
        ]
        state = (zeros[0], zeros[1], zeros[2])
    log_forget_BTH = torch.nn.functional.logsigmoid(widen(forget_gate_BTH))
    h_BTHV, state = run(
        widen(q_BTHK),
        widen(k_BTHK) * sizes["K"] ** -0.5,
        widen(v_BTHV),
        widen(input_gate_BTH),
        log_forget_BTH,
        (widen(state[0]), widen(state[1]), widen(state[2])),
        None if blend is None else widen(blend),
        options,
    )
    return h_BTHV.to(v_BTHV.dtype), state
