"""Studies on budgets whose jobs take the phases of public jobs: the part `bounds` of public_jobs.py.

Each job has a maximum runtime of 0.8 to 1.5 times what it needs before the upload. The rates in
`estimating/uploading.py` were chosen on the repositories CHOSEN_ON, and the jobs played are of all others. A job of a
model that paretune knows counts as our own training of it, any other as a script; uploads are played as they were,
compressed, although paretune would not compress the larger ones. Nothing is launched or billed.
"""

import csv
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

JOBS = Path(__file__).parent / "tables" / "public_jobs.csv"
CHOSEN_ON = {"aws/amazon-sagemaker-examples", "aws-samples/amazon-sagemaker-generativeai"}
TEN_MINUTES_S = (480.0, 720.0)
JOBS_OF_A_STUDY = 20
AT_ONCE = 4
SEVEN_BILLION = "mistralai/Mistral-7B-v0.1"


@dataclass(frozen=True, kw_only=True)
class PublicJob:
    """The phases of one real job in seconds, per instance; a phase that was not printed makes no job."""

    id: str
    repository: str
    instance_type: str
    instance_count: int
    model: str
    downloading_s: float
    training_s: float
    uploading_s: float

    @property
    def before_upload_s(self) -> float:
        """Billed seconds before the upload."""
        return self.downloading_s + self.training_s

    @property
    def billed_s(self) -> float:
        """All billed seconds."""
        return self.before_upload_s + self.uploading_s


def read_jobs(path: Path) -> tuple[list[PublicJob], list[str]]:
    """The jobs whose phases are known, and a sentence on each row with an impossible phase."""
    jobs, faults = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            texts = [row.get(name) or "" for name in ("seconds_training", "seconds_uploading", "instance_type")]
            if not all(texts) or row.get("coarse") == "yes":
                continue
            names = ("seconds_downloading_data", "seconds_downloading_image")
            try:
                count = int(float(row.get("instance_count") or 1))
                downloading = sum(float(row.get(name) or 0) for name in names)
                training, uploading = float(texts[0]), float(texts[1])
            except ValueError as error:
                faults.append(f"{row.get('id')}: left out, a phase is no number ({error})")
                continue
            if min(downloading, training, uploading) < 0 or training + downloading == 0:
                faults.append(f"{row.get('id')}: left out, a phase has fewer than 0 seconds, or none has any")
                continue
            source = (row.get("source") or "").partition(":")[0]
            job = PublicJob(
                id=row.get("id") or "",
                repository="/".join(source.split("/")[:2]),
                instance_type=texts[2],
                instance_count=count,
                model=row.get("model") or "",
                downloading_s=downloading,
                training_s=training,
                uploading_s=uploading,
            )
            jobs.append(job)
    return jobs, faults


def play(path: Path, count: int) -> None:
    """Read the jobs, name those that are left out, and print what `bounds` does."""
    jobs, faults = read_jobs(path)
    for fault in faults:
        print(fault)
    bounds(jobs, count)


