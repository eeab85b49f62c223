"""Names of the tags that runs carry.

Values are strings; `Run.set_tags` cuts them to MLflow's limit. A tag that does not apply is absent or empty. Facts
that a launcher reports about a job (`JobStatus.facts`, `location_tags`) also become tags, named PREFIX plus the name of
the fact. The tags of AWS resources are in `core.tags`.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from paretune.core.errors import BadInput
from paretune.specification.metrics import BASELINES
from paretune.specification.metrics import FACTS as NUMBERS

PREFIX = "paretune."  # the prefix of our tags
LONGEST_TAG = 8_000  # characters; MLflow's limit

# What a run is, and what it computed
KIND = "paretune.kind"
"""The kind of a run without a job: `study`, `study driver`, `watcher`, `report`, `estimate`, `prices`, `import`,
`doctor`, `demo`, `reconcile`."""
WATCHED_RUN = "paretune.watched_run"  # id of the run whose job a `watcher` followed instead of starting its own
ORIGIN = "paretune.origin"
"""The origin of a job's figures: `measured`, `simulated`, `published`; `estimated` on runs of `estimate`."""
ESTIMATED = "estimated"  # value of ORIGIN on runs that have estimates but no job
COMMAND = "paretune.command"  # the command that repeats the job or continues the study, for people to copy
GIVEN = "paretune.given"  # the given parameters of the job, as JSON
SPEC_HASH = "paretune.spec_hash"  # hash of the computation; the same for jobs that compute the same thing
DATASET_KEY = "paretune.dataset_key"  # identifies the prepared rows that the job reads
CODE_KEY = "paretune.code_key"  # identifies the code of a user's own training that was uploaded
MODEL_REVISION = "paretune.model_revision"  # commit of the model on the Hub
MODEL = "paretune.model"  # location of the model's files: a path or an S3 URI; also a tag of its LoggedModel
MODEL_URI = "paretune.model_uri"  # address from which MLflow loads the model: `models:/m-...`, or its folder in S3
NO_MODEL = "paretune.no_model"  # why MLflow cannot load the model of a finished job
MACHINE = "paretune.machine"  # name of the machine that a local job ran on
ESTIMATE_BASIS = "paretune.estimate_basis"  # the evidence for the job's estimate, in words

# The job and its location
LAUNCHER = "paretune.launcher"  # name of the launcher, such as `local`, `sagemaker` or `simulated`
JOB_NAME = "paretune.job_name"  # name of the job, written before it is created
CONTINUES = "paretune.continues"
"""Id of the run for which the job was created, if that run was removed from MLflow for good while the job ran; the run
with this tag records the job instead."""
STATE = "paretune.state"
"""`Running`, `Completed`, `Failed` or `Stopped`. A job's run has a state even before the job is created."""
SECONDARY_STATUS = "paretune.secondary_status"  # phase of the job, such as SageMaker's secondary status
FAILURE_REASON = "paretune.failure_reason"  # why the job failed, for people
CAUSE = "paretune.cause"
"""Why the job failed, or why a job was stopped that nobody asked to stop: a value of `specification.ending.Cause`."""
WARNINGS = "paretune.warnings"  # warnings before the launch
UNSEEN = "paretune.unseen"
"""`true` until a command has shown how the job ended. A job that completed unseen, because its command was interrupted,
is shown when the same command is repeated; nothing new is paid for then."""
GAP = "paretune.gap"  # `true` if MLflow could not store everything about a finished job; `sync` fills the gap
OVER_BOUND_USD = "paretune.over_bound_usd"  # dollars of a job beyond its worst case; absent if there are none
REMARKS = "paretune.remarks"
"""Remarks on a job that has ended, such as what is missing from its record and why."""
RESERVED = "paretune.reserved"
"""Why the worst case of a job that has ended is still reserved in its budgets; empty or absent if it is not."""
VERDICT = "paretune.verdict"  # what is wrong with the model; absent if nothing is
RUN_NAME = "mlflow.runName"
NAMED = "paretune.named"  # the name that paretune gave a study's run last; under another name, a user has renamed it
NOTE = "mlflow.note.content"  # MLflow's name for the description that its UI shows, in Markdown
PARENT = "mlflow.parentRunId"  # MLflow's tag that nests a run under another
WARM_POOL = "paretune.warm_pool"
"""State of the instances kept after the job: `Available` until paretune sees that they were released or reused."""
WARM_POOL_KEPT = "Available"  # value of WARM_POOL until the instances are known to be released or reused
WATCHED_BY = "paretune.watched_by"
"""The process that watches the job, or drives the study; empty if none does. Between two commands of a study with
`once`, it says that a schedule drives the study."""

