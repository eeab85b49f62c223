"""Do phases and bills of public SageMaker jobs agree with what paretune foresees and books?

    python benchmarks/public_jobs.py TIMELINES                # the folder with timelines.csv and describe/
    python benchmarks/public_jobs.py TIMELINES --new          # other jobs than phases.csv is from judge it
    python benchmarks/public_jobs.py TIMELINES --fit          # also writes src/paretune/estimating/phases.csv

Each repository is left out in turn: the phases are fitted to the others, and the share of its jobs inside the 80 %
intervals is counted. Bills follow from the transitions of the answers, to the second. A row that cannot be, such as one
with negative seconds, is named and left out. `bounds` (public_job_bounds.py) plays the jobs against budgets.
"""

import argparse
import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import public_job_bounds
import published

from paretune.estimating.phases import FINAL, UsualSeconds, kind_of, read_phases, usual, usual_of_row
from paretune.specification.catalog import instances

REPOSITORY = Path(__file__).parents[1]
PROGRAM = REPOSITORY / "src" / "paretune" / "estimating" / "phases.csv"
KINDS = ("any", "cpu", "gpu", "multi_gpu")
NAMES = [
    "phase",
    "kind",
    "median_seconds",
    "between",
    "within",
    "most_seconds",
    "longest_seconds",
    "jobs",
    "repositories",
]
COLUMNS = {
    "starting": "seconds_starting",
    "data": "seconds_downloading_data",
    "image": "seconds_downloading_image",
    "uploading": "seconds_uploading",
}
Z80 = 1.2816
_CPU = re.compile(r"ml\.[mctr]\d")  # instance types that AWS has withdrawn are in no catalogue
_MULTIPLE = re.compile(r"ml\.(p2|p3)\.(8|16)xlarge|ml\.p3dn\.24xlarge")
_BETWEEN, _WITHIN = (0.2, 0.3, 0.4, 0.55, 0.75, 1.0), (0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
_OF_A_KIND = 0.6  # prior standard deviation of a kind's logarithm against all kinds'
_MANY_JOBS = 5  # of a repository whose share is printed
_POLL_S = 35  # the SDK polls every 30 s and prints the time of its poll
_PENDING_SINCE = "2024"  # SageMaker prints Pending since then
_JOBS_FOR_A_QUANTILE = 22  # of so many jobs, the longest wait exceeds the 90 % quantile with 90 % probability
_GPUS = {"gpu", "multi_gpu"}
_ALIKE = {"any": set(KINDS), "cpu": {"cpu"}, "gpu": _GPUS, "multi_gpu": _GPUS}  # where a kind has few jobs


@dataclass(frozen=True, kw_only=True)
class PublicJob:
    """One row of timelines.csv: repository, year, kind of instance and seconds by column."""

    name: str
    repository: str
    date: str
    kind: str
    seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class PhaseFit:
    """Logarithms of seconds by kind, and their deviations between repositories and within one."""

    means: Mapping[str, float]
    between: float
    within: float

    def has_inside(self, seconds: float, kind: str) -> bool:
        """Return whether the 80 % interval of a kind holds so many seconds."""
        return abs(math.log(seconds) - self.means[kind]) <= Z80 * math.hypot(self.between, self.within)


def kind_of_type(instance_type: str) -> str:
    """Return the kind of an instance type, also of one that AWS has withdrawn; `any` without a type."""
    if not instance_type:
        return "any"
    if instance_type in instances():
        return kind_of(instances()[instance_type])
    return "cpu" if _CPU.match(instance_type) else "multi_gpu" if _MULTIPLE.match(instance_type) else "gpu"


def read_jobs(path: Path, say: Callable[[str], None] = print) -> list[PublicJob]:
    """Read the rows with exact phases: no warm pools, which start at once, and no serverless jobs."""
    jobs = []
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), start=2):
            name = row.get("id") or f"line {number}"
            is_other = "Found matching resource" in (row.get("note") or "") or "serverless" in (
                row.get("framework") or ""
            )
            if row.get("coarse") == "yes" or is_other:
                continue
            seconds = {}
            for column, text in row.items():
                if not str(column).startswith("seconds_") or not text:
                    continue
                value = _number(text)
                if value is None or (value < 0 and column in COLUMNS.values()):
                    say(f"{name}: {column} cannot be {text!r}: left out")
                else:
                    seconds[column] = value
            source = (row.get("source") or name).partition("@")[0]
            owner, _, rest = source.partition("/")
            repository = f"{owner}/{re.split('[/:]', rest)[0]}"
            kind = kind_of_type(row.get("instance_type") or "")
            jobs.append(
                PublicJob(name=name, repository=repository, date=row.get("date") or "", kind=kind, seconds=seconds)
            )
    return jobs


