"""One LightningModule that trains R >= 1 lanes, one code path.

A Lightning step advances a *chunk* of optimiser steps, up to the next evaluation, so that Lightning's own cost per
step does not matter. The loader yields step numbers alone: rows are made on the device from (seed, step).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from statelab.models.anneal import gated
from statelab.models.arithmetic import arithmetic_of, check_arithmetic, parameter_dtype
from statelab.models.backbone import Backbone
from statelab.models.captured import wait_idly
from statelab.models.chunks import Chunk, Chunks
from statelab.models.config import ModelConfig
from statelab.models.evaluation import Counts, Evaluation, Measurement, Piece, Span
from statelab.models.execution import Execution
from statelab.models.lane_steps import LaneSteps
from statelab.models.optimiser import LaneAdamW
from statelab.models.population import Population
from statelab.models.settings import EvaluationSettings, Lane, TrainingSettings
from statelab.models.steps import Steps
from statelab.models.stream import Stream
from statelab.tasks.rows import Split
from statelab.tasks.task import Task


class Learner(LaneSteps, LightningModule):
    """R lanes of one cell: a task, a model, and each lane's seed and optimiser numbers.

    Use with `Trainer(max_epochs=1, val_check_interval=1)` and the loaders it brings. After `fit`, `evaluations`
    holds one Measurement for each evaluation; after `trainer.test`, `tests` one for each test length.
    """

    def __init__(
        self,
        task: Task,
        model: ModelConfig,
        lanes: Sequence[Lane],
        training: TrainingSettings,
        evaluation: EvaluationSettings,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.task, self.model_config, self.lanes = task, model, tuple(lanes)
        self.training_settings, self.evaluation_settings = training, evaluation
        self.population = Population(
            lambda: Backbone(model, task.vocab_size),
            [lane.seed for lane in lanes],
            parameter_dtype(training.arithmetic),
        )
        self.evaluation = Evaluation(task, [lane.seed for lane in lanes], training, evaluation)
        self._stream = Stream(task, training)
        self.steps_done = 0
        self.evaluations: list[Measurement] = []
        self.tests: list[Measurement] = []
        self.on_step: Callable[[int], bool] = lambda step: True
        """Called after each optimiser step with the number done; False ends the chunk before its time."""
        self.lane_ids: list[str] | None = None
        self.trained_on = torch.device("cpu")
        """The device of `fit`; the module's own is the CPU again when Lightning is done with it."""
        self.seconds = 0.0
        """Time spent on training so far, kept in checkpoints."""
        self.execution = Execution.from_environment()
        self.way = "eager"
        """How the steps so far were made: eager, compiled, captured, or both."""
        self._steps: Steps | None = None
        self._counts = Counts()
        self.alive_R: Tensor
        self.diverged_at_R: Tensor
        self.train_loss_R: Tensor
        self.gated_at_R: Tensor
        self.register_buffer("alive_R", torch.ones(len(lanes), dtype=torch.bool))
        self.register_buffer("diverged_at_R", torch.full((len(lanes),), -1))
        self.register_buffer("train_loss_R", torch.zeros(len(lanes), dtype=torch.float64))
        self.register_buffer("gated_at_R", torch.full((len(lanes),), -1))
        # Lanes of one seed read the same rows, which are made once.
        seeds_S, of_lane_R = torch.unique(torch.tensor([lane.seed for lane in lanes]), return_inverse=True)
        self.seeds_S: Tensor
        self.seed_of_lane_R: Tensor
        self.register_buffer("seeds_S", seeds_S, persistent=False)
        self.register_buffer("seed_of_lane_R", of_lane_R, persistent=False)
        self._set_blend(0)

    # Training

    def training_step(self, chunk: Chunk, batch_idx: int) -> None:
        """Make the optimiser steps of a chunk, the last one through Lightning so that it counts one."""
        start, stop = chunk
        wrapped = cast(Any, self.optimizers())
        raw = cast(LaneAdamW, wrapped.optimizer)
        if self._steps is None and (self.device.type == "cuda" or self.execution.compile == "on"):
            self._steps = self.whole_steps(raw)
        try:
            for step in range(start, stop):
                last = step + 1 == stop
                self._make_step(step, raw)
                (wrapped if last else raw).step()
                self.steps_done = step + 1
                if not self.on_step(step + 1) and not last:
                    break
        except BaseException:
            self._let_go()
            raise

    def _make_step(self, step: int, optimiser: LaneAdamW) -> None:
        """The gradients of a step, or all of it, which the optimiser is told."""
        if self._steps is None:
            self.gradients(step)
            optimiser.alive_R = self.alive_R
        else:
            self._steps.make(self.rows(step), self.seed_of_lane_R)
            optimiser.updated = True

    def on_train_end(self) -> None:
        """Nothing is captured any more."""
        self._let_go()

    def _let_go(self) -> None:
        """Let go of captured graphs, whose memory nothing else can use."""
        if self._steps is not None:
            self.way, self._steps = self._steps.way, None

    @property
    def at_evaluation(self) -> bool:
        """Whether the step reached is one after which the lanes are evaluated."""
        done = self.steps_done
        return done > 0 and (
            done == self.training_settings.steps or done % self.evaluation_settings.every == 0
        )

    @property
    def evaluated(self) -> bool:
        """Whether the step reached has been evaluated."""
        return bool(self.evaluations) and self.evaluations[-1].step == self.steps_done

    @property
    def finished(self) -> bool:
        """Whether the last step has been made and evaluated."""
        return self.steps_done == self.training_settings.steps and self.evaluated

    def configure_optimizers(self) -> LaneAdamW:
        """A stacked AdamW whose lane r is torch's own with lane r's numbers."""
        check_arithmetic(self.training_settings.arithmetic, self.device)
        return LaneAdamW(
            self.population.flat,
            [lane.optimiser for lane in self.lanes],
            self.training_settings,
            self.population.decays(self.training_settings.decay),
        )

    def train_dataloader(self) -> Any:
        """Chunks from the step that has been reached to the last, each ending at an evaluation."""
        chunks = Chunks(self.steps_done, self.training_settings.steps, self.evaluation_settings.every)
        # A checkpoint made between the last step of a chunk and its evaluation: an empty chunk makes up for it.
        return chunks if self.evaluated or not self.at_evaluation else chunks.after_an_empty_one()

    # Evaluation

    def val_dataloader(self) -> Any:
        """Pieces of the evaluation rows at the training length."""
        return self.evaluation.pieces(self.training_settings.length)

    def test_dataloader(self) -> Any:
        """Pieces of the evaluation rows, one loader for each test length and range."""
        settings = self.evaluation_settings
        exact = [self.evaluation.pieces(length) for length in settings.test_lengths]
        return exact + [self.evaluation.pieces(high, low) for low, high in settings.test_ranges]

    def validation_step(self, piece: Piece, batch_idx: int) -> None:
        """Add a piece of the evaluation rows to the running measurement."""
        self._measure(piece, "validation")

    def test_step(self, piece: Piece, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a piece of the rows of one test length to the running measurement, and close a full one."""
        self._measure(piece, "test")
        if piece.closes is not None:
            self.tests.append(self._close(piece.closes))

    def on_validation_epoch_end(self) -> None:
        """Close the evaluation: one Measurement, with the mean training loss since the one before."""
        length = self.training_settings.length
        measured = self._close(Span(length, length))
        self.evaluations.append(measured)
        if (anneal := self.training_settings.anneal) is not None:
            accuracy_R = torch.tensor(measured.accuracy, device=self.device)
            self.gated_at_R.copy_(gated(anneal, self.steps_done, accuracy_R, self.gated_at_R))
        self.train_loss_R.zero_()
        self.log("accuracy", sum(measured.accuracy) / len(measured.accuracy), batch_size=1)

    def _measure(self, piece: Piece, split: Split) -> None:
        self._set_blend(self.steps_done)
        with torch.no_grad(), arithmetic_of(self.training_settings.arithmetic, self.device):
            self.evaluation.measure(self.population, piece, split, self._counts)

    def _close(self, test: Span) -> Measurement:
        wait_idly(self.device)
        since = self.steps_done - (self.evaluations[-1].step if self.evaluations else 0)
        train_loss = (self.train_loss_R / max(since, 1)).tolist()
        closed = self._counts.close(self.steps_done, test, train_loss)
        self._counts = Counts()
        return closed

    # Checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what Lightning does not: steps, evaluations. Its own loop counters start anew on a resume."""
        checkpoint.pop("loops", None)
        checkpoint["statelab"] = {
            "steps_done": self.steps_done,
            "seconds": self.seconds,
            "lane_ids": self.lane_ids,
            "evaluations": [measurement.plain() for measurement in self.evaluations],
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from the step at which the checkpoint was saved."""
        kept = checkpoint["statelab"]
        self.steps_done, self.seconds, self.lane_ids = kept["steps_done"], kept["seconds"], kept["lane_ids"]
        self.evaluations = [Measurement(**plain) for plain in kept["evaluations"]]

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Take weights and evaluations from a checkpoint, without a Trainer."""
        self.load_state_dict(checkpoint["state_dict"])
        self.on_load_checkpoint(checkpoint)
