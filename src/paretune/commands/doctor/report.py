"""The report of a paid job: a page in Markdown that identifies no account and can be posted."""

import getpass
import json
import platform
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from paretune.commands.doctor.expectations import Comparison, compare, unknown_fields
from paretune.commands.doctor.paid_job import ObservedJob
from paretune.core.checks import Finding
from paretune.core.errors import ParetuneError
from paretune.core.packages import installed
from paretune.launchers.sagemaker.account import Account
from paretune.specification.job import JobSpec
from paretune.specification.parameters import split_list

_PATTERNS = {  # in this order: an ARN holds an account
    r"(?:arn|ARN):aws[\w-]*:[^\s\"'`,;)\]}]*": "<arn>",
    r"(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}": "<key>",
    r"s3://[^/\s\"'`,;)\]}]+": "s3://<bucket>",
    r"(?<=://)[^/\s\"'`,;)\]}<]+": "<server>",
    r"\b(?:subnet|sg|vpc|eni|i)-[0-9a-f]{8,}\b": "<network>",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "<uuid>",
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)": "<address>",
    r"\bip-\d{1,3}(?:-\d{1,3}){3}\b": "<address>",
    r"(?<![\d.])\d{12}(?!\d)|(?<!\d)\d{4}-\d{4}-\d{4}(?!\d)": "<account>",
}
_E_MAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # before any name, which may be the part before the @
_SHORTEST = 2  # characters of a name that is masked wherever it is a word
_PACKAGES = ("paretune", "boto3", "botocore", "sagemaker-core", "mlflow", "torch", "transformers")
_LONGEST_CELL = 300


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Replaces private names, then everything that looks like an account, ARN, key or address."""

    names: Mapping[str, str]  # private text to its replacement

    @classmethod
    def of(cls, cluster: JobSpec, account: Account | None) -> "Mask":
        """Return the mask of a job's account and of this machine; names that AWS does not answer are left out."""
        names = {str(Path.home()): "~", getpass.getuser(): "<user>", socket.gethostname(): "<host>"}
        private_fields = ("kms_key", "package_index", "user", "budget")
        private = [getattr(cluster, name) or "" for name in private_fields]
        private += [*split_list(cluster.subnets), *split_list(cluster.security_group_ids)]
        names |= dict.fromkeys((*private, *cluster.tags, *cluster.tags.values()), "<private>")
        names |= _parts(cluster.role or "", "<role>") | {(cluster.bucket or ""): "<bucket>"}
        if account is not None:
            with suppress(ParetuneError):
                names |= {account.identity["Account"]: "<account>"} | _parts(account.identity["Arn"], "<user>")
            with suppress(ParetuneError):
                names |= _parts(account.role_arn, "<role>")
            with suppress(ParetuneError):
                names[account.bucket] = "<bucket>"
        return cls(names={text: mask for text, mask in names.items() if len(text) >= _SHORTEST})

    def __call__(self, text: str) -> str:
        """Return `text` with all of them replaced."""
        text = re.sub(_E_MAIL, "<e-mail>", text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", self.names[name], text)
        for pattern, mask in _PATTERNS.items():
            text = re.sub(pattern, mask, text)
        return text


def _parts(arn: str, mask: str) -> dict[str, str]:
    """Return an ARN or a name, and the names in its path, each with its mask."""
    return {arn: mask, **dict.fromkeys(arn.split("/")[1:], mask)}


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
