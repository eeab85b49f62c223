"""Checks a study before anything is launched, and shows what it would run: the dry run of a study."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import ClassVar

from paretune.core.errors import BadInput, BudgetRefused, NoAccount, collecting, refuse
from paretune.core.result import as_json, read_rows
from paretune.jobs.plan import plan
from paretune.jobs.preparation import inputs_of
from paretune.jobs.preview import place_in_words
from paretune.jobs.terminal import say_on_stderr
from paretune.jobs.warnings import ForeseenJob, foreseen, limit_refusal, warnings_of
from paretune.jobs.workplace import STORAGE_VARIABLE, Workplace, Workplaces, has_store, usual_storage
from paretune.launchers.base import Launcher
from paretune.presentation.text import aligned, duration, limit_usd, usd
from paretune.pricing import dates_of
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.plan import Plan
from paretune.specification.profile import charged
from paretune.storage.database import redacted
from paretune.studies.definition.file import StudyFile
from paretune.studies.own_code import with_own_code
from paretune.studies.results.front import StudyFront, front_of
from paretune.studies.results.tables import configurations_table, pareto_csv
from paretune.studies.results.trials import label
from paretune.studies.search.driver import Driver
from paretune.studies.search.limits import LEAST_OF_ALL_S, LEAST_S
from paretune.studies.search.money import Money, dollars_as_time, refuse_small_budget
from paretune.studies.search.next_job import Split, some_jobs
from paretune.studies.search.table import StudyTable, stored
from paretune.tracking import schema

_MOST_SHOWN = 12  # limit on the jobs that a dry run lists
_MOST_WARNED = 20  # limit on the jobs that are estimated for warnings, in addition to one for each instance type


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A job that a study would run, or the reason why it would not run it."""

    parameters: Mapping[str, str]  # those that differ between the jobs of the study
    plan: Plan | None
    refusal: str = ""

    def row(self) -> dict[str, object]:
        """Return the parameters and the worst case."""
        return {**self.parameters, "worst_case_usd": None if self.plan is None else self.plan.limits.worst_usd}

    def line(self) -> str:
        """Return the same in words."""
        worst = f"not tried: {self.refusal}"
        if self.plan is not None:
            worst_usd = self.plan.limits.worst_usd
            worst = "worst case unknown" if worst_usd is None else f"worst case {limit_usd(worst_usd)}"
        return "  " + ", ".join([*map(" ".join, self.parameters.items()), worst])


@dataclass(frozen=True, kw_only=True)
class StudyPreview:
    """The dry run of a study: what it would run, and within which limits."""

    file: StudyFile
    trials: Sequence[PlannedTrial]  # some of its jobs
    words: Mapping[str, str]  # where the jobs run, the worst case of each, and how many the budget covers, by heading
    remarks: Sequence[str]
    known: StudyFront | None = None  # what is expected before any job; None if nothing is known

    title: ClassVar[str] = "dry run: nothing was launched"

    @property
    def script(self) -> dict[str, str]:
        """The arguments of the first job for the user's training, by heading; empty for paretune's own."""
        inputs = next((trial.plan.inputs for trial in self.trials if trial.plan is not None), None)
        if inputs is None or inputs.code is None:
            return {}
        return {name: text for name, text in inputs.code.described.items() if text}

    def text(self) -> str:
        """Return the preview for a terminal."""
        file, details = self.file, list[str]()
        if self.script:
            details = ["", "the first of them:", *(f"  {name}: {text}" for name, text in self.script.items())]
        count = f"{file.size() or 'any number of'} points, n_trials {file.n_trials or 'not set'}"
        budgets = {"budget_usd": file.budget_usd, "budget_hours": file.budget_hours}
        given = [f"{name} {value:g}" for name, value in budgets.items() if value is not None]
        head = f"{file.name}: {count}, {', '.join(given) or 'no budget'}; some of its jobs:"
        words = [f"{name}: {text}" for name, text in self.words.items()]
        lines, known = [trial.line() for trial in self.trials], list[str]()
        if self.known is not None:
            table = aligned(configurations_table(self.known).head(_MOST_SHOWN))
            known = ["", "known before any job, the answer for 0 USD (80 % interval):", table]
        return "\n".join([self.title, "", *words, "", head, *lines, *details, *known, "", *self.remarks])

    def document(self) -> dict[str, object]:
        """Return the preview as a JSON document."""
        jobs, words = [trial.row() for trial in self.trials], {**self.words, **self.script}
        expected = [] if self.known is None else read_rows(pareto_csv(self.known))
        shown = {"study": self.file.name, "jobs": jobs, "launched": False, "remarks": [*self.remarks], "words": words}
        return shown | {"expected": as_json([row for row in expected if row["pareto_rank"] == 0])}


