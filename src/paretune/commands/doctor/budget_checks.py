"""Checks of the budgets that the jobs of a command, or of the profile, count against."""

from collections.abc import Iterator, Mapping

from paretune.commands.doctor.command import DoctorRequest
from paretune.core.checks import Finding, failed, passed
from paretune.core.commands import command_line
from paretune.core.errors import BadInput, BudgetRefused
from paretune.jobs.workplace import budget_ledger_of, home_of
from paretune.specification.profile import read_profile

BUDGETS = "budgets"


def budget_findings(request: DoctorRequest, environment: Mapping[str, str], now: float) -> Iterator[Finding]:
    """Yield what is left of each budget this month, in real dollars; nothing if no file of budgets is named.

    Raises:
        BadInput: the file has faults, or its storage does not answer.
    """
    try:
        path = request.spec.budget or read_profile(environment).get("budget")
    except BadInput:
        return  # the check of the profile reports the fault
    if path is None:
        return
    ledger = budget_ledger_of(path, home_of(environment), environment)
    try:
        ledger.check_storage(now, "measured")
    except BudgetRefused as error:
        yield failed(BUDGETS, str(error))
        return
    never, used_tags = ledger.unmatched()
    for standing in ledger.statuses(now, "measured"):
        balance, name = standing.balance, standing.budget.name
        tags = ", ".join(f"{tag}={text}" for tag, text in standing.budget.tags.items()) or "every job"
        status = f"{standing.sentence()}; {balance.spent_usd:.2f} spent, {balance.committed_usd:.2f} promised; {tags}"
        if standing.left_usd > 0:
            spelling = f"; no job has had these tags yet, jobs have had {', '.join(used_tags)}: check the spelling"
            yield passed(BUDGETS, status + (spelling if standing.budget in never else ""))
        else:
            more = f"raise usd_per_month of {name} in {path}, or wait for the next month (UTC)"
            yield failed(
                BUDGETS,
                f"{status}: no job of it can be launched; `{command_line('sync')}` books what has ended, or {more}",
            )
