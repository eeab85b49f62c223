"""Messages to a shared job through S3: requests to stop single trials, and the queue of a job that searches.

s3://BUCKET/paretune/jobs/NAME/job.json          the document that the job was created with
s3://BUCKET/paretune/jobs/NAME/stop/RUN          ends the trial of this run
s3://BUCKET/paretune/jobs/NAME/stop/queue.json   the newest queue of a job that searches
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused, LostContact
from paretune.core.untrusted import parse_json
from paretune.launchers.base import Trials
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import NO_QUEUE, QUEUE_FILE, SEARCHES, TRIALS, JobDocument, TrialQueue
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting

_READ_EVERY_S = 10.0
"""Seconds between two readings of a queue that another process may replace; a request costs 0.0000004 dollars."""


def trials_of(name: str, environment: Mapping[str, str], staging: Staging, clock: Clock) -> Trials:
    """The trials of the job `name`, by the environment variables of its request."""
    created, stop = int(environment.get(TRIALS, 1)), partial(request_trial_stop, staging, name)
    trials = Trials(created, stop, members=cache(partial(_members, name, staging)))
    if SEARCHES not in environment:
        return trials
    queue = _QueueInS3(name, staging, clock)
    return replace(trials, direct=queue.send, queue=queue.newest)


class _QueueInS3:
    """The queue of one job that searches."""

    def __init__(self, name: str, staging: Staging, clock: Clock) -> None:
        self._key = f"{stop_request_prefix(name)}{QUEUE_FILE}"
        self._name = name
        self._staging = staging
        self._clock = clock
        self._newest: TrialQueue | None = None
        self._read_at: float | None = None

    def send(self, queue: TrialQueue) -> None:
        members = tuple(replace(member, spec=without_account(member.spec)) for member in queue.members)
        try:
            self._staging.text(self._key, json.dumps(replace(queue, members=members).as_json()))
        except LaunchRefused as error:
            raise LostContact(str(error)) from error
        self._newest, self._read_at = queue, self._clock.now()

    def newest(self) -> TrialQueue | None:
        if self._read_at is None or self._clock.now() - self._read_at >= _READ_EVERY_S:
            self._read_at = self._clock.now()
            with suppress(*AWS_ERRORS, *NO_QUEUE):  # what was read before holds
                self._newest = self._read() or self._newest
        return self._newest

    def _read(self) -> TrialQueue | None:
        if (stream := self._staging.open(self._key)) is not None:
            return TrialQueue.from_json(parse_json(stream.read().decode()))
        document = _document(self._name, self._staging)
        return None if document is None else document.queue


def _document(name: str, staging: Staging) -> JobDocument | None:
    stream = staging.open(document_key(name))
    return None if stream is None else JobDocument.from_json(parse_json(stream.read().decode()))


def _members(name: str, staging: Staging) -> list[str]:
    document = None
    with suppress(*AWS_ERRORS, *NO_QUEUE):
        document = _document(name, staging)
    return [] if document is None else [each.member for each in document.members]


def document_key(name: str) -> str:
    """S3 key of the document that a job reads first."""
    return f"{PREFIX}/jobs/{name}/job.json"


def stop_request_prefix(name: str) -> str:
    """Prefix of the S3 keys of the objects that ask a shared job to end single trials."""
    return f"{PREFIX}/jobs/{name}/stop/"


def request_trial_stop(staging: Staging, name: str, run_id: str) -> None:
    """Write the object that the training looks for; if AWS refuses, the trial goes on to its end."""
    with suppress(LaunchRefused):
        staging.text(f"{stop_request_prefix(name)}{run_id}", "")


def without_account(spec: JobSpec) -> JobSpec:
    """The specification as the training sees it: nothing of account, network and money."""
    return JobSpec.from_text(spec.as_text() | dict.fromkeys(affecting(JobSpec, "ownership"), ""))
