"""R models as one: parameters stacked on a leading lane axis, the forward pass lifted by vmap.

Legend: R lanes, B rows, T time, V vocabulary, P parameters of one lane (padded), laid out flat.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

ALIGN = 8
"""Each parameter starts at a multiple of so many elements, so that matrix units can load it."""


@dataclass(frozen=True)
class _Place:
    name: str
    start: int
    shape: torch.Size

    @property
    def padding(self) -> int:
        return -self.shape.numel() % ALIGN


class Population(nn.Module):
    """R models of one shape, each initialised exactly as it would be alone.

    `build()` makes one model: a module from tokens `[B, T]` to `(logits [B, T, V], state)`. Lane r is built under
    `torch.manual_seed(seeds[r])` on the CPU, then converted to `dtype`. All parameters live in `flat [R, P]`.
    """

    def __init__(
        self, build: Callable[[], nn.Module], seeds: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        models = {seed: _build_seeded(build, seed).to(dtype) for seed in dict.fromkeys(seeds)}
        template = models[seeds[0]]
        self._places = _layout(template)
        size = sum(place.shape.numel() + place.padding for place in self._places)
        self.flat = nn.Parameter(torch.zeros(len(seeds), size, dtype=dtype))
        with torch.no_grad():
            for lane, seed in enumerate(seeds):
                for place, parameter in zip(self._places, models[seed].parameters(), strict=True):
                    self.flat[lane, place.start : place.start + parameter.numel()] = parameter.reshape(-1)
        for name, _ in template.named_buffers():
            stacked = torch.stack([dict(models[seed].named_buffers())[name] for seed in seeds])
            self.register_buffer(_buffer_name(name), stacked, persistent=False)
        self._buffers_of_template = [name for name, _ in template.named_buffers()]
        # In a list, so that the template's own parameters are not taken for the population's.
        self._template = [template]
        self._lifted = True

    @property
    def lanes(self) -> int:
        """Number of lanes R."""
        return self.flat.shape[0]

    @property
    def template(self) -> nn.Module:
        """One model of the population's shape; its weights are lane 0's initial ones."""
        return self._template[0]

    @property
    def parameters_per_lane(self) -> int:
        """Number of trainable parameters of one lane, padding not counted."""
        return sum(place.shape.numel() for place in self._places)

    def decays(self, which: str) -> Tensor:
        """Mask `[P]` of the parameters that decay: all, or all but those marked `no_weight_decay`."""
        mask = torch.zeros(self.flat.shape[1], dtype=self.flat.dtype, device=self.flat.device)
        for place, parameter in zip(self._places, self.template.parameters(), strict=True):
            if which == "all" or not getattr(parameter, "no_weight_decay", False):
                mask[place.start : place.start + place.shape.numel()] = 1
        return mask

    def lane_state(self, lane: int) -> dict[str, Tensor]:
        """Parameters and buffers of one lane under the model's own names: `model.load_state_dict(...)`."""
        state = {name: value[lane].detach().clone() for name, value in self._parameters_of(self.flat).items()}
        return state | {name: value[lane].clone() for name, value in self.stacked_buffers().items()}

    def forward(self, tokens_RBT: Tensor) -> Tensor:
        """Logits `[R, B, T, V]`; lane r reads `tokens[r]` with its own weights."""
        return self.logits(self.flat, self.stacked_buffers(), tokens_RBT)

    def logits(self, flat_RP: Tensor, buffers: dict[str, Tensor], tokens_RBT: Tensor) -> Tensor:
        """`forward` with parameters and buffers given: a function of its tensors, so that it can be traced."""
        state = self._parameters_of(flat_RP) | buffers
        if self._lifted:
            try:
                logits_RBTV: Tensor = vmap(self._call, randomness="different")(state, tokens_RBT)
                return logits_RBTV
            except (RuntimeError, ValueError, NotImplementedError) as error:
                if is_out_of_memory(error) or not self._runs_alone(state, tokens_RBT):
                    raise
                self._lifted = False
                warnings.warn(
                    f"vmap cannot lift {type(self.template).__name__} ({_first_line(error)}); "
                    "its lanes run one after another.",
                    stacklevel=2,
                )
        lanes = range(self.lanes)
        return torch.stack([self._call(_select(state, lane), tokens_RBT[lane]) for lane in lanes])

    def _call(self, state: dict[str, Tensor], tokens_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = functional_call(self.template, state, (tokens_BT,))[0]
        return logits_BTV

    def _runs_alone(self, state: dict[str, Tensor], tokens_RBT: Tensor) -> bool:
        try:
            self._call(_select(state, 0), tokens_RBT[0])
        except Exception:
            return False
        return True

    def _parameters_of(self, flat_RP: Tensor) -> dict[str, Tensor]:
        sizes = [size for place in self._places for size in (place.shape.numel(), place.padding)]
        pieces = flat_RP.split(sizes, dim=1)[::2]
        return {
            place.name: piece.unflatten(1, place.shape) if place.shape else piece.squeeze(1)
            for place, piece in zip(self._places, pieces, strict=True)
        }

    def stacked_buffers(self) -> dict[str, Tensor]:
        """Buffers of all lanes, stacked, under the model's own names."""
        return {name: self.get_buffer(_buffer_name(name)) for name in self._buffers_of_template}


def _build_seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        return build()


def _layout(model: nn.Module) -> list[_Place]:
    places: list[_Place] = []
    start = 0
    for name, parameter in model.named_parameters():
        place = _Place(name, start, parameter.shape)
        places.append(place)
        start += parameter.numel() + place.padding
    return places


def _select(state: dict[str, Tensor], lane: int) -> dict[str, Tensor]:
    return {name: value[lane] for name, value in state.items()}


def _buffer_name(name: str) -> str:
    return "lane_buffer_" + name.replace(".", "__")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that a device's memory, or the machine's, is used up."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "allocate memory" in str(error)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