def preview_study(file: StudyFile) -> StudyPreview:
    """Check a study as its launch would, raising the same errors, and return what would run. Nothing is recorded."""
    workplaces, file = Workplaces.of_process(), with_own_code(file)
    file = file.replace(job={**charged(file.job.given(), workplaces.environment), "dry_run": None})
    jobs, unasked = some_jobs(file), list[str]()
    try:
        workplace = workplaces.of(jobs[0])
        check_study(file, jobs, workplace, say_on_stderr)
    except NoAccount as error:
        unasked = [f"your AWS account was not queried: {error}"]
        workplace = workplaces.offline(jobs[0], str(error))
        check_study(file, jobs, workplace, say_on_stderr)
    pattern = file.name.replace("'", "_")  # matches any character, because an apostrophe cannot be searched for
    condition = f"tags.`{schema.TRIAL}` LIKE '%' and tags.`{schema.STUDY}` LIKE '{pattern}'"
    trials = workplace.tracking.runs(condition) if has_store(workplace.environment) else []
    is_new = not any(trial.tags[schema.STUDY] == file.name for trial in trials)
    remarks = remarks_on(jobs, workplace, is_new=is_new)
    of_design = [] if file.design is None else [*file.design.findings(), file.design.largest_correlation()]
    listed, distinct = (spec for _, spec in file.each_job()) if file.tries_all else jobs, dict[str, JobSpec]()
    for spec in listed:
        distinct.setdefault(spec.spec_hash(), spec)
        if len(distinct) >= min(_MOST_SHOWN, file.n_trials or _MOST_SHOWN):
            break
    shown = [*distinct.values()]
    with closing(StudyTable(file, "sqlite://")) as table:  # in memory
        money = Money(file, table, workplace)
        if is_new and file.design is not None:
            refuse_expensive_rows(file, money)
        words = _money_in_words(file, [*_some_of_each_type(jobs), *shown], money, workplace, is_new=is_new)
        common, planned = file.job.given_text(), list[PlannedTrial]()
        for spec in shown:
            made, refusal, limited = None, "", money.limits.shortest(spec)
            try:
                worst_usd = money.worst_usd(limited)
                made = plan(limited, workplace, study=file.name, judges_limit=False, prepare=False).at_worst(worst_usd)
            except (BadInput, BudgetRefused) as error:
                refusal = str(error)
            parameters = {name: text for name, text in spec.given_text().items() if common.get(name) != text}
            planned.append(PlannedTrial(parameters=parameters, plan=made, refusal=refusal))
        known = _known_before(file, table, workplace) if is_new and file.takes_split else None
    remarks = [*unasked, *filter(None, of_design), *remarks]
    return StudyPreview(file=file, trials=planned, words=words, remarks=remarks, known=known)


def _known_before(file: StudyFile, table: StudyTable, workplace: Workplace) -> StudyFront | None:
    """Return the front of what is expected of a study's configurations before any job, or None if nothing is known."""

    def ignore(_: object) -> None:
        """Say nothing, because nothing is run."""

    driver = Driver(file, table, run_id="", workplace=workplace, on_trial=ignore, say=ignore)
    front = front_of(file, (), expected=Split(driver).expected())
    return front if front.expected_best else None


def _some_of_each_type(jobs: Sequence[JobSpec]) -> list[JobSpec]:
    """Return up to `_MOST_WARNED` jobs, and one for each instance type."""
    types = {spec.instance_type: spec for spec in jobs}
    return list({spec.spec_hash(): spec for spec in [*jobs[:_MOST_WARNED], *types.values()]}.values())


