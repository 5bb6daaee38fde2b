"""Orthogonalised reads of a memory written step by step: Triton kernels, with their gradient and vmap rule.

    C_t = e^{d_t} C_{t−1} + e^{g_t} k_t v_tᵀ,    y_t = X_tᵀ q_t,    X_t from C_t as in `orthogonal_read`

Legend: B rows, T time, H heads, K key width, V value width. Chunks of `LENGTH` steps go side by side. Only the
memories at their starts are kept; a warp remakes those of its chunk, iterates each in its registers, and going back
keeps the chunk's memories in room of its own, of which there is as much as there are warps at once. The last
iteration is made of products with vectors.

Gradients are those of the iteration. That of d_t needs no product of two matrices: with Γ_t the gradient of C_t,
⟨Γ_t, C_t⟩ = ⟨∂y_t, C_t⟩ + (∂d)_{t+1} and (∂d)_t = ⟨Γ_t, C_t⟩ − (∂g)_t, a sum from the end; ⟨∂y_t, C_t⟩ is 0 where
the norm of C_t counts, since a read does not see it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from statelab.kernels.lanes import lift, rows_last_contiguous
from statelab.kernels.orthogonal_read import MOST_IN_HALF
from statelab.kernels.orthogonal_read.newton_schulz import kept_tiles, passing_tiles
from statelab.kernels.orthogonal_read.scan_backward import backward_kernel, carry_kernel, finish_kernel
from statelab.kernels.orthogonal_read.scan_forward import forward_kernel, states_kernel
from statelab.kernels.orthogonal_read.tiles import PARTS
from statelab.kernels.running import sums_to_end, time_last, time_second

LENGTH = 16
"""Steps of a chunk: the fewest that matrix units take at once."""

AHEAD = 4
"""Chunks whose loads are made at once in the sum over chunks."""

WIDEST = 64
"""Widest key or value: four tiles, and what one warp's registers hold with room on the stack."""

WARPS_AT_ONCE = 8
"""Programs, of one warp, that a multiprocessor runs side by side: each holds the most registers there are. Fewer
registers (168, 128) and more warps were slower: 1.5 and 2.6 times, for what then lies on the stack."""

ONE_WARP = {"num_warps": 1, "num_stages": 1}


def _programs(total: int, device: torch.device) -> int:
    if device.type != "cuda":
        return min(total, 2)
    return min(total, WARPS_AT_ONCE * torch.cuda.get_device_properties(device).multi_processor_count)