def fit(jobs: Sequence[PublicJob], column: str, deviations: tuple[float, float] | None = None) -> PhaseFit:
    """Fit the logarithms of one column: a mean of all, one of each kind near it, and one of each repository near that.

    The two deviations are those of the highest likelihood, unless they are given.
    """
    rows = [job for job in jobs if job.seconds.get(column, 0.0) > 0]
    logs = np.log([job.seconds[column] for job in rows])
    kinds = np.array([[1.0, *(job.kind == kind for kind in KINDS[1:])] for job in rows])
    same = np.array([[row.repository == other.repository for other in rows] for row in rows], dtype=float)
    prior = np.diag([9.0, *[_OF_A_KIND**2] * (len(KINDS) - 1)])
    centre = logs.mean()

    def likelihood(pair: tuple[float, float]) -> float:
        covariance = same * pair[0] ** 2 + np.eye(len(rows)) * pair[1] ** 2 + kinds @ prior @ kinds.T
        _, determinant = np.linalg.slogdet(covariance)
        return -float((logs - centre) @ np.linalg.solve(covariance, logs - centre) + determinant)

    between, within = deviations or max(product(_BETWEEN, _WITHIN), key=likelihood)
    precision = np.linalg.inv(same * between**2 + np.eye(len(rows)) * within**2)
    means = np.linalg.solve(kinds.T @ precision @ kinds + np.linalg.inv(prior), kinds.T @ precision @ (logs - centre))
    by_kind = {kind: float(centre + means[0] + (means[at] if at else 0.0)) for at, kind in enumerate(KINDS)}
    return PhaseFit(means=by_kind, between=between, within=within)


def coverage(jobs: Sequence[PublicJob], column: str) -> dict[str, tuple[int, int]]:
    """Return for each repository, left out of the fit, how many of its jobs lie inside, and how many there are."""
    measured = [job for job in jobs if job.seconds.get(column, 0.0) > 0]
    whole = fit(measured, column)
    inside: dict[str, tuple[int, int]] = {}
    for repository in dict.fromkeys(job.repository for job in measured):
        others = [job for job in measured if job.repository != repository]
        held_out = [job for job in measured if job.repository == repository]
        fitted = fit(others, column, (whole.between, whole.within))
        inside[repository] = (
            sum(fitted.has_inside(job.seconds[column], job.kind) for job in held_out),
            len(held_out),
        )
    return inside


def coverage_of_program(jobs: Sequence[PublicJob], phase: str) -> dict[str, tuple[int, int]]:
    """Return for each repository how many of its jobs lie inside the program's intervals, and how many there are."""
    inside: dict[str, tuple[int, int]] = {}
    for job in jobs:
        if (seconds := job.seconds.get(COLUMNS[phase], 0.0)) > 0:
            interval, (hits, count) = usual(phase, job.kind), inside.get(job.repository, (0, 0))
            is_hit = interval.seconds_low <= seconds <= interval.seconds_high
            inside[job.repository] = hits + is_hit, count + 1
    return inside


def waiting_rows(jobs: Sequence[PublicJob], longest_wait_s: float) -> Iterable[dict[str, object]]:
    """Yield the rows of waits in phases.csv; a kind with too few for a quantile has the longest of all jobs."""
    columns = {"seconds_starting", "seconds_pending_capacity"}
    since = [job for job in jobs if job.date[:4] >= _PENDING_SINCE and columns & job.seconds.keys()]
    for kind in KINDS:
        waits = [job.seconds.get("seconds_pending_capacity", 0.0) for job in since if job.kind in _ALIKE[kind]]
        most = float(np.quantile(waits, 0.9, method="higher")) if len(waits) >= _JOBS_FOR_A_QUANTILE else longest_wait_s
        row = {"phase": "waiting", "kind": kind, "median_seconds": 0, "jobs": len(waits)}
        yield row | {"most_seconds": round(most if any(waits) else 0.0), "longest_seconds": round(longest_wait_s)}


