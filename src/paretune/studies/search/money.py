"""The dollars and hours of a study: the worst case of each job, reserved in its own budget and in shared ones.

A job's worst case follows from its time limit, which `limits` sets. It is reserved before the job is created.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from paretune.core.errors import BadInput, BudgetRefused, LaunchRefused, LostContact
from paretune.jobs.workplace import Workplace
from paretune.launchers.deadlines import output_of
from paretune.launchers.offers import admit, region_of, worst_case_usd
from paretune.ledger.budget_ledger import BudgetStatus
from paretune.presentation.text import duration, limit_usd, usd
from paretune.pricing import ROUNDING_USD, cost_usd, unknown_price
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.plan import Plan
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.limits import LEAST_OF_ALL_S, Limits
from paretune.studies.search.table import StudyTable
from paretune.studies.trial_status import TrialStatus

_ROUNDING_S = 1e-6  # tolerance in seconds, for the rounding errors of floating-point sums
MAX_COST = "max_cost_usd"  # the parameter, as messages name it


def refuse_small_budget(
    budget_usd: float | None, budget_hours: float | None, jobs: Iterable[JobSpec], workplace: Workplace
) -> None:
    """Raise BudgetRefused if a budget covers none of these jobs even with the shortest time limit of all.

    This needs neither prepared rows nor estimates, so an impossible budget is refused within seconds. A budget of 0 USD
    asks for an estimate, and is not refused.
    """
    if budget_hours is not None and 3600 * budget_hours < LEAST_OF_ALL_S:
        least = f"the shortest limit of a job is {duration(LEAST_OF_ALL_S)}"
        raise BudgetRefused(f"no job fits the budget ({duration(3600 * budget_hours)}): {least}; raise budget_hours")
    if not budget_usd:
        return
    least_usd = math.inf
    for spec in jobs:
        short = spec.replace(max_runtime_minutes=min(spec.max_runtime_minutes, LEAST_OF_ALL_S / 60))
        worst_usd = worst_case_usd(short, workplace.launcher, workplace.environment)
        if worst_usd is None or worst_usd <= budget_usd:
            return
        least_usd = min(least_usd, worst_usd)
    if least_usd < math.inf:
        raise BudgetRefused(
            f"no job's worst case fits the budget ({usd(budget_usd)}): a job that is stopped after "
            f"{duration(LEAST_OF_ALL_S)}, the shortest limit, may cost {limit_usd(least_usd)}; raise the budget"
        )


def dollars_as_time(file: StudyFile, workplace: Workplace) -> str:
    """Say what time a study's dollars stand for where nobody bills; return an empty string if they stand for none."""
    price = workplace.launcher.price(file.job)
    if not file.spending.is_time or not file.budget_usd or price is None or not price.usd_per_hour:
        return ""
    time = duration(3600 * file.budget_usd / price.usd_per_hour)
    return (
        f"nobody bills these jobs: {usd(file.budget_usd)} stand for {time} of job time, at the price of an "
        f"{price.instance_type} ({usd(price.usd_per_hour)} per hour)"
    )


