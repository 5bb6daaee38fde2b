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
    setting("attention", 12, heads=3),
    setting("attention", 9, heads=2, head_dim=5, position="none", conv=3),
    setting("gated_delta", 12, heads=3),
    setting("gated_delta", 14, heads=2, head_dim=5, expand_v=1.4, eigenvalues="[-1,1]"),
    setting("gated_delta", 7, heads=1, conv=0, gate=False),
    setting("gated_delta_product", 12, heads=3),
    setting("gated_delta_product", 7, heads=1, n_h=3, conv=0, gate=False, forget_gate=False),
    setting("gated_delta_product", 8, heads=2, n_h=1, expand_v=1.5, eigenvalues="[0,1]"),
    setting("gru", 9),
    setting("gru", 12, heads=3, conv=3, init_std=0.3),
    setting("gru", 7, heads=2, head_dim=5, conv=0, gate=False, norm="none"),
    setting("m2rnn", 12, heads=3, key_dim=5),
    setting("m2rnn", 9, heads=4, qk_heads=2, key_dim=3, value_dim=5, conv=3, clip_at="carried"),
    setting(
        "m2rnn", 7, heads=1, key_dim=4, conv=0, gate=False, forget_gate=False, residual=False, norm="none"
    ),
    setting("mamba2", 9, head_dim=3, d_state=5),
    setting("mamba2", 12, head_dim=4, d_state=7, groups=3, conv=2),
    setting("mamba2", 6, expand=3, head_dim=18, d_state=3),
    setting("mamba3", 9, head_dim=3, d_state=5),
    setting("mamba3", 6, heads=2, d_state=8, rank=3, rope_fraction=1.0, norm="before_gate"),
    setting("mamba3", 8, heads=4, d_state=4, groups=2, rotation="rope", trapezoid="half", biases="B"),
    setting("mamba3", 6, heads=3, d_state=4, rotation="none", trapezoid="one", biases="none", decay="fixed"),
    setting("mamba3", 6, heads=3, d_state=4, phase="raw", decay="softplus", bias_learned=False, conv=3),
    setting("mamba3", 6, heads=2, d_state=4, rank=2, norm="after_gate", norm_groups="all", biases="C"),
    setting("mlstm", 10),
    setting("mlstm", 7, heads=2, qkv_block=8, expand=9.5, conv=0),
    setting("mlstm", 6, heads=8, read="orthogonal", iterations=3),
    setting("mlstm", 6, heads=8, read="orthogonal", backend="reference"),
    setting("mlstm", 6, heads=8, read="orthogonal", factor="quintic", blend=0.4, normaliser=False),
    setting("mlstm", 6, heads=2, block="plain", read="orthogonal", factor="polar"),
    setting("mlstm", 6, heads=8, read="orthogonal", straight_through="forward"),
    setting("mlstm", 6, heads=8, read="orthogonal", straight_through="backward", iterations=2),
    setting("mlstm", 6, heads=2, block="plain", conv=0, read="rls"),
    setting("mlstm", 6, heads=8, write="delta"),
    setting("rnn", 9),
    setting("rnn", 12, heads=3, conv=3, init_std=0.3, clip_at="carried"),
    setting("rnn", 7, heads=2, head_dim=5, conv=0, gate=False, norm="none", init_std=0.3, gradient_clip=0.0),
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