def phase_rows(jobs: Sequence[PublicJob], phase: str) -> Iterable[dict[str, object]]:
    """Yield the rows of a phase in phases.csv."""
    column = COLUMNS[phase]
    fitted = fit(jobs, column)
    seen = [job for job in jobs if job.seconds.get(column, 0.0) > 0]
    for kind in KINDS:
        alike = [job for job in seen if kind in ("any", job.kind)]
        longest = max((job.seconds[column] for job in seen if job.kind in _ALIKE[kind]), default=0.0)
        yield {
            "phase": phase,
            "kind": kind,
            "median_seconds": round(math.exp(fitted.means[kind]), 1),
            "between": fitted.between,
            "within": fitted.within,
            "longest_seconds": longest,
            "jobs": len(alike),
            "repositories": len({job.repository for job in alike}),
        }


def uploads_without(repository: str, jobs: Sequence[PublicJob]) -> Mapping[tuple[str, str], UsualSeconds]:
    """Return the uploads that the program would expect if one repository had not been read."""
    others = [job for job in jobs if job.repository != repository and job.seconds.get(COLUMNS["uploading"], 0.0) > 0]
    rows = phase_rows(others, "uploading") if others else ()
    texts = [dict.fromkeys(NAMES, "") | {name: str(value) for name, value in row.items()} for row in rows]
    return {(row["phase"], row["kind"]): usual_of_row(row) for row in texts}


def longest_wait_s(path: Path) -> float:
    """Return the longest wait for capacity that any public job prints, serverless ones included."""
    with path.open(encoding="utf-8", newline="") as lines:
        return max((_number(row.get("seconds_pending_capacity")) or 0.0 for row in csv.DictReader(lines)), default=0.0)


def print_coverage(jobs: Sequence[PublicJob], *, are_new: bool) -> None:
    """Print the share of held-out jobs inside the intervals, by phase and by repository with most jobs.

    If they `are_new`, the intervals are those of the program.
    """
    lines = ["| phase | jobs | repositories | inside the 80 % interval |", "| --- | ---: | ---: | ---: |"]
    for phase, column in COLUMNS.items():
        inside = coverage_of_program(jobs, phase) if are_new else coverage(jobs, column)
        if not inside:
            continue
        hits, count = (sum(pair[at] for pair in inside.values()) for at in (0, 1))
        lines.append(f"| `{phase}` | {count} | {len(inside)} | {hits / count:.0%} |")
        for name, (hit, total) in inside.items():
            if total >= _MANY_JOBS:
                print(f"{phase}: {hit} of {total} inside for {name}, left out")
    print(published.block("public_jobs", lines))


def print_uploads(jobs: Sequence[PublicJob], uploads: Callable[[str], Mapping[tuple[str, str], UsualSeconds]]) -> None:
    """Print how many uploads of scripts stay within the bound that follows without their repository."""
    seen = [job for job in jobs if job.seconds.get(COLUMNS["uploading"], 0.0) > 0]
    beyond = [
        job for job in seen if job.seconds[COLUMNS["uploading"]] > uploads(job.repository)["uploading", job.kind].bound
    ]
    names = ", ".join(f"{job.name} ({job.seconds[COLUMNS['uploading']]:.0f} s)" for job in beyond)
    print(
        f"uploads within the bound of scripts: {len(seen) - len(beyond)} of {len(seen)}; beyond it: {names or 'none'}"
    )


def _has_ended(answer: dict[str, Any]) -> bool:
    return any(item.get("Status") in FINAL for item in answer.get("SecondaryStatusTransitions") or ())


