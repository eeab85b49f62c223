"""`method: split`: seconds from short probes, F1 from the cheapest cluster that fits, joined into a predicted front.

F1 follows from global batch size, learning rate and epochs; seconds of a row from cluster and per-device batch; dollars
from seconds. So no cluster needs to be trained on to know its F1, and no learning rate to know its seconds. Each step
takes the point that could, at the hopeful end of what is known, add most hypervolume per dollar of finding out, and
finds out: by a probe where its seconds are open, by a training where its F1 is. What will be recommended is verified by
jobs of its own; where they contradict the prediction, the study goes on jointly.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paretune import metrics
from paretune.estimating.probing import PROBE_STEPS
from paretune.pareto import front
from paretune.studies import joint
from paretune.studies.driver import Driver
from paretune.studies.space import Value
from paretune.studies.split_knowledge import F1_KNOWN, SECONDS_KNOWN, Knowledge
from paretune.studies.split_models import F1_NOISE
from paretune.studies.trials import Trial, TrialStatus

PROBE, LEARN, VERIFY = "probe", "learn", "verify"
_ENOUGH = 0.004  # of the hypervolume: a hoped-for gain below it is not worth a job
_MOST_VERIFIED = 3
_PROBE_MINUTES = 15.0
_UNTRIED = 1.25  # how much dearer a batch counts that may turn out not to fit
_CONTRADICTION = 4.0  # standard deviations between predicted and measured F1


@dataclass(frozen=True, kw_only=True)
class _Action:
    """A job that finds something out."""

    kind: str
    point: Mapping[str, Value]
    changes: Mapping[str, object]
    cost_usd: float


class Split:
    """The state of one search.

    Args:
        driver: runs the jobs.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.know = Knowledge(driver)
        self._pending: dict[int, _Action] = {}
        self._refused: set[tuple[object, ...]] = set()

    def search(self) -> str:
        """Find out until nothing is worth it, then verify what will be recommended; why it ended, in words."""
        driver = self.driver
        reason = ""
        while True:
            while not reason and len(driver.running) < driver.file.n_parallel and driver.may_start():
                if driver.start_due():  # a point that had met no capacity, or no quota
                    continue
                self._learn()
                action = self._next()
                if action is None:
                    if driver.running:
                        break
                    reason = "no job would add more to the front than it costs to find out"
                elif self._is_full():
                    reason = f"{driver.file.n_trials} trials were made"
                else:
                    self._begin(action)
            driver.look()
            self._forget_ended()
            if reason and not driver.running and not driver.memory.due:
                break
            driver.wait()
        self._learn()
        verdict = self._verify()
        return f"{reason}; {verdict}" if verdict else reason

    def _learn(self) -> None:
        waiting = [action for action in self._pending.values() if action.kind != PROBE]
        self.know.learn(self.driver.file.spec_at(action.point).but(**action.changes) for action in waiting)

    def recommended(self) -> list[Trial]:
        """The front that is recommended: measured points, and predicted ones that are as good as known."""
        self._learn()
        objectives = self.driver.file.objectives
        own = [trial for trial in self.driver.trials.values() if _is_measured(trial, objectives)]
        predicted = [
            self.know.as_trial(int(place), number)
            for number, place in enumerate(np.flatnonzero(self.know.known), start=1_000_000)
        ]
        everything = own + [trial for trial in predicted if _is_measured(trial, objectives)]
        marks = front(
            [[trial.values[name] for name in objectives] for trial in everything],
            [direction == "maximize" for direction in objectives.values()],
        )
        return [trial for trial, best in zip(everything, marks, strict=True) if best]

    def _next(self) -> _Action | None:
        """The job that promises most hypervolume per dollar; None when none promises enough."""
        if not self.know.has_f1:
            return self._first()
        gains = self.know.gains()
        gains[self.know.impossible] = 0.0
        best: tuple[float, _Action] | None = None
        for place in np.argsort(-gains)[:200]:
            if gains[place] < _ENOUGH:
                break
            action = self._action(int(place))
            if action is None:
                continue
            value = gains[place] / max(action.cost_usd, 1e-6)
            if best is None or value > best[0]:
                best = value, action
        return None if best is None else best[1]

    def _first(self) -> _Action | None:
        """Before any F1 is known: a probe on each instance type, then a training in the middle of the space."""
        waiting = {action.point.get("instance_type") for action in self._pending.values()}
        types = dict.fromkeys(item.spec.instance_type for item in self.know.pool)
        seen = self.know.known_types()
        for name in types:
            if name not in seen and name not in waiting:
                places = [place for place, item in enumerate(self.know.pool) if item.spec.instance_type == name]
                action = self._probe(min(places, key=self._size))
                if action is not None:  # one that was refused, for its price or its worst case, hides no other type
                    return action
        if any(action.kind == LEARN for action in self._pending.values()):
            return None
        target = np.median(np.array([key[1] for key in self.know.quality_keys]), axis=0)
        nearest = min(range(len(self.know.pool)), key=lambda place: math.dist(self.know.quality_keys[place][1], target))
        return self._training(nearest)

    def _action(self, place: int) -> _Action | None:
        """How to find out about a candidate: whatever of it is open, the cheaper way."""
        time_open = self.know.time_open[place] > SECONDS_KNOWN or not self.know.fits[place]
        f1_open = self.know.f1_open[place] > F1_KNOWN
        own_cost = float(self.know.seconds[place] * self.know.usd_per_second[place])
        here = _Action(kind=LEARN, point=self.know.pool[place].point, changes={}, cost_usd=own_cost)
        options = []
        if time_open:
            options.append(self._probe(place))
        if f1_open:
            options.append(self._training(place))
        found = [option for option in options if option is not None]
        if not found:
            return None
        apart = sum(option.cost_usd for option in found)
        if time_open and f1_open and own_cost <= apart and not self._was_refused(here):
            return here
        chosen = found[0]
        return _Action(kind=chosen.kind, point=chosen.point, changes=chosen.changes, cost_usd=apart)

    def _probe(self, place: int) -> _Action | None:
        item = self.know.pool[place]
        row = float((self.know.seconds[place] - self.know.overhead) / self.know.rows[place])
        step = row * item.plan.global_batch_size
        cost = (self.know.overhead + PROBE_STEPS * step) * float(self.know.usd_per_second[place])
        action = _Action(kind=PROBE, point=item.point, changes={"probe_steps": PROBE_STEPS}, cost_usd=cost)
        return None if self._was_refused(action) else action

    def _training(self, place: int) -> _Action | None:
        """The cheapest way to train with the candidate's global batch size and rate: accumulation keeps the batch."""
        wanted = self.know.pool[place]
        same_rest = {name: value for name, value in wanted.point.items() if name not in _CLUSTER}
        best: _Action | None = None
        for other, item in enumerate(self.know.pool):
            if self.know.impossible[other] or any(item.point[name] != value for name, value in same_rest.items()):
                continue
            share = item.plan.per_device_train_batch_size * item.plan.devices
            if wanted.plan.global_batch_size % share:
                continue
            accumulation = wanted.plan.global_batch_size // share
            risk = 1.0 if self.know.fits[other] else _UNTRIED
            cost = risk * float(self.know.seconds[other] * self.know.usd_per_second[other])
            if best is not None and cost >= best.cost_usd:
                continue
            own = item.plan.global_batch_size == wanted.plan.global_batch_size
            changes: dict[str, object] = {} if own else {"gradient_accumulation_steps": accumulation}
            if "global_batch_size" in item.point and not own:
                changes = {"gradient_accumulation_steps": None}
            action = _Action(kind=LEARN, point=item.point, changes=changes, cost_usd=cost)
            if not self._was_refused(action):
                best = action
        return best

    def _begin(self, action: _Action) -> None:
        asked = self.driver.study.ask_for(action.point)
        limit = {"max_runtime_minutes": self._limit_minutes(action)}
        if self.driver.start(asked, changes={**action.changes, **limit}, kind=action.kind):
            self._pending[asked.number] = action
        else:
            self._refused.add(_identity(action))

    def _limit_minutes(self, action: _Action) -> float:
        """A limit not far above what is expected, so that the worst case binds little of the budget."""
        spec = self.driver.file.spec_at(action.point)
        if action.kind == PROBE:
            return min(spec.max_runtime_minutes, _PROBE_MINUTES)
        expected = round(1.5 * self.know.expected_minutes(spec), 1)
        return min(spec.max_runtime_minutes, max(_PROBE_MINUTES, expected))

    def _verify(self) -> str:
        """Run the points that will be recommended and are only predicted; what came of it, in words."""
        chosen = [trial for trial in self.recommended() if trial.origin == "predicted"]
        if not chosen:
            return "every point of the recommended front was run"
        sentences, contradicted = [], 0
        for trial in _picks(chosen):
            before = set(self.driver.trials)
            self._begin(_Action(kind=VERIFY, point=trial.point, changes={}, cost_usd=0.0))
            while self.driver.running:
                self.driver.look()
                if self.driver.running:
                    self.driver.wait()
            for number in set(self.driver.trials) - before:
                found = self.driver.trials[number]
                if metrics.F1 not in found.values:
                    continue
                off = found.values[metrics.F1] - trial.values[metrics.F1]
                contradicted += abs(off) > _CONTRADICTION * F1_NOISE
                sentences.append(f"trial {number}: F1 {found.values[metrics.F1]:.4f}, {off:+.4f} from its prediction")
        if contradicted:
            sentences.append(f"{contradicted} of them off by more than noise, so the study went on jointly")
            sentences.append(joint.search(self.driver))
        return "verified " + "; ".join(sentences) if sentences else ""

    def _size(self, place: int) -> tuple[int, int]:
        item = self.know.pool[place]
        return item.spec.instance_count, item.plan.per_device_train_batch_size

    def _was_refused(self, action: _Action) -> bool:
        identity = _identity(action)
        return identity in self._refused or any(_identity(other) == identity for other in self._pending.values())

    def _forget_ended(self) -> None:
        """Take what has ended out of what is under way; what failed is not tried again."""
        running = {job.number for job in self.driver.running}
        for number in set(self._pending) - running:
            action, trial = self._pending.pop(number), self.driver.trials.get(number)
            if trial is not None and trial.status is TrialStatus.FAILED:
                self._refused.add(_identity(action))

    def _is_full(self) -> bool:
        limit = self.driver.file.n_trials
        return limit is not None and len(self.driver.trials) + len(self.driver.running) >= limit


