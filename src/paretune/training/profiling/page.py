"""A profile as its two files: `profile.json` for programs, `profile.md` for readers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.core.commands import options
from paretune.specification.batch_size import Batch
from paretune.specification.job import JobSpec
from paretune.training.profiling.trace import CASTS, KINDS, PARTS, PRODUCTS, PeakMemory, StepTime

WAITING_FOR_DATA = 5.0  # per cent of the step spent waiting for data from which on worker processes may pay
IDLE = 20.0
SMALL_OPERATOR_US = 50.0  # mean microseconds of an operator below which the code around it takes a similar time
COMMUNICATING = 15.0
UPDATING = 20.0
CASTING = 10.0
MULTIPLYING = 30.0
DEAREST = 10  # number of operators in a list of the dearest
_MEANING = {
    "data": "the next batch is waited for or made",
    "compute": "forward and backward pass",
    "communication": "between processes, not hidden behind compute",
    "optimiser": "the weights are updated",
    "idle": "none of these",
}
_IDLE_ON = {True: "no kernel runs on the GPU", False: "no operator runs: Python between operators, and waiting"}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Parameters to try, as a user types them, with the measured figure and the reason why they change it."""

    figure: str
    reason: str
    parameters: Mapping[str, str]

    @property
    def typed(self) -> str:
        """The parameters as they are added to a command."""
        return options(**self.parameters)

    def sentence(self) -> str:
        """Figure, reason and parameters."""
        return f"{self.figure}: {self.reason}: {self.typed}"


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The settings of a job that advice depends on."""

    spec: JobSpec
    batch: int  # rows per device and micro-batch, as the job ran; `accumulation` micro-batches per step
    accumulation: int
    precision: str  # the number format of the training
    has_bf16: bool  # whether the device multiplies bf16 natively
    processes: int  # processes of the whole job


def advice_of(time: StepTime, job: Circumstances) -> list[Advice]:
    """Parameters to try, the largest expected gain first; empty if no figure exceeds its limit."""
    percent = time.percent()
    ranked: list[tuple[float, Advice]] = []

    def add(gain: float, figure: str, reason: str, parameters: Mapping[str, str]) -> None:
        ranked.append((gain, Advice(figure=figure, reason=reason, parameters=parameters)))

    if (share := percent["data"]) >= WAITING_FOR_DATA:
        workers = int(job.spec.training_arguments.get("dataloader_num_workers", 0))
        arguments = {**job.spec.training_arguments, "dataloader_num_workers": 2 * workers or 2}
        reason = f"more processes make batches beside the training, now {workers}"
        add(share, f"data {share:g} % of the step", reason, {"training_arguments": json.dumps(arguments)})
    share = time.kind_percent(PRODUCTS)
    if job.precision == "fp32" and job.has_bf16 and share >= MULTIPLYING:
        figure = f"matrix products in fp32 {share:.1f} % of the step"
        add(share, figure, "this device multiplies bf16 faster", {"precision": "bf16"})
    share = time.kind_percent(CASTS)
    if job.precision != "fp32" and share >= CASTING:
        reason = f"weights are cast to {job.precision} for every micro-batch, whatever its rows"
        add(share, f"casts and copies {share:.1f} % of the step", reason, _larger_batch(job))
    calls = sum(operator.calls for operator in time.operators)
    if (share := percent["idle"]) >= IDLE and calls:
        mean_us = sum(operator.self_ns for operator in time.operators) / calls / 1000
        figure = f"idle {share:g} % of the step, {calls / time.steps:,.0f} operators per step of {mean_us:,.0f} us each"
        add(share, figure, "more rows per operator", _larger_batch(job))
        if mean_us < SMALL_OPERATOR_US and job.spec.compiler == "none" and job.spec.strategy in {"ddp", "smddp"}:
            reason = "compiled, small operators become fewer larger ones; compiling takes minutes, so for long jobs"
            add(share / 2, figure, reason, {"compiler": "inductor"})
    more_accumulation = {"gradient_accumulation_steps": str(2 * job.accumulation)} | _doubled_global_batch(job.spec)
    if (share := percent["communication"]) >= COMMUNICATING and job.processes > 1:
        figure = f"communication that no compute hides {share:g} % of the step"
        if job.spec.strategy == "fsdp" and job.spec.data_parallel_devices == job.processes:  # only rows are divided
            reason = "where a device holds the whole model, only gradients are exchanged, once per step"
            add(share, figure, reason, {"strategy": "ddp"})
        add(share / 2, figure, "fewer exchanges per row; the global batch size doubles", more_accumulation)
    if (share := percent["optimiser"]) >= UPDATING:
        reason = "fewer updates per row; the global batch size doubles"
        add(share, f"optimiser {share:g} % of the step", reason, more_accumulation)
    return [advice for _, advice in sorted(ranked, key=lambda entry: -entry[0])]


def _larger_batch(job: Circumstances) -> dict[str, str]:
    """Twice the rows per micro-batch, with the same global batch size if fewer micro-batches are possible."""
    doubled = {"per_device_train_batch_size": str(2 * job.batch)}
    if job.accumulation % 2 == 0:
        return doubled | {"gradient_accumulation_steps": str(job.accumulation // 2)}
    return doubled | _doubled_global_batch(job.spec)


def _doubled_global_batch(spec: Batch) -> dict[str, str]:
    """Twice the global batch size if one is set, because it contradicts the other sizes."""
    return {} if spec.global_batch_size is None else {"global_batch_size": str(2 * spec.global_batch_size)}


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
    """Profiles of all processes of a job, in the order of their ranks, with advice."""

    ranks: Sequence[RankProfile]
    first_step: int  # number of the first profiled step, from 1
    circumstances: Mapping[str, Any]  # how the job ran, name to value: device, precision, batch and versions
    advice: Sequence[Advice]
    traces: Mapping[int, str]  # rank to the file with its trace, for the traces that are kept

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