def print_confirmed(folder: Path) -> None:
    """Print how many public jobs are behind each behaviour of AWS that the code relies on."""
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "describe").glob("*.json"))]
    with (folder / "timelines.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    finished = [answer for answer in answers if _has_ended(answer)]
    exact = [answer for answer in finished if answer.get("TrainingTimeInSeconds") is not None]
    billed = [answer for answer in exact if read_phases(answer).billed_seconds == answer["TrainingTimeInSeconds"]]
    order = ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    in_order = [
        answer for answer in finished if [step["Status"] for step in answer["SecondaryStatusTransitions"]] == order
    ]
    spot = [answer for answer in exact if answer.get("EnableManagedSpotTraining")]
    dates = {"Pending": "seconds_pending_capacity", "image": "seconds_downloading_image"}
    with_phase = {name: [row for row in rows if row[column]] for name, column in dates.items()}
    since = [row for row in with_phase["image"] if row["date"] >= "2024"]

    def seconds(row: Mapping[str, str], column: str) -> float:
        return _number(row[column]) or 0.0

    printed = [row for row in rows if row["billable_seconds_printed"] and row["training_seconds_printed"]]
    cheaper = [
        row
        for row in printed
        if 0 < seconds(row, "billable_seconds_printed") < seconds(row, "training_seconds_printed")
    ]
    several = [row for row in printed if seconds(row, "instance_count") > 1 and row["billed_start_to_end"]]
    times_count = [row for row in several if _is_billed_per_instance(row)]
    failed = [row for row in rows if row["status"] == "Failed" and row["seconds_training"]]
    uploaded = [row for row in failed if row["seconds_uploading"]]
    reused = [row for row in rows if "Found matching resource" in row["note"]]
    table = [
        (
            "a finished job went from `Starting` over `Downloading`, `Training` and `Uploading` to its end",
            finished,
            in_order,
        ),
        ("billed: whole seconds from the first `Downloading` to the end, with image and upload", exact, billed),
        ("on a cluster these seconds are billed for each instance", several, times_count),
        ("a failed job goes through `Uploading`", failed, uploaded),
        ("the billable seconds of a spot job are fewer than its training seconds", None, [*spot, *cheaper]),
        ("`Pending` while a job waits for capacity (since 2024)", None, with_phase["Pending"]),
        ("the pull of the image is part of `Downloading` (since 2024)", None, since),
        ("a warm pool starts the next job at once", None, reused),
    ]
    counts = [
        (behaviour, str(len(jobs)) if of is None else f"{len(jobs)} of {len(of)}") for behaviour, of, jobs in table
    ]
    print(published.block("met_aws", published.table(["behaviour", "public jobs"], counts)))


def _is_billed_per_instance(row: Mapping[str, str]) -> bool:
    """Return whether the printed seconds of a cluster are those of its phases, times its instances."""
    seconds, count, whole = (
        _number(row[name]) or 0.0 for name in ("training_seconds_printed", "instance_count", "billed_start_to_end")
    )
    return abs(seconds / count - whole) <= _POLL_S


def print_bill_of_rows(jobs: Sequence[PublicJob], path: Path) -> None:
    """Print how far the printed phases of console jobs add up to their printed training seconds."""
    errors = []
    names = {job.name for job in jobs}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            whole, printed = _number(row.get("billed_start_to_end")), _number(row.get("training_seconds_printed"))
            if row.get("id") in names and whole and printed:
                errors.append(abs(whole - printed))
    if errors:
        near = sum(error <= _POLL_S for error in errors)
        print(f"console jobs whose printed phases add up to the printed seconds within 35 s: {near} of {len(errors)}")


def _number(text: object) -> float | None:
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def main() -> None:
    """Replay the public jobs and print what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with timelines.csv and describe/")
    parser.add_argument("--count", type=int, default=7000, help="simulated jobs that ask for a part of a budget")
    parser.add_argument("--new", action="store_true", help="phases.csv is not from these jobs: judge it as it is")
    parser.add_argument("--fit", action="store_true", help="write estimating/phases.csv from these jobs")
    options = arguments.parse(parser, folder=None, count=200)
    if options.folder is None and not options.small:
        sys.exit("give the folder with timelines.csv and describe/, or --small")
    timelines = public_job_bounds.JOBS if options.folder is None else options.folder / "timelines.csv"
    if not timelines.is_file():
        sys.exit(f"there is no file {timelines}: name the folder with timelines.csv and describe/")
    jobs = read_jobs(timelines)
    if options.fit:
        rows = [*waiting_rows(jobs, longest_wait_s(timelines))]
        rows += [row for phase in COLUMNS for row in phase_rows(jobs, phase)]
        with PROGRAM.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, NAMES, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    played, faults = public_job_bounds.read_jobs(timelines, kind_of_type)
    for fault in faults:
        print(fault)
    program = {("uploading", kind): usual("uploading", kind) for kind in KINDS}

    @cache
    def uploads(repository: str) -> Mapping[tuple[str, str], UsualSeconds]:
        return program if options.new else {**program, **uploads_without(repository, jobs)}

    public_job_bounds.print_bounds(played, uploads, options.count)
    if options.folder is not None:
        print_bill_of_rows(jobs, timelines)
        print_coverage(jobs, are_new=options.new)
        print_uploads(jobs, uploads)
        print_confirmed(options.folder)


if __name__ == "__main__":
    main()
