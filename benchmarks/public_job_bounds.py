"""Simulates studies with budgets whose jobs have the phases of public jobs: the part `bounds` of public_jobs.py.

Public jobs run scripts, so they are simulated as scripts. The jobs of a study come from one notebook of one repository.
The maximum runtime of a job is 0.8 to 1.5 times the time that it needs before its upload. The budget of a study is 0.3
to 1.2 times the bill of all its jobs, plus twice the bill of the most expensive one. The bounds of uploads are fitted
to the other repositories. Uploads take as long as in the public jobs, whose uploads were packed and had every
checkpoint. paretune itself packs only small uploads and leaves checkpoints out. Nothing is launched.
"""

import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

import pandas as pd

from paretune.estimating import phases
from paretune.estimating.architecture import well_known
from paretune.launchers.deadlines import output_of
from paretune.pricing import Balance, PriceList
from paretune.specification.catalog import instances
from paretune.specification.job import JobSpec

JOBS = Path(__file__).parent / "tables" / "public_jobs.csv"
TEN_MINUTES_S = (480.0, 720.0)
JOBS_OF_A_STUDY = 20
AT_ONCE = 4
_OF_A_KIND = {"any": "ml.g5.xlarge", "cpu": "ml.m5.xlarge", "gpu": "ml.g5.xlarge", "multi_gpu": "ml.g5.12xlarge"}
_CPU = re.compile(r"ml\.[mctr]\d")  # instance types that AWS has withdrawn are in no catalog
_MULTIPLE = re.compile(r"ml\.(p2|p3)\.(8|16)xlarge|ml\.p3dn\.24xlarge")

Table = Mapping[tuple[str, str], phases.UsualSeconds]


@dataclass(frozen=True, kw_only=True)
class PublicJob:
    """One real job, with the seconds of its phases on each instance."""

    id: str
    repository: str
    notebook: str
    instance_type: str
    instance_count: int
    kind: str
    model: str
    downloading_s: float
    training_s: float
    uploading_s: float

    @property
    def before_upload_s(self) -> float:
        """Seconds before the upload, which are billed."""
        return self.downloading_s + self.training_s

    @property
    def billed_s(self) -> float:
        """All billed seconds."""
        return self.before_upload_s + self.uploading_s

    def usd(self, seconds: float) -> float:
        """Return the dollars that its cluster costs for this many seconds."""
        return _usd_per_hour(self.instance_type) * self.instance_count * seconds / 3600


def kind_of_type(instance_type: str) -> str:
    """Return the kind of an instance type, even of one that AWS has withdrawn; `any` if the type is empty."""
    if instance_type in instances():
        return phases.kind_of(instances()[instance_type])
    if not instance_type:
        return "any"
    return "cpu" if _CPU.match(instance_type) else "multi_gpu" if _MULTIPLE.match(instance_type) else "gpu"


def read(path: Path = JOBS) -> pd.DataFrame:
    """Read the table of timelines, and add the repository, the notebook and the kind of instances to each row."""
    if not path.is_file():
        raise SystemExit(f"there is no file {path}: name the folder with timelines.csv and describe/")
    rows = pd.read_csv(path, dtype={"date": str})
    texts = ("date", "note", "framework", "instance_type", "source", "coarse", "model", "status")
    rows = rows.assign(**{name: rows[name].fillna("") if name in rows else "" for name in texts})
    sources = rows["source"].where(rows["source"] != "", rows["id"]).str.partition("@")[0]
    owners, names = sources.str.partition("/")[0], sources.str.partition("/")[2].str.split("[/:]", regex=True).str[0]
    kinds = rows["instance_type"].map(kind_of_type)
    return rows.assign(notebook=sources.str.partition(":")[0], repository=owners + "/" + names, kind=kinds)


def played(rows: pd.DataFrame) -> list[PublicJob]:
    """Return the jobs whose instance type and exact phases are known."""
    is_known = rows[["seconds_training", "seconds_uploading"]].notna().all(axis=1) & (rows["instance_type"] != "")
    rows = rows[is_known & (rows["coarse"] != "yes")]
    return [
        PublicJob(
            id=row["id"],
            repository="/".join(row["notebook"].split("/")[:2]),
            notebook=row["notebook"],
            instance_type=row["instance_type"],
            instance_count=int(row["instance_count"]),
            kind=row["kind"],
            model=row["model"],
            downloading_s=row["seconds_downloading_data"] + row["seconds_downloading_image"],
            training_s=row["seconds_training"],
            uploading_s=row["seconds_uploading"],
        )
        for row in rows.fillna(
            {"seconds_downloading_data": 0, "seconds_downloading_image": 0, "instance_count": 1}
        ).to_dict("records")
    ]


