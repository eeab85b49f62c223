"""A profile as its two files: `profile.json` for programs, `profile.md` for readers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.training.profiling.advice import Advice
from paretune.training.profiling.peak_memory import PeakMemory
from paretune.training.profiling.trace import KINDS, PARTS, StepTime

DEAREST = 10
"""Number of operators in a list of the dearest."""

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
    """The measurements of one process."""

    rank: int
    time: StepTime
    memory: PeakMemory | None

    @property
    def own_ns(self) -> int:
        """Nanoseconds not spent waiting for other processes; the process with most of them is waited for."""
        return self.time.total_ns - self.time.parts["communication"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profiles of all processes of a job, in the order of their ranks, with advice.

    Attributes:
        first_step: number of the first profiled step, from 1.
        circumstances: how the job ran, name to value: device, precision, batch and versions.
        traces: rank to the file with its trace, for the traces that are kept.
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
        names = sorted((name for name in PARTS if percent[name]), key=lambda name: -percent[name])
        shares = ", ".join(f"{name} {percent[name]:g} %" for name in names)
        slowest = f"; slowest process: rank {self.slowest.rank}" if len(self.ranks) > 1 else ""
        advice = f"; advice: {self.advice[0].typed} ({self.advice[0].figure})" if self.advice else ""
        return f"{shares} of {self.ranks[0].time.step_ms:,.1f} ms per step{slowest}{advice}"

    def as_json(self) -> dict[str, Any]:
        """The content of `profile.json`."""
        time, memory = self.ranks[0].time, self.ranks[0].memory
        return {
            "summary": self.summary(),
            "steps": time.steps,
            "first_step": self.first_step,
            **self.circumstances,
            "step_ms": time.step_ms,
            "shares_percent": time.percent(),
            "kinds_percent": {kind: round(time.kind_percent(kind), 1) for kind in KINDS},
            "communication_ms_per_step": time.per_step_ms(time.communication_ns),
            "operators": [
                {
                    "name": operator.name,
                    "calls_per_step": operator.calls / time.steps,
                    "self_ms_per_step": time.per_step_ms(operator.self_ns),
                    "percent": 100 * operator.self_ns / time.total_ns,
                }
                for operator in time.operators[:DEAREST]
            ],
            "memory": None
            if memory is None
            else {
                "step": memory.step,
                "peak_gib": sum(memory.holders.values()) / 2**30,
                "holders_gib": {name: size / 2**30 for name, size in memory.holders.items()},
                "process_gib": memory.process_gib,
            },
            "ranks": [
                {"rank": rank.rank, "step_ms": rank.time.step_ms, "shares_percent": rank.time.percent()}
                for rank in self.ranks
            ],
            "slowest_rank": self.slowest.rank,
            "traces": {str(rank): name for rank, name in self.traces.items()},
            "advice": [
                {"figure": advice.figure, "reason": advice.reason, "parameters": dict(advice.parameters)}
                for advice in self.advice
            ],
        }

    def as_markdown(self) -> str:
        """The content of `profile.md`."""
        time = self.ranks[0].time
        last = self.first_step + time.steps - 1
        circumstances = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.circumstances.items())
        advice = [f"- {advice.figure}: {advice.reason}. Try `{advice.typed}`" for advice in self.advice]
        lines = [
            "# Profile",
            "",
            f"Measured over steps {self.first_step} to {last}, after the warm-up, with the profiler on: "
            f"{circumstances}. A step took {time.step_ms:,.1f} ms. Open {' or '.join(self.traces.values())} in "
            "https://ui.perfetto.dev.",
            "",
            *_shares(time, f" of rank {self.ranks[0].rank}" if len(self.ranks) > 1 else ""),
            *self._processes(),
            *_operators(time),
            *_memory(self.ranks[0].memory),
            *("## Advice", "", *(advice or ["No figure exceeds its limit."])),
        ]
        return "\n".join(lines) + "\n"

    def _processes(self) -> list[str]:
        if len(self.ranks) == 1:
            return []
        rows = [
            [str(rank.rank), f"{rank.time.step_ms:,.1f}", *(f"{rank.time.percent()[name]:.1f}" for name in PARTS)]
            for rank in self.ranks
        ]
        others = [rank.own_ns for rank in self.ranks if rank is not self.slowest]
        more = 100 * (self.slowest.own_ns / max(1, max(others)) - 1)
        slowest = (
            f"Slowest: rank {self.slowest.rank}, with {more:.1f} % more time of its own than the next; the others wait."
        )
        return ["## Processes", "", *_table(["rank", "ms", *(f"{name} %" for name in PARTS)], rows), "", slowest, ""]


def slowest_of(ranks: Sequence[RankProfile]) -> RankProfile:
    """The process with most time of its own, which the others wait for; the first of equal ones."""
    return max(ranks, key=lambda rank: (rank.own_ns, -rank.rank))


def _shares(time: StepTime, of_rank: str) -> list[str]:
    meaning = _MEANING | {"idle": _IDLE_ON[time.on_gpu]}
    percent = time.percent()
    rows = [
        [name, f"{percent[name]:.1f}", f"{time.per_step_ms(time.parts[name]):,.2f}", meaning[name]] for name in PARTS
    ]
    lines = [f"## Where the time{of_rank} goes", "", *_table(["part", "%", "ms per step", ""], rows), ""]
    hidden = time.communication_ns - time.parts["communication"]
    if hidden > 0:
        lines += [f"{time.per_step_ms(hidden):,.2f} ms of communication per step are hidden behind compute.", ""]
    return lines


def _operators(time: StepTime) -> list[str]:
    rows = [
        [
            f"`{operator.name}`",
            f"{time.per_step_ms(operator.self_ns):,.2f}",
            f"{100 * operator.self_ns / time.total_ns:.1f}",
            f"{operator.calls / time.steps:,.1f}",
        ]
        for operator in time.operators[:DEAREST]
    ]
    measure = "kernels" if time.on_gpu else "own time, without operators that it calls"
    head = ["operator", "ms per step", "% of the step", "calls per step"]
    kinds = ", ".join(f"{kind} {time.kind_percent(kind):.1f} %" for kind in KINDS)
    by_kind = f"Share of the step by kind of operator: {kinds}."
    return [f"## Dearest operators ({measure})", "", *_table(head, rows), "", by_kind, ""]


def _memory(memory: PeakMemory | None) -> list[str]:
    if memory is None:
        return []
    peak = sum(memory.holders.values())
    rows = [[name, f"{size / 2**20:,.1f}", f"{100 * size / peak:.1f}"] for name, size in memory.holders.items()]
    early = "" if memory.holders.get("optimiser state") else ", before the optimiser has made its state"
    sentence = f"Tensors held {peak / 2**20:,.1f} MiB at the peak of step {memory.step}{early}."
    if memory.process_gib is not None:
        sentence += f" The process held {memory.process_gib * 1024:,.0f} MiB at most, libraries included."
    return ["## Peak memory", "", sentence, "", *_table(["held for", "MiB", "%"], rows), ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
