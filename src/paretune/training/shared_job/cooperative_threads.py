"""Trainings in threads of which one runs at a time, each with the random numbers and the clock of its own process.

A training runs until it asks for something that can be computed for several at once (`CooperativeThread.ask`). When all
of them have asked or ended, the main thread answers, and each goes on in its turn. So the rest of the code stays that
of a single training.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


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


class CooperativeThread:
    """One training among several: its pending `request`, its random numbers, and the seconds spent on it."""

    def __init__(self, task: Callable[["CooperativeThread"], None]) -> None:
        self.random = RandomState.now()
        self.request: Any = None
        self.is_done = False
        self._answer: Any = None
        self._task = task
        self._seconds = 0.0
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
        self._turn_began = time.perf_counter()
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._may_run.release()
        self._has_paused.acquire()
        self._seconds += time.perf_counter() - self._turn_began
        self._turn_began = None
        self.random = RandomState.now()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
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
