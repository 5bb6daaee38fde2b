"""How a Triton op is lifted by vmap: lanes become more rows.

A kernel never knows of lanes. Every tensor that an op takes or gives has a leading axis that lanes may be folded
into: `[B, …]` rows, or, for weights that rows share, `[L, …]` with L dividing B, rows of one lane together
(row b uses weights b // (B / L)). Folding is a view: nothing is copied.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.library import CustomOpDef  # type: ignore[attr-defined]


def lift(op: CustomOpDef) -> None:
    """Give a custom op, from tensors and numbers to a tensor or a tuple of tensors, its vmap rule."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        lanes = info.batch_size
        folded = [
            _fold(value, axis, lanes) if isinstance(value, Tensor) else value
            for value, axis in zip(inputs, in_dims, strict=True)
        ]
        outputs = op(*folded)
        if isinstance(outputs, Tensor):
            return outputs.unflatten(0, (lanes, -1)), 0
        return tuple(output.unflatten(0, (lanes, -1)) for output in outputs), (0,) * len(outputs)

    op.register_vmap(rule)


def _fold(tensor: Tensor, axis: int | None, lanes: int) -> Tensor:
    stacked = tensor.expand(lanes, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
    return stacked.flatten(0, 1)


def rows_last_contiguous(tensor: Tensor) -> Tensor:
    """The tensor itself if its last axis is dense, as kernels want it, else a copy: other strides are free."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()
