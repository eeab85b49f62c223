"""Trainings in threads of which one runs at a time, each with the random numbers, settings and clock of a process.

A training runs until it asks for something that can be computed for several at once (`CooperativeThread.ask`). When all
of them have asked or ended, the main thread answers, and each goes on in its turn. So the rest of the code stays that
of a single training.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from accelerate.state import AcceleratorState, GradientState, PartialState


@dataclass(frozen=True, kw_only=True)
class RandomState:
    """The states of the random generators of Python, NumPy and PyTorch, including those of GPUs."""

    python: Any
    numpy: Any
    processor: torch.Tensor
    gpus: list[torch.Tensor]

    @classmethod
    def now(cls) -> "RandomState":
        """The present states."""
        gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        state = np.random.get_state()  # the generator that transformers seeds
        return cls(python=random.getstate(), numpy=state, processor=torch.get_rng_state(), gpus=gpus)

    def restore(self) -> None:
        """Set the generators to these states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.processor)
        if self.gpus:
            torch.cuda.set_rng_state_all(self.gpus)

    def draws_as(self, other: "RandomState") -> bool:
        """Whether PyTorch draws the same numbers from both states."""
        pairs = [(self.processor, other.processor), *zip(self.gpus, other.gpus, strict=True)]
        return all(torch.equal(left, right) for left, right in pairs)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the whole process that training arguments change: algorithms, precision, log level, accelerate."""

    deterministic: bool
    warn_only: bool
    products: str
    cudnn: tuple[bool, bool]
    verbosity: int
    number_format: torch.dtype
    accelerate: list[dict[str, Any]]

    @classmethod
    def now(cls) -> "Settings":
        """The present settings."""
        return cls(
            deterministic=torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            products=torch.get_float32_matmul_precision(),
            cudnn=(torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
            verbosity=transformers.logging.get_verbosity(),
            number_format=torch.get_default_dtype(),
            accelerate=[dict(kind._shared_state) for kind in _ACCELERATE],
        )

    def restore(self) -> None:
        """Change the process back to these settings; those of accelerate only if there were any."""
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        if torch.get_float32_matmul_precision() != self.products:
            torch.set_float32_matmul_precision(self.products)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = self.cudnn
        transformers.logging.set_verbosity(self.verbosity)
        torch.set_default_dtype(self.number_format)
        for kind, values in zip(_ACCELERATE, self.accelerate, strict=True):
            if values:
                kind._shared_state.clear()
                kind._shared_state.update(values)


_ACCELERATE = PartialState, AcceleratorState, GradientState
"""Classes whose instances all share their attributes, so that each new Trainer changes those of the others."""


class CooperativeThread:
    """One training among several: its pending `request`, its random numbers, and the seconds spent on it.

    `seconds` were spent on it before.
    """

    def __init__(self, task: Callable[["CooperativeThread"], None], seconds: float = 0.0) -> None:
        self.random = RandomState.now()
        self._settings = Settings.now()
        self.request: Any = None
        self.is_done = False
        self._answer: Any = None
        self._task = task
        self._seconds = seconds
        self._turn_began: float | None = None
        self._may_run = threading.Semaphore(0)
        self._has_paused = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def seconds(self) -> float:
        """Seconds of its own turns, plus its share of the time spent on joint work."""
        return self._seconds + (0.0 if self._turn_began is None else time.perf_counter() - self._turn_began)

    def add_seconds(self, seconds: float) -> None:
        """Count its share of joint work."""
        self._seconds += seconds

    def ask(self, request: Any) -> Any:
        """Pause the training until all others have asked or ended, and return the answer to `request`."""
        self.request = request
        self._has_paused.release()
        self._may_run.acquire()
        return self._answer

    def take_turn(self, answer: Any = None) -> None:
        """Let the training run until it asks again or ends; called by the main thread.

        Raises:
            BaseException: what the training has raised.
        """
        self.request, self._answer = None, answer
        self.random.restore()
        self._settings.restore()
        self._turn_began = time.perf_counter()
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._may_run.release()
        self._has_paused.acquire()
        self._seconds += time.perf_counter() - self._turn_began
        self._turn_began = None
        self.random, self._settings = RandomState.now(), Settings.now()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        if torch.cuda.is_available():  # the current device belongs to a thread
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        try:
            self._task(self)
        except BaseException as error:
            self._error = error
        finally:
            self.is_done = True
            self._has_paused.release()


def run_in_turns(
    tasks: Sequence[Callable[[CooperativeThread], None]],
    answer: Callable[[Sequence[CooperativeThread]], Sequence[Any]],
) -> None:
    """Run each task in a thread until all have ended; `answer` gives one answer per thread that has asked.

    Raises:
        BaseException: what a task has raised; the other tasks stay unfinished.
    """
    threads = [CooperativeThread(task) for task in tasks]
    for thread in threads:
        thread.take_turn()
    while waiting := [thread for thread in threads if not thread.is_done]:
        for thread, result in zip(waiting, answer(waiting), strict=True):
            thread.take_turn(result)
