"""Multi-head gated recurrent unit with the reset before the product.

Legend: B rows, T time, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor

from statelab.kernels.clip import ClipAt, check_clip
from statelab.kernels.contract import Backend, autocast, check_shapes, choose_backend, widen
from statelab.kernels.gru.reference import reference
from statelab.kernels.precision import Precision, choose_precision


def gru(
    x_BTHK: Tensor,
    reset_BTHK: Tensor,
    forget_BTHK: Tensor,
    weight_HKK: Tensor,
    reset_weight_HKK: Tensor,
    forget_weight_HKK: Tensor,
    state_BHK: Tensor | None = None,
    *,
    gradient_clip: float | None = None,
    clip_at: ClipAt = "total",
    precision: Precision = "auto",
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """All states `y [B, T, H, K]`, in the input's dtype, and the last one `[B, H, K]`, in float32 or wider.

        r = σ(h W_r + x_r)    f = σ(h W_f + x_f)    z = tanh((h ⊙ r) W + x)    h ← f ⊙ h + (1 − f) ⊙ z

    with h a row vector of each head. Cho et al. 2014 (arXiv 1406.1078, eq. 5-8): its z_j is f, and its bias
    is left to whoever makes x. The reset acts before the product; torch.nn.GRU and cuDNN act after it and
    compute another function. `gradient_clip` c clamps the gradient of every h, entry by entry, to [−c, c]:
    all of it (`clip_at="total"`) or what the next step sends back, before that of y is added (`"carried"`).
    `state` None starts from zeros.
    The state enters through tanh, so no form is parallel in time: `backend` is "reference" or "triton", a
    kernel with the weights on chip (head widths up to 128; its backward reads states and gates as rounded to
    the input's dtype), or "auto". `precision` is that of the kernel's products. Raises ValueError for shapes
    that do not fit together and for a clip of 0 or less.
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
    check_clip("gru", gradient_clip, clip_at)
    limit = None if sizes["K"] <= 128 else f"takes head widths up to 128, got {sizes['K']}"
    weights = (weight_HKK, reset_weight_HKK, forget_weight_HKK)
    tensors = (x_BTHK, reset_BTHK, forget_BTHK, *weights, state_BHK)
    chosen = choose_backend("gru", backend, ("reference", "triton"), *tensors, limit=limit)
    products = choose_precision("gru", precision, x_BTHK)
    if state_BHK is None:
        state_BHK = widen(x_BTHK).new_zeros([sizes[letter] for letter in "BHK"])
    if chosen == "triton":
        from statelab.kernels.gru.recurrent import recurrent

        inputs = (x_BTHK, reset_BTHK, forget_BTHK, weights, widen(state_BHK))
        return recurrent(*inputs, gradient_clip, clip_at, products)
    wide = (widen(x_BTHK), widen(reset_BTHK), widen(forget_BTHK))
    wide_weights = (widen(weight_HKK), widen(reset_weight_HKK), widen(forget_weight_HKK))
    # Autocast would make products of 16 bits, and of them the state.
    with autocast(x_BTHK.device, enabled=False):
        y_BTHK, state_BHK = reference(*wide, *wide_weights, widen(state_BHK), gradient_clip, clip_at)
    # Contiguous, or a projection behind it would copy a lane's weights for each row under vmap.
    return y_BTHK.to(x_BTHK.dtype).contiguous(), state_BHK