def bounds(jobs: Sequence[PublicJob], count: int) -> None:
    """Play `count` jobs in studies on budgets, and print what was exceeded and how much was reserved."""
    held_out = [job for job in jobs if job.repository not in CHOSEN_ON]
    repositories = {job.repository for job in held_out}
    print(
        f"bounds: {count:,} simulated jobs with phases of {len(held_out)} public jobs of "
        f"{len(repositories)} repositories"
    )
    source = random.Random(0)
    studies = [Study(source, held_out) for _ in range(count // JOBS_OF_A_STUDY)]
    played = [job for study in studies for job in study.play()]
    budgets = sum(study.spent_usd > study.budget_usd + 1e-9 for study in studies)
    over = [job for job in played if job.cost_usd > job.worst_usd + 1e-9]
    print(f"  jobs admitted                              {len(played):>8,}")
    print(f"  budgets exceeded                           {budgets:>8,}   of {len(studies):,}")
    print(f"  jobs beyond their worst case               {len(over):>8,}   {shown_ids(over)}")
    for own, name in ((True, "our own trainings"), (False, "scripts")):
        ratios = [job.worst_usd / job.cost_usd for job in played if job.is_of_ten_minutes and job.is_own is own]
        if ratios:
            median = statistics.median(ratios)
            print(
                f"  reserved / cost of ten minutes, median     {median:>8.2f}   {name}, {len(ratios):,} jobs (aim 1.6)"
            )
    ratios = [job.worst_usd / job.cost_usd for job in played if job.is_of_ten_minutes]
    if ratios:
        print(f"  reserved / cost of ten minutes, median     {statistics.median(ratios):>8.2f}   all, (aim 1.6)")
    share, longest = upload_share_of_7b()
    print(
        f"  expected upload of 7B in two hours         {share:>8.1%}   at most {longest:,.0f} s, p4d.24xlarge (aim 3 %)"
    )


def shown_ids(over: Sequence["Played"]) -> str:
    """The public jobs behind these, by id."""
    return ", ".join(sorted({job.id for job in over}))


@dataclass(frozen=True, kw_only=True)
class Played:
    """One simulated job: its reservation and its cost in USD."""

    id: str
    is_own: bool
    billed_s: float
    worst_usd: float
    cost_usd: float

    @property
    def is_of_ten_minutes(self) -> bool:
        """Whether it was billed 8 to 12 minutes."""
        return TEN_MINUTES_S[0] <= self.billed_s <= TEN_MINUTES_S[1]


class Study:
    """Jobs drawn at random, several at a time, admitted to one budget as `study` admits them."""

    def __init__(self, source: random.Random, jobs: Sequence[PublicJob]) -> None:
        self._drawn = [(source.choice(jobs), source.uniform(0.8, 1.5)) for _ in range(JOBS_OF_A_STUDY)]
        self._exceeded_s = 0.0
        self.spent_usd = 0.0
        usual_usd = [cost_of(job, job.billed_s) for job, _ in self._drawn]
        self.budget_usd = max(usual_usd) * 2 + source.uniform(0.3, 1.2) * sum(usual_usd)

    def play(self) -> Iterator[Played]:
        """Admit, run and book the jobs; one that does not fit ends the study once nothing runs."""
        from paretune.pricing.budget import Balance

        running: list[Played] = []
        for job, factor in self._drawn:
            if len(running) == AT_ONCE:
                yield self._book(running.pop(0))
            played = self._played(job, factor)
            while running and not self._fits(played, running):
                yield self._book(running.pop(0))
            if Balance(spent_usd=self.spent_usd, committed_usd=0.0).covers(played.worst_usd, self.budget_usd):
                running.append(played)
        for played in running:
            yield self._book(played)

    def _fits(self, played: Played, running: Sequence[Played]) -> bool:
        from paretune.pricing.budget import Balance

        balance = Balance(spent_usd=self.spent_usd, committed_usd=sum(other.worst_usd for other in running))
        return balance.covers(played.worst_usd, self.budget_usd)

    def _book(self, played: Played) -> Played:
        self.spent_usd += played.cost_usd
        over_s = played.billed_s * (1 - played.worst_usd / played.cost_usd)
        self._exceeded_s = max(self._exceeded_s, over_s)
        return played

    def _played(self, job: PublicJob, factor: float) -> Played:
        from paretune.estimating.architecture import well_known
        from paretune.estimating.uploading import billed_after_limit_s, deadline_s
        from paretune.specification.job import JobSpec

        minutes = max(1.0, factor * job.before_upload_s / 60)
        is_own = well_known(job.model) is not None
        spec = JobSpec(instance_type="ml.g5.xlarge", max_runtime_minutes=minutes)
        spec = spec.replace(model=job.model) if is_own else spec.replace(entry_script=__file__)
        trained_s = min(job.training_s, deadline_s(spec, 60 * minutes, {}))
        billed_s = job.downloading_s + trained_s + job.uploading_s
        worst_s = 60 * minutes + billed_after_limit_s(spec, {}) + self._exceeded_s
        return Played(
            id=job.id,
            is_own=is_own,
            billed_s=billed_s,
            worst_usd=cost_of(job, worst_s),
            cost_usd=cost_of(job, billed_s),
        )


@cache
def usd_per_hour(instance_type: str) -> float:
    """Its price; a dollar if it has none."""
    from paretune.pricing.prices import PriceList

    price = PriceList.read({}).price(instance_type, "us-east-1")
    return 1.0 if price is None else price.usd_per_hour


def cost_of(job: PublicJob, seconds: float) -> float:
    """Dollars of so many seconds on the cluster of a job."""
    return usd_per_hour(job.instance_type) * job.instance_count * seconds / 3600


def upload_share_of_7b() -> tuple[float, float]:
    """Share of the expected bill of two hours that uploading takes, and the bound of its seconds."""
    from paretune.estimating.uploading import upload_seconds
    from paretune.specification.job import JobSpec

    spec = JobSpec(model=SEVEN_BILLION, task="causal-lm", instance_type="ml.p4d.24xlarge")
    expected, longest = upload_seconds(spec, {})
    return expected / 7200, longest
