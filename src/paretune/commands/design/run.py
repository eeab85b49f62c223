"""A design from its file to its last row: planned, priced, refused or run."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from paretune.commands.design.answer import DesignResult, plan_text
from paretune.commands.design.bill import Bill, bill_of
from paretune.commands.design.file import DesignFile
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.record import TABLE_FILE, DesignRunWriter, table_csv, write_plan
from paretune.commands.design.table_study import TableStudy
from paretune.core.errors import BadInput, BudgetRefused, LaunchRefused, collecting
from paretune.jobs.preparation import inputs_of
from paretune.jobs.progress import say_on_stderr
from paretune.jobs.workplace import Workplace, Workplaces, usual_storage, without_empty_home
from paretune.ledger.study_ledger import StudyLedger
from paretune.pricing.prices import VARIABLE
from paretune.specification.job import JobSpec
from paretune.specification.profile import charged
from paretune.specification.regions import usual_region
from paretune.studies.search import joint
from paretune.studies.search.optuna_study import OptunaStudy
from paretune.tracking import RunStatus


@without_empty_home()
def run_design_file(file: DesignFile, *, say: Callable[[str], None] = say_on_stderr) -> DesignResult:
    """Run or continue a design until all its rows have ended; with `dry_run`, only plan it.

    Raises:
        BadInput: a row cannot run, or its model cannot be estimated; nothing was launched.
        BudgetRefused: the worst case of its rows exceeds the budget; the plan is recorded in its run.
    """
    workplaces = replace(Workplaces.of_process(), shows_work=say is say_on_stderr)
    plan = _charged(DesignPlan.of(file), workplaces.environment)
    if file.prices is not None:
        workplaces = workplaces.with_environment({VARIABLE: file.prices})
    with workplaces.interruption.listening():
        specs = [row.spec for row in plan.rows]
        if file.dry_run:
            workplace = _planning_workplace(specs[0], workplaces)
            _check(specs, workplace.launcher.check_offline)
            return _keep_plan(plan, bill_of(specs, workplace, budget_usd=file.budget_usd), workplace)
        workplace = workplaces.of(specs[0])
        workplace.budget_ledger(specs[0].budget)  # reports faults of that file before anything is prepared
        _check(specs, workplace.launcher.check)
        inputs_of(specs[0], workplace)  # first: a refused design leaves no store and no ledger
        bill = bill_of(specs, workplace, budget_usd=file.budget_usd)
        storage = file.storage or usual_storage(workplaces.home, workplaces.environment)
        with closing(StudyLedger(storage, file.name)) as ledger:
            if not ledger.booked(0) and not ledger.running() and bill.refusal(file.budget_usd):
                _keep_plan(plan, bill, workplace)
            say(plan_text(plan, bill))
            return _run(plan, bill, ledger, storage, workplace, say)


def _charged(plan: DesignPlan, environment: Mapping[str, str]) -> DesignPlan:
    """The plan with the profile's owner and budget of its jobs."""
    specs = [JobSpec.from_text(charged(row.spec.changed(), environment)) for row in plan.rows]
    rows = [replace(row, job=replace(row.job, spec=spec)) for row, spec in zip(plan.rows, specs, strict=True)]
    return replace(plan, rows=rows)


def _planning_workplace(spec: JobSpec, workplaces: Workplaces) -> Workplace:
    """The workplace that prices rows without running them; without an AWS account, in the usual region."""
    try:
        return workplaces.of(spec)
    except LaunchRefused:  # no region is set
        usual = usual_region(spec.region, workplaces.environment)
        return workplaces.with_environment({"AWS_REGION": usual}).of(spec)


def _check(specs: list[JobSpec], check: Callable[[JobSpec], None]) -> None:
    """Refuse rows that the launcher cannot run, with all their faults."""
    faults: list[str] = []
    for spec in {spec.replace(seed=0).spec_hash(): spec for spec in specs}.values():
        with collecting(faults):
            check(spec)
    if faults:
        raise BadInput(list(dict.fromkeys(faults)))


def _keep_plan(plan: DesignPlan, bill: Bill, workplace: Workplace) -> DesignResult:
    """Record the plan in a run. BudgetRefused or BadInput if its budget or the limit of its rows does not allow it."""
    tracking = workplace.tracking.for_estimates()
    run = tracking.begin(f"design {plan.file.name}")
    write_plan(run, plan, bill)
    run.log_text(table_csv(plan, bill, {}), TABLE_FILE)
    refusal = bill.refusal(plan.file.budget_usd)
    run.end(RunStatus.FAILED if refusal else RunStatus.FINISHED)
    open_command = tracking.open_command(run.run_id)
    if refusal:
        message = f"{refusal}\n\n{plan_text(plan, bill)}\n\n  {open_command}"
        raise BadInput([message]) if bill.too_long else BudgetRefused(message)
    ending = "planned; nothing was launched (dry_run)"
    return DesignResult(plan=plan, bill=bill, run_id=run.run_id, open_command=open_command, ending=ending, is_dry=True)


def _run(
    plan: DesignPlan, bill: Bill, ledger: StudyLedger, storage: str, workplace: Workplace, say: Callable[[str], None]
) -> DesignResult:
    """Run the rows as trials of a study, under one parent run."""
    study_file = TableStudy.of(plan.file, [row.spec for row in plan.rows])
    study = OptunaStudy(study_file, storage)
    record = DesignRunWriter(plan, bill, ledger, workplace.tracking, say)
    driver = record.new_driver(study_file, study, workplace)
    try:
        with study.reachable():
            driver.adopt()
            reason = joint.search(driver)
            if not driver.trials and driver.admission.has_budget:
                raise BudgetRefused(f"nothing was launched: {reason}")
    except BaseException as error:
        driver.stop(error)
        record.interrupted(error)
        raise
    finally:
        study.close()
    driver.finish()
    record.finish()
    return DesignResult(
        plan=plan,
        bill=bill,
        run_id=record.run_id,
        open_command=record.open_command,
        ending="every row was run" if reason == "every point was tried" else reason,
        spent_usd=ledger.balance().spent_usd,
        trials=record.trials(),
    )
