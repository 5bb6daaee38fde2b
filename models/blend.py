"""The part α of the orthogonal read in what an mLSTM reads, set from outside while a model trains.

Legend: R lanes.
"""

from __future__ import annotations

from torch import Tensor, nn


def set_blend(model: nn.Module, alpha: float | Tensor) -> None:
    """Set α of every orthogonal read of a model or a population: 1 reads orthogonally, 0 plainly.

    A number is for all; a tensor `[R]` gives a population's lanes one each. Written in place, so that a captured
    graph sees it. Raises ValueError for a model without an orthogonal read.
    """
    found = blend_buffers(model)
    if not found:
        raise ValueError(
            f"set_blend: {type(model).__name__} has no orthogonal read; give an mlstm layer read = 'orthogonal'"
        )
    # A population's layers are its template's.
    for layer in getattr(model, "template", model).modules():
        if hasattr(layer, "blended"):
            layer.blended = True
    for buffer in found:
        if isinstance(alpha, Tensor):
            buffer.copy_(alpha)
        else:
            buffer.fill_(alpha)


def blend_buffers(model: nn.Module) -> list[Tensor]:
    """α of each orthogonal read: `[]` in a model, `[R]` in a population of R lanes."""
    # A population keeps a model's buffer a.b.blend, stacked, as one of its own whose name ends in a__b__blend.
    return [buffer for name, buffer in model.named_buffers() if is_blend(name.replace("__", "."))]


def is_blend(name: str) -> bool:
    """Whether a buffer of this name in a model is the α of an orthogonal read."""
    return name.rpartition(".")[-1] == "blend"
