"""The stabilised mLSTM by chunks of time on matrix units: the Triton kernels as one differentiable op, lifted by vmap.

Two forms, which differ in what one program owns: a chunk (`tiles_launch`), parallel over time, or a sequence, that is a
head of a row (`walk`), which reads and writes less and makes fewer products, but has nothing to do for most of a card
unless there are many sequences.

Legend: B rows, T time, H heads, K key width, V value width, N chunks.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.mlstm import tiles_launch, walk
from statelab.kernels.mlstm.options import Programs

State = tuple[Tensor, Tensor, Tensor]


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
    programs: Programs = "auto",
) -> tuple[Tensor, State]:
    """See `mlstm`; keys are as given, unscaled, gates before their functions, `precision` is not auto.

    `programs` "auto" is "sequences" where that `walk.pays`: sequences are B · H, with vmap's lanes.
    """
    start = (None, None, None) if state is None else tuple(part.float() for part in state)
    h_BTHV, C_BHKV, n_BHK, m_BH, *_ = forward(
        q_BTHK, k_BTHK, v_BTHV, input_gate_BTH, forget_gate_BTH, *start, normaliser, precision, programs
    )
    return h_BTHV, (C_BHKV, n_BHK, m_BH)


def _walks(q_BTHK: Tensor, v_BTHV: Tensor, precision: str, programs: str) -> bool:
    """Whether a program owns a sequence."""
    B, _, H, K = q_BTHK.shape
    if programs == "auto":
        return walk.pays(B * H, K, v_BTHV.shape[-1], precision)
    return programs == "sequences"


def _outputs(q_BTHK: Tensor, v_BTHV: Tensor, walks: bool, precision: str) -> tuple[Tensor, ...]:
    last = [v_BTHV.new_empty(shape, dtype=torch.float32) for shape in _state_shapes(q_BTHK, v_BTHV)]
    kept = walk.kept_like(q_BTHK, v_BTHV, precision) if walks else tiles_launch.kept_like(q_BTHK, v_BTHV)
    return v_BTHV.new_empty(v_BTHV.shape), *last, *kept


def _state_shapes(q_BTHK: Tensor, v_BTHV: Tensor) -> list[list[int]]:
    B, _, H, K = q_BTHK.shape
    return [[B, H, K, v_BTHV.shape[-1]], [B, H, K], [B, H]]


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
    programs: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """h; C, n, m after the last step; C, n, m before each chunk; n·q of each step, or of none: see `_form`."""
    q, k, v = (rows_last_contiguous(tensor) for tensor in (q, k, v))
    start = [None if part is None else part.contiguous() for part in (C, n, m)]
    walks = _walks(q, v, precision, programs)
    outputs = _outputs(q, v, walks, precision)
    form = walk if walks else tiles_launch
    inputs = (q, k, v, input_gate, forget_gate)
    form.forward(inputs, start, outputs, normaliser=normaliser, precision=precision)
    h, last_C, last_n, last_m, kept_C, kept_n, kept_m, nq = outputs
    return h, last_C, last_n, last_m, kept_C, kept_n, kept_m, nq


@forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, input_gate: Tensor, forget_gate: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    *_, precision, programs = others
    return _outputs(q, v, _walks(q, v, precision, programs), precision)


def _form(nq: Tensor) -> ModuleType:
    """What made a forward's n·q: a backward must be of its kind, though it may be of another number of rows."""
    return walk if nq.shape[-1] else tiles_launch


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, input_gate: Tensor, forget_gate: Tensor, has_state: bool
) -> tuple[Tensor, ...]:
    """Uninitialised, dense, one for each of the forward's tensors; of a state that was None, rows of nothing."""
    B = q.shape[0]
    inputs = [tensor.new_empty(tensor.shape) for tensor in (q, k, v, input_gate, forget_gate)]
    shapes = _state_shapes(q, v) if has_state else [[B, 0]] * 3
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
    nq: Tensor,
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
    gradients = _gradients(q, k, v, input_gate, forget_gate, has_state)
    kept = [part.contiguous() for part in (kept_C, kept_n, kept_m, nq)]
    _form(nq).backward(
        (q, k, v, input_gate, forget_gate),
        *(kept, dh, last, gradients),
        has_state=has_state,
        normaliser=normaliser,
        precision=precision,
    )
    dq, dk, dv, di, df, start_dC, start_dn, start_dm = gradients
    if has_state:
        start_dm += (start_dC * kept_C[:, :, 0]).sum((-1, -2)) + (start_dn * kept_n[:, :, 0]).sum(-1)
    return dq, dk, dv, di, df, start_dC, start_dn, start_dm


@backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, input_gate: Tensor, forget_gate: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    return _gradients(q, k, v, input_gate, forget_gate, others[10])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    # Gradients that nobody asked for stay None: zeros of the kept states' size would cost as much as q's gradient.
    ctx.set_materialize_grads(False)
    ctx.has_state, ctx.normaliser, ctx.precision = inputs[5] is not None, *inputs[8:10]
    h, last_C, last_n, last_m, *kept = output
    ctx.save_for_backward(*inputs[:5], *kept, last_C, last_n)
    ctx.sizes = h.shape, last_m.shape


def _backward(
    ctx: Any, dh: Tensor | None, dC: Tensor | None, dn: Tensor | None, dm: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    _, _, v, *_, last_C, last_n = saved = ctx.saved_tensors
    h_shape, m_shape = ctx.sizes
    if dh is None:
        dh = v.new_zeros(h_shape)
    if not (dC is None and dn is None and dm is None):
        dC = torch.zeros_like(last_C) if dC is None else dC
        dn = torch.zeros_like(last_n) if dn is None else dn
        dm = last_n.new_zeros(m_shape) if dm is None else dm
    gradients = backward(*saved, dh, dC, dn, dm, ctx.has_state, ctx.normaliser, ctx.precision)
    start = gradients[5:] if ctx.has_state else (None, None, None)
    return *gradients[:5], *start, None, None, None


forward.register_autograd(_backward, setup_context=_setup_context)
lift(forward)
lift(backward)
