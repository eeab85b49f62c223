"""Shares of the time of optimiser steps and their dearest operators, from a Chrome trace of torch.profiler.

Format: "Trace Event Format" (Google, read 2026-11-21), with the categories of Kineto in torch 2.13: `cpu_op` for
operators, `user_annotation` for named blocks, `kernel`, `gpu_memcpy` and `gpu_memset` for the work of a GPU,
`cuda_runtime` and `cuda_driver` for the calls that launch it, linked by `args.correlation`. Operators of one thread are
nested. No trace of a GPU has been read yet: the code for them is tested with hand-made traces.

A set of moments is a list of intervals that are sorted, disjoint, not adjacent and not empty; `union`, `intersection`
and `difference` return such lists.
"""

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

STEP = "ProfilerStep#"
"""Start of the name of a block that is one optimiser step with its data and its log; torch's own name for it."""
NOT_TRAINING = "paretune: evaluation or checkpoint"
"""Name of a block inside a step that does not belong to the training."""
PARTS = ("data", "compute", "communication", "optimiser", "idle")
"""Parts of the time of a step; every moment counts once."""
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

Interval = tuple[int, int]
"""(begin, end) in whole nanoseconds: the moments begin <= moment < end."""


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
    def interval(self) -> Interval:
        """Begin and end."""
        return self.begin, self.end


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
    """The time of the profiled steps of one process, by its parts.

    Attributes:
        steps: number of profiled steps.
        parts: nanoseconds of each of PARTS over all steps; they sum to `total_ns`.
        communication_ns: nanoseconds of all communication, hidden behind compute or not.
        operators: operators, dearest first.
        on_gpu: whether compute is the work of a GPU.
    """

    steps: int
    parts: Mapping[str, int]
    communication_ns: int
    operators: tuple[Operator, ...]
    on_gpu: bool

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
    decoder, start = json.JSONDecoder(), None
    with path.open() as file:
        text = ""
        while start is None:
            more = file.read(chunk)
            if not more:
                raise ValueError(f"{path} has no list traceEvents")
            text += more
            start = _LIST.search(text)
        position = start.end()
        while True:
            position += len(_GAP.match(text, position)[0])  # type: ignore[index]  # it also matches nothing
            if text.startswith("]", position):
                return
            try:
                event, position = decoder.raw_decode(text, position)
            except ValueError:
                more = file.read(chunk)
                if not more:
                    raise
                text, position = text[position:] + more, 0
            else:
                yield event


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
    blocks = [record for record in records if record.category == "user_annotation"]
    steps = [record for record in blocks if record.name.startswith(STEP)]
    if not steps:
        raise ValueError("a trace without a step")
    outside = union(record.interval for record in blocks if record.name == NOT_TRAINING)
    window = difference(union(record.interval for record in steps), outside)
    lanes: dict[tuple[Any, Any], list[Record]] = defaultdict(list)
    for record in records:
        if record.category not in _DEVICE:
            lanes[record.lane].append(record)
    kernels = [record for record in records if record.category in _DEVICE]
    calls = _CallTree(lanes.values())
    busy = _busy_on_gpu(kernels, calls) if kernels else _busy_on_processor(lanes.values())
    busy["data"] = union(record.interval for record in blocks if record.name.startswith(_DATA))
    parts, left = dict.fromkeys(PARTS, 0), window
    for name in ("optimiser", "compute", "communication", "data"):
        parts[name] = length(intersection(left, busy[name]))
        left = difference(left, busy[name])
    parts["idle"] = length(left)
    return StepTime(
        steps=len(steps),
        parts=parts,
        communication_ns=length(intersection(window, busy["communication"])),
        operators=_operators(records, kernels, calls, window),
        on_gpu=bool(kernels),
    )


def is_communication(name: str) -> bool:
    """Whether the operator or block of this name exchanges data between processes, on a processor."""
    return name.startswith(_COMMUNICATION)


