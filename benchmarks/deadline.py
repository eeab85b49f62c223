"""Dollars and lateness of jobs with `finish_by` on traces of spot availability, against a planner that has the trace.

A job of H hours usually takes H hours on demand, start-up and upload included, and has to be finished after H x (1 +
slack). Phases are drawn from the spread between jobs of one account that public SageMaker jobs show, and the training
takes longer or shorter than its estimate. A policy sees the states of its own job only, except `uniform progress`,
which is given the availability. On demand there always is capacity. Without --traces the traces are synthetic.
Constants of the policy were chosen on the first, third, ... eleventh trace; without --all only the others judge it.
"""

import argparse
import bisect
import csv
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import arguments
import numpy as np
import published

from paretune.estimating.phases import BOOT_SECONDS, Seconds, usual
from paretune.estimating.posterior import Z80
from paretune.jobs.deadline import SPOT_SHARE, STOP_S, Choice, On, choose
from paretune.specification.container import CHECKPOINT_EVERY_S

CONFIDENCE = 0.95
"""`finish_confidence` of the jobs."""
_WITHIN = {"starting": 0.4, "data": 0.7, "image": 0.7, "uploading": 0.85}
"""Standard deviations of the logarithm between jobs of one repository (phases.csv, gpu)."""
_SHOWS_SPEED_S = 300.0
"""Seconds after which a training has shown its speed."""
_ESTIMATE_ERROR = 0.05
"""Standard deviation of the logarithm of the training's seconds around its estimate."""
_GRID_S = {1.0: 60, 4.0: 120, 12.0: 300}
"""Steps of the planner that has the trace. Availability inside a step counts for all of it: its dollars are a bound."""


@dataclass(frozen=True)
class Trace:
    """Whether spot instances are available: `values[i]` from `times[i]` on, in seconds, up to `end`."""

    name: str
    times: Sequence[float]
    values: Sequence[bool]
    end: float

    def at(self, moment: float) -> tuple[bool, float]:
        """Whether there is capacity, and until when that lasts."""
        index = bisect.bisect_right(self.times, moment) - 1
        return self.values[index], self.times[index + 1] if index + 1 < len(self.times) else math.inf


@dataclass(frozen=True)
class Drawn:
    """Seconds of the phases of one job: of its attempts, in turn, and the factor of its training."""

    startups: Sequence[tuple[float, float]]
    uploading: float
    factor: float


@dataclass(frozen=True)
class Outcome:
    """On-demand hours that the job costs, and when it is finished."""

    hours: float
    seconds: float


@dataclass(frozen=True)
class Cell:
    """Jobs of one length with one slack."""

    hours: float
    slack: float

    @property
    def phases(self) -> Mapping[str, Seconds]:
        """The estimated phases of such a job, as the policy gets them."""
        around = {name: _spread(usual(name, "gpu").seconds, deviation) for name, deviation in _WITHIN.items()}
        training = self.hours * 3600 - sum(phase.seconds for phase in around.values())
        return {**around, "training": _spread(training, _ESTIMATE_ERROR)}

    @property
    def window_s(self) -> float:
        """Seconds from the request to the deadline."""
        return self.hours * 3600 * (1 + self.slack)

    def draw(self, trace: Trace, start: float) -> Drawn:
        """The phases of the job that is started then."""
        chance = random.Random(f"{trace.name} {start} {self.hours}")
        seconds = {name: phase.seconds for name, phase in self.phases.items()}

        def drawn(name: str) -> float:
            return seconds[name] * math.exp(chance.gauss(0, _WITHIN[name]))

        startups = [(drawn("starting"), drawn("data") + drawn("image") + BOOT_SECONDS) for _ in range(8)]
        return Drawn(startups, drawn("uploading"), math.exp(chance.gauss(0, _ESTIMATE_ERROR)))


def _spread(seconds: float, deviation: float) -> Seconds:
    factor = math.exp(Z80 * deviation)
    return Seconds(seconds=seconds, seconds_low=seconds / factor, seconds_high=seconds * factor)


