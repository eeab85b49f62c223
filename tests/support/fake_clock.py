"""A clock that only moves when a test sets it or sleeps on it."""

EPOCH = 1_800_000_000.0


class FakeClock:
    """Seconds since the epoch, in January 2027."""

    def __init__(self) -> None:
        self.time = EPOCH

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - EPOCH

    def sleep(self, seconds: float) -> None:
        self.time += seconds
