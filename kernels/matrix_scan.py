"""A matrix state that goes step by step in registers, of `ssd`, `delta_rule` and `delta_product` at small widths.

    S ← e^g S,  then for j = 1 … J:  u_j = v_j, or with β: w_j = v_j − Sᵀ k_j, u_j = β_j w_j;  S ← S + k_j u_jᵀ
    o = scale · Sᵀ q

Legend: B rows, T time, J steps of a token, H heads, G groups of heads that share queries and keys, E heads of a group,
K key width, V value width, X parts of a sum. Only w is kept for the backward pass, which makes states again. Products
are float32 multiplications and additions, without matrix units: of a state of 32 × 32 each of a warp's threads holds
32 entries. A program is one warp, so that it waits for no other; all that fills a card is rows · heads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.matrix_columns import forward_kernel, values_kernel
from statelab.kernels.matrix_rows import reads_kernel, writes_kernel
from statelab.kernels.partial import parts, summed

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def matrix_scan(
    q_BTGK: Tensor,
    k_BTJGK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor | None,
    state_BHKV: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Outputs `[B, T, H, V]`, in the dtype of `v`, and the last state `[B, H, K, V]`, in float32.

    Inputs are of any float dtype up to float32, the state is float32; K and V are at most 64.
    """
    inputs = (q_BTGK, k_BTJGK, v_BTJHV, log_decay_BTH, beta_BTJH, state_BHKV)
    o_BTHV, last_BHKV, _ = forward(*inputs, scale, torch.is_grad_enabled())
    return o_BTHV, last_BHKV


def plan(threads: int, held: int) -> tuple[int, int, int]:
    """Of a state: entries that a thread holds, sequences of a program, lines of each across the 32 threads."""
    lines = min(32, max(4, triton.next_power_of_2(threads)))
    return max(4, triton.next_power_of_2(held)), 32 // lines, lines