REGION = "paretune.region"  # AWS region of the job
SETTINGS = "paretune.settings"  # bucket and tags of a job in AWS, as JSON; later attempts of the job reuse them
TRAINING_SECONDS = "paretune.training_seconds"
"""Seconds per instance that the last attempt of a spot job trained. On demand, AWS would bill all of them; on spot
instances, it bills fewer."""
ACCOUNT = "paretune.account"  # number of the AWS account
CLAIMED_AT = "paretune.claimed_at"
"""When a process last recorded that it was about to create the job, in seconds since the epoch; renewed during uploads,
at most once a minute."""

# Runs that a user's own training opened
COPIED_FROM = "paretune.copied_from"  # on a run copied from a job's own MLflow store: the id of the original

# The owner of the job
USER = "paretune.user"  # the tag `user` of the job, else the login name
BUDGET = "paretune.budget"  # the budget file that the job counts against
TEAM = "paretune.team"  # the value of `team` in the parameter `tags`

# What was actually used
OUT_OF_MEMORY_RETRIES = "paretune.out_of_memory_retries"  # number of retries with a smaller per-device batch
REPEATED = "paretune.repeated"  # `true` if an internal error of AWS ended an attempt, which was then repeated
CHOSEN_BATCH = "paretune.chosen_batch"
"""Per-device batch of the first attempt, if paretune chose it because the default one might not fit in memory."""
USED_BATCH = "paretune.used_per_device_train_batch_size"  # per-device batch of the last attempt
USED_ACCUMULATION = "paretune.used_gradient_accumulation_steps"  # accumulation steps of the last attempt
USED_INSTANCE_TYPE = "paretune.used_instance_type"  # instance type of the last attempt
USED_INSTANCE_COUNT = "paretune.used_instance_count"  # number of instances of the last attempt
USED_PRECISION = "paretune.used_precision"  # number format that the job trained in
USED_DEVICE = "paretune.used_device"  # name of the GPU or processor that the job trained on
USED_VERSIONS = "paretune.used_versions"
"""Software versions that the job trained with, such as `python 3.11.7, torch 2.13.0`."""
METRICS_FROM = "paretune.metrics_from"
"""Where the metrics of a user's own training come from, such as MLflow, W&B, a file or printed lines: each source with
its metrics."""

# Price and bill
PRICE_USD_PER_HOUR = "paretune.price_usd_per_hour"  # price per instance-hour from which the cost is computed
PRICE_REGION = "paretune.price_region"  # region of that price
PRICE_AS_OF = "paretune.price_as_of"  # day, month or year of that price
PRICE_SOURCE = "paretune.price_source"  # source of that price
BILL = "paretune.bill"
"""`complete` if the job's bill is complete and `billed_usd` is final; otherwise `not complete yet: ` and the reason."""
BILL_COMPLETE = "complete"  # the final value of BILL

# A study and its trials
STUDY = "paretune.study"  # name of a study, on its own run and on those of its trials
STUDY_DIGEST = "paretune.study_digest"  # the same for drivers of the same study
STUDY_MARK = "paretune.study_mark"  # unique id, also in the study's storage; a driver finds the study's run by this id
DRIVEN_UNTIL = "paretune.driven_until"
"""Until when the study counts as having a driver, in seconds since the epoch. The driver keeps extending it, and
removes it when it ends. After a crash, or a pause with `once`, it expires."""
STUDY_RUN = "paretune.study_run"  # id of the study's run, on the run of a command that drives it
TRIAL = "paretune.trial"  # number of the trial
REPEATS = "paretune.repeats"  # number of the trial that this one repeats with another seed
MAX_RUNTIME_MINUTES = "paretune.max_runtime_minutes"  # time limit that the study gave the trial's job
PARETO_RANK = "paretune.pareto_rank"
"""Rank of the trial's configuration, 0 on the front; absent if it has no rank. If a study has more than ten ranks, they
have leading zeros, such as 07, because MLflow sorts tags as text."""
POSITION = "paretune.position"
"""Position of a trial in the study's table in MLflow: the front first, sorted by quality, each followed by its repeats.
The one of the recommended configuration says so: `02 recommended`. Absent if the trial has no rank."""

# A model in the registry
REGISTERED = "paretune.registered"
"""On the run of a job or study: the registered version of its model, such as `sentiment/3`, or why there is none."""

# Imported runs
ROW_KEY = "paretune.row_key"  # key of a row of an imported table: each row is imported once
SOURCE = "paretune.source"  # name of the table
SOURCE_LINE = "paretune.source_line"  # line of the row in the table


