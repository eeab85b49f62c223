"""A clock that moves only if a test sets it or sleeps on it."""

EPOCH = 1_800_000_000.0


class FakeClock:
    """A `Clock` that starts in January 2027 and moves only by `sleep` or by setting `time` (epoch seconds)."""

    def __init__(self) -> None:
        self.time = EPOCH

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - EPOCH

    def sleep(self, seconds: float) -> None:
        self.time += seconds
