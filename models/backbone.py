"""The model around the mixers. Legend: B rows, T time, D width, V vocabulary."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from statelab.models.build import build_mixer
from statelab.models.config import LayerConfig, ModelConfig
from statelab.models.mixer import Mixer, State
from statelab.models.norm import LayerNorm, RMSNorm
from statelab.models.parameter import linear

NORMS = {"layer": LayerNorm, "rms": RMSNorm}


class MLP(nn.Module):
    """Linear, GELU, Linear, as in GPT-2; with torch's initial values."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = linear(width, hidden, bias=True)
        self.down = linear(hidden, width, bias=True)

    def forward(self, x_BTD: Tensor) -> Tensor:
        y_BTD: Tensor = self.down(F.gelu(self.up(x_BTD)))
        return y_BTD


class Layer(nn.Module):
    """x + mixer(norm x), then x + MLP(norm x) where the model has one."""

    def __init__(self, layer: LayerConfig, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.norm = NORMS[config.norm](width)
        self.mixer = build_mixer(layer, width, blocks=len(config.layers))
        self.state_size = cast(Mixer, self.mixer).state_size
        hidden = round(config.mlp * width)
        self.mlp = nn.Sequential(NORMS[config.norm](width), MLP(width, hidden)) if hidden else None

    def forward(self, x_BTD: Tensor, state: State = None) -> tuple[Tensor, State]:
        y_BTD, state = self.mixer(self.norm(x_BTD), state)
        x_BTD = x_BTD + y_BTD
        if self.mlp:
            x_BTD = x_BTD + self.mlp(x_BTD)
        return x_BTD, state


class Backbone(nn.Module):
    """Embedding, layers, norm, and a head of its own weight with a bias.

    Embedding N(0, 1) and head U(±1/√D) are torch's own initial values, as in the published noisy-recall
    protocol (arXiv 2607.19390: Embedding, LayerNorm, mLSTM layer + residual, LayerNorm, Linear).
    Embedding and head are decayed; norms and biases are not. Raises ValueError for a layer that cannot
    have this width.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        config.check()
        self.embedding = nn.Embedding(vocab_size, config.width)
        layers = [Layer(layer, config) for layer in config.layers]
        self.state_sizes = [layer.state_size for layer in layers]
        self.layers = nn.ModuleList(layers)
        self.norm = NORMS[config.norm](config.width)
        self.head = linear(config.width, vocab_size, bias=True)

    @property
    def state_size(self) -> int | None:
        """Floats carried per sequence over all layers; None if a layer's state grows or is not known."""
        known = [size for size in self.state_sizes if size is not None]
        return sum(known) if len(known) == len(self.state_sizes) else None

    def forward(
        self, tokens_BT: Tensor, state: tuple[State, ...] | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Logits `[B, T, V]` and each layer's state, to be given back with the sequence's next piece."""
        x_BTD = self.embedding(tokens_BT)
        states = []
        for layer, before in zip(self.layers, state or (None,) * len(self.layers), strict=True):
            x_BTD, after = layer(x_BTD, before)
            states.append(after)
        return self.head(self.norm(x_BTD)), tuple(states)
