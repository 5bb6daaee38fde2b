"""M²RNN: a matrix state that goes through a tanh at every step.

Legend: B rows, T time, H heads (values, gates, states), G groups of them that share a query and a key, K key
width, V value width.
"""

from __future__ import annotations

from torch import Tensor

from statelab.kernels.clip import ClipAt, check_clip
from statelab.kernels.contract import Backend, autocast, check_shapes, choose_backend, widen
from statelab.kernels.m2rnn.reference import reference
from statelab.kernels.precision import Precision, choose_precision


def m2rnn(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    forget_BTH: Tensor | None,
    weight_HVV: Tensor,
    state_BHKV: Tensor | None = None,
    *,
    gradient_clip: float | None = None,
    clip_at: ClipAt = "total",
    precision: Precision = "auto",
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Outputs `y [B, T, H, V]`, in the dtype of `v`, and the last state `[B, H, K, V]`, in float32 or wider.

        Z = tanh(S W + k vᵀ),    S ← f S + (1 − f) Z,    y = Sᵀ q

    Mishra et al. 2026 (arXiv 2603.14360, eq. 10-12): their H is S, and their direct path w_r ⊙ v belongs to the
    layer. `forget` is f itself, in [0, 1]; None is f = 0. Heads are split evenly over the G groups,
    neighbours together: G = 1 is their multi-value form, G = H their multi-head form. `gradient_clip` c
    clamps the gradient of every S, entry by entry, to [−c, c]: all of it (`clip_at="total"`) or what the
    next step sends back, before that of y is added (`"carried"`). Gradients are those of the equations; the
    paper's Algorithm 2 is not (it drops what future steps send back). `state` None starts from zeros.
    The state enters through tanh, so no form is parallel in time: `backend` is "reference" or "triton", a
    kernel with W and the state on chip (value widths up to 128), or "auto". `precision` is that of the kernel's
    products. Raises ValueError for shapes that do not fit together and for a clip of 0 or less.
    """
    sizes = check_shapes(
        "m2rnn",
        q=(q_BTGK, "B T G K"),
        k=(k_BTGK, "B T G K"),
        v=(v_BTHV, "B T H V"),
        forget=(forget_BTH, "B T H"),
        weight=(weight_HVV, "H V V"),
        state=(state_BHKV, "B H K V"),
    )
    if sizes["H"] % sizes["G"]:
        raise ValueError(f"m2rnn: {sizes['H']} heads cannot be split evenly over {sizes['G']} groups")
    check_clip("m2rnn", gradient_clip, clip_at)
    limit = None if sizes["V"] <= 128 else f"takes value widths up to 128, got {sizes['V']}"
    tensors = (v_BTHV, q_BTGK, k_BTGK, forget_BTH, weight_HVV, state_BHKV)
    chosen = choose_backend("m2rnn", backend, ("reference", "triton"), *tensors, limit=limit)
    products = choose_precision("m2rnn", precision, v_BTHV)
    if state_BHKV is None:
        state_BHKV = widen(v_BTHV).new_zeros([sizes[letter] for letter in "BHKV"])
    if chosen == "triton":
        from statelab.kernels.m2rnn.recurrent import recurrent

        inputs = (q_BTGK, k_BTGK, v_BTHV, forget_BTH, weight_HVV, widen(state_BHKV))
        return recurrent(*inputs, gradient_clip, clip_at, products)
    # Autocast would make products of 16 bits, and of them the state.
    with autocast(v_BTHV.device, enabled=False):
        y_BTHV, state_BHKV = reference(
            widen(q_BTGK),
            widen(k_BTGK),
            widen(v_BTHV),
            None if forget_BTH is None else widen(forget_BTH),
            widen(weight_HVV),
            widen(state_BHKV),
            gradient_clip,
            clip_at,
        )
    # Contiguous, or a projection behind it would copy a lane's weights for each row under vmap.
    return y_BTHV.to(v_BTHV.dtype).contiguous(), state_BHKV
