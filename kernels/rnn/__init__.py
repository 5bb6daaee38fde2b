"""Multi-head tanh RNN.

Legend: B rows, T time, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor

from statelab.kernels.clip import ClipAt, check_clip
from statelab.kernels.contract import Backend, check_shapes, choose_backend, widen
from statelab.kernels.rnn.reference import reference


def rnn(
    x_BTHK: Tensor,
    weight_HKK: Tensor,
    state_BHK: Tensor | None = None,
    *,
    gradient_clip: float | None = None,
    clip_at: ClipAt = "total",
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """All states `y [B, T, H, K]`, in the input's dtype, and the last one `[B, H, K]`, in float32 or wider.

        h ← tanh(h W + x)

    with h a row vector of each head: Elman 1990 with block-diagonal weights; the bias is left to whoever makes
    x. `gradient_clip` c clamps the gradient of every h, entry by entry, to [−c, c]: all of it
    (`clip_at="total"`) or what the next step sends back, before that of y is added (`"carried"`).
    `state` None starts from zeros. The state enters through tanh, so there is no parallel form: `backend` is
    "auto" or "reference". Raises ValueError for shapes that do not fit together and for a clip of 0 or less.
    """
    sizes = check_shapes(
        "rnn", x=(x_BTHK, "B T H K"), weight=(weight_HKK, "H K K"), state=(state_BHK, "B H K")
    )
    check_clip("rnn", gradient_clip, clip_at)
    choose_backend("rnn", backend, ("reference",))
    if state_BHK is None:
        state_BHK = widen(x_BTHK).new_zeros([sizes[letter] for letter in "BHK"])
    wide = (widen(x_BTHK), widen(weight_HKK), widen(state_BHK))
    y_BTHK, state_BHK = reference(*wide, gradient_clip, clip_at)
    # Contiguous, or a projection behind it would copy a lane's weights for each row under vmap.
    return y_BTHK.to(x_BTHK.dtype).contiguous(), state_BHK
