"""A profile as its two files: `profile.json` for programs, `profile.md` for readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.training.profiling.advice import Advice
from paretune.training.profiling.peak_memory import PeakMemory
from paretune.training.profiling.trace import KINDS, PARTS, StepTime

DEAREST = 10
"""Operators that are named."""

_MEANING = {
    "data": "the next batch is waited for or made",
    "compute": "forward and backward pass",
    "communication": "between processes, not hidden behind compute",
    "optimiser": "the weights are updated",
    "idle": "none of these",
}
_IDLE_ON = {True: "no kernel runs on the GPU", False: "no operator runs: Python between operators, and waiting"}


@dataclass(frozen=True, kw_only=True)
class RankProfile:
    """What one process has measured of itself."""

    rank: int
    time: StepTime
    memory: PeakMemory | None

    @property
    def own_ns(self) -> int:
        """Nanoseconds in which it did not wait for other processes: the most belong to the one they wait for."""
        return self.time.total_ns - self.time.parts["communication"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profiles of all processes of a job, in the order of their ranks, and what follows from them.

    Attributes:
        first_step: number of the first profiled step, from 1.
        circumstances: how the job ran, name to value: device, precision, batch and versions.
        traces: rank to the file with its trace, of those that are kept.
    """

    ranks: Sequence[RankProfile]
    first_step: int
    circumstances: Mapping[str, Any]
    advice: Sequence[Advice]
    traces: Mapping[int, str]

    @property
    def slowest(self) -> RankProfile:
        """The process that the others wait for."""
        return slowest_of(self.ranks)

    def summary(self) -> str:
        """Shares and first advice, in one line."""
        percent = self.ranks[0].time.percent()
        shown = sorted((name for name in PARTS if percent[name]), key=lambda name: -percent[name])
        shares = ", ".join(f"{name} {percent[name]:g} %" for name in shown)
        slowest = f"; slowest process: rank {self.slowest.rank}" if len(self.ranks) > 1 else ""
        advice = f"; advice: {self.advice[0].typed} ({self.advice[0].figure})" if self.advice else ""
        return f"{shares} of {_step_ms(self.ranks[0].time):,.1f} ms per step{slowest}{advice}"

    def as_json(self) -> dict[str, Any]:
        """What `profile.json` holds."""
        time, memory = self.ranks[0].time, self.ranks[0].memory
        return {
            "summary": self.summary(),
            "steps": time.steps,
            "first_step": self.first_step,
            **self.circumstances,
            "step_ms": _step_ms(time),
            "shares_percent": time.percent(),
            "kinds_percent": {kind: round(time.kind_percent(kind), 1) for kind in KINDS},
            "communication_ms_per_step": time.communication_ns / time.steps / 1e6,
            "operators": [
                {
                    "name": one.name,
                    "calls_per_step": one.calls / time.steps,
                    "self_ms_per_step": one.self_ns / time.steps / 1e6,
                    "percent": 100 * one.self_ns / time.total_ns,
                }
                for one in time.operators[:DEAREST]
            ],
            "memory": None
            if memory is None
            else {
                "step": memory.step,
                "peak_gib": sum(memory.holders.values()) / 2**30,
                "holders_gib": {name: held / 2**30 for name, held in memory.holders.items()},
                "process_gib": memory.process_gib,
            },
            "ranks": [
                {"rank": one.rank, "step_ms": _step_ms(one.time), "shares_percent": one.time.percent()}
                for one in self.ranks
            ],
            "slowest_rank": self.slowest.rank,
            "traces": {str(rank): name for rank, name in self.traces.items()},
            "advice": [
                {"figure": one.figure, "reason": one.reason, "parameters": dict(one.parameters)} for one in self.advice
            ],
        }

    def as_markdown(self) -> str:
        """What `profile.md` holds."""
        time = self.ranks[0].time
        last = self.first_step + time.steps - 1
        known = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.circumstances.items())
        lines = [
            "# Profile",
            "",
            f"Measured over steps {self.first_step} to {last}, after the warm-up, with the profiler on: {known}. "
            f"A step took {_step_ms(time):,.1f} ms. Open {' or '.join(self.traces.values())} in "
            "https://ui.perfetto.dev.",
            "",
            *_shares(time, f" of rank {self.ranks[0].rank}" if len(self.ranks) > 1 else ""),
            *self._processes(),
            *_operators(time),
            *_memory(self.ranks[0].memory),
            "## Advice",
            "",
            *(
                [f"- {one.figure}: {one.reason}. Try `{one.typed}`" for one in self.advice]
                or ["No figure asks for any."]
            ),
        ]
        return "\n".join(lines) + "\n"

    def _processes(self) -> list[str]:
        if len(self.ranks) == 1:
            return []
        rows = [
            [str(one.rank), f"{_step_ms(one.time):,.1f}", *(f"{one.time.percent()[name]:.1f}" for name in PARTS)]
            for one in self.ranks
        ]
        others = [one.own_ns for one in self.ranks if one is not self.slowest]
        more = 100 * (self.slowest.own_ns / max(1, max(others)) - 1)
        said = (
            f"Slowest: rank {self.slowest.rank}, with {more:.1f} % more time of its own than the next; the others wait."
        )
        return ["## Processes", "", *_table(["rank", "ms", *(f"{name} %" for name in PARTS)], rows), "", said, ""]


