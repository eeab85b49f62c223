"""Errors on request, and throttling."""

import threading
import time
from typing import Any

from tests.stand_ins.sagemaker.validation import Refusal


class Disturbances:
    """What makes calls fail.

    Args:
        calls_per_second: of one operation; None for any number.
    """

    def __init__(self, calls_per_second: float | None) -> None:
        self._rate = calls_per_second
        self._ready: list[dict[str, Any]] = []
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def inject(self, operation: str, error: str, message: str, times: int, status: int) -> None:
        """Let the next calls of an operation fail."""
        with self._lock:
            self._ready.append(
                {"operation": operation, "times": times, "refusal": Refusal(error, message, status)},
            )

    def clear(self) -> None:
        """Forget what was injected and not yet used."""
        with self._lock:
            self._ready.clear()

    def meet(self, operation: str) -> None:
        """Raise what this call has to fail with."""
        with self._lock:
            for entry in self._ready:
                if entry["operation"] == operation and entry["times"] > 0:
                    entry["times"] -= 1
                    raise entry["refusal"]
            if self._rate is not None and not self._has_token(operation, self._rate):
                raise Refusal("ThrottlingException", "Rate exceeded")

    def _has_token(self, operation: str, rate: float) -> bool:
        most = max(1.0, rate)
        now = time.monotonic()
        tokens, since = self._buckets.get(operation, (most, now))
        tokens = min(most, tokens + (now - since) * rate)
        self._buckets[operation] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1
