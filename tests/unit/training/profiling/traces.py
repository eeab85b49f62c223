"""Chrome traces made by hand: an event is category, name, begin and end in microseconds, and its thread."""

from typing import Any

MAIN, WORKER, STREAM = (1, 1), (1, 2), (0, 7)


def event(
    category: str, name: str, begin: float, end: float, lane: tuple[int, int] = MAIN, correlation: int | None = None
) -> dict[str, Any]:
    """One event as Kineto writes it."""
    result: dict[str, Any] = {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin}
    result |= {"pid": lane[0], "tid": lane[1], "args": {"External id": 3}}
    if correlation is not None:
        result["args"]["correlation"] = correlation
    return result


def op(name: str, begin: float, end: float, lane: tuple[int, int] = MAIN) -> dict[str, Any]:
    """An operator on the processor."""
    return event("cpu_op", name, begin, end, lane)


def block(name: str, begin: float, end: float, lane: tuple[int, int] = MAIN) -> dict[str, Any]:
    """A named block."""
    return event("user_annotation", name, begin, end, lane)


def step(number: int, begin: float, end: float) -> dict[str, Any]:
    """The block of an optimiser step."""
    return block(f"ProfilerStep#{number}", begin, end)


def load(begin: float, end: float) -> dict[str, Any]:
    """Waiting for a batch."""
    return block("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, end)


def update(begin: float, end: float) -> dict[str, Any]:
    """The optimiser's step."""
    return block("Optimizer.step#AdamW.step", begin, end)


def launch(begin: float, end: float, correlation: int) -> dict[str, Any]:
    """The call that launches a kernel."""
    return event("cuda_runtime", "cudaLaunchKernel", begin, end, MAIN, correlation)


def kernel(name: str, begin: float, end: float, correlation: int, lane: tuple[int, int] = STREAM) -> dict[str, Any]:
    """A kernel on a stream."""
    return event("kernel", name, begin, end, lane, correlation)
