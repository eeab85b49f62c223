"""The report of a paid job: a page in Markdown that names no account and can be posted."""

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


def write_report(path: Path, findings: Sequence[Finding], seen: ObservedJob, now: float) -> Path:
    """Write the page to `path`, masked. `now` is in seconds since the epoch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Mask.of(seen.spec, seen.account)
    text = "\n".join(_lines(findings, seen, now, mask)) + "\n"
    path.write_text(mask(text), encoding="utf-8")
    return path


def _lines(findings: Sequence[Finding], seen: ObservedJob, now: float, mask: Mask) -> Iterator[str]:
    rows = compare(seen)
    day = datetime.fromtimestamp(now, UTC)
    yield f"# paretune doctor --paid true, {day:%Y-%m-%d %H:%M} UTC"
    yield ""
    yield from _summary(seen, rows)
    yield "Account numbers, ARNs and the names of bucket, role, user, host and network are masked."
    yield ""
    versions = ", ".join(f"{name} {installed(name)}" for name in _PACKAGES)
    region = seen.account.region if seen.account is not None else "unknown"
    yield f"Python {platform.python_version()} on {platform.system()}; {versions}; region {region}."
    yield from ("", "## Job", "", "```console", seen.spec.command(), "```")
    if rows:
        yield from (
            "",
            "## Expected and found",
            "",
            "| part | what | expected | found | |",
            "| --- | --- | --- | --- | --- |",
        )
        for row in sorted(rows, key=lambda row: row.holds):  # differences first
            cells = (row.part, row.what, row.expected, row.found, "" if row.holds else "**differs**")
            yield f"| {' | '.join(_cell(mask(cell)) for cell in cells)} |"
        yield from ("", f"Fields that were not expected: {', '.join(unknown_fields(seen)) or 'none'}.")
        yield from ("", "## States", "", *_timeline(seen))
        yield from ("", "## DescribeTrainingJob", "", "```json", _as_json(seen.description), "```")
    yield from ("", "## CreateTrainingJob", "", "```json", _as_json(seen.request), "```") if seen.request else ()
    yield from ("", "## Checks before", "", "| | subject | |", "| --- | --- | --- |")
    for finding in findings:
        yield f"| {finding.verdict.value} | {finding.subject} | {_cell(mask(finding.text))} |"


def _summary(seen: ObservedJob, rows: Sequence[Comparison]) -> Iterator[str]:
    if seen.failure:
        yield from ("**The job has no result:**", "", "```text", seen.failure.replace("```", "'''"), "```", "")
    if rows:
        different = sum(not row.holds for row in rows)
        yield f"{different} of {len(rows)} expectations differ from what was found."
    else:
        yield "No job was created, so nothing could be compared."


def _timeline(seen: ObservedJob) -> Iterator[str]:
    """When each status began, in seconds after the job's creation."""
    created = seen.description.get("CreationTime")
    for entry in seen.description.get("SecondaryStatusTransitions", []):
        began = entry.get("StartTime")
        after = f"{(began - created).total_seconds():.1f} s" if began and created else "?"
        yield f"- {after}: {entry.get('Status')}: {entry.get('StatusMessage', '')}"


def _cell(text: str) -> str:
    """A cell of a table; the text has been masked, for half of a name would not be found."""
    short = text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 3]}..."
    return re.sub(r"\s+", " ", short).replace("|", "\\|")


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2, default=str).replace("```", "'''")