_CLUSTER = {"instance_type", "instance_count", "per_device_train_batch_size", "processes_per_instance", "strategy"}


def search(driver: Driver) -> str:
    """Run the study to its end; why it ended, in words."""
    return Split(driver).search()


def recommended(driver: Driver) -> list[Trial]:
    """The front that is recommended after a search; predicted points are marked by their origin."""
    return Split(driver).recommended()


def _is_measured(trial: Trial, objectives: Mapping[str, str]) -> bool:
    return trial.status is TrialStatus.COMPLETED and set(objectives) <= set(trial.values)


def _identity(action: _Action) -> tuple[object, ...]:
    return action.kind == PROBE, tuple(action.point.items()), tuple(sorted(action.changes.items()))


def _picks(trials: list[Trial]) -> list[Trial]:
    """At most three: the cheapest within noise of the best F1, the fastest, the one in between."""
    by_f1 = sorted(trials, key=lambda trial: trial.values.get(metrics.F1, 0.0))
    best = by_f1[-1].values.get(metrics.F1, 0.0)
    close = [trial for trial in trials if trial.values.get(metrics.F1, 0.0) >= best - 2 * F1_NOISE]

    def first_objective(trial: Trial) -> float:
        return next((value for name, value in trial.values.items() if name != metrics.F1), 0.0)

    chosen = [min(close, key=first_objective), min(trials, key=first_objective), by_f1[len(by_f1) // 2]]
    return list({trial.number: trial for trial in chosen}.values())[:_MOST_VERIFIED]
