"""`method: split`: seconds from short probes, F1 from the cheapest cluster that fits, joined into a predicted front.

F1 follows from global batch size, learning rate and epochs; seconds of a row from cluster and per-device batch; dollars
from seconds. So no cluster needs to be trained on to know its F1, and no learning rate to know its seconds. Each step
takes the job that is expected to add most hypervolume per dollar: to what is known, by a probe where seconds are open
and by a training where F1 is; or to what has really been run, by verifying a point that is only predicted. Where
F1 turns out to depend on the cluster, the study goes on jointly. A study that begins with what earlier ones have shown
trains second where one without them begins.
"""

import math
from collections.abc import Mapping

import numpy as np

from paretune.ledger.trial_entry import TrialNote, TrialStatus
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.results.answer import Borrowed
from paretune.studies.results.front import trials_on_front
from paretune.studies.results.objective_text import label
from paretune.studies.results.trials import Trial
from paretune.studies.search import joint
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.actions import LEARN, PROBE, VERIFY, Action, Actions
from paretune.studies.search.split.knowledge import FIRST_PREDICTED, Knowledge
from paretune.studies.search.stopping import costs_too_much, lacks_objective

_CHANCE = 0.05  # that F1 is taken to depend on the cluster although it does not, at most, over a whole search
_ENOUGH = "no job would add more to the front than it costs to find out"
_NO_F1 = "no training has told an F1, and a rehearsal knows none without recorded runs of this model and these data"
_NO_QUALITY = "no training has told what it is worth"
_WRONG = "depends on the instance type by more than noise, so the study went on jointly"


