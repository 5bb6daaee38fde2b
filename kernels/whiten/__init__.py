"""Queries through the inverse of the keys' second moment, which makes a linear read a least-squares one.

Legend: B rows, T time, H heads, K key width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, widen
from statelab.kernels.whiten.chunk import chunk
from statelab.kernels.whiten.reference import reference


def whiten(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    gram_BHKK: Tensor | None = None,
    *,
    ridge: float = 0.01,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Queries `[B, T, H, K]`, in the dtype of `q`, and the last gram matrix `[B, H, K, K]`, in float32 or wider.

        G ← G + k̂ k̂ᵀ,    q̃ = (G + ridge I)⁻ᵀ q,    k̂ = k / max(‖k‖, 1e-6)

    q̃ᵀ Σ k̂ vᵀ is then the ridge regression of the values on the keys, at q. This is the recursive least-squares
    read of arXiv 2607.19390 (section 2, "RLS"; the Mesa layer's, arXiv 2309.05858), which keeps the inverse
    itself and updates it by Sherman and Morrison. We solve anew at each step: the same numbers, without the
    drift of an updated inverse. Keys are never forgotten. In float32 the ridge is lost once ‖G‖ passes
    ridge · 1e7. `gram` None starts from zeros. Raises ValueError for shapes that do not fit and a ridge
    that is not positive.
    """
    sizes = check_shapes("whiten", q=(q_BTHK, "B T H K"), k=(k_BTHK, "B T H K"), gram=(gram_BHKK, "B H K K"))
    if ridge <= 0:
        raise ValueError(f"whiten: ridge must be > 0, got {ridge}")
    if gram_BHKK is None:
        gram_BHKK = widen(k_BTHK).new_zeros([sizes[letter] for letter in "BHKK"])
    run = reference if choose_backend("whiten", backend, ("reference", "chunk")) == "reference" else chunk
    wide_k_BTHK = widen(k_BTHK)
    length_BTH1 = torch.linalg.vector_norm(wide_k_BTHK, dim=-1, keepdim=True).clamp_min(1e-6)
    whitened_BTHK, gram_BHKK = run(widen(q_BTHK), wide_k_BTHK / length_BTH1, widen(gram_BHKK), ridge)
    return whitened_BTHK.to(q_BTHK.dtype), gram_BHKK
