"""Warm pools that SageMaker keeps after the jobs of a study: found, given back and booked."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from paretune.core.commands import command_line
from paretune.core.errors import BadInput, CallAgain, LaunchRefused, LostContact, TrackingUnavailable
from paretune.jobs.attempts import STOP_PATIENCE_S, WATCH_INTERVAL_S
from paretune.jobs.bill import KeptPool
from paretune.jobs.workplace import Workplace
from paretune.studies.results.trials import Trial
from paretune.studies.search.table import StudyTable


class KeptPools:
    """The warm pools of one study, by the number of the trial whose job left them, whichever driver ran it."""

    def __init__(self, study: str, table: StudyTable, workplace: Workplace, say: Callable[[str], None]) -> None:
        self._study, self._table, self._workplace, self._say = study, table, workplace, say
        self._pools: dict[int, KeptPool] = {}

    def find(self, trials: Iterable[Trial]) -> None:
        """Look for pools of ended trials that are not booked yet."""
        for trial in trials:
            if not trial.kept_usd or trial.number in self._pools:
                continue
            with suppress(BadInput, LaunchRefused, TrackingUnavailable):  # it is tried again, and `sync` looks, too
                for run in self._workplace.tracking.runs(f"attributes.run_id = '{trial.run_id}'"):
                    self._pools[trial.number] = KeptPool(run, self._workplace)

    def settle(self) -> None:
        """Book the pools that are no longer kept."""
        for trial, pool in list(self._pools.items()):
            with suppress(LostContact):
                if (settled := pool.settle()) is not None:
                    usd, sentence = settled
                    self._table.book_kept(trial, usd)
                    del self._pools[trial]
                    self._say(f"trial {trial}: {sentence}")

    def give_back(self, *, waits: bool) -> None:
        """Give all pools back and book them; raises CallAgain if that takes longer than the caller waits."""
        for trial, pool in self._pools.items():
            try:
                pool.release()
            except LostContact as error:
                self._say(f"trial {trial}: {error}")
        self.settle()
        if self._pools and not waits:
            raise CallAgain(f"study {self._study}: instances that were kept are being given back: call again")
        until = self._workplace.clock.monotonic() + STOP_PATIENCE_S
        while self._pools and self._workplace.clock.monotonic() < until:
            self._workplace.clock.sleep(WATCH_INTERVAL_S)
            self.settle()
        for trial, pool in self._pools.items():
            self._say(f"trial {trial}: the instances kept after {pool.name} are still billed: `{command_line('sync')}`")
