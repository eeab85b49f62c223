"""Turns the request of a job into its plan: the one admission, for launches, dry runs, studies and agents.

`plan` makes every check that is possible before anything is paid for, and raises all faults together. `draft` is the
plan as far as the request alone decides it; it opens runs, and it stands for plans that a run does not have, because
their process died early. After `plan`, nobody reads the request.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from paretune.core.errors import BadInput, LaunchRefused, refuse
from paretune.core.shell import command_line
from paretune.core.tags import Attribution
from paretune.jobs.card import card_of, opening_card
from paretune.jobs.preparation import inputs_of
from paretune.jobs.preview import texts_of
from paretune.jobs.warnings import (
    ForeseenJob,
    data_warnings,
    foreseen,
    left_behind_warnings,
    limit_refusal,
    warnings_of,
)
from paretune.jobs.workplace import Offline, Workplace
from paretune.launchers.offers import admit, limits_of, offers_of, payload_of, region_of
from paretune.ledger.budget_file import BudgetFile
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.order import Order, job_name, job_of
from paretune.specification.plan import Plan
from paretune.specification.rules import description_faults, launch_faults
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun, recorded_price

_OWNER = {"study": schema.STUDY, "user": schema.USER, "team": schema.TEAM}
PLAN = "plan.json"  # the artifact of a job's run from which any process can follow the job


def draft(request: JobSpec, workplace: Workplace, *, study: str = "") -> Plan:
    """Return the plan of a job as far as its request alone decides it. `study` is the name of its study, if any."""
    launcher = workplace.launcher
    return Plan(
        card=opening_card(request),
        identity=request.identity,
        owner=workplace.attribution(request.tags, study),
        tags=request.tags,
        launcher=request.runs_on.name,
        region=region_of(request, launcher, workplace.environment),
        offers=offers_of(request, {}, launcher.price),
        limits=limits_of(request, launcher, workplace.environment),
        payload=payload_of(request, None),
        accumulates=not request.runs_user_code,
    )


def plan(
    request: JobSpec,
    workplace: Workplace,
    *,
    study: str = "",
    begun: Plan | None = None,
    judges_limit: bool = True,
    prepare: bool = True,
    checks_budgets: bool = False,
) -> Plan:
    """Plan a job: return everything that its launch needs, or raise before anything is paid for.

    Every job is planned here once, whether a command, a study or an agent launches it. If the workplace is offline, the
    plan has a warning that says what could not be asked.

    Args:
        request: the job.
        workplace: where it would run.
        study: the name of its study, if any.
        begun: its `draft`, by default a new one. Its owner, limits and causes of retries are kept, and the commit of
            its model on the Hub, by default the newest.
        judges_limit: False skips max_cost_usd and `limit_refusal`: a study judges the limits of its trials itself,
            because it sets them, and knows more about them than the estimate does.
        prepare: False checks the job with the inputs that an earlier preparation has left, if any.
        checks_budgets: True refuses a job that its budgets do not cover before anything is prepared.

    Raises:
        BadInput: all faults that can be found together.
        BudgetRefused: the worst case is above max_cost_usd, or a budget does not cover it.
        LaunchRefused: a service refuses, or does not answer.
        JobFailed: the preparation of the inputs crashed.
    """
    made, inputs, job, place = admitted(
        request,
        workplace,
        study=study,
        begun=begun,
        judges_limit=judges_limit,
        prepare=prepare,
        checks_budgets=checks_budgets,
    )
    warnings = (*warnings_of([job]), *data_warnings(request, inputs), *left_behind_warnings(inputs))
    if workplace.offline is not None:
        warnings = (_unasked(workplace.offline, place, made.region), *warnings)
        place = {}
    dataset, code, command = inputs.dataset, inputs.code, inputs.command
    takes_batch = command is not None and command.takes_batch
    identity = replace(
        made.identity, data_key=None if dataset is None else dataset.key, code_key=(code and code.key) or None
    )
    return replace(
        made,
        card=card_of(
            made.card,
            request,
            inputs,
            job.plan,
            job.estimate,
            texts=texts_of(job, inputs, made.limits.worst_usd),
            warnings=warnings,
            identity=identity,
        ),
        identity=identity,
        offers=offers_of(request, place, workplace.launcher.price, batch=job.plan, command=command),
        payload=payload_of(request, command),
        place=dict(place),
        revision=inputs.revision or made.revision,
        accumulates=made.accumulates if command is None else command.accumulates,
        takes_batch=takes_batch,
        chosen_batch=None if job.plan == request.plan() else job.plan.per_device_train_batch_size,
        is_whole=True,
        inputs=inputs,
    )


def admitted(
    request: JobSpec,
    workplace: Workplace,
    *,
    study: str = "",
    begun: Plan | None = None,
    judges_limit: bool = False,
    prepare: bool = False,
    checks_budgets: bool = False,
) -> tuple[Plan, JobInputs, ForeseenJob, Mapping[str, Any]]:
    """Return the draft, inputs, price and estimate of a job, and what its launcher decides, or raise as `plan` does.

    Arguments are those of `plan`. A proposal asks each instance type only for this, because the warnings of a plan may
    take a tenth of a second to find.
    """
    refuse(description_faults(request))
    made, launcher = begun or draft(request, workplace, study=study), workplace.launcher
    if judges_limit:
        admit(request, launcher, workplace.environment)
    if made.limits.budget is not None and workplace.offline is None:
        BudgetFile.read(made.limits.budget)  # its faults are reported before anything is prepared
        if checks_budgets:
            workplace.check_budgets(made)
    place = dict[str, Any]()
    inputs = inputs_of(
        request, workplace, lambda: place.update(placed(request, workplace)), revision=made.revision, prepare=prepare
    )
    job = foreseen(request, inputs, workplace)
    if judges_limit and (refusal := limit_refusal(job)):
        raise BadInput([refusal])
    if workplace.offline is None:
        return made, inputs, job, launcher.fit(request, place, inputs) if prepare else place
    if workplace.offline.launcher is not None:
        workplace.offline.launcher.fit(request, place, inputs)
    return made, inputs, job, place


def placed(request: JobSpec, workplace: Workplace) -> Mapping[str, Any]:
    """Return what the launcher of a job decides about it: the part of its plan that needs no inputs and no estimate.

    A study asks for this part of each job that it may start. Raises BadInput, and LaunchRefused if a service does not
    answer.
    """
    offline = workplace.offline
    launcher = workplace.launcher if offline is None else offline.launcher
    if launcher is not None:
        return launcher.place(request, account=offline is None)
    refuse(launch_faults(request))
    return {}


def _unasked(offline: Offline, place: Mapping[str, Any], region: str) -> str:
    """Return the warning of a plan without an account: what was not checked."""
    unchecked = "role, bucket, data in S3, permissions, quotas and budgets"
    if offline.launcher is None:
        unchecked = f"image, disks, limits of AWS, {unchecked}"
    else:
        unchecked = f"{', '.join(place.get('not_checked', ()))} and budgets"
    return f"your AWS account was not queried: {offline.reason}; not checked: {unchecked}; prices are those of {region}"


def planned_again(made: Plan, workplace: Workplace) -> Plan:
    """Return the whole plan of a job whose process died before the job was created.

    The job is planned from its request. What the earlier process recorded in MLflow is not used, because anybody with
    access to MLflow may have edited it. Raises the errors of `plan`.
    """
    given, study = made.identity.given, made.owner.study
    begun = recalled(given, workplace, budget=made.limits.budget)
    begun = replace(begun, owner=made.owner, retries=made.retries, revision=made.revision)
    begun = begun.at_worst(made.limits.worst_usd) if study else begun  # a study bounds the costs of its trials itself
    return plan(JobSpec.read(dict(given)), workplace, begun=begun, judges_limit=False)


def completed(order: Order, made: Plan, workplace: Workplace) -> Order:
    """Return a later attempt with what runs, unless its launcher reads that back from the first one.

    A plan that was read from MLflow is shown and compared, and never executed, because anybody with access to MLflow
    may have edited it: the job is planned anew from its request, which must be the one that the launcher has kept.
    Raises LaunchRefused if it is not, and the errors of `plan`.
    """
    launcher = workplace.launcher
    if launcher.traits.files_travel:
        return replace(order, inputs=JobInputs())
    if made.inputs is not None:  # this process has planned it
        return replace(order, inputs=made.inputs)
    if launcher.request_of(job_name(job_of(order.job_name), 1)) != made.identity.request:
        raise LaunchRefused(
            f"{PLAN} of run {order.run_id} must have the parameters that {order.job_name} was launched with, but "
            f"somebody has changed it in MLflow: the job is not tried again; "
            f"`{command_line('stop', {'run': order.run_id})}` records its cost and closes its run"
        )
    anew = planned_again(made, workplace)
    known = {offer.instance_type: offer for offer in anew.offers}
    offers = tuple(
        replace(offer, batch=offer.batch.in_parts(asked.batch.per_device_train_batch_size))
        for asked in order.offers
        if (offer := known.get(asked.instance_type)) is not None
    )
    return replace(
        order,
        offers=offers or anew.offers,
        limits=anew.limits,
        payload=anew.payload,
        place=anew.place,
        inputs=anew.inputs or JobInputs(),
    )


def recalled(given: Mapping[str, Any], workplace: Workplace, *, budget: str | None) -> Plan:
    """Return the plan of a job that was launched with the parameters `given`, as far as these decide it.

    `budget` is the path of its budget file from here. Raises BadInput if another version of paretune recorded them.
    """
    made = draft(JobSpec.read(dict(given)), workplace)
    return replace(made, limits=replace(made.limits, budget=budget))


def launcher_in(given: Mapping[str, Any]) -> str:
    """Return the name of the launcher of a job with the parameters `given`. Raises BadInput as `recalled` does."""
    return JobSpec.read(dict(given)).runs_on.name


def recorded_plan(run: RecordedRun, workplace: Workplace) -> Plan:
    """Return the plan of a job's run from its artifact, or what the given parameters decide if that cannot be read.

    In the second case, price and owner are those of the run's tags, and no further attempt is started. Raises BadInput
    if the run has no request of a job, or one that cannot be read. Raises TrackingUnavailable.
    """
    text = workplace.tracking.artifact_text(run.run_id, PLAN)
    with suppress(ValueError, RecursionError, TypeError):
        recorded = Plan.from_json(json.loads(text or ""))
        return replace(recorded, limits=replace(recorded.limits, budget=run.budget))  # its path from here
    if (given := schema.given_by(run.tags)) is None:
        raise BadInput(["no specification of a job is recorded"])
    made, tags = recalled(given, workplace, budget=run.budget), run.tags
    offers = (replace(each, price=recorded_price(tags, each.price) or each.price) for each in made.offers)
    owner = Attribution(**{name: tags.get(tag, "") for name, tag in _OWNER.items()})
    return replace(made, offers=tuple(offers), owner=owner, retries=frozenset())
