"""Mamba-2's recurrence, a matrix state under a scalar decay.

Legend: B rows, T time, H heads, P head width, G groups, N state width.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, widen
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
) -> tuple[Tensor, Tensor]:
    """Outputs `y [B, T, H, P]`, in the input's dtype, and the last state `[B, H, P, N]`, in float32 or wider.

        h ← a h + x Bᵀ,    y = h C

    Dao and Gu 2024 (arXiv 2405.21060, eq. 2 with scalar-identity A): `x` is their Δ·x, `log_decay` log a
    = Δ·A (at most 0), `write` B, `read` C. Heads are split evenly over the G groups, neighbours
    together. `state` None starts from zeros. `chunk` is their section 6, exact up to rounding, any T.
    Raises ValueError for shapes that do not fit together.
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
    chosen = choose_backend("ssd", backend, ("reference", "chunk"))
    run = reference if chosen == "reference" else partial(chunk, fresh=state_BHPN is None)
    if state_BHPN is None:
        state_BHPN = widen(x_BTHP).new_zeros([sizes[letter] for letter in "BHPN"])
    wide = (widen(x_BTHP), widen(log_decay_BTH), widen(write_BTGN), widen(read_BTGN), widen(state_BHPN))
    y_BTHP, state_BHPN = run(*wide)
    return y_BTHP.to(x_BTHP.dtype), state_BHPN
