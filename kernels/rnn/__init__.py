"""Multi-head tanh RNN.

Legend: B rows, T time, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor

from statelab.kernels.clip import ClipAt, check_clip
from statelab.kernels.contract import Backend, autocast, check_shapes, choose_backend, widen
from statelab.kernels.precision import Precision, choose_precision
from statelab.kernels.rnn.reference import reference


def rnn(
    x_BTHK: Tensor,
    weight_HKK: Tensor,
    state_BHK: Tensor | None = None,
    *,
    gradient_clip: float | None = None,
    clip_at: ClipAt = "total",
    precision: Precision = "auto",
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """All states `y [B, T, H, K]`, in the input's dtype, and the last one `[B, H, K]`, in float32 or wider.

        h ← tanh(h W + x)

    with h a row vector of each head: Elman 1990 with block-diagonal weights; the bias is left to whoever makes
    x. `gradient_clip` c clamps the gradient of every h, entry by entry, to [−c, c]: all of it
    (`clip_at="total"`) or what the next step sends back, before that of y is added (`"carried"`).
    `state` None starts from zeros. The state enters through tanh, so no form is parallel in time: `backend`
    is "reference" or "triton", a kernel with W on chip (head widths up to 128; its backward reads the states
    as y holds them, rounded to the input's dtype), or "auto". `precision` is that of the kernel's products.
    Raises ValueError for shapes that do not fit together and for a clip of 0 or less.
    """
    sizes = check_shapes(
        "rnn", x=(x_BTHK, "B T H K"), weight=(weight_HKK, "H K K"), state=(state_BHK, "B H K")
    )
    check_clip("rnn", gradient_clip, clip_at)
    limit = None if sizes["K"] <= 128 else f"takes head widths up to 128, got {sizes['K']}"
    tensors = (x_BTHK, weight_HKK, state_BHK)
    chosen = choose_backend("rnn", backend, ("reference", "triton"), *tensors, limit=limit)
    products = choose_precision("rnn", precision, x_BTHK)
    if state_BHK is None:
        state_BHK = widen(x_BTHK).new_zeros([sizes[letter] for letter in "BHK"])
    if chosen == "triton":
        from statelab.kernels.rnn.recurrent import recurrent

        return recurrent(x_BTHK, weight_HKK, widen(state_BHK), gradient_clip, clip_at, products)
    wide = (widen(x_BTHK), widen(weight_HKK), widen(state_BHK))
    # Autocast would make products of 16 bits, and of them the state.
    with autocast(x_BTHK.device, enabled=False):
        y_BTHK, state_BHK = reference(*wide, gradient_clip, clip_at)
    # Contiguous, or a projection behind it would copy a lane's weights for each row under vmap.
    return y_BTHK.to(x_BTHK.dtype).contiguous(), state_BHK