def print_bounds(jobs: Sequence[PublicJob], uploads_without: Callable[[str], Table], count: int) -> None:
    """Simulate `count` jobs in studies with budgets, and print which bounds were exceeded and how much was reserved.

    `uploads_without` returns the usual seconds of uploads, fitted to all repositories but one.
    """
    repositories = list(dict.fromkeys(job.repository for job in jobs))
    print(f"bounds: {count:,} simulated jobs, phases of {len(jobs)} public jobs of {len(repositories)} repositories")
    source = random.Random(0)
    studies = []
    for repository in repositories:
        members = [job for job in jobs if job.repository == repository]
        share = max(1, round(count / JOBS_OF_A_STUDY * len(members) / len(jobs)))
        with mock.patch.object(phases, "_table", return_value=uploads_without(repository)):
            played = [Study(source, members).run() for _ in range(share)]
        over = [job for study in played for job in study.ended if job.is_over]
        exceeded = sum(study.is_exceeded for study in played)
        if exceeded or over:
            names = ", ".join(sorted({f"{job.public.id} ({job.public.uploading_s:.0f} s)" for job in over}))
            print(
                f"  {repository}, left out: {exceeded} of {share} budgets exceeded; jobs beyond their worst case, with "
                f"their upload: {names or 'none'}"
            )
        studies += played
    ended = [job for study in studies for job in study.ended]
    print(f"  jobs admitted                              {len(ended):>8,}")
    print(f"  budgets exceeded                           {sum(s.is_exceeded for s in studies):>8,}   of {len(studies)}")
    print(f"  jobs beyond their worst case               {sum(job.is_over for job in ended):>8,}")
    if ten_minutes := [job for job in ended if TEN_MINUTES_S[0] <= job.billed_s <= TEN_MINUTES_S[1]]:
        median = statistics.median(job.worst_usd / job.cost_usd for job in ten_minutes)
        print(f"  reserved / cost of ten minutes, median     {median:>8.2f}   {len(ten_minutes)} jobs (aim 1.6)")


@dataclass(frozen=True, kw_only=True)
class Played:
    """One simulated job: its billed seconds, its cost and its worst case."""

    public: PublicJob
    spec: JobSpec
    billed_s: float
    cost_usd: float
    worst_usd: float

    @property
    def is_over(self) -> bool:
        """Whether it cost more than its worst case, which was reserved."""
        return self.cost_usd > self.worst_usd + 1e-9


class Study:
    """Draws jobs at random from one notebook, admits them as `study` does, and runs several at once on one budget."""

    def __init__(self, source: random.Random, jobs: Sequence[PublicJob]) -> None:
        notebook = source.choice(sorted({job.notebook for job in jobs}))
        members = [job for job in jobs if job.notebook == notebook]
        self._drawn = [(source.choice(members), source.uniform(0.8, 1.5)) for _ in range(JOBS_OF_A_STUDY)]
        self._exceeded_s: float | None = None  # None until an upload has ended
        usual_usd = [job.usd(job.billed_s) for job, _ in self._drawn]
        self.budget_usd = max(usual_usd) * 2 + source.uniform(0.3, 1.2) * sum(usual_usd)
        self.ended: list[Played] = []

    @property
    def spent_usd(self) -> float:
        """Dollars of all jobs that have ended."""
        return sum(job.cost_usd for job in self.ended)

    @property
    def is_exceeded(self) -> bool:
        """Whether its jobs have cost more than its budget."""
        return self.spent_usd > self.budget_usd + 1e-9

    def run(self) -> "Study":
        """Admit, run and record the jobs. A job is left out if it does not fit even when nothing else runs."""
        running: list[Played] = []
        for job, factor in self._drawn:
            if len(running) == AT_ONCE:
                self._end(running.pop(0))
            while running and not self._covers(self._play(job, factor), running):
                self._end(running.pop(0))
            played = self._play(job, factor)
            if self._covers(played, running):
                running.append(played)
        for played in running:
            self._end(played)
        return self

    def _covers(self, played: Played, running: Sequence[Played]) -> bool:
        committed_usd = sum(other.worst_usd for other in running)
        balance = Balance(spent_usd=self.spent_usd, committed_usd=committed_usd)
        return balance.covers(played.worst_usd, self.budget_usd)

    def _end(self, played: Played) -> None:
        self.ended.append(played)
        over_s = max(
            played.public.uploading_s - output_of(played.spec, {}).longest_upload_s,
            (played.cost_usd - played.public.usd(_worst_s(played.spec))) / played.public.usd(1.0),
        )
        self._exceeded_s = max(self._exceeded_s or 0.0, over_s)

    def _play(self, job: PublicJob, factor: float) -> Played:
        minutes = max(1.0, factor * job.before_upload_s / 60)
        spec = JobSpec(instance_type=_OF_A_KIND[job.kind], max_runtime_minutes=minutes, entry_script=__file__)
        spec = spec if well_known(job.model) is None else spec.replace(model=job.model)
        trained_s = min(job.training_s, output_of(spec, {}).deadline_s)
        extra_s = output_of(spec, {}).first_upload_s if self._exceeded_s is None else self._exceeded_s
        billed_s = job.downloading_s + trained_s + job.uploading_s
        return Played(
            public=job,
            spec=spec,
            billed_s=billed_s,
            cost_usd=job.usd(billed_s),
            worst_usd=job.usd(_worst_s(spec) + extra_s),
        )


def _worst_s(spec: JobSpec) -> float:
    return 60 * spec.max_runtime_minutes + output_of(spec, {}).billed_after_limit_s


@cache
def _usd_per_hour(instance_type: str) -> float:
    """Return the price of an instance type, or 1 USD if it is unknown."""
    price = PriceList.read({}).price(instance_type, "us-east-1")
    return 1.0 if price is None else price.usd_per_hour
