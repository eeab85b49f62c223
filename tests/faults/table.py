"""The table of faults and outcomes in `docs/reliability.md`: the rows that the suite knows, and what it has counted."""

import platform
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- table of tests/faults: begin -->", "<!-- table of tests/faults: end -->"


@dataclass(frozen=True)
class Fault:
    """What happens, and what a user finds afterwards, in words."""

    what: str
    outcome: str


FAULTS = {
    "killed": Fault(
        "the launcher ends at a random moment: SIGKILL, SIGTERM, SIGINT, SIGHUP, or its parent first",
        "one job per run, booked as billed. After SIGTERM, SIGINT and the end of the parent the job is stopped; after "
        "SIGKILL and SIGHUP a job on SageMaker goes on, and the same command or `sync` collects it",
    ),
    "aws does not answer": Fault(
        "one AWS call is throttled, broken, lost after it was heard, unanswered for minutes, or answered with 500, 503 "
        "or HTML, 1 to 30 times",
        "waited out; where that takes too long the command ends, the job goes on, and `sync` collects it",
    ),
    "aws denies": Fault(
        "AWS denies one call, each in turn",
        "refused before the job where the call comes before it; else `sync` books the job once the call is allowed",
    ),
    "aws does not show": Fault(
        "DescribeTrainingJob and ListTrainingJobs do not show a job yet when its launcher is ended and started again",
        "one job, adopted; one that is to be stopped is asked again until AWS knows it",
    ),
    "two launchers": Fault("two launchers of the same run begin at once", "one job; both watch it"),
    "lying report": Fault(
        "a job ends well with a `report.json` that is cut off, empty, binary, of another kind, or tells another bill",
        "failed with that reason where it cannot be read; the bill is AWS's own",
    ),
    "lying events": Fault(
        "`events.jsonl` and the log hold half lines, other programs' lines, and figures that are none",
        "passed over; every event before and after them is recorded",
    ),
    "tracking server": Fault(
        "for some seconds the tracking server breaks connections, hangs, is slow, loses answers, or answers 429, 500, "
        "503 or HTML",
        "before the launch nothing is launched; later the job goes on, and the launcher or `sync` adds what was missed",
    ),
    "sqlite locked": Fault(
        "another process holds the lock of the SQLite store for 1 to 9 s", "waited for; else as a tracking server away"
    ),
    "postgresql restarted": Fault(
        "the PostgreSQL server of a study's ledger crashes and comes back",
        "the driver goes on or ends; the same command continues the study, within its budget",
    ),
    "instance dies": Fault("one instance of two dies", "the job fails as AWS's own trouble, and is booked"),
    "spot": Fault(
        "spot instances are taken away while a checkpoint is written",
        "AWS begins the job again from the last whole checkpoint; the bill is AWS's own",
    ),
    "disk full at the launcher": Fault(
        "the disk of the launching machine, with its store, is full for some seconds",
        "as a tracking server away; a job that cannot be started says so",
    ),
    "disk full in the job": Fault("the disk is full where the job runs", "failed with that reason, and booked"),
    "events out of order": Fault(
        "CloudWatch gives log events out of order, or some of them twice", "every point of every curve, once"
    ),
}


@dataclass
class Counts:
    """How often each fault was caused, by world."""

    cases: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, fault: str, world: str, cases: int = 1) -> None:
        """Count cases of a fault that FAULTS names."""
        assert fault in FAULTS, fault
        self.cases.setdefault(fault, Counter())[world] += cases

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Fault to world to cases."""
        return {fault: dict(counter) for fault, counter in self.cases.items()}

    def merge(self, counted: dict[str, dict[str, int]]) -> None:
        """Add the counts of another process."""
        for fault, counter in counted.items():
            for world, cases in counter.items():
                self.add(fault, world, cases)

    def table(self) -> str:
        """The table, as Markdown; a fault that was not caused has no count."""
        lines = ["| fault | cases | outcome |", "| --- | --- | --- |"]
        for name, fault in FAULTS.items():
            counted = ", ".join(f"{world} {count}" for world, count in self.cases.get(name, Counter()).items())
            lines.append(f"| {fault.what} | {counted or '-'} | {fault.outcome} |")
        return "\n".join(lines)

    def source(self, form: str, seed: int) -> str:
        """Where the counts come from."""
        packages = ", ".join(f"{name} {version(name)}" for name in ("paretune", "mlflow", "boto3", "torch"))
        total = sum(sum(counter.values()) for counter in self.cases.values())
        cores, memory = psutil.cpu_count(), psutil.virtual_memory().total / 2**30
        return (
            f"Counted by the {form} form of the suite on {datetime.now(UTC).date()}: {total} cases, seed {seed}, "
            f"Python {platform.python_version()}, {packages}, {platform.system()} with {cores} hardware threads and "
            f"{memory:.0f} GiB of memory."
        )

    def write(self, page: Path, form: str, seed: int) -> None:
        """Put table and source into the page."""
        text = page.read_text()
        block = f"{BEGIN}\n{self.source(form, seed)}\n\n{self.table()}\n{END}"
        page.write_text(re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: block, text, flags=re.DOTALL))
