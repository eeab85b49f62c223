"""`estimate --probe`: pays for a short job that measures a cluster, and then makes the table of estimates.

The probe is a job like any other: it is admitted, its worst case is reserved in budgets, and the same command typed
again follows it. If it has completed before, nothing is paid again.

A script is probed with `max_steps` if its text shows that this option reaches Hugging Face's Trainer. The Trainer then
reports `train_runtime`, the seconds of these steps. Another script cannot be stopped after a number of steps that
anybody knows, and the seconds of its whole job say nothing about a step, so it is refused.
"""

import os
from dataclasses import replace

from paretune.commands.estimate import EstimateRequest
from paretune.commands.estimate.estimate import described_script, estimated, run_estimate
from paretune.core.clock import SystemClock
from paretune.core.errors import NoAccount, refuse
from paretune.core.machine import machine_name
from paretune.core.result import Result
from paretune.core.shell import command_line, options
from paretune.estimating.architecture import architecture_of
from paretune.estimating.forecast import measured_script
from paretune.estimating.timing import Measurement
from paretune.estimating.workload import PROBE_STEPS, training_rows, whole_argument
from paretune.jobs.launch import launch_here
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.terminal import say_on_stderr
from paretune.jobs.workplace import Workplaces, has_store, open_tracking
from paretune.launchers.offers import worst_case_usd
from paretune.presentation.text import duration, limit_usd, usd
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.user_code.inputs import script_faults

_RUNTIME = "train_runtime"  # metric of the Trainer: seconds of all its steps
_ANY_ROWS = 1_000_000  # rows of a probe whose data set is not known: more than its steps read


def run_probe(request: EstimateRequest) -> Result:
    """Run the probe of a request unless it has completed before, and return the table with what it has measured.

    With `dry_run`, nothing is prepared or launched: return the table without a probe, and what the probe would cost.
    Raises the errors of `launch`.
    """
    assert request.probe is not None  # the caller has checked
    probe = request.probe
    if probe.runs_user_code:
        probe = _launchable(probe)
        refuse(_script_faults(request.specs[0], probe))
    if probe.dry_run:
        table = run_estimate(request)
        command = command_line("estimate", {name: text for name, text in request.texts.items() if name != "dry_run"})
        return replace(
            table, remarks=[f"dry run: nothing was launched; {_announcement(probe)}: `{command}`", *table.remarks]
        )
    if "MLFLOW_RUN_ID" in os.environ:  # the opened run records the table, so the probe gets a run below it
        opened = open_tracking(dict(os.environ), SystemClock()).run(os.environ["MLFLOW_RUN_ID"])
        opened.set_tags({schema.KIND: "estimate"})
    run_id = "" if "again" in probe.force else _completed(probe)
    if run_id:
        remark = f"probe: run {run_id} has measured it before; {options(force='again')} pays for another one"
    else:
        estimated(request)  # what cannot be estimated after the probe is refused before it is paid for
        say_on_stderr(_announcement(probe))
        job = launch_here(probe)
        assert isinstance(job, JobOutcome)  # it is no dry run
        run_id, spent = job.run_id, job.metrics.get("cost_usd")
        remark = f"probe: run {run_id}" + (f", {usd(spent)}" if spent is not None and job.offer.has_instances else "")
    measured = _of_script(probe, run_id) if probe.runs_user_code else None
    if probe.runs_user_code and measured is None:
        remark += f"; it has no metric {_RUNTIME}, so the times are only from the script's text"
    table = run_estimate(request, measured)
    return replace(table, remarks=[remark, *table.remarks])


def _launchable(probe: JobSpec) -> JobSpec:
    """Return the probe of a script, without numbers of rows that describe its data if it has no such options."""
    if probe.entry_script is not None and script_faults(probe.code_request):
        described_only = probe.replace(max_train_samples=None, test_rows=None)
        return probe if script_faults(described_only.code_request) else described_only
    return probe


def _script_faults(whole: JobSpec, probe: JobSpec) -> list[str]:
    """Return why a script cannot be probed, or why its probe would not help; empty if it can be."""
    instead = (
        "run it once as a whole, with few rows or epochs, and estimate other clusters from that run: "
        f"`{command_line('estimate', {'like': 'RUN'})}`"
    )
    training = described_script(probe)
    if training is None:
        return [
            "probe needs a script that trains with Hugging Face's Trainer and shows its model (else give model), got "
            f"{probe.entry_script or probe.project}: {instead}"
        ]
    if (faults := script_faults(probe.code_request)) or training.training_arguments.get("max_steps") != PROBE_STEPS:
        return [
            f"probe needs a script with an option max_steps that reaches the Trainer: add it, or {instead}",
            *faults,
        ]
    trained = described_script(whole)
    assert trained is not None  # its probe is described, too
    is_known = whole.gives("dataset", "max_train_samples") and training_rows(trained.data_arguments) is not None
    if not is_known and not whole_argument(trained.training_arguments, "max_steps"):
        return ["probe needs to know how long the whole training is: give max_train_samples"]
    return []


def _of_script(job: JobSpec, run_id: str) -> Measurement | None:
    """Return what the probe of a script has measured; None if its run does not show the seconds of its steps."""
    environment = dict(os.environ)
    run, training = open_tracking(environment, SystemClock()).recorded(run_id), described_script(job)
    if run is None or training is None or not (runtime := run.metrics.get(_RUNTIME)):
        return None
    training = training if training.max_train_samples else training.replace(max_train_samples=_ANY_ROWS)
    built = architecture_of(training.model, training.task, environment)
    return measured_script(training, built, run.billable_seconds, runtime / PROBE_STEPS, run.origin)


def _announcement(probe: JobSpec) -> str:
    """Return what the probe does, for how long and for how many dollars at most."""
    where = f"1 x {probe.instance_type}" if probe.has_instances else "this machine"
    limit = f"at most {duration(60 * probe.max_runtime_minutes)}"
    if probe.has_instances:
        try:
            workplace = Workplaces.of_process().of(probe)
        except NoAccount:  # the launch reports it
            workplace = Workplaces.of_process().at_public_prices(probe.instance_type, probe.region)
        worst_usd = worst_case_usd(probe, workplace.launcher, workplace.environment)
        limit += ", unknown price" if worst_usd is None else f" and {limit_usd(worst_usd)} in the worst case"
    return f"probe: trains {PROBE_STEPS} steps on {where} ({limit}), and then the table follows"


def _completed(probe: JobSpec) -> str:
    """Return the id of the newest run of an equal probe that has completed, or ""."""
    environment = dict(os.environ)
    if not has_store(environment):
        return ""
    identity = probe.identity
    runs = open_tracking(environment, SystemClock()).runs(f"tags.`{schema.SPEC_HASH}` = '{identity.computation}'")
    equal = (
        run.run_id
        for run in runs
        if run.is_completed
        and identity.is_requested_by(schema.given_by(run.tags))
        and not run.ran_elsewhere(machine_name())
    )
    return next(equal, "")
