"""Errors on request."""

import threading

from tests.stand_ins.sagemaker.validation import Refusal


class Disturbances:
    """What makes calls fail."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Refusal]] = {}
        self._lock = threading.Lock()

    def inject(self, operation: str, error: str, message: str, times: int, status: int) -> None:
        """Let the next calls of an operation fail."""
        with self._lock:
            self._waiting.setdefault(operation, []).extend([Refusal(error, message, status)] * times)

    def clear(self) -> None:
        """Forget what was injected and not yet used."""
        with self._lock:
            self._waiting.clear()

    def meet(self, operation: str) -> None:
        """Raise what this call has to fail with."""
        with self._lock:
            if waiting := self._waiting.get(operation):
                raise waiting.pop(0)
