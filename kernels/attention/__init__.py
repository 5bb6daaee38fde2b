"""Causal softmax attention.

Legend: B rows, T queries, S >= T keys and values that end where the queries do, H heads, K key width, V value
width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from statelab.kernels.attention.reference import reference
from statelab.kernels.attention.sdpa import sdpa
from statelab.kernels.contract import check_shapes, choose_backend


def attention(
    q_BTHK: Tensor,
    k_BSHK: Tensor,
    v_BSHV: Tensor,
    *,
    scale: float | None = None,
    backend: Literal["auto", "reference", "sdpa"] = "auto",
) -> Tensor:
    """Outputs `[B, T, H, V]`, in the dtype of `v`.

        y_t = Σ_s softmax_s(scale · q_t · k_s) v_s    over s <= S − T + t

    Vaswani et al. 2017 (arXiv 1706.03762, eq. 1, masked). The last query stands at the last key, so a
    sequence's next piece is its own queries against all keys so far. `scale` None is K^−½. `sdpa` is torch's
    scaled_dot_product_attention. Raises ValueError for shapes that do not fit and for fewer keys than
    queries.
    """
    sizes = check_shapes("attention", q=(q_BTHK, "B T H K"), k=(k_BSHK, "B S H K"), v=(v_BSHV, "B S H V"))
    if sizes["S"] < sizes["T"]:
        raise ValueError(f"attention: {sizes['S']} keys for {sizes['T']} queries; give a key for each query")
    run = reference if choose_backend("attention", backend, ("reference", "sdpa")) == "reference" else sdpa
    return run(q_BTHK, k_BSHK, v_BSHV, sizes["K"] ** -0.5 if scale is None else scale)
