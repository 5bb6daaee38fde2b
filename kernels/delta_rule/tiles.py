"""The gated delta rule and product by chunks on matrix units: programs walk over sequences with their state on chip.

What a chunk's steps write solves a triangular system (`kernels.delta_rule.chunk`), whose inverse is made for all
chunks at once. Then a program for each row, head and block of value width goes from chunk to chunk. The states at
the starts of chunks and what the steps wrote are kept for the backward pass, which goes back over time likewise and
then has a program for each chunk.

Legend: B rows, T time, J steps of a token (1 for the delta rule), H heads, K key width, V value width, C chunks,
L steps of a chunk, X parts of a sum.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from statelab.kernels.delta_rule.options import INVERTED, launch_options, plan
from statelab.kernels.delta_rule.tiles_backward import ends_kernel, gradients_kernel
from statelab.kernels.delta_rule.tiles_forward import forward_kernel, inverse_kernel
from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.partial import parts, summed

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def tiles(
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    state_BHKV: Tensor | None,
    scale: float,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """See `delta_product`; inputs of any float dtype up to float32, the state in float32."""
    inputs = (q_BTHK, k_BTJHK, v_BTJHV, log_decay_BTH, beta_BTJH, state_BHKV)
    o_BTHV, last_BHKV, *_ = forward(*inputs, scale, precision, torch.is_grad_enabled())
    return o_BTHV, last_BHKV


@torch.library.custom_op(
    "statelab::delta_forward",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor beta, Tensor? state, float scale,"
    " str precision, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def forward(
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    state_BHKV: Tensor | None,
    scale: float,
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    """Outputs, the last state and, for `keep`, what was written `[B, T, J, H, V]`, the states at the starts of
    chunks `[B, H, C, K, V]` and the inverses `[B, H, C, L, L]`."""
    q_BTHK, k_BTJHK, v_BTJHV = map(rows_last_contiguous, (q_BTHK, k_BTJHK, v_BTJHV))
    outputs = _empty(q_BTHK, v_BTJHV, precision, keep)
    *_, inverse_BHCLL = outputs
    rows, time, heads, keys = q_BTHK.shape
    sizes, chunks = plan(q_BTHK, v_BTJHV), inverse_BHCLL.shape[2]
    options = launch_options(sizes, precision)
    widths = {key: sizes[key] for key in ("J", "TOKENS", "L", "K")}
    gates = (*log_decay_BTH.stride(), *beta_BTJH.stride())
    with torch.cuda.device_of(q_BTHK):
        inverse_kernel[(rows * heads * chunks,)](
            k_BTJHK, log_decay_BTH, beta_BTJH, inverse_BHCLL, time, heads, chunks, *k_BTJHK.stride()[:4], *gates,
            KEYS=keys, PRECISION=INVERTED.get(precision, precision),
            LEVELS=sizes["L"].bit_length() - 1, **widths, num_warps=1 if precision == "bf16" else 2,
        )  # fmt: skip
        grid = (rows * heads, triton.cdiv(v_BTJHV.shape[4], sizes["W"]))
        forward_kernel[grid](
            q_BTHK, k_BTJHK, v_BTJHV, log_decay_BTH, beta_BTJH,
            None if state_BHKV is None else state_BHKV.contiguous(), inverse_BHCLL, *outputs[:4],
            time, heads, chunks, scale, *q_BTHK.stride()[:3], *k_BTJHK.stride()[:4], *v_BTJHV.stride()[:4], *gates,
            KEYS=keys, VALUES=v_BTJHV.shape[4], HAS_STATE=state_BHKV is not None, KEEP=keep, PRECISION=precision,
            **sizes, **options,
        )  # fmt: skip
    return outputs


@forward.register_fake
def _(
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    state_BHKV: Tensor | None,
    scale: float,
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    return _empty(q_BTHK, v_BTJHV, precision, keep)


def kept(precision: str) -> torch.dtype:
    """In what a tensor is kept that only products read: in bf16 they round it anyway."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _empty(q_BTHK: Tensor, v_BTJHV: Tensor, precision: str, keep: bool) -> tuple[Tensor, ...]:
    rows, time, heads, keys = q_BTHK.shape
    factors, values = v_BTJHV.shape[2], v_BTJHV.shape[4]
    sizes = plan(q_BTHK, v_BTJHV)
    chunks, dtype, steps = triton.cdiv(time, sizes["TOKENS"]), kept(precision), sizes["L"]
    return (
        v_BTJHV.new_empty(rows, time, heads, values),
        v_BTJHV.new_empty(rows, heads, keys, values, dtype=torch.float32),
        v_BTJHV.new_empty(rows, time if keep else 0, factors, heads, values, dtype=dtype),
        v_BTJHV.new_empty(rows, heads, chunks if keep else 0, keys, values, dtype=dtype),
        v_BTJHV.new_empty(rows, heads, chunks, steps, steps, dtype=dtype),
    )