class Split:
    """The state of one search."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.know = Knowledge(driver)
        self._actions = Actions(self.know, self._is_closed, driver.file.value_of_front_usd)
        self._pending: dict[int, Action] = {}
        self._impossible: set[tuple[object, ...]] = set()
        self._refused: set[tuple[object, ...]] = set()  # by SageMaker, until a job ends
        self._is_affordable = driver.admission.affordable()
        self._has_unaffordable = False
        self._judged = -1
        self._is_joint = False  # predictions were contradicted
        self._wrong = f"{label(self.know.quality.metric)} {_WRONG}"
        self._recall()

    def search(self) -> str:
        """Find out and verify until nothing is worth it; why it ended, in words."""
        driver = self.driver
        if not self.know.pool:  # a range of which none of the few values looked at makes a job
            return joint.search(driver)
        reason = ""
        while True:
            if self._judged != driver.history.booking_order:
                self._judged = driver.history.booking_order
                self._refused.clear()
            while not reason and driver.has_free_slot():
                driver.workplace.interruption.check()
                if driver.start_retry():  # a point that had met no capacity, or no quota
                    continue
                reason = self._over()
                action = None if reason else self._next()
                if action is not None:
                    self._begin(action)
                elif driver.running:
                    break
                else:
                    reason = reason or self._why_none()
            driver.poll()
            self._forget_ended()
            if reason and not driver.running and not driver.history.retries:
                break
            driver.wait()
        if reason == self._wrong:
            self._is_joint = True
            return f"{self._verified()}: {reason}: {joint.search(driver)}"
        return f"{reason}; {self._verified()}"

    def recommended(self) -> list[Trial]:
        """The front that is recommended: measured points, and predicted ones that are as good as known."""
        self._learn()
        known = enumerate(np.flatnonzero(self.know.known), start=FIRST_PREDICTED)
        predicted = [self.know.as_trial(int(index), number) for number, index in known]
        file = self.driver.file
        return trials_on_front([*self.driver.history.front, *predicted], file.objectives, file.constraints)

    def forecast(self) -> list[Trial]:
        """Points that are predicted and were not run; none after predictions have been contradicted."""
        if self._is_joint or not self.know.pool:
            return []
        self.know.learn()
        return self.know.forecast() if self.know.has_f1 else []

    def borrowed(self) -> list[Borrowed]:
        """What was borrowed from earlier studies; nothing before anything was learnt."""
        return self.know.borrowed()

    def _why_none(self) -> str:
        value_usd = self.driver.file.value_of_front_usd
        is_dear = self._has_unaffordable or self.know.is_short
        if is_dear and (left := self.driver.admission.tightest_budget(self._some_job())):
            return f"no job that is worth it fits {left} with its worst case"
        if not self.know.has_f1:
            return _NO_F1 if self.know.quality.metric == metrics.F1 else _NO_QUALITY
        return _ENOUGH if value_usd is None else f"{_ENOUGH}, the whole front being worth {value_usd:g} USD"

    def _over(self) -> str:
        if self.driver.admission.has_enough(len(self.driver.trials) + len(self.driver.running)):
            return f"{self.driver.file.n_trials} trials were made"
        self._learn()
        if self.know.shift_evidence > -math.log(_CHANCE):
            return self._wrong
        trials, file = list(self.driver.trials.values()), self.driver.file
        return lacks_objective(trials, self.driver.history.measured, file) or costs_too_much(trials, file)

    def _next(self) -> Action | None:
        """The most valuable action whose worst case fits the budget now, by what was learnt last."""
        self._is_affordable, self._has_unaffordable = self.driver.admission.affordable(), False
        return self._most_valuable()

    def _most_valuable(self) -> Action | None:
        unbiased = self._actions.unbiased() if self.know.has_borrowed_f1 else None
        if unbiased is not None:
            return unbiased
        if self.know.has_f1 or self.know.has_borrowed_f1:
            return self._actions.best()
        waiting = {action.point.get("instance_type") for action in self._pending.values()}
        is_learning = any(action.kind == LEARN for action in self._pending.values())
        return self._actions.first(waiting, is_learning=is_learning)

    def _learn(self) -> None:
        under_way = [action.spec.replace(**action.changes) for action in self._pending.values()]
        left = self.driver.admission.left_usd(self._some_job())
        if math.isinf(left):
            self.know.learn(under_way)
            return
        committed = self.driver.ledger.balance().committed_usd
        reach = left + committed - sum(action.cost_usd for action in self._pending.values())
        self.know.learn(under_way, left_usd=left, reach_usd=reach)

    def _some_job(self) -> JobSpec | None:
        """Any job of the study, for the same budgets count for all; None where no point makes one."""
        return self.know.pool[0].spec if self.know.pool else None

    def _begin(self, action: Action) -> None:
        asked = self.driver.study.ask_for(action.point)
        note = TrialNote(
            changes=self._changes(action), kind=action.kind, predicted=action.predicted, expected_usd=action.cost_usd
        )
        if self.driver.start(asked, note):
            self._pending[asked.number] = action
        else:
            is_closed = self.driver.history.is_closed(self._job_of(action))
            (self._impossible if is_closed else self._refused).add(action.identity)

    def _recall(self) -> None:
        """Take up what drivers before this one have begun, and what has failed for them."""
        driver, kinds = self.driver, {PROBE, LEARN, VERIFY}
        for job in driver.running:
            if job.note.kind in kinds:
                spec = driver.file.spec_at(job.note.point)
                self._pending[job.number] = _action_of(job.note, spec, job.spec.max_runtime_minutes)
        for number, note in driver.history.notes.items():
            if note.kind in kinds and self._has_failed(number):
                self._impossible.add(_action_of(note, driver.file.spec_at(note.point), None).identity)

    def _has_failed(self, number: int) -> bool:
        trial = self.driver.trials.get(number)
        return trial is not None and trial.status is TrialStatus.FAILED

    def _job_of(self, action: Action) -> JobSpec:
        return action.spec.replace(**self._changes(action))

    def _changes(self, action: Action) -> Mapping[str, object]:
        """Parameters of its job that are not those of its point, with its limit where there is a budget."""
        return {**action.changes, **({"max_runtime_minutes": action.limit_minutes} if action.limit_minutes else {})}

    def _checked(self) -> list[tuple[Trial, Mapping[str, float]]]:
        """Verifications that have measured F1, by whichever driver, and what was predicted of them."""
        name = self.know.quality.metric
        measured = [trial for trial in self.driver.trials.values() if name in trial.values]
        found = [(trial, self.driver.history.notes[trial.number].predicted) for trial in measured]
        return [(trial, predicted) for trial, predicted in found if predicted]

    def _verified(self) -> str:
        """What came of the predictions, in words."""
        name = self.know.quality.metric
        sentences = [
            f"trial {trial.number}: {label(name)} {trial.values[name]:.4f}, "
            f"{trial.values[name] - predicted[name]:+.4f} from its prediction"
            for trial, predicted in self._checked()
        ]
        return "verified " + "; ".join(sentences) if sentences else "no point was only predicted"

    def _is_closed(self, action: Action) -> bool:
        """Whether it is under way, was refused, or cannot be paid for now."""
        pending = {one.identity for one in self._pending.values()}
        if action.identity in self._impossible | self._refused | pending:
            return True
        job = self._job_of(action)
        if job.spec_hash() in self.driver.history.impossible:  # as a driver before this one has found out
            return True
        is_affordable = self._is_affordable(job)
        self._has_unaffordable |= not is_affordable
        return not is_affordable

    def _forget_ended(self) -> None:
        """Take what has ended out of what is under way; what failed is not tried again."""
        running = {job.number for job in self.driver.running}
        for number in set(self._pending) - running:
            action = self._pending.pop(number)
            if self._has_failed(number):
                self._impossible.add(action.identity)


def _action_of(note: TrialNote, spec: JobSpec, limit_minutes: float | None) -> Action:
    """The action that a driver has written down when it began it."""
    has_limit = "max_runtime_minutes" in note.changes
    return Action(
        kind=note.kind,
        spec=spec,
        limit_minutes=limit_minutes if has_limit else None,
        point=note.point,
        changes={name: value for name, value in note.changes.items() if name != "max_runtime_minutes"},
        cost_usd=note.expected_usd,
        predicted=note.predicted,
    )


def search(driver: Driver) -> str:
    """Run the study to its end; why it ended, in words."""
    return Split(driver).search()


def recommended(driver: Driver) -> list[Trial]:
    """The front that is recommended after a search; predicted points are marked by their origin."""
    return Split(driver).recommended()
