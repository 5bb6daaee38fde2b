"""The stabilised mLSTM by chunks of time on matrix units: the Triton kernels as one differentiable op, lifted by vmap.

Legend: B rows, T time, H heads, K key width, V value width, N chunks, L steps of a chunk.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.mlstm.tiles_backward import reads_kernel, writes_kernel
from statelab.kernels.mlstm.tiles_forward import forward_kernel
from statelab.kernels.mlstm.tiles_states import states_gradient_kernel, states_kernel

State = tuple[Tensor, Tensor, Tensor]
LENGTH = 64
"""L: rows of a warp group's product, which takes its right operand from shared memory and so leaves registers free."""


def configuration(K: int, V: int) -> dict[str, int]:
    """Padded widths, the same for keys and values, and one warp group for each 64 of them.

    Chosen by what compiles for sm_90 without spills: widths up to 64 with bf16 operands, up to 32 with tf32's and
    bf16x6's but for a few words. At 64 bf16x6 spills up to 350 bytes a thread, at 128 a kilobyte. Square, since 64
    keys beside 16 values, compiled by Triton 3.6, read memory that is not theirs on an H200.
    """
    width = max(16, triton.next_power_of_2(max(K, V)))
    return {"K": K, "V": V, "BK": width, "BV": width, "L": LENGTH, "num_warps": 8 if width > 64 else 4}