def _money_in_words(
    file: StudyFile, jobs: Sequence[JobSpec], money: Money, workplace: Workplace, *, is_new: bool
) -> dict[str, str]:
    """Return where jobs run, the worst case of each, and how many of them the budget covers, by heading.

    Raises BudgetRefused if the budget of a new study covers none of them.
    """
    limited = {spec.spec_hash(): money.limits.shortest(spec) for spec in jobs}.values()
    worst = list[tuple[JobSpec, float]]()
    for spec in limited:
        with suppress(BudgetRefused):  # above max_cost_usd
            if (worst_usd := money.worst_usd(spec)) is not None:
                worst.append((spec, worst_usd))
    places = (
        place_in_words(spec.runs_on, spec.instance_type, spec.instance_count, is_spot=spec.spot) for spec in limited
    )
    types = "; ".join(dict.fromkeys(places))
    if not worst:
        return {"where": types}
    (cheapest, least_usd), (_, most_usd) = (pick(worst, key=itemgetter(1)) for pick in (min, max))
    shortest_s, longest_s = (60 * pick(spec.max_runtime_minutes for spec, _ in worst) for pick in (min, max))
    # The first job may be short: a probe of paretune's own training, or a script with a part of the budget.
    first_s = min(shortest_s, LEAST_OF_ALL_S if cheapest.runs_user_code else LEAST_S)
    first_usd = min(least_usd, money.worst_usd(cheapest.replace(max_runtime_minutes=first_s / 60)) or 0.0)
    budget_usd = file.budget_usd
    if is_new and budget_usd and first_usd > budget_usd:
        raise BudgetRefused(
            f"no job's worst case fits the budget ({usd(budget_usd)}): the least is {limit_usd(least_usd)}; "
            "raise the budget, or lower max_runtime_minutes, which bounds each job"
        )
    price = workplace.launcher.price(cheapest)
    limit = {"limit of a job": f"it is stopped after {_span(duration(shortest_s), duration(longest_s))}"}
    if file.spending.is_time:
        return {"where": types, **limit, **_time_in_words(file, money, workplace, (shortest_s, longest_s))}
    notional = " (notional: nobody bills this machine)" if price is not None and price.confidence == "notional" else ""
    words = {
        "where": types,
        "worst case of a job": f"{_span(limit_usd(least_usd), limit_usd(most_usd))}{notional}",
        **limit,
    }
    if budget_usd:
        counts = [math.floor(budget_usd / each) for each in (most_usd, least_usd) if each]
        covered = f"{usd(budget_usd)} cover {_span(*(f'{count:,}' for count in counts))} such jobs" if counts else ""
        more = ", and more once the first ones have shown how long they take" if cheapest.runs_user_code else ""
        words["budget"] = f"{covered}{more}" if covered else usd(budget_usd)
    return words


def _time_in_words(
    file: StudyFile, money: Money, workplace: Workplace, limits_s: tuple[float, float]
) -> dict[str, str]:
    """Return how many jobs the budget covers where nobody bills, and what time its dollars stand for, by heading.

    `limits_s` are the shortest and the longest time limit of a job, in seconds.
    """
    words = {"dollars": text} if (text := dollars_as_time(file, workplace)) else dict[str, str]()
    if (budget_s := money.total_s) is None:
        return words
    if budget_s < limits_s[1]:
        text = "are less than that limit, so jobs get shorter ones"
    else:
        counts = _span(*(f"{math.floor(budget_s / each):,}" for each in limits_s[::-1]))
        text = f"cover {counts} such jobs at their time limits"
        text += ", and more once the first ones have shown how long they take" * file.job.runs_user_code
    return {**words, "budget": f"{duration(budget_s)} of job time {text}"}


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def check_study(file: StudyFile, jobs: list[JobSpec], workplace: Workplace, say: Callable[[str], None]) -> None:
    """Check a study of which these are some of the jobs. If the workplace is offline, check what needs no account.

    Raises the errors of `run_study` before anything is written or paid.
    """
    has_account, is_users = workplace.offline is None, jobs[0].runs_user_code
    if file.design is None and not stored(file.name, storage_of(file, workplace)):
        refuse_small_budget(file.budget_usd, file.budget_hours, jobs, workplace)
    if has_account:
        _check_terms(file, workplace)
        if workplace.launcher.reads_inputs and not is_users:
            say("preparing model and data")
    prepare = has_account or is_users
    planned = partial(plan, workplace=workplace, study=file.name, judges_limit=False, prepare=prepare)
    plans = _plans(jobs, planned)
    first = next(plans)
    if has_account:
        _check_quality(file, chain([first], plans), workplace.launcher)


