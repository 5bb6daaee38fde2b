"""Training one population under Lightning: quiet, stoppable between two steps, checkpointed, resumable."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer

from statelab.models.checkpoint import load_checkpoint
from statelab.models.evaluation import Measurement
from statelab.models.learner import Learner
from statelab.sweeps.progress import Progress
from statelab.sweeps.stop import StopSignals

CHECKPOINT_SECONDS = 60.0


def make_trainer(device: torch.device, callbacks: list[Callback], folder: Path | None = None) -> Trainer:
    """A Lightning Trainer that says and writes nothing of its own; one chunk is one of its steps."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu",
        devices=1,
        max_epochs=1,
        val_check_interval=1,
        num_sanity_val_steps=0,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        # Without it Lightning takes a Slurm job's variables for orders to launch and requeue by itself.
        plugins=[LightningEnvironment()],
    )


def fit(
    learner: Learner,
    device: torch.device,
    *,
    stop: StopSignals | None = None,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    resume: dict[str, Any] | None = None,
    on_evaluation: Callable[[Measurement], None] | None = None,
) -> Learner:
    """Train, then test, a learner; from what was read from `checkpoint`, or from that file if it is there.

    Raises Interrupted, after writing `checkpoint`, if `stop` has received a signal.
    """
    if resume is None and checkpoint is not None and checkpoint.exists():
        resume = load_checkpoint(checkpoint)
    learner.trained_on = device
    watcher = _Watcher(stop, progress, checkpoint, resume, on_evaluation)
    trainer = make_trainer(device, [watcher], None if checkpoint is None else checkpoint.parent)
    if resume is not None:
        learner.restore(resume)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        if not learner.finished:
            trainer.fit(learner)
            watcher.save(trainer)
        if learner.evaluation_settings.has_tests:
            trainer.test(learner, verbose=False)
    return learner


class _Watcher(Callback):
    """Between two steps: progress, a checkpoint once a minute, and the end if one has been asked for."""

    def __init__(
        self,
        stop: StopSignals | None,
        progress: Progress | None,
        checkpoint: Path | None,
        resume: dict[str, Any] | None,
        on_evaluation: Callable[[Measurement], None] | None,
    ) -> None:
        self._stop, self._progress, self._resume = stop, progress, resume
        self._checkpoint, self._on_evaluation = checkpoint, on_evaluation
        self._resumed_at = self._saved_at = time.monotonic()
        self._seconds_before = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        learner = _learner(pl_module)
        self._take_signals()
        if self._resume is not None:
            trainer.strategy.load_optimizer_state_dict(self._resume)
            self._resume = None
        self._seconds_before, self._resumed_at = learner.seconds, time.monotonic()
        learner.on_step = lambda step: self._after_step(trainer, learner, step)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._take_signals()

    def on_test_batch_start(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if self._stop is not None:
            self._stop.check()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        learner = _learner(pl_module)
        # A chunk that was cut short; one that came to its end is evaluated first.
        if self._stop is not None and not learner.at_evaluation:
            self._end_if_asked(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        learner = _learner(pl_module)
        learner.seconds = self._seconds_before + time.monotonic() - self._resumed_at
        if self._on_evaluation is not None:
            self._on_evaluation(learner.evaluations[-1])
        if not learner.finished:
            self._end_if_asked(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write the checkpoint, if there is to be one: the old file or the new one, nothing between."""
        if self._checkpoint is None:
            return
        learner = _learner(trainer.lightning_module)
        learner.seconds = self._seconds_before + time.monotonic() - self._resumed_at
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        partial = self._checkpoint.with_suffix(".partial")
        trainer.save_checkpoint(partial)
        partial.replace(self._checkpoint)
        self._saved_at = time.monotonic()

    def _after_step(self, trainer: Trainer, learner: Learner, step: int) -> bool:
        if self._progress is not None:
            self._progress.step(step)
        if self._stop is not None and self._stop.received is not None:
            return False
        if time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
            self.save(trainer)
        return True

    def _end_if_asked(self, trainer: Trainer) -> None:
        if self._stop is not None and self._stop.received is not None:
            self.save(trainer)
            self._stop.check()

    def _take_signals(self) -> None:
        if self._stop is not None:
            self._stop.install()


def _learner(module: LightningModule) -> Learner:
    assert isinstance(module, Learner)
    return module
