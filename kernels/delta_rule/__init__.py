"""The gated delta rule: a matrix state that replaces, rather than adds, what it holds under a key.

Legend: B rows, T time, H heads, K key width, V value width.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, narrow_limit, widen
from statelab.kernels.delta_rule.chunk import chunk
from statelab.kernels.delta_rule.reference import reference
from statelab.kernels.precision import Precision, choose_precision


def delta_rule(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor | None = None,
    *,
    scale: float | None = None,
    backend: Backend = "auto",
    precision: Precision = "auto",
) -> tuple[Tensor, Tensor]:
    """Outputs `o [B, T, H, V]`, in the dtype of `v`, and the last state `[B, H, K, V]`, in float32 or wider.

        S ← e^g S,    S ← S + β k (v − Sᵀ k)ᵀ,    o = scale · Sᵀ q

    Yang et al. 2024 (arXiv 2412.06464, eq. 10): their S is our Sᵀ, α is e^g with g = `log_decay`. A
    step's transition e^g (I − β k kᵀ) has the eigenvalues e^g and, along k, e^g (1 − β ‖k‖²): keys are
    used as given. `scale` None is K^−½. `state` None starts from zeros. `chunk` is their WY form
    (section 3.3), any T, and `triton` the same on a GPU, with products in `precision` (`kernels.precision`) and
    the triangular system to 2e-5 or better, for K up to 128; log decays below −120, −∞ too, are there decays of
    0. `recurrent` goes on a GPU step by step, in float32 whatever the precision, for K and V up to 64. `auto`
    is one of the two there: see `_sequential`. Raises ValueError for shapes that do not fit together.
    """
    sizes = check_shapes(
        "delta_rule",
        q=(q_BTHK, "B T H K"),
        k=(k_BTHK, "B T H K"),
        v=(v_BTHV, "B T H V"),
        log_decay=(log_decay_BTH, "B T H"),
        beta=(beta_BTH, "B T H"),
        state=(state_BHKV, "B H K V"),
    )
    products = choose_precision("delta_rule", precision, v_BTHV)
    sequential = _sequential(sizes["K"], sizes["V"], sizes["B"] * sizes["H"])
    kernels = ("triton", "recurrent") if sequential else ("recurrent", "triton")
    limit = {
        "triton": None if sizes["K"] <= 128 else f"takes key widths up to 128, got {sizes['K']}",
        "recurrent": narrow_limit(sizes["K"], sizes["V"]),
    }
    inputs = (q_BTHK, k_BTHK, v_BTHV, log_decay_BTH, beta_BTH)
    chosen = choose_backend(
        "delta_rule", backend, ("reference", "chunk", *kernels), *inputs, state_BHKV, limit=limit
    )
    scale = sizes["K"] ** -0.5 if scale is None else scale
    one_BT1H = (k_BTHK.unsqueeze(2), v_BTHV.unsqueeze(2), log_decay_BTH, beta_BTH.unsqueeze(2))
    start_BHKV = None if state_BHKV is None else widen(state_BHKV)
    if chosen == "recurrent":
        from statelab.kernels.matrix_scan import matrix_scan

        return matrix_scan(q_BTHK, *one_BT1H, start_BHKV, scale)
    if chosen == "triton":
        from statelab.kernels.delta_rule.tiles import tiles

        return tiles(q_BTHK, *one_BT1H, start_BHKV, scale, products)
    run = reference if chosen == "reference" else partial(chunk, fresh=state_BHKV is None)
    if state_BHKV is None:
        state_BHKV = widen(v_BTHV).new_zeros([sizes[letter] for letter in "BHKV"])
    wide = (
        widen(q_BTHK) * scale,
        widen(k_BTHK),
        widen(v_BTHV),
        widen(log_decay_BTH),
        widen(beta_BTH),
        widen(state_BHKV),
    )
    o_BTHV, state_BHKV = run(*wide)
    return o_BTHV.to(v_BTHV.dtype), state_BHKV


def _sequential(keys: int, values: int, sequences: int) -> bool:
    """Whether the kernel that is sequential in time is the quicker one (`kernels/BENCHMARKS.md`).

    On an H200 it is where no gradient is wanted, for K and V up to 16 and from 4,096 rows · heads on, which fill the
    card without being parallel in time: 1.3 times as quick. Backward it never is. Rows are those of one lane.
    """
    return not torch.is_grad_enabled() and max(keys, values) <= 16 and sequences >= 4096
