"""Mamba-2's recurrence, a matrix state under a scalar decay.

Legend: B rows, T time, H heads, P head width, G groups, N state width.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, narrow_limit, widen
from statelab.kernels.precision import Precision, choose_precision
from statelab.kernels.ssd.chunk import chunk
from statelab.kernels.ssd.reference import reference


def ssd(
    x_BTHP: Tensor,
    log_decay_BTH: Tensor,
    write_BTGN: Tensor,
    read_BTGN: Tensor,
    state_BHPN: Tensor | None = None,
    *,
    backend: Backend = "auto",
    precision: Precision = "auto",
) -> tuple[Tensor, Tensor]:
    """Outputs `y [B, T, H, P]`, in the input's dtype, and the last state `[B, H, P, N]`, in float32 or wider.

        h ← a h + x Bᵀ,    y = h C

    Dao and Gu 2024 (arXiv 2405.21060, eq. 2 with scalar-identity A): `x` is their Δ·x, `log_decay` log a
    = Δ·A (at most 0), `write` B, `read` C. Heads are split evenly over the G groups, neighbours
    together. `state` None starts from zeros. `chunk` is their section 6, exact up to rounding, any T, and
    `triton` the same on a GPU, with products in `precision` (`kernels.precision`), for N up to 128; log decays
    below −120, −∞ too, are there decays of 0. `recurrent` goes on a GPU step by step, in float32 whatever
    the precision, for P and N up to 64. `auto` is `triton` there, which takes
    0.04 to 0.45 of the other's time, forward and backward (`kernels/BENCHMARKS.md`). Raises
    ValueError for shapes that do not fit together.
    """
    sizes = check_shapes(
        "ssd",
        x=(x_BTHP, "B T H P"),
        log_decay=(log_decay_BTH, "B T H"),
        write=(write_BTGN, "B T G N"),
        read=(read_BTGN, "B T G N"),
        state=(state_BHPN, "B H P N"),
    )
    if sizes["H"] % sizes["G"]:
        raise ValueError(f"ssd: {sizes['H']} heads cannot be split evenly over {sizes['G']} groups")
    products = choose_precision("ssd", precision, x_BTHP)
    limit = {"triton": kernel_limit(sizes["N"], products), "recurrent": narrow_limit(sizes["N"], sizes["P"])}
    inputs = (x_BTHP, log_decay_BTH, write_BTGN, read_BTGN)
    chosen = choose_backend(
        "ssd", backend, ("reference", "chunk", "recurrent", "triton"), *inputs, state_BHPN, limit=limit
    )
    if chosen == "recurrent":
        from statelab.kernels.ssd.recurrent import recurrent

        return recurrent(*inputs, None if state_BHPN is None else widen(state_BHPN))
    if chosen == "triton":
        from statelab.kernels.ssd.tiles import tiles

        return tiles(*inputs, None if state_BHPN is None else widen(state_BHPN), products)
    run = reference if chosen == "reference" else partial(chunk, fresh=state_BHPN is None)
    if state_BHPN is None:
        state_BHPN = widen(x_BTHP).new_zeros([sizes[letter] for letter in "BHPN"])
    wide = (widen(x_BTHP), widen(log_decay_BTH), widen(write_BTGN), widen(read_BTGN), widen(state_BHPN))
    y_BTHP, state_BHPN = run(*wide)
    return y_BTHP.to(x_BTHP.dtype), state_BHPN


def kernel_limit(states: int, precision: str) -> str | None:
    """What the Triton kernel cannot do of a state width and precision, as a sentence's predicate.

    128 states are right on an H200 in bf16x6; in bf16, compiled by Triton 3.6 with 8 warps, they are not.
    """
    if states > 128:
        return f"takes state widths up to 128, got {states}"
    if states > 64 and precision not in ("bf16x6", "ieee"):
        return f"takes state widths up to 64 in {precision}, got {states}; precision 'bf16x6' goes to 128"
    return None
