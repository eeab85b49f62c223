"""Trainings in threads of which one runs at a time, each with the random numbers and the clock of a process of its own.

A training runs until it needs what several can do together (`Seat.meet`). When all have come to that point, the thread
that conducts them answers, and each goes on in its turn. So everything else stays the code of a single training.
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
    """The states of the random generators of Python, NumPy and PyTorch, those of GPUs included."""

    python: Any
    numpy: Any
    processor: torch.Tensor
    gpus: list[torch.Tensor]

    @classmethod
    def now(cls) -> "RandomState":
        """The states as they are."""
        gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        state = np.random.get_state()  # the generator that transformers seeds
        return cls(python=random.getstate(), numpy=state, processor=torch.get_rng_state(), gpus=gpus)

    def restore(self) -> None:
        """Set them again."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.processor)
        if self.gpus:
            torch.cuda.set_rng_state_all(self.gpus)

    def draws_as(self, other: "RandomState") -> bool:
        """Whether PyTorch draws the same from both."""
        pairs = [(self.processor, other.processor), *zip(self.gpus, other.gpus, strict=True)]
        return all(torch.equal(mine, its) for mine, its in pairs)


class Seat:
    """One training among several: what it asks for, its random numbers, and the seconds that were spent on it."""

    def __init__(self, task: Callable[["Seat"], None]) -> None:
        self.random = RandomState.now()
        self.request: Any = None
        self._answer: Any = None
        self._task = task
        self._spent = 0.0
        self._since: float | None = None
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._error: BaseException | None = None
        self.is_done = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def seconds(self) -> float:
        """Seconds of its own turns, with its share of what was done for several."""
        return self._spent + (0.0 if self._since is None else time.perf_counter() - self._since)

    def add_seconds(self, seconds: float) -> None:
        """Count its share of what was done for several."""
        self._spent += seconds

    def meet(self, request: Any) -> Any:
        """The answer to `request`, given when all others ask, too, or are done; called by the training."""
        self.request = request
        self._back.release()
        self._go.acquire()
        return self._answer

    def take_turn(self, answer: Any = None) -> None:
        """Let the training run until it asks again or is done; called by the thread that conducts.

        Raises:
            BaseException: what the training has raised.
        """
        self.request, self._answer = None, answer
        self.random.restore()
        self._since = time.perf_counter()
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        self._spent += time.perf_counter() - self._since
        self._since = None
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
            self._back.release()


def conduct(tasks: Sequence[Callable[[Seat], None]], answer: Callable[[Sequence[Seat]], Sequence[Any]]) -> None:
    """Run the tasks to their ends, each in its seat; `answer` gives the answers to the requests of several seats.

    Raises:
        BaseException: what a task has raised; the others are left where they are.
    """
    seats = [Seat(task) for task in tasks]
    for seat in seats:
        seat.take_turn()
    while waiting := [seat for seat in seats if not seat.is_done]:
        for seat, found in zip(waiting, answer(waiting), strict=True):
            seat.take_turn(found)