def _tiles(*widths: int) -> int:
    return -(-max(widths) // 16)


def _numbers(coefficients: list[float], iterations: int) -> tuple[float, ...]:
    """β, γ of the first iteration, a², and a, b, c of the last one, for matrices divided by aʲ."""
    a, b, c = coefficients
    scale = a ** max(iterations - 1, 0)
    return b / a, c / a, a * a, a * scale, b * scale**3, c * scale**5


def _operands(precision: str, coefficients: list[float], iterations: int) -> str:
    """The FORMAT of operands for a precision: tf32's mantissas in float16, half as wide, while its exponents reach."""
    half = precision == "tf32" and coefficients[2] == 0 and iterations <= MOST_IN_HALF
    return "fp16" if half else precision


@torch.library.custom_op("statelab::orthogonal_scan", mutates_args=())
def orthogonal_scan(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_gain: Tensor, start: Tensor,
    coefficients: list[float], iterations: int, straight_through: str, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y `[B, T, H, V]`, the last memory `[B, H, K, V]`, and memories at the starts of chunks, for the gradient.

    Gates `[B, T, H]` and `start [B, H, K, V]` are float32; so is what comes out.
    """
    q, k, v = rows_last_contiguous(q), rows_last_contiguous(k), rows_last_contiguous(v)
    log_decay, log_gain = log_decay.contiguous(), log_gain.contiguous()
    rows, time, heads, key_width = k.shape
    value_width, device = v.shape[-1], v.device
    n, chunks = _tiles(key_width, value_width), -(-time // LENGTH)
    states = torch.empty(rows, heads, chunks, n * n * 256, device=device)
    last = torch.empty(rows, heads, key_width, value_width, device=device)
    states_kernel[(rows * heads, n)](
        k, v, log_decay, log_gain, start.contiguous(), states, last,
        time, heads, chunks, key_width, value_width,
        *k.stride()[:3], *v.stride()[:3], n, LENGTH, **ONE_WARP,
    )  # fmt: skip
    total = rows * heads * chunks
    programs = _programs(total, device)
    y = torch.empty(rows, time, heads, value_width, device=device)
    way = "raw" if straight_through == "backward" else "iterated" if iterations else "normed"
    forward_kernel[(programs,)](
        q, k, v, log_decay, log_gain, states, y, torch.empty(programs * n * n * 256, device=device),
        time, heads, chunks, total, key_width, value_width, iterations,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *_numbers(coefficients, iterations),
        way, coefficients[2] != 0, n, _operands(precision, coefficients, iterations), LENGTH, **ONE_WARP,
    )  # fmt: skip
    return y, last, states


@orthogonal_scan.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_gain: Tensor, start: Tensor,
    coefficients: list[float], iterations: int, straight_through: str, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows, time, heads, key_width = k.shape
    value_width = v.shape[-1]
    states = (rows, heads, -(-time // LENGTH), _tiles(key_width, value_width) ** 2 * 256)
    made = [
        v.new_empty(shape, dtype=torch.float32)
        for shape in ((rows, time, heads, value_width), (rows, heads, key_width, value_width), states)
    ]
    return made[0], made[1], made[2]


@torch.library.custom_op("statelab::orthogonal_scan_backward", mutates_args=())
def orthogonal_scan_backward(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_gain: Tensor, last: Tensor, states: Tensor,
    dy: Tensor, dlast: Tensor,
    coefficients: list[float], iterations: int, straight_through: str, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, v, the gates, and the first memory."""
    q, k, v = rows_last_contiguous(q), rows_last_contiguous(k), rows_last_contiguous(v)
    log_decay, log_gain = log_decay.contiguous(), log_gain.contiguous()
    dy, dlast = dy.float().contiguous(), dlast.contiguous()
    rows, time, heads, key_width = k.shape
    value_width, device, chunks = v.shape[-1], v.device, states.shape[2]
    n, total = _tiles(key_width, value_width), rows * heads * chunks
    size, programs = n * n * 256, _programs(total, device)
    form = _operands(precision, coefficients, iterations)
    kept = {"tf32": torch.float32, "fp16": torch.float16}.get(form, torch.bfloat16)
    square = coefficients[2] != 0
    tiles = max(iterations - 1, 0) * kept_tiles(n, square) + passing_tiles(n, square)
    room = torch.empty(programs * tiles * PARTS[form] * 256, dtype=kept, device=device)
    dq, dk, dv = (torch.empty(tensor.shape, device=device) for tensor in (q, k, v))
    dgain, along = torch.empty_like(log_gain), torch.empty_like(log_gain)
    ends = torch.empty_like(states)
    sizes = (time, heads, chunks)
    backward_kernel[(programs,)](
        q, k, v, log_decay, log_gain, states, dy, dq, dk, dv, dgain, along, ends,
        torch.empty(programs * LENGTH * size, device=device), room,
        *sizes, total, key_width, value_width, iterations,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *_numbers(coefficients, iterations),
        "iterated" if iterations else "normed", straight_through, square,
        n, form, LENGTH, **ONE_WARP,
    )  # fmt: skip
    dstart = torch.empty_like(dlast)
    carry_kernel[(rows * heads, n * n)](
        log_decay, dlast, ends, dstart, *sizes, key_width, value_width, n, LENGTH, AHEAD, **ONE_WARP
    )
    dk_out, dv_out = torch.empty_like(dk, dtype=k.dtype), torch.empty_like(dv, dtype=v.dtype)
    finish_kernel[(total,)](
        k, v, log_decay, log_gain, ends, dk, dv, dgain, dk_out, dv_out,
        *sizes, key_width, value_width, *k.stride()[:3], *v.stride()[:3], n, LENGTH, **ONE_WARP,
    )  # fmt: skip
    held = (dlast * last).sum(dim=(-2, -1)).unsqueeze(1)
    ddecay = held + time_second(sums_to_end(time_last(along - dgain)))
    return dq.to(q.dtype), dk_out, dv_out, ddecay, dgain, dstart


@orthogonal_scan_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_gain: Tensor, last: Tensor, states: Tensor,
    dy: Tensor, dlast: Tensor,
    coefficients: list[float], iterations: int, straight_through: str, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dense = [tensor.new_empty(tensor.shape) for tensor in (q, k, v, log_decay, log_gain, last)]
    return dense[0], dense[1], dense[2], dense[3], dense[4], dense[5]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    # The first memory is the first chunk's.
    ctx.save_for_backward(*inputs[:5], *output[1:])
    ctx.settings = inputs[6:]


def _backward(ctx: Any, dy: Tensor | None, dlast: Tensor | None, _: None) -> tuple[Any, ...]:
    *inputs, last, _states = ctx.saved_tensors
    dy = torch.zeros_like(inputs[2], dtype=torch.float32) if dy is None else dy
    dlast = torch.zeros_like(last) if dlast is None else dlast
    gradients = orthogonal_scan_backward(*ctx.saved_tensors, dy, dlast, *ctx.settings)
    return *gradients, None, None, None, None


orthogonal_scan.register_autograd(_backward, setup_context=_setup)
lift(orthogonal_scan)