class Money:
    """Reserves the worst cases of jobs, and checks what the budgets still cover.

    Attributes:
        limits: the time limits of the jobs.
        exceeded_s: the most seconds that any job so far was billed beyond its worst case; added to later worst cases.
    """

    def __init__(self, file: StudyFile, table: StudyTable, workplace: Workplace) -> None:
        self._file, self._table, self._workplace = file, table, workplace
        self._shared = workplace.budget_ledger(file.job.budget)
        self.limits, self.exceeded_s = Limits(workplace, has_budget=self.has_budget), 0.0
        self._has_seen_upload = False  # whether a job has completed and so shown how long its upload takes

    @property
    def has_budget(self) -> bool:
        """Whether any budget limits the study's jobs."""
        return self.has_dollars or self._file.budget_hours is not None

    @property
    def has_dollars(self) -> bool:
        """Whether a budget in dollars limits them."""
        return self._file.budget_usd is not None or self._shared is not None

    @property
    def total_usd(self) -> float | None:
        """The study's own budget in dollars. Hours where nobody bills count at the price that stands for them.

        None if there is no budget, or if it has hours and no price stands for them.
        """
        dollars, hours = self._file.budget_usd, self._file.budget_hours
        if hours is None or not self._file.spending.is_time:
            return dollars
        usd_of_hours = cost_usd(self._workplace.launcher.price(self._file.job), 3600 * hours, 1)
        return min((each for each in (dollars, usd_of_hours) if each is not None), default=None)

    @property
    def total_s(self) -> float | None:
        """The study's own budget in seconds, where nobody bills. Dollars count at the price that stands for them."""
        hours, dollars = self._file.budget_hours, self._file.budget_usd
        given = [] if hours is None else [3600 * hours]
        per_second = cost_usd(self._workplace.launcher.price(self._file.job), 1.0, 1)
        given += [dollars / per_second] if dollars is not None and per_second else []
        return min(given, default=None)

    @property
    def left_s(self) -> float:
        """Seconds that are left of the study's hours; infinite without a limit."""
        hours, (spent_s, committed_s) = self._file.budget_hours, self._table.seconds()
        return math.inf if hours is None else 3600 * hours - spent_s - committed_s

    def _has_time(self, spec: JobSpec) -> bool:
        """Return whether the hours that are left cover a job up to its time limit."""
        return 60 * spec.max_runtime_minutes <= self.left_s + _ROUNDING_S

    def add(self, trial: Trial) -> str:
        """Learn from an ended trial how long later jobs may take and what they may cost.

        If the trial cost more than its worst case, or its upload took longer than assumed, later worst cases are
        higher. Return a message if it cost more than its worst case, else an empty string.
        """
        self.limits.add(trial)
        launcher, spec = self._workplace.launcher, trial.spec
        per_second = cost_usd(launcher.price(spec), 1.0, spec.instance_count)
        if trial.cost_usd is None or trial.worst_usd is None or not per_second or not launcher.traits.is_billed:
            return ""
        if trial.status is TrialStatus.COMPLETED:
            self._has_seen_upload = True
            uploaded_s = trial.measured.get(metrics.UPLOADING_SECONDS, 0.0)
            if spec.runs_on.files_travel:
                bound_s = output_of(spec, self._workplace.environment).longest_upload_s
                self.exceeded_s = max(self.exceeded_s, uploaded_s - bound_s)
        if (over_usd := trial.cost_usd - trial.worst_usd) <= ROUNDING_USD:
            return ""
        usual_usd = worst_case_usd(spec, launcher, self._workplace.environment) or 0.0
        self.exceeded_s = max(self.exceeded_s, (trial.cost_usd - usual_usd) / per_second)
        return (
            f"trial {trial.number} cost {usd(trial.cost_usd)}, {usd(over_usd)} more than its worst case: it is "
            "charged in full, and later jobs reserve that much more"
        )

    def check_prices(self, spec: JobSpec) -> None:
        """Raise BadInput if a budget or max_cost_usd limits a job and its price is unknown."""
        consequence = "it cannot be charged to a budget" if self.has_dollars else f"{MAX_COST} cannot be enforced"
        for each in spec.clusters() if self.has_dollars or spec.max_cost_usd is not None else ():
            if self._workplace.launcher.price(each) is None:
                region = region_of(each, self._workplace.launcher, self._workplace.environment)
                raise BadInput([unknown_price(each.instance_type, region, consequence)])

    def worst_usd(self, spec: JobSpec) -> float | None:
        """Return the worst case of a job in dollars, on its most expensive instance type; None if a price is unknown.

        If the training code is the user's own, nobody knows how much it writes. So until a job has completed, the worst
        case includes an unusually long upload. Raises BudgetRefused if max_cost_usd is set and the worst case without
        that upload is higher or a price is unknown.
        """
        launcher = self._workplace.launcher
        usd = admit(spec, launcher, self._workplace.environment, self.exceeded_s)
        if usd is None or self._has_seen_upload or not spec.runs_on.files_travel:
            return usd
        seconds = output_of(spec, self._workplace.environment).first_upload_s
        return usd + max(
            cost_usd(launcher.price(each), seconds, each.instance_count) or 0.0 for each in spec.clusters()
        )

    def reserve(self, trial: Trial, asked: Plan) -> Trial:
        """Reserve the worst case of a trial's job in the study's budget, and return the trial with it.

        `asked` is the plan of the job, as far as its parameters decide it.

        Shared budgets are only checked here: like any other job, this one reserves dollars there once it has a run.

        Raises:
            BudgetRefused: the worst case does not fit into a budget.
            LostContact: the shared budgets cannot be read.
        """
        worst_usd = self.worst_usd(trial.spec)
        if not self._has_time(trial.spec):
            limit = duration(60 * trial.spec.max_runtime_minutes)
            raise BudgetRefused(f"a job of up to {limit} does not fit {self.tightest_budget(trial.spec)}")
        if self._file.budget_usd is not None:
            needed_usd = math.inf if worst_usd is None else worst_usd
            if not self._table.balance().covers(needed_usd, self._file.budget_usd):
                raise BudgetRefused(f"worst case {limit_usd(needed_usd)} does not fit {self.tightest_budget()}")
        try:
            self._workplace.check_budgets(asked.at_worst(worst_usd))
        except LaunchRefused as error:  # the storage of the shared budgets does not answer
            raise LostContact(str(error)) from error
        trial = replace(trial, worst_usd=worst_usd)
        self._table.save(trial)
        return trial

    def affordable(self, *, keep_usd: float = 0.0) -> Callable[[JobSpec], bool]:
        """Return a function that checks whether what is left now covers the worst case of a job, in dollars and hours.

        After the worst case, `keep_usd` dollars of the study's own budget must remain.
        """
        budget_usd, status = self._file.budget_usd, self._shared_status()
        limits = [] if budget_usd is None else [(self._table.balance(), budget_usd - keep_usd)]
        limits += [] if status is None else [(status.balance, status.budget.usd_per_month)]

        left_s = self.left_s

        def is_affordable(spec: JobSpec) -> bool:
            self._workplace.interruption.check()
            if 60 * spec.max_runtime_minutes > left_s + _ROUNDING_S:
                return False
            try:
                worst_usd = self.worst_usd(spec)
            except BudgetRefused:  # above max_cost_usd, or the price is unknown
                return False
            return all(worst_usd is not None and spent.covers(worst_usd, most_usd) for spent, most_usd in limits)

        return is_affordable

    def tightest_budget(self, spec: JobSpec | None = None) -> str:
        """Describe what is left of the tightest budget for a job; return an empty string without a budget."""
        lacks_time = spec is not None and not self._has_time(spec)
        if self._file.budget_hours is not None and (lacks_time or not self.has_dollars):
            return f"what is left of the budget ({duration(max(0.0, self.left_s))} of job time)"
        budget_usd, status = self._file.budget_usd, self._shared_status()
        left_usd = math.inf if budget_usd is None else self._table.balance().left_usd(budget_usd)
        if status is not None and status.left_usd < left_usd:
            return f"what is left of {status.sentence()}"
        return "" if budget_usd is None else f"what is left of the budget ({usd(left_usd)})"

    def limit_below(self, jobs: Collection[JobSpec]) -> str:
        """Describe the limit that keeps jobs that are not affordable from starting; return an empty string if none.

        It is `MAX_COST` if the worst case of every job exceeds that, else the tightest budget.
        """
        refused = 0
        for spec in jobs:
            try:
                self.worst_usd(spec)
            except BudgetRefused:
                refused += 1
        if jobs and refused == len(jobs):
            return MAX_COST
        return self.tightest_budget(min(jobs, key=lambda spec: spec.max_runtime_minutes)) if jobs else ""

    def _shared_status(self) -> BudgetStatus | None:
        """Return the status of the shared budget with the fewest dollars left; None if none covers the study's jobs."""
        if self._shared is None:
            return None
        job = self._file.job
        tags = self._workplace.attribution(job.tags, self._file.name).of_budgets(job.tags)
        statuses = self._shared.statuses(self._workplace.clock.now(), self._workplace.launcher.origin)
        counted = [status for status in statuses if status.budget.covers(tags)]
        return min(counted, key=lambda status: status.left_usd, default=None)
