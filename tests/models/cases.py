"""Settings of every mixer of the registry, odd sizes among them, for the contract tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from statelab.models.build import build_mixer
from statelab.models.config import LayerConfig


@dataclass(frozen=True)
class Setting:
    mixer: str
    width: int
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return "-".join([self.mixer, str(self.width), *(f"{key}={value}" for key, value in self.options)])

    def build(self, seed: int = 0, dtype: torch.dtype = torch.float64, blocks: int = 1) -> nn.Module:
        """The layer as a seed draws it, moved to a dtype."""
        torch.manual_seed(seed)
        return build_mixer(self.layer, self.width, blocks).to(dtype)

    @property
    def layer(self) -> LayerConfig:
        return LayerConfig(mixer=self.mixer, options=dict(self.options))


def setting(mixer: str, width: int, **options: Any) -> Setting:
    return Setting(mixer, width, tuple(options.items()))


SETTINGS = [
    setting("gated_delta", 12, heads=3),
    setting("gated_delta", 14, heads=2, head_dim=5, expand_v=1.4, eigenvalues="[-1,1]"),
    setting("gated_delta", 7, heads=1, conv=0, gate=False),
    setting("gru", 9),
    setting("gru", 12, heads=3, conv=3, init_std=0.3),
    setting("gru", 7, heads=2, head_dim=5, conv=0, gate=False, norm="none"),
    setting("mamba2", 9, head_dim=3, d_state=5),
    setting("mamba2", 12, head_dim=4, d_state=7, groups=3, conv=2),
    setting("mamba2", 6, expand=3, head_dim=18, d_state=3),
    setting("mlstm", 10),
    setting("mlstm", 7, heads=2, qkv_block=8, expand=9.5, conv=0),
    setting("mlstm", 6, heads=8, read="orthogonal", iterations=3),
    setting("mlstm", 6, heads=8, read="orthogonal", backend="reference"),
]


def stir(layer: nn.Module) -> nn.Module:
    """The same layer away from initial values that hide a part of it, such as gate weights of zero."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return layer


def leaves(state: Any) -> list[Tensor]:
    """The tensors of a nest of tuples."""
    if isinstance(state, Tensor):
        return [state]
    return [leaf for part in state for leaf in leaves(part)]
