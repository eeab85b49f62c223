"""The report of a paid job: a page in Markdown that identifies no account and can be posted."""

import json
import platform
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from paretune.commands.doctor.expectations import Comparison, compare, unknown_fields
from paretune.commands.doctor.masking import Mask
from paretune.commands.doctor.paid_job import ObservedJob
from paretune.core.checks import Finding
from paretune.core.packages import installed

_PACKAGES = ("paretune", "boto3", "botocore", "sagemaker-core", "mlflow", "torch", "transformers")
_LONGEST_CELL = 300


def write_report(path: Path, findings: Sequence[Finding], job: ObservedJob, now: float) -> Path:
    """Write the page to `path`, masked. `now` is in seconds since the epoch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Mask.of(job.spec, job.account)
    text = "\n".join(_lines(findings, job, now, mask)) + "\n"
    path.write_text(mask(text), encoding="utf-8")
    return path


def _lines(findings: Sequence[Finding], job: ObservedJob, now: float, mask: Mask) -> Iterator[str]:
    rows = compare(job)
    day = datetime.fromtimestamp(now, UTC)
    yield f"# paretune doctor --paid true, {day:%Y-%m-%d %H:%M} UTC"
    yield ""
    yield from _summary(job, rows)
    yield "Account numbers, ARNs and the names of bucket, role, user, host and network are masked."
    yield ""
    versions = ", ".join(f"{name} {installed(name)}" for name in _PACKAGES)
    region = job.account.region if job.account is not None else "unknown"
    yield f"Python {platform.python_version()} on {platform.system()}; {versions}; region {region}."
    yield from ("", "## Job", "", "```console", job.spec.command(), "```")
    if rows:
        yield from (
            "",
            "## Expected and found",
            "",
            "| part | what | expected | found | |",
            "| --- | --- | --- | --- | --- |",
        )
        for row in sorted(rows, key=lambda row: row.holds):  # differences first
            cells = (row.part, row.subject, row.expected, row.actual, "" if row.holds else "**differs**")
            yield f"| {' | '.join(_cell(mask(cell)) for cell in cells)} |"
        yield from ("", f"Fields that were not expected: {', '.join(unknown_fields(job)) or 'none'}.")
        yield from ("", "## States", "", *_timeline(job))
        yield from ("", "## DescribeTrainingJob", "", "```json", _as_json(job.description), "```")
    yield from ("", "## CreateTrainingJob", "", "```json", _as_json(job.request), "```") if job.request else ()
    yield from ("", "## Checks before", "", "| | subject | |", "| --- | --- | --- |")
    for finding in findings:
        yield f"| {finding.verdict.value} | {finding.subject} | {_cell(mask(finding.text))} |"


def _summary(job: ObservedJob, rows: Sequence[Comparison]) -> Iterator[str]:
    if job.failure:
        yield from ("**The job has no result:**", "", "```text", job.failure.replace("```", "'''"), "```", "")
    if rows:
        different = sum(not row.holds for row in rows)
        yield f"{different} of {len(rows)} expectations differ from what was found."
    else:
        yield "No job was created, so nothing could be compared."


def _timeline(job: ObservedJob) -> Iterator[str]:
    """Yield the start of each status, in seconds after the job's creation."""
    created = job.description.get("CreationTime")
    for entry in job.description.get("SecondaryStatusTransitions", []):
        started = entry.get("StartTime")
        after = f"{(started - created).total_seconds():.1f} s" if started and created else "?"
        yield f"- {after}: {entry.get('Status')}: {entry.get('StatusMessage', '')}"


def _cell(text: str) -> str:
    """Return a cell of a table, shortened; the text must be masked before, because half a name is not recognised."""
    short = text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 3]}..."
    return re.sub(r"\s+", " ", short).replace("|", "\\|")


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2, default=str).replace("```", "'''")