@torch.library.custom_op(
    "statelab::delta_backward",
    mutates_args=(),
    schema="(Tensor do, Tensor? dlast, Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor beta,"
    " Tensor written, Tensor starts, Tensor inverse, bool has_state, float scale, str precision)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def backward(
    do_BTHV: Tensor,
    dlast_BHKV: Tensor | None,
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    written_BTJHV: Tensor,
    starts_BHCKV: Tensor,
    inverse_BHCLL: Tensor,
    has_state: bool,
    scale: float,
    precision: str,
) -> Gradients:
    """Gradients of the inputs in their dtypes and, last, of the state, which is empty if there was none."""
    do_BTHV, q_BTHK, k_BTJHK = map(rows_last_contiguous, (do_BTHV, q_BTHK, k_BTJHK))
    rows, time, heads, keys = q_BTHK.shape
    sizes, chunks, values = plan(q_BTHK, v_BTJHV), starts_BHCKV.shape[2], v_BTJHV.shape[4]
    blocks = triton.cdiv(values, sizes["W"])
    dims = {"KEYS": keys, "VALUES": values, "PRECISION": precision, **sizes}
    ends_BHCKV, dv_BTJHV = torch.empty_like(starts_BHCKV), torch.empty_like(written_BTJHV)
    dq_BTHXK = parts(q_BTHK, (*q_BTHK.shape[:3], blocks, keys), blocks)
    dk_BTJHXK = parts(k_BTJHK, (*k_BTJHK.shape[:4], blocks, keys), blocks)
    ddecay_BTHX = parts(log_decay_BTH, (*log_decay_BTH.shape, blocks), blocks)
    dbeta_BTJHX = parts(beta_BTJH, (*beta_BTJH.shape, blocks), blocks)
    shape = (rows, heads, keys, values) if has_state else (rows, 0)
    dstate_BHKV = q_BTHK.new_empty(shape, dtype=torch.float32)
    given = (*do_BTHV.stride()[:3], *q_BTHK.stride()[:3], *k_BTJHK.stride()[:4], *log_decay_BTH.stride())
    with torch.cuda.device_of(q_BTHK):
        ends_kernel[(rows * heads, blocks)](
            do_BTHV, None if dlast_BHKV is None else dlast_BHKV.contiguous(), q_BTHK, k_BTJHK,
            log_decay_BTH, beta_BTJH, inverse_BHCLL, written_BTJHV, ends_BHCKV, dv_BTJHV, dbeta_BTJHX, dstate_BHKV,
            time, heads, chunks, blocks, scale, *given, *beta_BTJH.stride(),
            HAS_DLAST=dlast_BHKV is not None, HAS_STATE=has_state, **dims, **launch_options(sizes, precision),
        )  # fmt: skip
        gradients_kernel[(rows * heads * chunks, blocks)](
            do_BTHV, q_BTHK, k_BTJHK, log_decay_BTH, written_BTJHV, dv_BTJHV, starts_BHCKV, ends_BHCKV,
            dq_BTHXK, dk_BTJHXK, ddecay_BTHX, time, heads, chunks, blocks, scale, *given,
            **dims, **launch_options(sizes, precision, walks=False),
        )  # fmt: skip
    return (
        summed(dq_BTHXK, 3, q_BTHK),
        summed(dk_BTJHXK, 4, k_BTJHK),
        dv_BTJHV.to(v_BTJHV.dtype),
        summed(ddecay_BTHX, 3, log_decay_BTH),
        summed(dbeta_BTJHX, 4, beta_BTJH),
        dstate_BHKV,
    )


@backward.register_fake
def _(
    do_BTHV: Tensor,
    dlast_BHKV: Tensor | None,
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTJH: Tensor,
    written_BTJHV: Tensor,
    starts_BHCKV: Tensor,
    inverse_BHCLL: Tensor,
    has_state: bool,
    scale: float,
    precision: str,
) -> Gradients:
    rows, _, heads, keys = q_BTHK.shape
    shape = (rows, heads, keys, v_BTJHV.shape[4]) if has_state else (rows, 0)
    inputs = (q_BTHK, k_BTJHK, v_BTJHV, log_decay_BTH, beta_BTJH)
    gradients = (tensor.new_empty(tensor.shape) for tensor in inputs)
    return *gradients, q_BTHK.new_empty(shape, dtype=torch.float32)  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, state_BHKV, ctx.scale, ctx.precision, _ = inputs
    ctx.save_for_backward(*tensors, *output[2:])
    ctx.has_state = state_BHKV is not None
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, do: Tensor | None, dlast: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    if do is None:
        do = torch.zeros_like(saved[2][:, :, 0])
    *gradients, dstate = backward(do, dlast, *saved, ctx.has_state, ctx.scale, ctx.precision)
    return *gradients, dstate if ctx.has_state else None, None, None, None


forward.register_autograd(_gradients, setup_context=_setup)
lift(forward)
lift(backward)