def _blocks(widths: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Blocks of 32 values into which the kernels that walk over time cut C, and the widths of a block."""
    size = min(widths["BV"], 32)
    return triton.cdiv(widths["V"], size), {**widths, "BV": size}


def tiles(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    input_gate_BTH: Tensor,
    forget_gate_BTH: Tensor,
    state: State | None,
    *,
    normaliser: bool,
    precision: str,
) -> tuple[Tensor, State]:
    """See `mlstm`; keys are as given, unscaled, gates before their functions, `precision` is not auto."""
    h_BTHV, C_BHKV, n_BHK, m_BH, *_ = forward(
        q_BTHK, k_BTHK, v_BTHV, input_gate_BTH, forget_gate_BTH, *_wide(state), normaliser, precision
    )
    return h_BTHV, (C_BHKV, n_BHK, m_BH)


def chunk_states(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    input_gate_BTH: Tensor,
    forget_gate_BTH: Tensor,
    state: State | None,
    *,
    precision: str,
) -> tuple[State, State]:
    """Without gradients: C `[B, H, N, K, V]`, n `[B, H, N, K]`, m `[B, H, N]` before each chunk of `LENGTH` steps; and
    the last state."""
    _, *last, C_BHNKV, n_BHNK, m_BHN = forward(
        q_BTHK, k_BTHK, v_BTHV, input_gate_BTH, forget_gate_BTH, *_wide(state), False, precision
    )
    return (C_BHNKV, n_BHNK, m_BHN), (last[0], last[1], last[2])


def _wide(state: State | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if state is None:
        return None, None, None
    C_BHKV, n_BHK, m_BH = (part.float() for part in state)
    return C_BHKV, n_BHK, m_BH


def _shapes(q_BTHK: Tensor, v_BTHV: Tensor) -> list[list[int]]:
    B, T, H, K = q_BTHK.shape
    V, N = v_BTHV.shape[-1], triton.cdiv(T, LENGTH)
    last = [[B, H, K, V], [B, H, K], [B, H]]
    kept = [[B, H, N, K, V], [B, H, N, K], [B, H, N]]
    return last + kept


def _outputs(q_BTHK: Tensor, v_BTHV: Tensor) -> tuple[Tensor, ...]:
    state = [v_BTHV.new_empty(shape, dtype=torch.float32) for shape in _shapes(q_BTHK, v_BTHV)]
    return v_BTHV.new_empty(v_BTHV.shape), *state


@torch.library.custom_op("statelab::mlstm_forward", mutates_args=())
def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    input_gate: Tensor,
    forget_gate: Tensor,
    C: Tensor | None,
    n: Tensor | None,
    m: Tensor | None,
    normaliser: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """h; C, n, m after the last step; C, n, m before each chunk."""
    q, k, v = (rows_last_contiguous(tensor) for tensor in (q, k, v))
    start = [None if part is None else part.contiguous() for part in (C, n, m)]
    B, T, H, K = q.shape
    h, *states = outputs = _outputs(q, v)
    gates = (input_gate, forget_gate)
    strides = [tensor.stride()[:3] for tensor in (q, k, v, *gates)]
    sizes, widths = (T, H, -0.5 * math.log2(K)), configuration(K, v.shape[-1])
    blocks, block = _blocks(widths)
    states_kernel[(B * H, blocks)](
        *(k, v, *gates, *start, *states, *strides[1:], *sizes),
        HAS_STATE=C is not None,
        PRECISION=precision,
        **block,
    )
    kept = states[3:]
    forward_kernel[(kept[2].numel(),)](
        *(q, k, v, *gates, *kept, h, *strides, *sizes),
        NORMALISER=normaliser,
        PRECISION=precision,
        **widths,
    )
    _, last_C, last_n, last_m, kept_C, kept_n, kept_m = outputs
    return h, last_C, last_n, last_m, kept_C, kept_n, kept_m


@forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, input_gate: Tensor, forget_gate: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    return _outputs(q, v)


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, input_gate: Tensor, forget_gate: Tensor, has_state: bool
) -> tuple[Tensor, ...]:
    """Uninitialised, dense, one for each of the forward's tensors; of a state that was None, rows of nothing."""
    B = q.shape[0]
    inputs = [tensor.new_empty(tensor.shape) for tensor in (q, k, v, input_gate, forget_gate)]
    shapes = _shapes(q, v)[:3] if has_state else [[B, 0]] * 3
    return *inputs, *(q.new_empty(shape, dtype=torch.float32) for shape in shapes)


@torch.library.custom_op("statelab::mlstm_backward", mutates_args=())
def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    input_gate: Tensor,
    forget_gate: Tensor,
    kept_C: Tensor,
    kept_n: Tensor,
    kept_m: Tensor,
    last_C: Tensor,
    last_n: Tensor,
    dh: Tensor,
    dC: Tensor | None,
    dn: Tensor | None,
    dm: Tensor | None,
    has_state: bool,
    normaliser: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, both gates, and the start's C, n, m."""
    q, k, v, dh = (rows_last_contiguous(tensor) for tensor in (q, k, v, dh))
    if dm is not None and dC is not None and dn is not None:
        dm = dm - (dC * last_C).sum((-1, -2)) - (dn * last_n).sum(-1)
    last = [None if part is None else part.contiguous() for part in (dC, dn, dm)]
    B, T, H, K = q.shape
    gradients = _gradients(q, k, v, input_gate, forget_gate, has_state)
    inputs = (q, k, v, input_gate, forget_gate)
    kept = [part.contiguous() for part in (kept_C, kept_n, kept_m)]
    kept_gradients = [torch.empty_like(part) for part in kept]
    of_steps = q.new_empty((B, H, 4, T), dtype=torch.float32)
    strides = [tensor.stride()[:3] for tensor in (*inputs, dh)]
    scale = -0.5 * math.log2(K)
    widths = configuration(K, v.shape[-1])
    options = {"NORMALISER": normaliser, "PRECISION": precision}
    blocks, block = _blocks(widths)
    each = (kept_m.numel(),)
    reads_kernel[each](*inputs, *kept, dh, gradients[0], of_steps, *strides, T, H, scale, **options, **widths)
    states_gradient_kernel[(B * H, blocks)](
        *(q, input_gate, forget_gate, kept[2], dh, *last, of_steps),
        *(*kept_gradients, *gradients[5:], strides[0], *strides[3:], T, H),
        HAS_STATE=has_state,
        HAS_LAST=dC is not None,
        **options,
        **block,
    )
    writes_kernel[each](
        *(*inputs, *kept, dh, of_steps, *kept_gradients, *gradients[1:5], *strides, T, H, scale),
        **options,
        **widths,
    )
    dq, dk, dv, di, df, start_dC, start_dn, start_dm = gradients
    if has_state:
        start_dm += (start_dC * kept_C[:, :, 0]).sum((-1, -2)) + (start_dn * kept_n[:, :, 0]).sum(-1)
    return dq, dk, dv, di, df, start_dC, start_dn, start_dm


@backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, input_gate: Tensor, forget_gate: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    return _gradients(q, k, v, input_gate, forget_gate, others[9])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    # Gradients that nobody asked for stay None: zeros of the kept states' size would cost as much as q's gradient.
    ctx.set_materialize_grads(False)
    ctx.has_state, ctx.normaliser, ctx.precision = inputs[5] is not None, *inputs[8:]
    h, last_C, last_n, last_m, *kept = output
    ctx.save_for_backward(*inputs[:5], *kept, last_C, last_n)
    ctx.sizes = h.shape, last_m.shape


def _backward(
    ctx: Any, dh: Tensor | None, dC: Tensor | None, dn: Tensor | None, dm: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    *_, v, _, _, _, _, _, last_C, last_n = saved = ctx.saved_tensors
    h_shape, m_shape = ctx.sizes
    if dh is None:
        dh = v.new_zeros(h_shape)
    if not (dC is None and dn is None and dm is None):
        dC = torch.zeros_like(last_C) if dC is None else dC
        dn = torch.zeros_like(last_n) if dn is None else dn
        dm = last_n.new_zeros(m_shape) if dm is None else dm
    gradients = backward(*saved, dh, dC, dn, dm, ctx.has_state, ctx.normaliser, ctx.precision)
    start = gradients[5:] if ctx.has_state else (None, None, None)
    return *gradients[:5], *start, None, None


forward.register_autograd(_backward, setup_context=_setup_context)
lift(forward)
lift(backward)
