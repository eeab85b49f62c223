"""Compare the phases and bills of public SageMaker jobs with those that paretune expects and records.

    python benchmarks/public_jobs.py TIMELINES                # the folder with timelines.csv and describe/
    python benchmarks/public_jobs.py TIMELINES --fit          # also writes src/paretune/estimating/phases.csv

Each repository is left out in turn: the phases are fitted to the other repositories, and the jobs of the repository
that are inside the 80 % intervals are counted. Bills are computed to the second from the transitions in AWS's answers.
The part `bounds` (public_job_bounds.py) simulates studies that have budgets with these jobs.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import pandas as pd
import public_job_bounds
import published

from paretune.core.noise import Z80
from paretune.estimating.phases import UsualSeconds, usual, usual_of_row
from paretune.launchers.transitions import FINAL, seconds_since_epoch

PROGRAM = Path(__file__).parents[1] / "src" / "paretune" / "estimating" / "phases.csv"
KINDS = ("any", "cpu", "gpu", "multi_gpu")
NAMES = [
    *("phase", "kind", "median_seconds", "between", "within", "most_seconds", "longest_seconds"),
    *("jobs", "repositories"),
]
COLUMNS = {
    "starting": "seconds_starting",
    "data": "seconds_downloading_data",
    "image": "seconds_downloading_image",
    "uploading": "seconds_uploading",
}
_WAIT = "seconds_pending_capacity"
_BETWEEN, _WITHIN = (0.2, 0.3, 0.4, 0.55, 0.75, 1.0), (0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
_OF_A_KIND = 0.6  # prior standard deviation of a kind's mean logarithm around the mean of all kinds
_MANY_JOBS = 5  # fewest jobs of a repository for which a line is printed
_POLL_S = 35  # the SDK polls every 30 s and prints the time of its poll
_PENDING_SINCE = "2024"  # SageMaker has printed Pending since then
_JOBS_FOR_A_QUANTILE = 22  # with this many jobs, the longest wait exceeds the 90 % quantile with 90 % probability
_GPUS = {"gpu", "multi_gpu"}
_ALIKE = {"any": set(KINDS), "cpu": {"cpu"}, "gpu": _GPUS, "multi_gpu": _GPUS}  # kinds whose jobs are counted together


@dataclass(frozen=True, kw_only=True)
class PhaseFit:
    """The mean logarithm of seconds by kind, and its standard deviations between repositories and within one."""

    means: Mapping[str, float]
    between: float
    within: float


def with_exact_phases(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with exact phases, without serverless jobs, and without warm pools, which start at once."""
    is_other = rows["note"].str.contains("Found matching resource") | rows["framework"].str.contains("serverless")
    return rows[(rows["coarse"] != "yes") & ~is_other]


def fit(jobs: pd.DataFrame, column: str, deviations: tuple[float, float] | None = None) -> PhaseFit:
    """Fit the logarithms of one column: a common mean, a mean per kind near it, and a mean per repository near that.

    If the standard deviations between and within repositories are not given, the most likely ones are chosen.
    """
    jobs = jobs[jobs[column] > 0]
    logs, repositories = np.log(jobs[column].to_numpy()), jobs["repository"].to_numpy()
    kinds = np.array([np.ones(len(jobs)), *(jobs["kind"] == kind for kind in KINDS[1:])], dtype=float).T
    same, alone = (repositories[:, None] == repositories).astype(float), np.eye(len(jobs))
    prior = np.diag([9.0, *[_OF_A_KIND**2] * (len(KINDS) - 1)])
    center = logs.mean()

    def likelihood(pair: tuple[float, float]) -> float:
        covariance = same * pair[0] ** 2 + alone * pair[1] ** 2 + kinds @ prior @ kinds.T
        _, determinant = np.linalg.slogdet(covariance)
        return -float((logs - center) @ np.linalg.solve(covariance, logs - center) + determinant)

    between, within = deviations or max(product(_BETWEEN, _WITHIN), key=likelihood)
    precision = np.linalg.inv(same * between**2 + alone * within**2)
    means = np.linalg.solve(kinds.T @ precision @ kinds + np.linalg.inv(prior), kinds.T @ precision @ (logs - center))
    by_kind = {kind: float(center + means[0] + (means[at] if at else 0.0)) for at, kind in enumerate(KINDS)}
    return PhaseFit(means=by_kind, between=between, within=within)


