"""The gated delta product: several delta-rule updates of a matrix state for each token.

Legend: B rows, T time, J factors of a token, H heads, K key width, V value width.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, narrow_limit, widen
from statelab.kernels.delta_product.chunk import chunk
from statelab.kernels.delta_product.reference import reference
from statelab.kernels.precision import Precision, choose_precision


def delta_product(
    q_BTHK: Tensor,
    k_BTJHK: Tensor,
    v_BTJHV: Tensor,
    log_decay_BTH: Tensor | None,
    beta_BTJH: Tensor,
    state_BHKV: Tensor | None = None,
    *,
    scale: float | None = None,
    backend: Backend = "auto",
    precision: Precision = "auto",
) -> tuple[Tensor, Tensor]:
    """Outputs `o [B, T, H, V]`, in the dtype of `v`, and the last state `[B, H, K, V]`, in float32 or wider.

        S ← e^g S,    S ← S + β_j k_j (v_j − Sᵀ k_j)ᵀ  for j = 1 … J,    o = scale · Sᵀ q

    Siems et al. 2025 (arXiv 2502.10297, section 3, gated): their n_h is J, their S our Sᵀ. A step's
    transition e^g Π (I − β_j k_j k_jᵀ) is a product of generalised Householder matrices: with J of them it can
    permute J + 1 axes. `log_decay` None is no decay. `scale` None is K^−½. `state` None starts from
    zeros. J = 1 is `delta_rule`. `chunk` is the delta rule's own, over T·J steps, and so are `triton`, for K up
    to 128 and J up to 32, and `recurrent`, for K and V up to 64; `auto` is `triton` on a GPU.
    Raises ValueError for shapes that do not fit together.
    """
    sizes = check_shapes(
        "delta_product",
        q=(q_BTHK, "B T H K"),
        k=(k_BTJHK, "B T J H K"),
        v=(v_BTJHV, "B T J H V"),
        log_decay=(log_decay_BTH, "B T H"),
        beta=(beta_BTJH, "B T J H"),
        state=(state_BHKV, "B H K V"),
    )
    if not sizes["J"]:
        raise ValueError("delta_product: needs at least one factor, got J = 0")
    products = choose_precision("delta_product", precision, v_BTJHV)
    inputs = (q_BTHK, k_BTJHK, v_BTJHV, log_decay_BTH, beta_BTJH, state_BHKV)
    limit = {"triton": _limit(sizes), "recurrent": narrow_limit(sizes["K"], sizes["V"])}
    has = ("reference", "chunk", "recurrent", "triton")
    chosen = choose_backend("delta_product", backend, has, *inputs, limit=limit)
    scale = sizes["K"] ** -0.5 if scale is None else scale
    if log_decay_BTH is None:
        log_decay_BTH = widen(beta_BTJH).new_zeros([sizes[letter] for letter in "BTH"])
    start_BHKV = None if state_BHKV is None else widen(state_BHKV)
    if chosen == "recurrent":
        from statelab.kernels.matrix_scan import matrix_scan

        return matrix_scan(q_BTHK, k_BTJHK, v_BTJHV, log_decay_BTH, beta_BTJH, start_BHKV, scale)
    if chosen == "triton":
        from statelab.kernels.delta_rule.tiles import tiles

        return tiles(q_BTHK, k_BTJHK, v_BTJHV, log_decay_BTH, beta_BTJH, start_BHKV, scale, products)
    run = reference if chosen == "reference" else partial(chunk, fresh=state_BHKV is None)
    if state_BHKV is None:
        state_BHKV = widen(v_BTJHV).new_zeros([sizes[letter] for letter in "BHKV"])
    wide = (
        widen(q_BTHK) * scale,
        widen(k_BTJHK),
        widen(v_BTJHV),
        widen(log_decay_BTH),
        widen(beta_BTJH),
        widen(state_BHKV),
    )
    o_BTHV, state_BHKV = run(*wide)
    return o_BTHV.to(v_BTJHV.dtype), state_BHKV


def _limit(sizes: dict[str, int]) -> str | None:
    if sizes["K"] > 128:
        return f"takes key widths up to 128, got {sizes['K']}"
    return None if sizes["J"] <= 32 else f"takes up to 32 factors, got {sizes['J']}"
