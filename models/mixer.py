"""The contract of a mixer: a config, checked without torch, beside the layer it builds.

Legend: B rows, T time, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

State = Any
"""What a mixer carries between pieces of a sequence: a nest of tuples of tensors, each with B first.
In a call None starts a sequence; what is returned holds no None, which vmap could not return."""


@dataclass(frozen=True, kw_only=True)
class MixerConfig:
    """Base of the mixers' configs: frozen, keyword-only, fields of plain values.

    Each field is an `Annotated[type, "what it does"]`; type is int, float, bool, str, a Literal or a tuple of
    these. `__post_init__` raises ValueError with a sentence for values that can never work.
    """

    def check(self, width: int) -> None:
        """Raise ValueError, with numbers on both sides, if the layer cannot have this width."""


class Mixer(Protocol):
    """A sequence layer, `[B, T, D] -> [B, T, D]`, that may be read in pieces.

    `forward(x, None)` starts a sequence; `forward(x2, state)` goes on where `state` was returned, and
    both together equal one call on the joined input. `state_size` counts the floats carried per sequence
    (None where it grows with the sequence).
    """

    @property
    def state_size(self) -> int | None: ...

    def forward(self, x_BTD: Tensor, state: State = None) -> tuple[Tensor, State]: ...