# What only machines read, and what people seldom look up, does not get a tag each: it would fill the first screen of a
# run in MLflow.
WATCH = "paretune.watch"  # JSON: the process that watches the job, and the phase of the job
FACTS = "paretune.facts"  # JSON: sizes, estimates, the source of the price, and what the last attempt used
_MEMBERS = {
    WATCH: (WATCHED_BY, CLAIMED_AT, SECONDARY_STATUS, UNSEEN),
    FACTS: (
        *(COMMAND, DATASET_KEY, CODE_KEY, MODEL_REVISION, ESTIMATE_BASIS, MACHINE, ACCOUNT, REGION, SETTINGS),
        *(CHOSEN_BATCH, MAX_RUNTIME_MINUTES, TRAINING_SECONDS, NAMED),
        *(PRICE_REGION, PRICE_AS_OF, PRICE_SOURCE, MODEL_URI, METRICS_FROM, f"{PREFIX}basis"),
        *(USED_BATCH, USED_ACCUMULATION, USED_INSTANCE_COUNT, USED_PRECISION, USED_VERSIONS),
        *(f"{PREFIX}{name}" for name in sorted(NUMBERS | BASELINES)),
    ),
}
_DOCUMENT_OF = {member: document for document, members in _MEMBERS.items() for member in members}
MEMBERS = frozenset(_DOCUMENT_OF)
"""Names that `Run` and `RecordedRun` have as tags, although the run has them as members of WATCH and FACTS."""


def is_document(name: str) -> bool:
    """Return whether a tag is WATCH or FACTS."""
    return name in _MEMBERS


def documents_of(tags: Collection[str]) -> set[str]:
    """Return those of WATCH and FACTS that have any of these tags as a member."""
    return {_DOCUMENT_OF[name] for name in MEMBERS.intersection(tags)}


def unpacked(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a run with the members of its documents WATCH and FACTS as tags.

    A tag of its own counts more than a member of the same name: somebody has set one.
    """
    members = {
        f"{PREFIX}{name}": str(text)
        for document in _MEMBERS
        for name, text in (_document(tags.get(document, "")) or {}).items()
    }
    return {**members, **{name: text for name, text in tags.items() if name not in _MEMBERS}}


def packed(tags: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Return the tags to write: members of a document are added to the one in `recorded`, the tags that the run has.

    A member that `recorded` has as a tag of its own stays one.
    """
    written, documents = dict[str, str](), dict[str, dict[str, str]]()
    for name, text in tags.items():
        document = _DOCUMENT_OF.get(name)
        if document is None or name in recorded:
            written[name] = text
        else:
            documents.setdefault(document, {})[name.removeprefix(PREFIX)] = text
    for document, members in documents.items():
        whole = {**(_document(recorded.get(document, "")) or {}), **members}
        while len(text := json.dumps(whole)) > LONGEST_TAG:  # else it could not be read back
            del whole[max(whole, key=lambda name: len(str(whole[name])))]
        written[document] = text
    return written


def without(names: Collection[str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Return the documents of `recorded` that have any of these members, without them."""
    left = {}
    for document in _MEMBERS:
        members = _document(recorded.get(document, "")) or {}
        kept = {name: text for name, text in members.items() if f"{PREFIX}{name}" not in names}
        if len(kept) < len(members):
            left[document] = json.dumps(kept)
    return left


def given_tag(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the tag GIVEN for these parameters of a job. Raises BadInput if the parameters are too long for a tag."""
    text = json.dumps(given, sort_keys=True)
    if len(text) > LONGEST_TAG:
        rule = f"the job's parameters must have at most {LONGEST_TAG:,} characters as JSON, got {len(text):,}"
        raise BadInput([f"{rule}: MLflow keeps them in a tag, which later commands read; move some into a file"])
    return {GIVEN: text}


def given_by(tags: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the given parameters of a job from its tags, or None if the tag is missing or is not a JSON object."""
    return _document(tags.get(GIVEN, ""))


_OF_PLACE = {"s3_bucket": "sagemaker.s3_bucket", "tags": "tags"}  # names in `Order.place` and in SETTINGS


def settings_by(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return a job's bucket and AWS tags, keyed as in `Order.place`; empty if none are recorded.

    Raises BadInput if the recorded tag is not a JSON object.
    """
    if not tags.get(SETTINGS):
        return {}
    if (settings := _document(tags[SETTINGS])) is None:
        raise BadInput(
            [f"its tag {SETTINGS} must be a JSON object, got {tags[SETTINGS][:80]!r}: somebody has changed it"]
        )
    return {name: settings[parameter] for name, parameter in _OF_PLACE.items() if parameter in settings}


def settings_tag(place: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the tag from which `settings_by` reads bucket and AWS tags; its value is None if the place has none."""
    settings = {parameter: place[name] for name, parameter in _OF_PLACE.items() if name in place}
    return {SETTINGS: json.dumps(settings) if settings else None}


def _document(text: str) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        if isinstance(document := json.loads(text), dict):
            return document
    return None
