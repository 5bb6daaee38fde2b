"""Mamba-3's recurrence: a matrix state that decays, rotates, and is written by a trapezoidal rule.

Legend: B rows, T time, R ranks (1: single input, single output), H heads, P head width, N state width,
A rotated pairs of state channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, widen
from statelab.kernels.mamba3.chunk import chunk
from statelab.kernels.mamba3.reference import State, reference
from statelab.kernels.precision import Precision, choose_precision
from statelab.kernels.ssd import kernel_limit, ssd

MOST_RANKS = 16
"""Ranks that the fused kernels take: those of a step are rows of one chunk, of which there are 16 at least."""

STATE = ("B H A", "B R H N", "B R H P", "B H P N")
"""The shapes of a state's parts φ, B̄, x and h."""


def mamba3(
    x_BTRHP: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor,
    weight_BTH: Tensor | None,
    angle_BTHA: Tensor | None,
    write_BTRHN: Tensor,
    read_BTRHN: Tensor,
    state: State | None = None,
    *,
    backend: Backend = "auto",
    precision: Precision = "auto",
) -> tuple[Tensor, State]:
    """Outputs `y [B, T, R, H, P]`, in the dtype of `x`, and the last state (φ, B̄, x, h), in float32 or wider.

        φ ← φ + θ mod 2π,    B̄ = R(φ) B,    C̄ = R(φ) C
        h ← α h + (1 − λ) Δ α Σ_r x'_r B̄'_rᵀ + λ Δ Σ_r x_r B̄_rᵀ,    y_r = h C̄_r

    Lahoti et al. 2026 (arXiv 2603.15569, eq. 5, 11 and 14), ' marking the step before. `log_decay` is log α =
    Δ A (at most 0), `step` Δ, `weight` λ, `angle` θ in radians: what a step adds to the phase of its pairs.
    R(φ) turns the pairs (2i, 2i + 1) of the first 2A state channels by +φ, the others not at all. `weight` None
    is λ = 1; `angle` None rotates nothing. `state` None starts from zeros; a part that nothing needs is ().
    Shapes: φ `[B, H, A]`, B̄ `[B, R, H, N]`, x `[B, R, H, P]`, h `[B, H, P, N]`.
    `chunk` folds rotation and trapezoid into `kernels.ssd`, exact up to rounding. `triton` has kernels that do both
    themselves, for up to 16 ranks, beyond which it is `chunk` over the kernel of `kernels.ssd`; products are in
    `precision`, log decays below −120 decays of 0. Phases are float32 or wider in all.
    Raises ValueError for shapes that do not fit together.
    """
    parts = (
        (None,) * 4 if state is None else tuple(part if isinstance(part, Tensor) else None for part in state)
    )
    sizes = check_shapes(
        "mamba3",
        x=(x_BTRHP, "B T R H P"),
        log_decay=(log_decay_BTH, "B T H"),
        step=(step_BTH, "B T H"),
        weight=(weight_BTH, "B T H"),
        angle=(angle_BTHA, "B T H A"),
        write=(write_BTRHN, "B T R H N"),
        read=(read_BTRHN, "B T R H N"),
        **{f"state {axes}": (part, axes) for part, axes in zip(parts, STATE, strict=True)},
    )
    if 2 * sizes.get("A", 0) > sizes["N"]:
        raise ValueError(
            f"mamba3: {sizes['A']} angles turn {2 * sizes['A']} state channels, more than N = {sizes['N']}"
        )
    needed = (angle_BTHA is not None, weight_BTH is not None, weight_BTH is not None, True)

    def start(like: Tensor) -> State:
        made = (
            () if not need else zeros(like, sizes, axes) if part is None else widen(part)
            for need, part, axes in zip(needed, parts, STATE, strict=True)
        )
        return cast(State, tuple(made))

    products = choose_precision("mamba3", precision, x_BTRHP)
    limit = kernel_limit(sizes["N"], products)
    inputs = (x_BTRHP, log_decay_BTH, step_BTH, write_BTRHN, read_BTRHN, weight_BTH, angle_BTHA, *parts)
    chosen = choose_backend("mamba3", backend, ("reference", "chunk", "triton"), *inputs, limit=limit)
    if chosen == "triton" and sizes["R"] <= MOST_RANKS:
        from statelab.kernels.mamba3.tiles import tiles

        # Of wide copies of x, and of zeros, these kernels have no need.
        given = None if state is None else start(x_BTRHP.new_empty(0, dtype=torch.float32))
        return tiles(
            x_BTRHP, log_decay_BTH, step_BTH, weight_BTH, angle_BTHA, write_BTRHN, read_BTRHN, given, products
        )
    run: Callable[..., tuple[Tensor, State]] = reference
    if chosen == "chunk":
        run = partial(chunk, fresh=state is None)
    elif chosen == "triton":
        scan = partial(ssd, backend="triton", precision=cast(Precision, products))
        run = partial(
            chunk, fresh=state is None, scan=scan, dtype=x_BTRHP.dtype if products == "bf16" else None
        )
    wide_x_BTRHP = widen(x_BTRHP)
    y_BTRHP, after = run(
        wide_x_BTRHP,
        widen(log_decay_BTH),
        widen(step_BTH),
        None if weight_BTH is None else widen(weight_BTH),
        None if angle_BTHA is None else widen(angle_BTHA),
        widen(write_BTRHN),
        widen(read_BTRHN),
        start(wide_x_BTRHP),
    )
    return y_BTRHP.to(x_BTRHP.dtype), after


def zeros(like: Tensor, sizes: dict[str, int], axes: str) -> Tensor:
    """Zeros of the named sizes."""
    return like.new_zeros([sizes[letter] for letter in axes.split()])