def coverage(jobs: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return, for each repository, how many jobs it has, and how many are inside the interval of a fit without it."""
    jobs = jobs[jobs[column] > 0]
    whole, inside = fit(jobs, column), dict[object, tuple[int, int]]()
    for repository, held_out in jobs.groupby("repository", sort=False):
        fitted = fit(jobs[jobs["repository"] != repository], column, (whole.between, whole.within))
        off = np.abs(np.log(held_out[column]) - held_out["kind"].map(fitted.means))
        inside[repository] = int((off <= Z80 * math.hypot(fitted.between, fitted.within)).sum()), len(held_out)
    return pd.DataFrame.from_dict(inside, orient="index", columns=["inside", "jobs"])


def waiting_rows(jobs: pd.DataFrame, longest_wait_s: float) -> Iterable[dict[str, object]]:
    """Yield the rows of waits in phases.csv. A kind with too few jobs for a quantile gets the longest wait of all."""
    since = jobs[(jobs["date"] >= _PENDING_SINCE) & jobs[["seconds_starting", _WAIT]].notna().any(axis=1)]
    for kind in KINDS:
        waits = since.loc[since["kind"].isin(_ALIKE[kind]), _WAIT].fillna(0.0)
        most = float(np.quantile(waits, 0.9, method="higher")) if len(waits) >= _JOBS_FOR_A_QUANTILE else longest_wait_s
        row = {"phase": "waiting", "kind": kind, "median_seconds": 0, "jobs": len(waits)}
        yield row | {"most_seconds": round(most if any(waits) else 0.0), "longest_seconds": round(longest_wait_s)}


def phase_rows(jobs: pd.DataFrame, phase: str) -> Iterable[dict[str, object]]:
    """Yield the rows of a phase in phases.csv."""
    column = COLUMNS[phase]
    jobs = jobs[jobs[column] > 0]
    fitted = fit(jobs, column)
    for kind in KINDS:
        of_kind = jobs if kind == "any" else jobs[jobs["kind"] == kind]
        longest = jobs.loc[jobs["kind"].isin(_ALIKE[kind]), column].max()
        yield {
            "phase": phase,
            "kind": kind,
            "median_seconds": round(math.exp(fitted.means[kind]), 1),
            "between": fitted.between,
            "within": fitted.within,
            "longest_seconds": 0.0 if math.isnan(longest) else float(longest),
            "jobs": len(of_kind),
            "repositories": of_kind["repository"].nunique(),
        }


def uploads_without(repository: str, jobs: pd.DataFrame) -> Mapping[tuple[str, str], UsualSeconds]:
    """Return the seconds of uploads that paretune would expect without the jobs of one repository."""
    rows = phase_rows(jobs[jobs["repository"] != repository], "uploading")
    texts = [dict.fromkeys(NAMES, "") | {name: str(value) for name, value in row.items()} for row in rows]
    return {(row["phase"], row["kind"]): usual_of_row(row) for row in texts}


def print_coverage(jobs: pd.DataFrame) -> None:
    """Print the share of held-out jobs inside the intervals, by phase, and for each repository with many jobs."""
    rows = []
    for phase, column in COLUMNS.items():
        inside = coverage(jobs, column)
        share = f"{inside['inside'].sum() / inside['jobs'].sum():.0%}"
        rows.append([f"`{phase}`", str(inside["jobs"].sum()), str(len(inside)), share])
        for name, row in inside[inside["jobs"] >= _MANY_JOBS].iterrows():
            print(f"{phase}: {row['inside']} of {row['jobs']} inside for {name}, left out")
    header = ["phase", "jobs", "repositories", "inside the 80 % interval"]
    print(published.block("public_jobs", published.table(header, rows)))


def print_uploads(jobs: pd.DataFrame, uploads: Callable[[str], Mapping[tuple[str, str], UsualSeconds]]) -> None:
    """Print how many uploads of scripts were within the bound that follows from the other repositories."""
    seen = jobs[jobs["seconds_uploading"] > 0]
    groups = zip(seen["repository"], seen["kind"], strict=True)
    bounds = [uploads(repository)["uploading", kind].bound for repository, kind in groups]
    beyond = seen[seen["seconds_uploading"] > bounds]
    names = ", ".join(f"{job.id} ({job.seconds_uploading:.0f} s)" for job in beyond.itertuples())
    print(
        f"uploads within the bound of scripts: {len(seen) - len(beyond)} of {len(seen)}; beyond it: {names or 'none'}"
    )


def billed_seconds(answer: Mapping[str, Any]) -> int:
    """Return the seconds from the first download to the end of a job; both times are truncated to whole seconds."""
    steps = answer["SecondaryStatusTransitions"]
    begin = next(step for step in steps if step["Status"] == "Downloading")
    return int(seconds_since_epoch(steps[-1]["StartTime"]) or 0) - int(seconds_since_epoch(begin["StartTime"]) or 0)


def print_confirmed(folder: Path, rows: pd.DataFrame) -> None:
    """Print how many public jobs show each behavior of AWS on which the code relies."""
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "describe").glob("*.json"))]
    statuses = [[step.get("Status") for step in answer.get("SecondaryStatusTransitions") or ()] for answer in answers]
    ended = [(answer, passed) for answer, passed in zip(answers, statuses, strict=True) if FINAL.intersection(passed)]
    exact = [answer for answer, _ in ended if answer.get("TrainingTimeInSeconds") is not None]
    billed = sum(billed_seconds(answer) == answer["TrainingTimeInSeconds"] for answer in exact)
    in_order = sum(passed == ["Starting", "Downloading", "Training", "Uploading", "Completed"] for _, passed in ended)
    spot = sum(bool(answer.get("EnableManagedSpotTraining")) for answer in exact)
    billable, training = rows["billable_seconds_printed"], rows["training_seconds_printed"]
    cheaper = ((billable > 0) & (billable < training)).sum()
    several = rows[billable.notna() & training.notna() & (rows["instance_count"] > 1) & rows[_WHOLE].notna()]
    off = several["training_seconds_printed"] / several["instance_count"] - several[_WHOLE]
    failed = rows[(rows["status"] == "Failed") & rows["seconds_training"].notna()]
    pulled = (rows["seconds_downloading_image"].notna() & (rows["date"] >= "2024")).sum()
    table = {
        "a finished job went from `Starting` over `Downloading`, `Training` and `Uploading` to its end": (
            f"{in_order} of {len(ended)}"
        ),
        "billed: whole seconds from the first `Downloading` to the end, with image and upload": (
            f"{billed} of {len(exact)}"
        ),
        "on a cluster these seconds are billed for each instance": f"{(off.abs() <= _POLL_S).sum()} of {len(several)}",
        "a failed job goes through `Uploading`": f"{failed['seconds_uploading'].notna().sum()} of {len(failed)}",
        "the billable seconds of a spot job are fewer than its training seconds": str(spot + cheaper),
        "`Pending` while a job waits for capacity (since 2024)": str(rows[_WAIT].notna().sum()),
        "the pull of the image is part of `Downloading` (since 2024)": str(pulled),
        "a warm pool starts the next job at once": str(rows["note"].str.contains("Found matching resource").sum()),
    }
    print(published.block("met_aws", published.table(["behavior", "public jobs"], table.items())))


_WHOLE = "billed_start_to_end"


def main() -> None:
    """Compare and simulate the public jobs, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with timelines.csv and describe/")
    parser.add_argument("--count", type=int, default=7000, help="simulated jobs of studies with budgets")
    parser.add_argument("--fit", action="store_true", help="write estimating/phases.csv from these jobs")
    options = arguments.parse(parser, folder=None, count=200)
    if options.folder is None and not options.small:
        sys.exit("give the folder with timelines.csv and describe/, or --small")
    rows = public_job_bounds.read(*([] if options.folder is None else [options.folder / "timelines.csv"]))
    jobs = with_exact_phases(rows)
    if options.fit:
        fitted = [*waiting_rows(jobs, rows[_WAIT].max()), *(row for name in COLUMNS for row in phase_rows(jobs, name))]
        pd.DataFrame(fitted, columns=NAMES, dtype=object).to_csv(PROGRAM, index=False)

    @cache
    def uploads(repository: str) -> Mapping[tuple[str, str], UsualSeconds]:
        return {
            **{("uploading", kind): usual("uploading", kind) for kind in KINDS},
            **uploads_without(repository, jobs),
        }

    public_job_bounds.print_bounds(public_job_bounds.played(rows), uploads, options.count)
    if options.folder is not None:
        print_coverage(jobs)
        print_uploads(jobs, uploads)
        print_confirmed(options.folder, rows)


if __name__ == "__main__":
    main()
