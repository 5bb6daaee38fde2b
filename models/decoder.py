"""A model that reads a sequence at once and writes on, token by token, timed and checked.

Legend: B rows, T time, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statelab.models.backbone import Backbone
from statelab.models.config import ModelConfig
from statelab.models.mixer import State
from statelab.models.streamer import Streamer, lighten, off, reading
from statelab.models.timing import Spread, captured, timed

VOCABULARY = 120

CHECKED, ROWS_CHECKED = 16, 2
"""Tokens and rows whose logits are compared with those of the whole sequence."""


class Decoder:
    """Reads `length` random tokens in `batch` rows and writes greedily behind them, from initial weights of seed 0.

    `grows`: its state grows with what is read. `made` is how steps are made, `reasons` why something is not captured.
    """

    def __init__(
        self, config: ModelConfig, length: int, batch: int, arithmetic: str, device: torch.device
    ) -> None:
        torch.manual_seed(0)
        self.model = Backbone(config, VOCABULARY).to(device)
        lighten(self.model, arithmetic)
        self.length, self.arithmetic, self.device = length, arithmetic, device
        self.tokens_BT = torch.randint(VOCABULARY, (batch, 2 * length + CHECKED), device=device)
        self._past = self._state_behind(length)
        self._streamer = self._streamer_behind(length, self._past)
        self._reader = captured(self._read, device)

    @property
    def grows(self) -> bool:
        return self._streamer.grows

    @property
    def made(self) -> str:
        return self._streamer.make.made

    @property
    def reasons(self) -> list[str]:
        return list(dict.fromkeys(filter(None, (self._streamer.make.reason, self._reader.reason))))

    def off(self) -> float:
        """How far the logits of tokens read one by one are off those of the whole sequence, by `streamer.off`."""
        upto = self.length + CHECKED
        streamed_BTV = self._streamer.read_all(self.tokens_BT[:, self.length : upto], self._past)
        with reading(self.arithmetic, self.device):
            logits_BTV, _ = self.model(self.tokens_BT[:ROWS_CHECKED, :upto])
        read = streamed_BTV.shape[1]
        return off(streamed_BTV[:ROWS_CHECKED], logits_BTV[:, self.length : self.length + read])

    def prefill(self, seconds: float) -> Spread:
        """Time to read the tokens, found in about so many seconds."""
        return timed(self._reader.run, self.device, seconds)

    def both(self, seconds: float) -> Spread:
        """Time to read the tokens and to write as many more.

        A step of a state that grows is captured for one context: then steps at the first, the middle and the last
        are timed, and what all of them would take is added up by Simpson's rule.
        """
        if not self.grows:
            return timed(self._read_and_write, self.device, seconds)
        prefill = self.prefill(seconds / 4)
        steps = [timed(self._streamer.make.run, self.device, seconds / 4)]
        for context in (3 * self.length // 2, 2 * self.length):
            streamer = self._streamer_behind(context, self._state_behind(context))
            steps.append(timed(streamer.make.run, self.device, seconds / 4))

        def summed(*times: float) -> float:
            read, first, middle, last = times
            return read + self.length / 6 * (first + 4 * middle + last)

        spreads = (prefill, *steps)
        return Spread(
            median=summed(*(spread.median for spread in spreads)),
            least=summed(*(spread.least for spread in spreads)),
            most=summed(*(spread.most for spread in spreads)),
            runs=min(spread.runs for spread in spreads),
        )

    def _read(self) -> None:
        with reading(self.arithmetic, self.device):
            logits_BTV, state = self.model(self.tokens_BT[:, : self.length])
            self._streamer.begin(_greedy(logits_BTV[:, -1:]), state)

    def _read_and_write(self) -> None:
        self._reader.run()
        for _ in range(self.length):
            self._streamer.make.run()

    def _state_behind(self, context: int) -> State:
        with reading(self.arithmetic, self.device):
            _, state = self.model(self.tokens_BT[:, :context])
        return state

    def _streamer_behind(self, context: int, state: State) -> Streamer:
        now_B1 = self.tokens_BT[:, context : context + 1]
        return Streamer(self.model, now_B1, state, self.arithmetic, _greedy)


def _greedy(logits_BTV: Tensor) -> Tensor:
    return logits_BTV.argmax(dim=-1)
