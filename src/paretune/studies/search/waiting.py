"""Waiting for other drivers of a study, which have reserved the dollars that this one lacks."""

from collections.abc import Callable, Mapping

from paretune.core.clock import SystemClock
from paretune.jobs.retrying_job import WATCH_INTERVAL_S
from paretune.jobs.watch import ABANDONED_S
from paretune.launchers.base import CREATED_WITHIN_S
from paretune.ledger.trial_entry import TrialEntry
from paretune.specification.job import JobSpec
from paretune.studies.search.driver import Driver
from paretune.studies.search.untried import some_jobs

_MOST_TRIED = 300  # jobs of the study of which one has to fit


def wait_for_others(driver: Driver, say: Callable[[str], None]) -> bool:
    """Wait until a trial of another driver has ended; returns False if the search is over for this driver.

    Called when the search has found no job to start. There is something to wait for if a job would fit into the budgets
    once what the other drivers have reserved is released unspent, or if no trial of the study has ended yet. A trial
    ends at latest with its maximum runtime; a driver that has died is noticed and its trials are taken over.

    Raises:
        Interrupted: the command was interrupted.
    """
    held = _held_by_others(driver)
    if driver.file.once or not held or not _can_help(driver, held):
        return False
    minutes = max(JobSpec.from_text(entry.parameters).max_runtime_minutes for entry in held.values())
    minutes += (CREATED_WITHIN_S + ABANDONED_S) / 60
    usd = sum(entry.worst_usd or 0.0 for entry in held.values())
    owners = " and ".join(sorted({entry.owner for entry in held.values()}))
    say(
        f"{owners} has reserved {usd:.4g} USD for {len(held)} trials of the study that run: waiting until one of them "
        f"has ended, for at most {minutes:g} minutes"
    )
    is_virtual = driver.workplace.launcher.virtual_clock is not None  # the other process needs real time
    clock = SystemClock() if is_virtual else driver.workplace.clock
    until = clock.monotonic() + minutes * 60
    while held.keys() <= _held_by_others(driver).keys():
        driver.workplace.interruption.check()
        if clock.monotonic() > until:
            return False
        clock.sleep(WATCH_INTERVAL_S)
    driver.adopt()
    return True


def _held_by_others(driver: Driver) -> Mapping[int, TrialEntry]:
    """Running trials of other drivers that are alive, by number."""
    others = driver.other_drivers()
    return {entry.trial: entry for entry in driver.ledger.running() if entry.owner in others} if others else {}


def _can_help(driver: Driver, held: Mapping[int, TrialEntry]) -> bool:
    if not driver.admission.is_short:
        return not driver.trials
    is_affordable = driver.admission.affordable(released_usd=sum(entry.worst_usd or 0.0 for entry in held.values()))
    open_jobs = filter(driver.is_open, some_jobs(driver.file, _MOST_TRIED))
    return any(is_affordable(driver.admission.worst_case.limited(spec)) for spec in open_jobs)