class _CallTree:
    """Nesting of the operators, blocks and launches on the threads of the processor.

    Attributes:
        operator: correlation of a kernel to the innermost operator that has launched it.
        in_optimiser: correlations of the kernels launched inside the optimiser's block.
        self_times: name, begin and own nanoseconds of each call of an operator, without operators that it called.
    """

    def __init__(self, lanes: Iterable[list[Record]]) -> None:
        self.operator: dict[int, str] = {}
        self.in_optimiser: set[int] = set()
        self.self_times: list[tuple[str, int, int]] = []
        for lane in lanes:
            self._read(lane)

    def _read(self, lane: list[Record]) -> None:
        """Walk through the records of one thread: by begin, of equal ones the longer first."""
        stack: list[tuple[Record, list[int]]] = []  # with the nanoseconds of the operators directly inside

        def leave(until: int) -> None:
            while stack and stack[-1][0].end <= until:
                record, inner = stack.pop()
                if record.category != "cpu_op":
                    continue
                self.self_times.append((record.name, record.begin, record.end - record.begin - sum(inner)))
                outer = next((entry for entry in reversed(stack) if entry[0].category == "cpu_op"), None)
                if outer is not None:
                    outer[1].append(record.end - record.begin)

        for record in sorted(lane, key=lambda record: (record.begin, -record.end)):
            leave(record.begin)
            if record.category in _LAUNCHES and record.correlation is not None:
                outer = [entry[0] for entry in reversed(stack)]  # innermost first
                operator = next((caller.name for caller in outer if caller.category == "cpu_op"), None)
                if operator is not None:
                    self.operator[record.correlation] = operator
                if any(caller.name.startswith(_OPTIMISER) for caller in outer):
                    self.in_optimiser.add(record.correlation)
            else:
                stack.append((record, []))
        leave(max((record.end for record in lane), default=0))


def _busy_on_gpu(kernels: Iterable[Record], calls: _CallTree) -> dict[str, list[Interval]]:
    """Moments in which kernels of each part run."""
    busy: dict[str, list[Interval]] = {"optimiser": [], "compute": [], "communication": []}
    for kernel in kernels:
        if kernel.name.startswith(_COMMUNICATION_KERNEL):
            busy["communication"].append(kernel.interval)
        else:
            busy["optimiser" if kernel.correlation in calls.in_optimiser else "compute"].append(kernel.interval)
    return {name: union(intervals) for name, intervals in busy.items()}


def _busy_on_processor(lanes: Iterable[list[Record]]) -> dict[str, list[Interval]]:
    """Moments in which operators of each part run; everything inside the optimiser's or the data's block is theirs."""
    optimiser, compute, communication = list[Interval](), list[Interval](), list[Interval]()
    for lane in lanes:
        blocks = [record for record in lane if record.category == "user_annotation"]
        updates = union(record.interval for record in blocks if record.name.startswith(_OPTIMISER))
        loads = union(record.interval for record in blocks if record.name.startswith(_DATA))
        exchanges = union(record.interval for record in lane if is_communication(record.name))
        operators = union(record.interval for record in lane if record.category == "cpu_op")
        optimiser += difference(updates, exchanges)
        compute += difference(operators, union(updates, loads, exchanges))
        communication += exchanges
    return {"optimiser": union(optimiser), "compute": union(compute), "communication": union(communication)}


def _operators(
    records: Iterable[Record], kernels: list[Record], tree: _CallTree, window: list[Interval]
) -> tuple[Operator, ...]:
    """The operators of the window, dearest first by their own time on the processor or by the time of their kernels."""
    calls, spent = defaultdict[str, int](int), defaultdict[str, int](int)
    for record in records:
        if record.category == "cpu_op" and _contains(window, record.begin):
            calls[record.name] += 1
    for kernel in kernels:
        if _contains(window, kernel.begin):
            operator = tree.operator.get(kernel.correlation) if kernel.correlation is not None else None
            spent[operator or kernel.name] += kernel.end - kernel.begin
            calls[kernel.name] += operator is None
    if not kernels:
        for name, begin, self_ns in tree.self_times:
            spent[name] += self_ns if _contains(window, begin) else 0
    operators = [Operator(name=name, calls=calls[name], self_ns=ns) for name, ns in spent.items() if ns]
    return tuple(sorted(operators, key=lambda operator: (-operator.self_ns, operator.name)))


def _contains(window: list[Interval], moment: int) -> bool:
    index = bisect_right(window, moment, key=lambda interval: interval[0]) - 1
    return index >= 0 and moment < window[index][1]


def union(*parts: Iterable[Interval]) -> list[Interval]:
    """The moments in any of the intervals, which may come in any order, overlap, or be empty."""
    merged: list[Interval] = []
    for begin, end in sorted(interval for part in parts for interval in part):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def intersection(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """The moments in both sets."""
    common, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            common.append((begin, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """The moments in `left` that are not in `right`."""
    rest, j = [], 0
    for begin, end in left:
        while j < len(right) and right[j][1] <= begin:
            j += 1
        index = j
        while index < len(right) and right[index][0] < end:
            if begin < right[index][0]:
                rest.append((begin, right[index][0]))
            begin = max(begin, right[index][1])
            index += 1
        if begin < end:
            rest.append((begin, end))
    return rest


def length(moments: Iterable[Interval]) -> int:
    """Nanoseconds in a set."""
    return sum(end - begin for begin, end in moments)
