"""`method: split`: seconds from short probes, F1 from the cheapest cluster that fits, joined into a predicted front.

F1 follows from global batch size, learning rate and epochs; seconds of a row from cluster and per-device batch; dollars
from seconds. So no cluster needs to be trained on to know its F1, and no learning rate to know its seconds. Each step
takes the job that is expected to add most hypervolume per dollar: to what is known, by a probe where seconds are open
and by a training where F1 is; or to what has really been run, by verifying a point that is only predicted. If matched
pairs of jobs show that F1 depends on the cluster, each instance type is trained on for its own F1. A study that begins
with what earlier ones have shown trains second the job that one without them begins with.
"""

import math
from collections.abc import Mapping

import numpy as np

from paretune.ledger.trial_entry import TrialNote, TrialStatus
from paretune.presentation.numbers import usd
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.results.answer import Borrowed
from paretune.studies.results.front import trials_on_front
from paretune.studies.results.objective_text import label
from paretune.studies.results.quality_model import Key
from paretune.studies.results.trials import PREDICTED, Trial
from paretune.studies.search import joint
from paretune.studies.search.driver import Driver
from paretune.studies.search.split.actions import LEARN, PROBE, VERIFY, Action, Actions
from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.knowledge import Knowledge
from paretune.studies.search.split.learner import Learner
from paretune.studies.search.stopping import costs_too_much, lacks_objective

FIRST_PREDICTED = 1_000_000
"""Numbers of predicted points begin here, above those of all trials."""
_CONTRADICTION = 4.0  # deviations of one run's noise from its prediction, from which on a matched pair is bought
_ENOUGH = "no job would add more to the front than it costs to find out"
_NO_F1 = "no training has measured F1, and a rehearsal has none without recorded runs of this model and these data"
_NO_QUALITY = "no training has logged the metric that measures its model"
_SHIFTED = "depends on the instance type by more than noise, so each type was trained on for its own"