class Job:
    """A job on a trace: its time, dollars and progress."""

    def __init__(self, cell: Cell, trace: Trace, start: float) -> None:
        self.cell, self.trace, self.now, self.start = cell, trace, start, start
        self.phases = dict(cell.phases)
        self.drawn = cell.draw(trace, start)
        self.work_s = (self.phases["training"].seconds - BOOT_SECONDS) * self.drawn.factor
        self.done_s = 0.0
        self.billed_s = 0.0
        self._attempts = itertools.cycle(self.drawn.startups)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.start + self.cell.window_s - self.now

    @property
    def progress(self) -> float:
        """Share of the training that is in a checkpoint."""
        return self.done_s / self.work_s

    def outcome(self) -> Outcome:
        """The result of a finished job."""
        return Outcome(self.billed_s / 3600, self.now - self.start)

    def learn(self) -> None:
        """A training that has run shows its speed."""
        self.phases["training"] = _spread(self.work_s + BOOT_SECONDS, 0.01)

    def on_demand(self, leaves: Callable[[], bool] = lambda: False, seconds: float = 0.0) -> None:
        """Train on demand: to the end, for so many seconds, or until the job `leaves`, asked when its speed shows."""
        starting, boot = next(self._attempts)
        self.now += starting + boot
        self.billed_s += boot
        self._train(min(_SHOWS_SPEED_S, self.work_s - self.done_s))
        self.learn()
        if leaves():
            self._end(STOP_S)
            return
        rest = self.work_s - self.done_s
        self._train(min(rest, seconds - _SHOWS_SPEED_S) if seconds else rest)
        self._end(STOP_S if self.done_s < self.work_s else self.drawn.uploading)

    def _train(self, seconds: float) -> None:
        self.done_s += max(0.0, seconds)
        self._end(max(0.0, seconds))

    def _end(self, seconds: float) -> None:
        self.now += seconds
        self.billed_s += seconds

    def on_spot(self) -> bool:
        """Train on spot instances, which are available now; whether the training is finished."""
        lost_at = self.trace.at(self.now)[1]
        starting, boot = next(self._attempts)
        rest = self.work_s - self.done_s
        finished = self.now + starting + boot + rest + self.drawn.uploading
        billed_from = self.now + starting
        if finished <= lost_at:
            self.billed_s += SPOT_SHARE * (finished - billed_from)
            self.now, self.done_s = finished, self.work_s
            return True
        trained = lost_at - billed_from - boot
        if trained > 0:
            self.done_s += min(rest, trained // CHECKPOINT_EVERY_S * CHECKPOINT_EVERY_S)
            self.learn()
        self.billed_s += SPOT_SHARE * max(0.0, lost_at - billed_from)
        self.now = lost_at
        return False


def finish_by(job: Job) -> Outcome:
    """The policy of jobs with `finish_by`."""
    while True:
        choice = _choice(job, On.NOTHING)
        available, until = job.trace.at(job.now)
        if not choice.spot:
            job.on_demand(lambda: _choice(job, On.DEMAND).spot)
            if job.done_s >= job.work_s:
                return job.outcome()
        elif not available:
            job.now = min(until, job.now + max(1.0, choice.review_s))
        elif job.on_spot():
            return job.outcome()


def _choice(job: Job, on: On) -> Choice:
    return choose(job.phases, on, left_s=job.left_s, progress=job.progress, confidence=CONFIDENCE)


def on_demand_only(job: Job) -> Outcome:
    """On demand from the beginning."""
    job.on_demand()
    return job.outcome()


def spot_only(job: Job) -> Outcome:
    """Spot instances, however late."""
    while True:
        available, until = job.trace.at(job.now)
        if available and job.on_spot():
            return job.outcome()
        if not available:
            if until == math.inf:
                return Outcome(job.billed_s / 3600, math.inf)
            job.now = until


def greedy(job: Job) -> Outcome:
    """Spot instances until the usual seconds on demand are all that is left, without a reserve."""
    while True:
        usual_s = sum(phase.seconds for phase in job.phases.values()) - job.done_s
        slack_s = job.left_s - usual_s
        available, until = job.trace.at(job.now)
        if slack_s <= 0:
            job.on_demand()
            return job.outcome()
        if not available:
            job.now = min(until, job.now + slack_s + 1)
        elif job.on_spot():
            return job.outcome()


def uniform_progress(job: Job) -> Outcome:
    """The rule of "Can't Be Late": on demand while behind a uniform progress, spot as soon as it is seen again."""
    total = job.cell.window_s
    switch = sum(job.phases[name].seconds for name in ("starting", "data", "image")) + BOOT_SECONDS
    while True:
        available, until = job.trace.at(job.now)
        need = switch + job.work_s - job.done_s + job.drawn.uploading
        if job.left_s - need <= 2 * switch:  # no time for two more changes
            job.on_demand()
            return job.outcome()
        if available:
            if job.on_spot():
                return job.outcome()
            continue
        ahead = job.done_s - (job.now - job.start) / total * job.work_s
        if ahead > 0:  # wait until the progress is uniform again
            job.now = min(until, job.now + ahead / job.work_s * total + 1)
            continue
        begin = job.now + switch
        catch_up = max(60.0, (2 * switch - ahead) / (1 - job.work_s / total))
        seen = until - begin if until > begin else 60.0
        rest = job.work_s - job.done_s
        job.on_demand(seconds=min(catch_up, seen) if min(catch_up, seen) < rest - switch else 0.0)
        if job.done_s >= job.work_s:
            return job.outcome()


POLICIES: Mapping[str, Callable[[Job], Outcome]] = {
    "finish_by": finish_by,
    "on demand only": on_demand_only,
    "spot only": spot_only,
    "greedy": greedy,
    "uniform progress, sees availability": uniform_progress,
}


def with_the_trace(cell: Cell, trace: Trace, starts: np.ndarray) -> np.ndarray:
    """On-demand hours that a planner with the whole trace pays, at the usual phases, for each start: a lower bound.

    Dynamic programming over time and work left. It loses no work, and checkpoints cost nothing.
    """
    seconds = {name: phase.seconds for name, phase in cell.phases.items()}
    grid = _GRID_S[cell.hours]
    boot_s = seconds["data"] + seconds["image"] + BOOT_SECONDS
    startup = int((seconds["starting"] + boot_s) // grid)
    work = math.ceil((seconds["training"] - BOOT_SECONDS) / grid)
    steps = int((cell.window_s - seconds["uploading"]) // grid)
    moments = starts[:, None] + grid * np.arange(steps)
    values = np.array(trace.values)
    begin = np.searchsorted(trace.times, moments, side="right") - 1
    end = np.searchsorted(trace.times, moments + grid - 1e-6, side="right") - 1
    available = values[begin] | values[end]
    shape = (len(starts), work + 1)
    idle = np.full(shape, math.inf)
    idle[:, 0] = 0.0
    spot = idle.copy()
    spot[:, 0] = 0.0
    demand = spot.copy()
    later: list[tuple[np.ndarray, np.ndarray]] = []
    for step in range(steps - 1, -1, -1):
        later.append((spot, demand))
        here = available[:, step, None]
        on_spot, on_demand = np.full(shape, math.inf), np.full(shape, math.inf)
        on_spot[:, 1:] = np.where(here, spot[:, :-1] + grid * SPOT_SHARE, math.inf)
        on_demand[:, 1:] = demand[:, :-1] + grid
        if step + startup <= steps and len(later) >= max(1, startup):
            then_spot, then_demand = later[-max(1, startup)]
            runs = available[:, step : step + startup].all(axis=1)[:, None]
            idle = np.minimum(idle, np.where(runs, then_spot + boot_s * SPOT_SHARE, math.inf))
            idle = np.minimum(idle, then_demand + boot_s)
        idle[:, 0] = 0.0
        spot, demand = np.minimum(on_spot, idle), np.minimum(on_demand, idle)
        spot[:, 0] = demand[:, 0] = 0.0
    return (idle[:, work] + seconds["uploading"] * SPOT_SHARE) / 3600


def read(path: Path) -> list[Trace]:
    """The traces of a CSV. Capacity is there when all nodes of the trace are."""
    traces = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            nodes = int(row["trace"].split("/")[1].partition("-")[0])
            runs = (map(int, run.split("x")) for run in row["available_instances_run_lengths"].split())
            traces.append(_trace(row["trace"], float(row["gap_seconds"]), ((n >= nodes, k) for n, k in runs)))
    return traces


def synthetic(count: int) -> list[Trace]:
    """Traces whose spells of capacity and of none are drawn from heavy-tailed distributions."""
    traces = []
    for number in range(count):
        chance = random.Random(number)
        up, down = chance.uniform(1.0, 5.0), chance.uniform(1.0, 5.0)
        spells = (
            (index % 2 == 0, 1 + int(10 * chance.weibullvariate((up, down)[index % 2], 0.6))) for index in range(60)
        )
        traces.append(_trace(f"synthetic {number}", 360.0, spells))
    return traces


def _trace(name: str, gap_s: float, runs: Iterator[tuple[bool, int]]) -> Trace:
    times: list[float] = []
    values: list[bool] = []
    readings = 0
    for value, count in runs:
        if not values or values[-1] != value:
            times.append(readings * gap_s)
            values.append(value)
        readings += count
    return Trace(name, times, values, readings * gap_s)


@dataclass(frozen=True)
class Row:
    """Results of one policy: dollars against the planner with the trace and on demand, and shares that are late."""

    ratio: float
    of_on_demand: float
    late: float
    late_against: float


def compare(cell: Cell, traces: Sequence[Trace], every_s: float, policies: Sequence[str]) -> dict[str, Row]:
    """Results of all policies over all starts of all traces, `every_s` seconds apart."""
    hours: dict[str, list[float]] = {name: [] for name in policies}
    late: dict[str, list[bool]] = {name: [] for name in policies}
    best: list[float] = []
    for trace in traces:
        starts = np.arange(0.0, trace.end - cell.window_s, every_s)
        for some in np.array_split(starts, max(1, len(starts) // 500)):
            best += with_the_trace(cell, trace, some).tolist() if len(some) else []
        for name in policies:
            for start in starts:
                outcome = POLICIES[name](Job(cell, trace, float(start)))
                hours[name].append(outcome.hours)
                late[name].append(outcome.seconds > cell.window_s)
    rows = {}
    for name in policies:
        in_time = [is_late for is_late, alone in zip(late[name], late["on demand only"], strict=True) if not alone]
        rows[name] = Row(
            ratio=sum(hours[name]) / sum(best),
            of_on_demand=sum(hours[name]) / sum(hours["on demand only"]),
            late=sum(late[name]) / len(late[name]),
            late_against=sum(in_time) / max(1, len(in_time)),
        )
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--traces", type=Path, help="CSV with columns trace, gap_seconds, available_instances_run_lengths"
    )
    parser.add_argument("--every", type=float, default=600.0, help="seconds between two starts")
    parser.add_argument("--hours", type=float, nargs="*", default=[1.0, 4.0, 12.0], choices=list(_GRID_S))
    parser.add_argument(
        "--all", action="store_true", help="judge by all traces, also those that constants are chosen on"
    )
    options = arguments.parse(parser, every=14_400.0, hours=[1.0, 4.0])
    traces = read(options.traces) if options.traces else synthetic(6)
    judged = traces if options.all or not options.traces else traces[1::2]
    lines = []
    for hours, slack in itertools.product(options.hours, (0.2, 0.5)):
        rows = compare(Cell(hours, slack), judged, options.every, list(POLICIES))
        for name, row in rows.items():
            figures = (f"{row.ratio:.2f}", f"{row.of_on_demand:.2f}", f"{row.late:.1%}", f"{row.late_against:.1%}")
            lines.append((f"{hours:g} h, slack {slack:.0%}", name, *figures))
            print("#", *lines[-1], sep="  ", flush=True)
    header = ("job", "policy", "dollars / planner", "dollars / on demand", "late", "late, not so on demand alone")
    source = f"{len(judged)} of {len(traces)} traces of EC2 spot capacity" if options.traces else "synthetic traces"
    about = (
        f"Simulated {published.conditions('paretune', 'numpy')}, {source}, a start every {options.every:g} s, "
        f"finish_confidence {CONFIDENCE}, training within {_ESTIMATE_ERROR:.0%} of its estimate (one deviation):"
    )
    print(published.block("deadline", [about, "", *published.table(header, lines)]))


if __name__ == "__main__":
    main()