def slowest_of(ranks: Sequence[RankProfile]) -> RankProfile:
    """The process with the most time of its own, which the others wait for; of equal ones the first."""
    return max(ranks, key=lambda one: (one.own_ns, -one.rank))


def _shares(time: StepTime, of_rank: str) -> list[str]:
    meaning = _MEANING | {"idle": _IDLE_ON[time.on_gpu]}
    percent = time.percent()
    rows = [[name, f"{percent[name]:.1f}", f"{_ms(time.parts[name], time):,.2f}", meaning[name]] for name in PARTS]
    hidden = time.communication_ns - time.parts["communication"]
    more = (
        [f"{_ms(hidden, time):,.2f} ms of communication per step are hidden behind compute.", ""] if hidden > 0 else []
    )
    return [f"## Where the time{of_rank} goes", "", *_table(["part", "%", "ms per step", ""], rows), "", *more]


def _operators(time: StepTime) -> list[str]:
    rows = [
        [
            f"`{one.name}`",
            f"{_ms(one.self_ns, time):,.2f}",
            f"{100 * one.self_ns / time.total_ns:.1f}",
            f"{one.calls / time.steps:,.1f}",
        ]
        for one in time.operators[:DEAREST]
    ]
    what = "kernels" if time.on_gpu else "own time, without operators that it calls"
    head = ["operator", "ms per step", "% of the step", "calls per step"]
    kinds = ", ".join(f"{kind} {time.kind_percent(kind):.1f} %" for kind in KINDS)
    said = f"Of the step, by kind of operator: {kinds}."
    return [f"## Dearest operators ({what})", "", *_table(head, rows), "", said, ""]


def _memory(memory: PeakMemory | None) -> list[str]:
    if memory is None:
        return []
    peak = sum(memory.holders.values())
    rows = [[name, f"{held / 2**20:,.1f}", f"{100 * held / peak:.1f}"] for name, held in memory.holders.items()]
    process = memory.process_gib
    early = "" if memory.holders.get("optimiser state") else ", before the optimiser has made its state"
    beside = "" if process is None else f" The process held {process * 1024:,.0f} MiB at most, libraries included."
    said = f"Tensors held {peak / 2**20:,.1f} MiB at the peak of step {memory.step}{early}.{beside}"
    return ["## Peak memory", "", said, "", *_table(["held for", "MiB", "%"], rows), ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _ms(nanoseconds: int, time: StepTime) -> float:
    return nanoseconds / time.steps / 1e6


def _step_ms(time: StepTime) -> float:
    return _ms(time.total_ns, time)
