"""Shares of the time of optimiser steps and their dearest operators, from a Chrome trace of torch.profiler.

Format: "Trace Event Format" (Google, read 2026-11-21), with the categories of Kineto in torch 2.13: `cpu_op` for
operators, `user_annotation` for named blocks, `kernel`, `gpu_memcpy` and `gpu_memset` for the work of a GPU,
`cuda_runtime` and `cuda_driver` for the calls that launch it, linked by `args.correlation`. Operators of one thread are
nested. No trace of a GPU has been read yet: the code for them is tested with hand-made traces.
"""

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STEP = "ProfilerStep#"  # torch's name of a block that is one optimiser step with its data and log begins so
NOT_TRAINING = "paretune: evaluation or checkpoint"  # block inside a step that does not belong to the training
PARTS = ("data", "compute", "communication", "optimiser", "idle")  # of the time of a step; every moment counts once
PRODUCTS, CASTS, RANDOM = "matrix products", "casts and copies", "random numbers"
KINDS = {
    PRODUCTS: (
        *("aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm", "aten::_scaled_dot_product", "aten::mkldnn_linear"),
        *("aten::_flash_attention", "aten::_efficient_attention", "mkldnn::", "onednn::"),
    ),
    CASTS: ("aten::copy_", "aten::_foreach_copy_"),
    RANDOM: ("aten::bernoulli_", "aten::native_dropout", "aten::_fused_dropout", "aten::uniform_", "aten::normal_"),
}
"""Kind of operator to the prefixes of its names; `random numbers` are those of dropout."""

_DATA = "enumerate(DataLoader)#"  # torch.utils.data: the next batch is waited for or made
_OPTIMISER = "Optimizer."  # torch.optim: Optimizer.step#AdamW.step, Optimizer.zero_grad#AdamW.zero_grad
_COMMUNICATION = ("c10d::", "_c10d_functional::", "record_param_comms", "gloo:", "nccl:")
_COMMUNICATION_KERNEL = "nccl"  # ncclDevKernel_AllReduce..., ncclKernel_...
_GAP = re.compile(r"[\s,]*")
_LIST = re.compile(r'"traceEvents"\s*:\s*\[')
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_READ = _DEVICE | _LAUNCHES | {"cpu_op", "user_annotation"}
HOLDERS = ("parameters", "gradients", "optimiser state", "activations", "other")
"""Purposes of memory; `activations` are all that forward and backward pass have made and still hold, `other` are
buffers, batches, copies for communication, and intermediate results of the optimiser."""
_GPU = 1  # c10::DeviceType::CUDA; 0 is the processor