class Split:
    """The state of one search; `knowledge` is what was learnt last, None before anything was learnt."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.learner = Learner(driver)
        self.knowledge: Knowledge | None = None
        self._pending: dict[int, Action] = {}
        self._impossible: set[tuple[object, ...]] = set()
        self._refused: set[tuple[object, ...]] = set()  # by SageMaker, until a job ends
        self._jobs: dict[tuple[object, ...], tuple[JobSpec, str]] = {}  # by points and changes
        self._is_affordable = driver.admission.affordable()
        self._has_unaffordable = False
        self._regret: tuple[float, float] | None = None  # of the best job that is not worth its dollars
        self._judged = -1
        self._recall()

    @property
    def _space(self) -> CandidateSpace:
        return self.learner.space

    def search(self) -> str:
        """Find out and verify until nothing is worth it; returns why it ended, in words."""
        driver = self.driver
        if not self._space.candidates:  # a range of which none of the few values tried makes a job
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
                reason, action = self._next()
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
        shift = f"; {label(self._space.quality.metric)} {_SHIFTED}" if self.learner.is_shifted else ""
        return f"{reason}; {self._verified()}{shift}"

    def recommended(self) -> list[Trial]:
        """The front that is recommended: measured points, and predicted ones that are as good as known."""
        knowledge = self._learn()
        indices = enumerate(np.flatnonzero(knowledge.predictions.is_known), start=FIRST_PREDICTED)
        predicted = [self._predicted_trial(knowledge, int(index), number) for number, index in indices]
        file = self.driver.file
        return trials_on_front([*self.driver.history.front, *predicted], file.objectives, file.constraints)

    def forecast(self) -> list[Trial]:
        """Points that are predicted and were not run."""
        if not self._space.candidates:
            return []
        knowledge = self.knowledge = self.learner.learn()
        if not knowledge.predictions.has_quality:
            return []
        indices = enumerate(knowledge.undominated(), start=FIRST_PREDICTED)
        return [self._predicted_trial(knowledge, int(index), number) for number, index in indices]

    def borrowed(self) -> list[Borrowed]:
        """Earlier studies that the search has begun with."""
        return self.learner.borrowed(self.knowledge)

    def _next(self) -> tuple[str, Action | None]:
        """The reason why the search is over, or else the most valuable action whose worst case fits the budget now."""
        driver = self.driver
        if driver.admission.has_enough(len(driver.trials) + len(driver.running)):
            return f"{driver.file.n_trials} trials were made", None
        knowledge = self._learn()
        trials, file = list(driver.trials.values()), driver.file
        reason = lacks_objective(trials, driver.history.measured, file) or costs_too_much(trials, file)
        if reason:
            return reason, None
        self._is_affordable, self._has_unaffordable = driver.admission.affordable(), False
        spent_usd = driver.ledger.balance().spent_usd + sum(action.cost_usd for action in self._pending.values())
        actions = Actions(knowledge, self._is_closed, file.value_of_front_usd, spent_usd)
        unbiased = actions.unbiased() if self.learner.has_borrowed_quality else None
        if unbiased is not None:
            return "", unbiased
        pair = actions.matched_pair(self._suspects(knowledge)) if not self.learner.is_shifted else None
        if pair is not None:
            return "", pair
        if knowledge.predictions.has_quality or self.learner.has_borrowed_quality:
            best, self._regret = actions.best(), actions.regret
            return "", best
        pending = self._pending.values()
        is_learning = any(action.kind == LEARN for action in pending)
        return "", actions.first(is_learning=is_learning, has_pending=bool(pending))

    def _suspects(self, knowledge: Knowledge) -> list[tuple[Key, str]]:
        """Quality keys and instance types of all runs at the keys where one has contradicted its prediction.

        Quality may depend on the type there, which only a matched pair can show. Collapsed runs are left out.
        """
        metric, doubt = self._space.quality.metric, _CONTRADICTION * knowledge.predictions.least_noise
        runs, doubted = [], set()
        for number, trial in self.driver.trials.items():
            if metric not in trial.values or number in self.learner.collapsed:
                continue
            spec = JobSpec.read(trial.parameters)
            key = self._space.quality_key(spec, spec.plan())
            runs.append((key, spec.instance_type))
            predicted = self.driver.history.notes[number].predicted.get(metric)
            if predicted is not None and abs(trial.values[metric] - predicted) > doubt:
                doubted.add(key)
        return [run for run in runs if run[0] in doubted]

    def _why_none(self) -> str:
        knowledge, value_usd = self.knowledge, self.driver.file.value_of_front_usd
        assert knowledge is not None  # `_next` has found no action
        is_dear = self._has_unaffordable or knowledge.affordability.is_short
        if is_dear and (left := self.driver.admission.tightest_budget(self._some_job())):
            return f"no worthwhile job fits {left} with its worst case"
        if not knowledge.predictions.has_quality:
            return _NO_F1 if self._space.quality.metric == metrics.F1 else _NO_QUALITY
        worth = "" if value_usd is None else f", the whole front being worth {value_usd:g} USD"
        gain, cost_usd = self._regret or (0.0, 0.0)
        regret = f": another {usd(cost_usd)} would buy {gain:.2%} of it at most" if gain else ""
        return f"{_ENOUGH}{worth}{regret}"

    def _learn(self) -> Knowledge:
        under_way = [action.spec.replace(**action.changes) for action in self._pending.values()]
        left_usd = self.driver.admission.left_usd(self._some_job())
        if math.isinf(left_usd):
            self.knowledge = self.learner.learn(under_way)
        else:
            committed_usd = self.driver.ledger.balance().committed_usd
            reach_usd = left_usd + committed_usd - sum(action.cost_usd for action in self._pending.values())
            self.knowledge = self.learner.learn(under_way, left_usd=left_usd, reach_usd=reach_usd)
        return self.knowledge

    def _some_job(self) -> JobSpec | None:
        """Any job of the study, because the same budgets count for all; None if no point makes one."""
        return self._space.candidates[0].spec if self._space.candidates else None

    def _begin(self, action: Action) -> None:
        suggestion = self.driver.study.ask_for(action.point)
        note = TrialNote(
            changes=_changes(action),
            kind=action.kind,
            predicted=action.predicted,
            expected_usd=action.cost_usd,
            repeats=action.repeats,
        )
        if self.driver.start(suggestion, note):
            self._pending[suggestion.number] = action
        else:
            is_closed = self.driver.history.is_closed(_job_of(action))
            (self._impossible if is_closed else self._refused).add(action.identity)

    def _recall(self) -> None:
        """Continue what earlier drivers have begun, and remember what has failed for them."""
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

    def _verified(self) -> str:
        """The differences of verified points from their predictions, whichever driver ran them, in words."""
        metric, notes = self._space.quality.metric, self.driver.history.notes
        sentences = [
            f"trial {trial.number}: {label(metric)} {trial.values[metric]:.4f}, "
            f"{trial.values[metric] - notes[trial.number].predicted[metric]:+.4f} from its prediction"
            for trial in self.driver.trials.values()
            if metric in trial.values and notes[trial.number].predicted
        ]
        return "verified " + "; ".join(sentences) if sentences else "no prediction was verified"

    def _is_closed(self, action: Action) -> bool:
        """Whether it is under way, was refused, or cannot be paid for now."""
        pending = {other.identity for other in self._pending.values()}
        if action.identity in self._impossible | self._refused | pending:
            return True
        key = (*action.point.items(), *_changes(action).items())
        if key not in self._jobs:  # making and hashing jobs takes most of the time of planning
            job = _job_of(action)
            self._jobs[key] = job, job.spec_hash()
        job, identity = self._jobs[key]
        if identity in self.driver.history.impossible or identity in self.driver.history.failures:
            return True
        is_affordable = self._is_affordable(job)
        self._has_unaffordable |= not is_affordable
        return not is_affordable

    def _forget_ended(self) -> None:
        """Drop what is no longer under way; what failed is not tried again."""
        running = {job.number for job in self.driver.running}
        for number in set(self._pending) - running:
            action = self._pending.pop(number)
            if self._has_failed(number):
                self._impossible.add(action.identity)

    def _predicted_trial(self, knowledge: Knowledge, index: int, number: int) -> Trial:
        """The candidate at `index` as a trial that was only predicted."""
        candidate, expected = self._space.candidates[index], knowledge.predictions
        parameters = candidate.spec.as_text()
        values, low, high = (
            self.driver.history.values(knowledge.all_metrics(index, outcomes), parameters)
            for outcomes in (expected.mean, expected.low, expected.high)
        )
        return Trial(
            number=number,
            run_id="",
            point=candidate.point,
            parameters=parameters,
            given=candidate.spec.changed(),
            status=TrialStatus.COMPLETED,
            values=values,
            origin=PREDICTED,
            intervals={name: (min(low[name], high[name]), max(low[name], high[name])) for name in values},
            collapse_probability=round(float(expected.collapse_probability[index]), 4),
        )


def _changes(action: Action) -> Mapping[str, object]:
    """Parameters of its job that differ from those of its point, with its maximum runtime if there is a budget."""
    return {**action.changes, **({"max_runtime_minutes": action.limit_minutes} if action.limit_minutes else {})}


def _job_of(action: Action) -> JobSpec:
    return action.spec.replace(**_changes(action))


def _action_of(note: TrialNote, spec: JobSpec, limit_minutes: float | None) -> Action:
    """The action that a driver has recorded when it began it."""
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
    """Run the study to its end; returns why it ended, in words."""
    return Split(driver).search()


def recommended(driver: Driver) -> list[Trial]:
    """The front that is recommended after a search; predicted points are marked by their origin."""
    return Split(driver).recommended()