def _plans(jobs: Iterable[JobSpec], planned: Callable[[JobSpec], Plan]) -> Iterator[Plan]:
    """Yield the plan of each job that is admitted. Raises BadInput with the faults of the first job if none is."""
    first, is_any = list[str](), False
    for spec in jobs:
        with collecting(faults := list[str]()):
            made = planned(spec)
        if not faults:
            is_any = True
            yield made
        first = first or faults
    refuse([] if is_any else first)


def storage_of(file: StudyFile, at: Workplace | Workplaces) -> str:
    """Return the address of a study's storage."""
    return file.storage or usual_storage(at.home, at.environment)


def _check_terms(file: StudyFile, workplace: Workplace) -> None:
    """Raise BadInput if the file of the budgets is faulty, or if the study cannot run in rounds (`once`)."""
    budgets, storage = workplace.budget_ledger(file.job.budget), storage_of(file, workplace)
    if file.once and not workplace.launcher.jobs_outlive_submitter:
        ending = f"those of launcher {workplace.launcher.traits.name} end with it"
        text = f"jobs that keep running after the command ends, but {ending}: leave out once, or use another launcher"
        raise BadInput([f"once=true needs {text}"])
    if file.once and budgets is not None and budgets.is_local and storage.startswith("postgresql"):
        text = f"{budgets.file.path} on a server, too, because later commands may run on other machines. It is in "
        text += f"{budgets.shown_address}: set {STORAGE_VARIABLE}, or storage in that file"
        raise BadInput([f"once=true with storage {redacted(storage)} needs the ledger of {text}"])


def refuse_expensive_rows(file: StudyFile, money: Money) -> None:
    """Raise BudgetRefused if the rows that will run may cost more than the budget: a part of them would show little."""
    specs, budget_usd = [spec for _, spec in file.jobs_at()][: file.n_trials], file.budget_usd
    total_usd = sum(filter(None, (money.worst_usd(money.limits.shortest(spec)) for spec in specs)))
    if budget_usd is not None and total_usd > budget_usd:
        raise BudgetRefused(
            f"the {len(specs)} rows cost at worst {limit_usd(total_usd)} together, and budget_usd is "
            f"{usd(budget_usd)}: raise it, take rows out, or lower max_runtime_minutes, which bounds each job"
        )


def _check_quality(file: StudyFile, plans: Iterable[Plan], launcher: Launcher) -> None:
    """Raise BadInput if a simulated study needs a quality metric that the simulation does not know."""
    quality = file.judged_by
    if launcher.virtual_clock is None or file.design is not None or quality is None:
        return
    orders = (made.order("paretune-check", "") for made in islice(plans, _MOST_WARNED))
    if any(quality.metric in launcher.preview(order)["metrics"] for order in orders):
        return
    text = f"{label(quality.metric)} of these jobs is unknown: a simulation takes it from a table of recorded runs. "
    raise BadInput([f"{text}Set simulation.runs, or take {quality.metric} out of objectives and constraints"])


def remarks_on(jobs: list[JobSpec], workplace: Workplace, *, is_new: bool) -> list[str]:
    """Return lines to print: warnings that all points share, how many points will not be tried, and prices.

    Warnings about the rows are those of the jobs whose rows are prepared. Raises BadInput if a new study has no job
    that can be launched.
    """

    def foresee(spec: JobSpec) -> tuple[ForeseenJob, JobInputs]:
        inputs = inputs_of(spec, workplace, prepare=False)
        return foreseen(spec, inputs, workplace), inputs

    some = [foresee(spec) for spec in _some_of_each_type(jobs)]
    of_data = dict.fromkeys(text for _, inputs in some for text in inputs.findings.warnings)
    estimated = [job for job, _ in some]
    refusals = [text for job in estimated if (text := limit_refusal(job))]
    if is_new and len(refusals) == len(estimated) and all(limit_refusal(foresee(spec)[0]) for spec in jobs):
        raise BadInput([f"none of the study's jobs can be launched: {refusals[0]}"])
    count = f"{len(refusals)} of the {len(estimated)} points checked will not be tried; the first one because: "
    warnings = [*of_data, *warnings_of(estimated, only_common=True), *(f"{count}{text}" for text in refusals[:1])]
    prices = {job.spec.instance_type: job.price for job in estimated if job.spec.has_instances and job.price}
    hourly = ", ".join(f"{name} {price.usd_per_hour:g}" for name, price in prices.items())
    line = [f"prices in USD per hour {dates_of(prices.values())}: {hourly}"] if prices else []
    return [*(f"warning: {text}" for text in warnings), *line]