@torch.library.custom_op(
    "statelab::matrix_scan_forward",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor? beta, Tensor? state, float scale, bool keep)"
    " -> (Tensor, Tensor, Tensor)",
)
def forward(
    q_BTGK: Tensor,
    k_BTJGK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor | None,
    state_BHKV: Tensor | None,
    scale: float,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, the last state and, for `keep` and with β, w `[B, T, J, H, V]`."""
    q_BTGK, k_BTJGK, v_BTJHV = map(rows_last_contiguous, (q_BTGK, k_BTJGK, v_BTJHV))
    outputs = _empty(q_BTGK, v_BTJHV, beta_BTJH, keep)
    rows, time, factors, heads, values = v_BTJHV.shape
    groups, keys = q_BTGK.shape[2:]
    K, N, W = plan(values, keys)
    with torch.cuda.device_of(v_BTJHV):
        forward_kernel[(triton.cdiv(rows * heads, N), triton.cdiv(values, W))](
            q_BTGK, k_BTJGK, v_BTJHV, log_decay_BTH, beta_BTJH,
            None if state_BHKV is None else state_BHKV.contiguous(), *outputs,
            rows * heads, time, heads, heads // groups, 1, scale, *_strides(q_BTGK, 3), *_strides(k_BTJGK, 4),
            *_strides(v_BTJHV, 4), *log_decay_BTH.stride(), *_strides(beta_BTJH, 4),
            KEYS=keys, VALUES=values, J=factors, ERASE=beta_BTJH is not None, HAS_STATE=state_BHKV is not None,
            KEEP=keep, K=K, N=N, W=W, num_warps=1,
        )  # fmt: skip
    return outputs


def _strides(tensor: Tensor | None, count: int) -> tuple[int, ...]:
    """Of the first axes; zeros stand for a tensor that there is not."""
    return (0,) * count if tensor is None else tensor.stride()[:count]


def _empty(
    q_BTGK: Tensor, v_BTJHV: Tensor, beta_BTJH: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows, time, factors, heads, values = v_BTJHV.shape
    kept = time if keep and beta_BTJH is not None else 0
    return (
        v_BTJHV.new_empty(rows, time, heads, values),
        v_BTJHV.new_empty(rows, heads, q_BTGK.shape[3], values, dtype=torch.float32),
        v_BTJHV.new_empty(rows, kept, factors, heads, values, dtype=torch.float32),
    )


@forward.register_fake
def _(
    q: Tensor, _k: Tensor, v: Tensor, _decay: Tensor, beta: Tensor | None, *others: Any
) -> tuple[Tensor, ...]:
    return _empty(q, v, beta, others[-1])


@torch.library.custom_op(
    "statelab::matrix_scan_backward",
    mutates_args=(),
    schema="(Tensor do, Tensor? dlast, Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor? beta, Tensor? state,"
    " Tensor last, Tensor missing, float scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def backward(
    do_BTHV: Tensor,
    dlast_BHKV: Tensor | None,
    q_BTGK: Tensor,
    k_BTJGK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor | None,
    state_BHKV: Tensor | None,
    last_BHKV: Tensor,
    missing_BTJHV: Tensor,
    scale: float,
) -> Gradients:
    """Gradients of the inputs in their dtypes; those of β and of the state are empty if there was none."""
    do_BTHV, q_BTGK, k_BTJGK, v_BTJHV = map(rows_last_contiguous, (do_BTHV, q_BTGK, k_BTJGK, v_BTJHV))
    dlast_BHKV = None if dlast_BHKV is None else dlast_BHKV.contiguous()
    inputs = (do_BTHV, dlast_BHKV, q_BTGK, k_BTJGK, v_BTJHV, log_decay_BTH, beta_BTJH, missing_BTJHV)
    with torch.cuda.device_of(v_BTJHV):
        dv_BTJHV, dbeta_BTJH, dstate_BHKV = _of_columns(*inputs, state_BHKV is not None, scale)
        state_BHKV = None if state_BHKV is None else state_BHKV.contiguous()
        of_rows = _of_rows(*inputs, state_BHKV, last_BHKV.contiguous(), dv_BTJHV, scale)
    dq_BTGK, dk_BTJGK, ddecay_BTH = of_rows
    return dq_BTGK, dk_BTJGK, dv_BTJHV.to(v_BTJHV.dtype), ddecay_BTH, dbeta_BTJH, dstate_BHKV


def _of_columns(
    do_BTHV: Tensor,
    dlast_BHKV: Tensor | None,
    q_BTGK: Tensor,
    k_BTJGK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor | None,
    missing_BTJHV: Tensor,
    has_state: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of v (in float32 with β), β and the state."""
    rows, time, factors, heads, values = v_BTJHV.shape
    groups, keys = q_BTGK.shape[2:]
    erases = beta_BTJH is not None
    K, N, W = plan(values, keys)
    blocks = triton.cdiv(values, W)
    # With β ∂v is read again, and must not have been rounded.
    dv_BTJHV = v_BTJHV.new_empty(v_BTJHV.shape, dtype=torch.float32 if erases else v_BTJHV.dtype)
    state = (rows, heads, keys, values) if has_state else (rows, 0)
    dstate_BHKV = v_BTJHV.new_empty(state, dtype=torch.float32)
    like = log_decay_BTH if beta_BTJH is None else beta_BTJH
    dbeta_BTJHX = parts(like, (rows, time if erases else 0, factors, heads, blocks), blocks)
    values_kernel[(triton.cdiv(rows * heads, N), blocks)](
        do_BTHV, dlast_BHKV, q_BTGK, k_BTJGK, log_decay_BTH, beta_BTJH, missing_BTJHV,
        dv_BTJHV, dbeta_BTJHX, dstate_BHKV, rows * heads, time, heads, heads // groups, 1, blocks, scale,
        *_strides(do_BTHV, 3), *_strides(q_BTGK, 3), *_strides(k_BTJGK, 4), *log_decay_BTH.stride(),
        *_strides(beta_BTJH, 4), KEYS=keys, VALUES=values, J=factors, ERASE=erases,
        HAS_DLAST=dlast_BHKV is not None, HAS_STATE=has_state, K=K, N=N, W=W, num_warps=1,
    )  # fmt: skip
    return dv_BTJHV, summed(dbeta_BTJHX, 4, like), dstate_BHKV


def _of_rows(
    do_BTHV: Tensor,
    dlast_BHKV: Tensor | None,
    q_BTGK: Tensor,
    k_BTJGK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor | None,
    missing_BTJHV: Tensor,
    state_BHKV: Tensor | None,
    last_BHKV: Tensor,
    dv_BTJHV: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and log decays, in their dtypes."""
    rows, time, factors, heads, values = v_BTJHV.shape
    groups, keys = q_BTGK.shape[2:]
    shared, erases = heads // groups, beta_BTJH is not None
    V, N, R = plan(keys, values)
    blocks = triton.cdiv(keys, R)
    dq_BTGEK = parts(q_BTGK, (rows, time, groups, shared, keys), shared)
    dk_BTJGEK = parts(k_BTJGK, (rows, time, factors, groups, shared, keys), shared)
    ddecay_BTHX = parts(log_decay_BTH, (rows, time, heads, blocks), blocks)
    dread_BTJHK = last_BHKV.new_empty(rows, time if erases else 0, factors, heads, keys)
    own_BTJHX = last_BHKV.new_empty(rows, time, factors, heads, blocks)
    write_BTJHV = missing_BTJHV if erases else v_BTJHV
    numbers = (
        rows * heads, time, heads, shared, 1, blocks, scale, *_strides(do_BTHV, 3), *_strides(q_BTGK, 3),
        *_strides(k_BTJGK, 4), *_strides(write_BTJHV, 4), *log_decay_BTH.stride(), *_strides(beta_BTJH, 4),
    )  # fmt: skip
    dims = {"KEYS": keys, "VALUES": values, "J": factors, "ERASE": erases, "V": V, "N": N, "R": R}
    grid = (triton.cdiv(rows * heads, N), blocks)
    reads_kernel[grid](
        do_BTHV, k_BTJGK, write_BTJHV, log_decay_BTH, beta_BTJH, q_BTGK, dv_BTJHV, state_BHKV,
        dq_BTGEK, dread_BTJHK, own_BTJHX, *numbers, HAS_STATE=state_BHKV is not None, **dims, num_warps=1,
    )  # fmt: skip
    writes_kernel[grid](
        do_BTHV, dlast_BHKV, last_BHKV, q_BTGK, k_BTJGK, write_BTJHV, log_decay_BTH, beta_BTJH,
        dv_BTJHV, dread_BTJHK, own_BTJHX, dk_BTJGEK, ddecay_BTHX,
        *numbers, HAS_DLAST=dlast_BHKV is not None, **dims, num_warps=1,
    )  # fmt: skip
    return (
        summed(dq_BTGEK, 3, q_BTGK),
        summed(dk_BTJGEK, 4, k_BTJGK),
        summed(ddecay_BTHX, 3, log_decay_BTH),
    )


@backward.register_fake
def _(_do: Tensor, _dlast: Tensor | None, *tensors: Any) -> Gradients:
    q_BTGK, k_BTJGK, v_BTJHV, log_decay_BTH, beta_BTJH, state_BHKV, last_BHKV, *_ = tensors
    rows, _, factors, heads, _ = v_BTJHV.shape
    dbeta = log_decay_BTH.new_empty(rows, 0, factors, heads) if beta_BTJH is None else beta_BTJH
    dstate = last_BHKV.new_empty(rows, 0) if state_BHKV is None else last_BHKV
    inputs = (q_BTGK, k_BTJGK, v_BTJHV, log_decay_BTH, dbeta, dstate)
    return tuple(tensor.new_empty(tensor.shape) for tensor in inputs)  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale, _ = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, do: Tensor | None, dlast: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    if do is None:
        do = torch.zeros_like(saved[2][:, :, 0])
    *gradients, dbeta, dstate = backward(do, dlast, *saved, ctx.scale)
    of_beta, of_state = (None if saved[place] is None else g for place, g in ((4, dbeta), (5, dstate)))
    return *gradients, of_beta, of_state, None, None


forward.register_autograd(_gradients, setup_context=_setup)
lift(forward)
lift(backward)
