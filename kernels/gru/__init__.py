"""Multi-head gated recurrent unit with the reset before the product.

Legend: B rows, T time, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor

from statelab.kernels.contract import Backend, check_shapes, choose_backend, widen
from statelab.kernels.gru.reference import reference


def gru(
    x_BTHK: Tensor,
    reset_BTHK: Tensor,
    forget_BTHK: Tensor,
    weight_HKK: Tensor,
    reset_weight_HKK: Tensor,
    forget_weight_HKK: Tensor,
    state_BHK: Tensor | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """All states `y [B, T, H, K]`, in the input's dtype, and the last one `[B, H, K]`, in float32 or wider.

        r = σ(h W_r + x_r)    f = σ(h W_f + x_f)    z = tanh((h ⊙ r) W + x)    h ← f ⊙ h + (1 − f) ⊙ z

    with h a row vector of each head. Cho et al. 2014 (arXiv 1406.1078, eq. 5-8): its z_j is f, and its bias
    is left to whoever makes x. The reset acts before the product; torch.nn.GRU and cuDNN act after it and
    compute another function. `state` None starts from zeros.
    The state enters through tanh, so there is no parallel form: `backend` is "auto" or
    "reference". Raises ValueError for shapes that do not fit together.
    """
    sizes = check_shapes(
        "gru",
        x=(x_BTHK, "B T H K"),
        reset=(reset_BTHK, "B T H K"),
        forget=(forget_BTHK, "B T H K"),
        weight=(weight_HKK, "H K K"),
        reset_weight=(reset_weight_HKK, "H K K"),
        forget_weight=(forget_weight_HKK, "H K K"),
        state=(state_BHK, "B H K"),
    )
    choose_backend("gru", backend, ("reference",))
    if state_BHK is None:
        state_BHK = widen(x_BTHK).new_zeros([sizes[letter] for letter in "BHK"])
    weights = (weight_HKK, reset_weight_HKK, forget_weight_HKK)
    wide = [widen(tensor) for tensor in (x_BTHK, reset_BTHK, forget_BTHK, *weights, state_BHK)]
    y_BTHK, state_BHK = reference(*wide)
    # Contiguous, or a projection behind it would copy a lane's weights for each row under vmap.
    return y_BTHK.to(x_BTHK.dtype).contiguous(), state_BHK