class Record(NamedTuple):
    """Nanoseconds from `begin` to `end` of something on one thread of the processor or stream of a GPU, its `lane`.

    `correlation` is the same number for a kernel and the call that has launched it; None for all others.
    """

    category: str
    name: str
    begin: int
    end: int
    lane: tuple[Any, Any]
    correlation: int | None = None

    @property
    def duration(self) -> int:
        """Nanoseconds; the moment `end` itself does not count."""
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator over all profiled steps: its calls, and its nanoseconds without those of operators that it called.

    On a GPU these are the nanoseconds of the kernels that it has launched.
    """

    name: str
    calls: int
    self_ns: int


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The time of the profiled steps of one process, by its parts."""

    steps: int  # number of profiled steps
    parts: Mapping[str, int]  # nanoseconds of each of PARTS over all steps; they sum to `total_ns`
    communication_ns: int  # nanoseconds of all communication, hidden behind compute or not
    operators: tuple[Operator, ...]  # operators, dearest first
    on_gpu: bool  # whether compute is the work of a GPU

    @property
    def total_ns(self) -> int:
        """Nanoseconds of all steps."""
        return sum(self.parts.values())

    @property
    def step_ms(self) -> float:
        """Mean milliseconds of a step."""
        return self.per_step_ms(self.total_ns)

    def per_step_ms(self, nanoseconds: int) -> float:
        """Nanoseconds over all steps as milliseconds per step."""
        return nanoseconds / self.steps / 1e6

    def percent(self) -> dict[str, float]:
        """Per cent of each part with one decimal, which sum to 100: the largest remainders are rounded up."""
        total = self.total_ns
        exact = {name: 1000 * spent for name, spent in self.parts.items()}
        tenths = {name: share // total for name, share in exact.items()}
        by_remainder = sorted(exact, key=lambda name: -(exact[name] % total))
        for name in by_remainder[: 1000 - sum(tenths.values())]:
            tenths[name] += 1
        return {name: share / 10 for name, share in tenths.items()}

    def kind_percent(self, kind: str) -> float:
        """Per cent of the steps in operators of one of KINDS, including those of the optimiser."""
        spent = sum(operator.self_ns for operator in self.operators if operator.name.startswith(KINDS[kind]))
        return 100 * spent / self.total_ns


def trace_events(path: Path, *, chunk: int = 2**20) -> Iterator[dict[str, Any]]:
    """The events of a Chrome trace, read `chunk` characters at a time: the whole file takes ten times its size.

    Raises:
        ValueError: the file is not a trace, or only the beginning of one.
    """
    decoder, text, position = json.JSONDecoder(), "", 0
    is_inside = False
    with path.open() as file:
        while more := file.read(chunk):
            text, position = text[position:] + more, 0
            if not is_inside:
                if (start := _LIST.search(text)) is None:
                    continue
                is_inside, position = True, start.end()
            while True:
                position += len(_GAP.match(text, position)[0])  # type: ignore[index]  # it also matches nothing
                if text.startswith("]", position):
                    return
                try:
                    event, position = decoder.raw_decode(text, position)
                except ValueError:  # the rest of the event is in the next chunk
                    break
                yield event
    raise ValueError(f"{path} has no whole list traceEvents")


def records_of(events: Iterable[Mapping[str, Any]]) -> list[Record]:
    """The events with a duration and a category that is read here; microseconds become whole nanoseconds."""
    return [
        Record(
            category=event["cat"],
            name=event["name"],
            begin=round(event["ts"] * 1000),
            end=round((event["ts"] + event["dur"]) * 1000),
            lane=(event["pid"], event["tid"]),
            correlation=event.get("args", {}).get("correlation"),
        )
        for event in events
        if event.get("ph") == "X" and event.get("cat") in _READ
    ]


def step_time(records: Iterable[Record]) -> StepTime:
    """The time of the steps by its parts.

    A moment counts as the first of these that holds: the optimiser works, anything else is computed, data are exchanged
    between processes, the next batch is waited for; or else it is idle. So communication that is hidden behind compute
    counts as compute. If the trace has kernels of a GPU, the optimiser and compute are kernels, and a GPU that waits is
    idle although the processor works; on a processor they are operators, and Python between them is idle.

    Raises:
        ValueError: there is no step in the trace.
    """
    records = list(records)
    moments = Moments(records)
    blocks = [record for record in records if record.category == "user_annotation"]
    steps = [record for record in blocks if record.name.startswith(STEP)]
    if not steps:
        raise ValueError("a trace without a step")
    window = moments.of(steps) & ~moments.of(record for record in blocks if record.name == NOT_TRAINING)
    lanes: dict[tuple[Any, Any], list[Record]] = defaultdict(list)
    for record in records:
        if record.category not in _DEVICE:
            lanes[record.lane].append(record)
    kernels = [record for record in records if record.category in _DEVICE]
    calls = _Calls(lanes.values(), lambda record: bool(window[moments.index(record.begin)]))
    busy = _busy_on_gpu(kernels, calls, moments) if kernels else _busy_on_processor(lanes.values(), moments)
    busy["data"] = moments.of(record for record in blocks if record.name.startswith(_DATA))
    parts, left = dict.fromkeys(PARTS, 0), window
    for name in ("optimiser", "compute", "communication", "data"):
        parts[name] = moments.length(left & busy[name])
        left = left & ~busy[name]
    parts["idle"] = moments.length(left)
    return StepTime(
        steps=len(steps),
        parts=parts,
        communication_ns=moments.length(window & busy["communication"]),
        operators=calls.operators(kernels),
        on_gpu=bool(kernels),
    )


class Moments:
    """Sets of moments as flags (M,) of the M pieces into which the begins and ends of records cut the time."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._cuts = np.unique([moment for record in records for moment in (record.begin, record.end)])

    def of(self, records: Iterable[Record]) -> np.ndarray:
        """The moments in any of the records."""
        depth = np.zeros(len(self._cuts), dtype=np.int64)
        spans = np.array([(record.begin, record.end) for record in records], dtype=np.int64).reshape(-1, 2)
        np.add.at(depth, np.searchsorted(self._cuts, spans[:, 0]), 1)
        np.add.at(depth, np.searchsorted(self._cuts, spans[:, 1]), -1)
        covered: np.ndarray = depth.cumsum() > 0
        return covered

    def length(self, covered: np.ndarray) -> int:
        """Nanoseconds in a set."""
        return int(np.diff(self._cuts, append=self._cuts[-1:])[covered].sum())

    def index(self, moment: int) -> int:
        """The number of the piece that begins at this moment, which must be the begin or end of a record."""
        return int(np.searchsorted(self._cuts, moment))


class _Calls:
    """Calls of the operators, and the launches of kernels inside them, on the threads of the processor.

    `is_counted` says of an operator or a kernel whether it is in the profiled steps.
    """

    def __init__(self, lanes: Iterable[list[Record]], is_counted: Callable[[Record], bool]) -> None:
        self.in_optimiser: set[int] = set()  # correlations of the kernels launched inside the optimiser's block
        self._is_counted = is_counted
        self._launcher: dict[int, str] = {}  # correlation of a kernel to its innermost operator
        self._calls, self._self_ns = Counter[str](), Counter[str]()
        for lane in lanes:
            for record, callers in _nested(lane):
                self._count(record, callers)

    def _count(self, record: Record, callers: list[Record]) -> None:
        operator = next((caller for caller in callers if caller.category == "cpu_op"), None)
        if record.category == "cpu_op":
            if self._is_counted(record):
                self._calls[record.name] += 1
                self._self_ns[record.name] += record.duration
            if operator is not None and self._is_counted(operator):
                self._self_ns[operator.name] -= record.duration
        elif record.correlation is not None:
            if operator is not None:
                self._launcher[record.correlation] = operator.name
            if any(caller.name.startswith(_OPTIMISER) for caller in callers):
                self.in_optimiser.add(record.correlation)

    def operators(self, kernels: list[Record]) -> tuple[Operator, ...]:
        """The operators, dearest first by their own time on the processor or by the time of their `kernels`."""
        calls, spent = self._calls.copy(), Counter[str]()
        for kernel in filter(self._is_counted, kernels):
            operator = None if kernel.correlation is None else self._launcher.get(kernel.correlation)
            spent[operator or kernel.name] += kernel.duration
            calls[kernel.name] += operator is None
        spent = spent if kernels else self._self_ns
        operators = [Operator(name=name, calls=calls[name], self_ns=ns) for name, ns in spent.items() if ns]
        return tuple(sorted(operators, key=lambda operator: (-operator.self_ns, operator.name)))


def _nested(lane: Iterable[Record]) -> Iterator[tuple[Record, list[Record]]]:
    """Each record of one thread, by begin, with the operators and blocks around it, innermost first."""
    stack: list[Record] = []
    for record in sorted(lane, key=lambda record: (record.begin, -record.end)):
        while stack and stack[-1].end <= record.begin:
            stack.pop()
        yield record, stack[::-1]
        if record.category not in _LAUNCHES:
            stack.append(record)


def _busy_on_gpu(kernels: Iterable[Record], calls: _Calls, moments: Moments) -> dict[str, np.ndarray]:
    """Moments in which kernels of each part run."""
    busy: dict[str, list[Record]] = {"optimiser": [], "compute": [], "communication": []}
    for kernel in kernels:
        if kernel.name.startswith(_COMMUNICATION_KERNEL):
            busy["communication"].append(kernel)
        else:
            busy["optimiser" if kernel.correlation in calls.in_optimiser else "compute"].append(kernel)
    return {name: moments.of(records) for name, records in busy.items()}


def _busy_on_processor(lanes: Iterable[list[Record]], moments: Moments) -> dict[str, np.ndarray]:
    """Moments in which operators of each part run; everything inside the optimiser's or the data's block is theirs."""
    optimiser = compute = communication = moments.of(())
    for lane in lanes:
        blocks = [record for record in lane if record.category == "user_annotation"]
        updates = moments.of(record for record in blocks if record.name.startswith(_OPTIMISER))
        loads = moments.of(record for record in blocks if record.name.startswith(_DATA))
        exchanges = moments.of(record for record in lane if record.name.startswith(_COMMUNICATION))
        operators = moments.of(record for record in lane if record.category == "cpu_op")
        optimiser = optimiser | (updates & ~exchanges)
        compute = compute | (operators & ~(updates | loads | exchanges))
        communication = communication | exchanges
    return {"optimiser": optimiser, "compute": compute, "communication": communication}


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Memory of one device at its peak in one step."""

    step: int  # number of the step, from 1
    holders: Mapping[str, int]  # bytes by purpose; they sum to the peak of all tensors
    process_gib: float | None  # highest resident memory of the process so far, libraries included; None on a GPU


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Bytes allocated, or freed if negative, at a moment in nanoseconds."""

    moment: int
    address: int
    size: int


def allocations_of(events: Iterable[Mapping[str, Any]], *, on_gpu: bool) -> list[Allocation]:
    """The allocations in a trace with `profile_memory`, on the GPU or on the processor, in order."""
    allocations = [
        Allocation(moment=round(event["ts"] * 1000), address=event["args"]["Addr"], size=event["args"]["Bytes"])
        for event in events
        if event.get("name") == "[memory]" and (event["args"]["Device Type"] == _GPU) == on_gpu
    ]
    return sorted(allocations, key=lambda allocation: allocation.moment)


def holders_at_peak(
    allocations: Iterable[Allocation],
    *,
    held_before: Mapping[str, int],
    gradients: Collection[int],
    state: Collection[int],
    updates_from: float,
) -> dict[str, int]:
    """Bytes that each of HOLDERS holds at the peak of a step; their sum is the peak.

    `held_before` are bytes by holder when the step begins. `gradients` are the addresses of gradients when the
    optimiser begins, at `updates_from` nanoseconds; `state` those of the optimiser's state when the step ends.
    """
    history = list(allocations)
    in_use = list(itertools.accumulate(allocation.size for allocation in history))
    most = max(in_use, default=0)
    peak = in_use.index(most) if most > 0 else -1
    # Addresses are used again and again: the last allocation of an address is the one that was seen in the end.
    owner: dict[int, tuple[int, str]] = {}
    for purpose, addresses, until in (("optimiser state", state, float("inf")), ("gradients", gradients, updates_from)):
        for index, allocation in enumerate(history):
            if allocation.size > 0 and allocation.address in addresses and allocation.moment < until:
                owner[allocation.address] = (index, purpose)
    live: dict[int, tuple[int, int]] = {}  # address to number of the allocation and its bytes
    freed = 0
    for index, allocation in enumerate(history[: peak + 1]):
        if allocation.size > 0:
            live[allocation.address] = index, allocation.size
        elif live.pop(allocation.address, None) is None:
            freed -= allocation.size  # it was allocated before the step
    holders = {name: held_before.get(name, 0) for name in HOLDERS}
    default = "other" if peak >= 0 and history[peak].moment >= updates_from else "activations"
    for address, (index, size) in live.items():
        last, purpose = owner.get(address, (-1, ""))
        holders[purpose if last == index else default] += size
    holders["other"] = max(0, holders["other"] - freed)
    return holders
