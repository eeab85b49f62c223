"""Jobs that a split search may begin next, and which of them is worth most."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from paretune.estimating.workload import PROBE_STEPS
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.parameters import Value, affecting
from paretune.studies.results.quality_model import Key
from paretune.studies.search.split.knowledge import Knowledge
from paretune.studies.search.split.predictions import SECONDS_KNOWN

PROBE, LEARN, VERIFY = "probe", "learn", "verify"
_LEAST_GAIN = 0.0005  # of the hypervolume: a smaller expected gain cannot be told from the models' own errors
_WORTH = 50.0  # times what a study has cost so far: what its front is worth if nobody has said so
_SHOWN_BY_A_PROBE = {*affecting(JobSpec, "seconds", "memory")}  # the parameters that matter for what a probe shows
_USUAL_BATCH, _USUAL_RATE = 5.0, math.log(3e-5)
"""Usual global batch size and learning rate of full fine-tuning, log2 and log: 3e-5 at 32, others by their root, as
published for BERT (Devlin et al., 2019, appendix A.3: 2e-5 to 5e-5 at 16 and 32). That of adapters is higher, in the
ratio of the default rates."""
_MOST_COMPARED = 200  # candidates with the largest gains


@dataclass(frozen=True, kw_only=True)
class Action:
    """A job that finds something out.

    Attributes:
        kind: a short probe of its seconds, a training for its F1, or the verification of a prediction.
        spec: the job of its point, without the changes.
        limit_minutes: maximum runtime of its job; None for that of its point.
        changes: parameters of its job that differ from those of its point.
        cost_usd: its cost, with that of the other jobs that are needed to know its candidate.
        gain: share of the hypervolume that it may add.
        predicted: the values that a verification is compared with.
        repeats: number of the trial whose run collapsed, or None.
    """

    kind: str
    spec: JobSpec
    limit_minutes: float | None
    point: Mapping[str, Value]
    changes: Mapping[str, object]
    cost_usd: float
    gain: float = 0.0
    predicted: Mapping[str, float] = field(default_factory=dict)
    repeats: int | None = None

    @property
    def value(self) -> float:
        """Hypervolume per dollar."""
        return self.gain / max(self.cost_usd, 1e-6)

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for jobs that find out the same: a probe says nothing about F1."""
        is_probe = self.kind == PROBE
        point = tuple(item for item in self.point.items() if not is_probe or item[0] in _SHOWN_BY_A_PROBE)
        return is_probe, point, tuple(sorted(self.changes.items()))


class Actions:
    """The jobs that could begin next, given what is known now.

    Args:
        is_closed: whether an action was refused, is under way, or cannot be paid for.
        value_usd: dollars that the whole front is worth: no action may cost more than its share. If it is None, the
            front is worth `_WORTH` times what the study has cost with the action.
        spent_usd: dollars that the study has spent, those of running jobs included.

    Attributes:
        regret: gain and dollars of the best job that is not worth its dollars; None before `best` was asked.
    """

    def __init__(
        self, knowledge: Knowledge, is_closed: Callable[[Action], bool], value_usd: float | None, spent_usd: float
    ) -> None:
        self._knowledge = knowledge
        self._space = knowledge.space
        self._candidates = knowledge.space.candidates
        self._expected = knowledge.predictions
        self._affordability = knowledge.affordability
        self._is_closed = is_closed
        self._value_usd = value_usd
        self._spent_usd = spent_usd
        self.regret: tuple[float, float] | None = None
        self._probes: dict[tuple[object, ...], Action | None] = {}
        self._trainings: dict[tuple[int, int], Action | None] = {}

    def best(self) -> Action | None:
        """The job that promises most hypervolume per dollar; None if none promises enough."""
        useful = list(self._useful())
        ranked = sorted(filter(self._is_worth_it, useful), key=lambda action: -action.value)
        chosen = next((action for action in ranked if not self._is_closed(action)), None)
        if chosen is None and useful:
            largest = max(useful, key=lambda action: action.gain)
            self.regret = largest.gain, largest.cost_usd
        return chosen

    def first(self, *, is_learning: bool, has_pending: bool) -> Action | None:
        """Before any F1 is known: the training with the most usual settings, which is worth having and shows much.

        That is the one nearest to them that can be paid. If none can, a probe may show that one costs less than
        has to be feared. While other jobs run beside the first training, they probe.

        Args:
            is_learning: whether a training is under way.
            has_pending: whether any job is under way.
        """
        is_hopeless = self._affordability.is_hopeless
        order = [index for index in map(int, self._usual_first()) if not is_hopeless[index]]
        if not is_learning:
            trainings = (self._training(index) for index in order)
            training = next((action for action in trainings if action is not None), None)
            if training is not None or has_pending:
                return training
        is_unclear = self._expected.seconds_deviation > SECONDS_KNOWN
        probes = (self._probe(index) for index in order if is_unclear[index])
        return next((action for action in probes if action is not None), None)

    def unbiased(self) -> Action | None:
        """The training that a search without earlier studies begins with, once one chosen by them was begun.

        Jobs that a misleading earlier study chooses may all confirm it, because it is right about a part of the space.
        None if a training has the same quality key, or if it cannot be paid for.
        """
        was_trained, is_hopeless = self._knowledge.was_trained, self._affordability.is_hopeless
        nearest = next((int(index) for index in self._usual_first() if not is_hopeless[index]), None)
        if nearest is None or was_trained[nearest] or not was_trained.any():
            return None
        return self._training(nearest)

    def matched_pair(self, runs: Iterable[tuple[Key, str]]) -> Action | None:
        """The cheapest job with the quality key of one of these runs on another instance type than theirs.

        The runs have contradicted their predictions. None if all of them have a matched pair, or if none can be paid.
        """
        types_of: dict[Key, set[str]] = {}
        for key, name in runs:
            types_of.setdefault(key, set()).add(name)
        index_of = {key: index for index, key in enumerate(self._space.quality_keys)}
        single = ((index_of[key], types) for key, types in types_of.items() if len(types) == 1 and key in index_of)
        jobs = (
            self._training(index, lambda spec, types=types: spec.instance_type not in types)  # type: ignore[misc]
            for index, types in single
        )
        return min((job for job in jobs if job is not None), key=lambda job: job.cost_usd, default=None)

    def _usual_first(self) -> np.ndarray:
        """Indices of all candidates, those whose quality depends on the most usual settings first."""
        numbers = np.array([key[1] for key in self._space.quality_keys])
        usual = np.quantile(numbers, 0.5, axis=0, method="higher")  # of one and two epochs: two
        if not self._space.is_own:
            full = default_learning_rate("full")
            over = [math.log(default_learning_rate(item.spec.fine_tuning) / full) for item in self._candidates]
            rates = numbers[:, 1] - _USUAL_RATE - np.array(over)
            numbers[:, 1] = rates / math.log(2) - (numbers[:, 0] - _USUAL_BATCH) / 2
            usual[:2] = _USUAL_BATCH, 0.0
        return np.argsort(np.linalg.norm(numbers - usual, axis=1), kind="stable")

    def _useful(self) -> Iterator[Action]:
        """For each promising candidate the job itself, and the cheaper way of only knowing what it would reach."""
        knowing, running = self._knowledge.information_gain(), self._knowledge.expected_improvement()
        both = knowing + running
        for index in map(int, np.argsort(-both)[:_MOST_COMPARED]):
            if both[index] < _LEAST_GAIN:
                return
            if self._affordability.is_payable[index]:
                yield replace(self._own_job(index), gain=float(both[index]))
            cheaper = self._cheaper_job(index) if knowing[index] >= _LEAST_GAIN else None
            if cheaper is not None:
                yield replace(cheaper, gain=float(knowing[index]))

    def _is_worth_it(self, action: Action) -> bool:
        value_usd = _WORTH * (self._spent_usd + action.cost_usd) if self._value_usd is None else self._value_usd
        return action.gain * value_usd >= action.cost_usd

    def _own_job(self, index: int) -> Action:
        """The candidate's own job; if its F1 is as good as known, the result is compared with the prediction."""
        expected, candidate = self._expected, self._candidates[index]
        is_known = bool(expected.quality_deviation[index] <= expected.quality_tolerance)
        collapsed = self._knowledge.again.get(index)
        return Action(
            kind=VERIFY if is_known else LEARN,
            spec=candidate.spec,
            limit_minutes=self._affordability.limit_minutes(index, is_probe=False),
            point=candidate.point,
            changes={} if collapsed is None else {"seed": collapsed.seed + 1},
            cost_usd=float(expected.costs_usd[index]),
            predicted=self._knowledge.prediction(index) if is_known else {},
            repeats=None if collapsed is None else collapsed.number if collapsed.repeats is None else collapsed.repeats,
        )

    def _cheaper_job(self, index: int) -> Action | None:
        """A probe if its seconds are open, or a training on the cheapest cluster; priced as all that is needed."""
        expected = self._expected
        is_time_open = expected.seconds_deviation[index] > SECONDS_KNOWN or not expected.fits[index]
        is_quality_open = expected.quality_deviation[index] > expected.quality_tolerance
        probe = self._cached_probe(index) if is_time_open else None
        training = self._cached_training(index) if is_quality_open else None
        needed = [action for action in (probe, training) if action is not None]
        return replace(needed[0], cost_usd=sum(action.cost_usd for action in needed)) if needed else None

    def _cached_probe(self, index: int) -> Action | None:
        """`_probe` of any candidate that it shows as much about: checking jobs takes most of the time of planning."""
        key = self._space.step_keys[index], float(self._expected.rows[index])
        if key not in self._probes:
            self._probes[key] = self._probe(index)
        return self._probes[key]

    def _cached_training(self, index: int) -> Action | None:
        """`_training` of any candidate with the same global batch size and settings."""
        key = int(self._space.family[index]), self._candidates[index].plan.global_batch_size
        if key not in self._trainings:
            self._trainings[key] = self._training(index)
        return self._trainings[key]

    def _probe(self, index: int) -> Action | None:
        if self._space.is_own:  # it cannot be cut off after some steps
            return None
        expected, affordability, candidate = self._expected, self._affordability, self._candidates[index]
        row_s = float((expected.seconds[index] - expected.overhead_s[index]) / expected.rows[index])
        step_s = row_s * candidate.plan.global_batch_size
        seconds = float(expected.overhead_s[index] + PROBE_STEPS * step_s)
        cost_usd = seconds * float(self._space.usd_per_second[index])
        if affordability.is_brief(index, cost_usd) or not affordability.can_probe(index, seconds):
            return None
        action = Action(
            kind=PROBE,
            spec=candidate.spec,
            limit_minutes=affordability.limit_minutes(index, is_probe=True),
            point=candidate.point,
            changes={"probe_steps": PROBE_STEPS},
            cost_usd=cost_usd,
        )
        return None if self._is_closed(action) else action

    def _training(self, index: int, is_allowed: Callable[[JobSpec], bool] = lambda _: True) -> Action | None:
        """The cheapest way to train with the candidate's global batch size and rate: accumulation keeps the batch."""
        space, costs_usd = self._space, self._expected.costs_usd
        size = self._candidates[index].plan.global_batch_size
        is_able = self._affordability.is_payable & (space.family == space.family[index])
        is_able &= ~self._expected.is_impossible & ((size % space.rows_per_pass == 0) | space.is_own)
        able = np.flatnonzero(is_able)
        for other in map(int, able[np.argsort(costs_usd[able], kind="stable")]):
            candidate = self._candidates[other]
            if not is_allowed(candidate.spec):
                continue
            changes: dict[str, object] = {}
            if candidate.plan.global_batch_size != size and not space.is_own:
                by_size = "global_batch_size" in candidate.point
                accumulation = None if by_size else size // int(space.rows_per_pass[other])
                changes = {"gradient_accumulation_steps": accumulation}
            action = Action(
                kind=LEARN,
                spec=candidate.spec,
                limit_minutes=self._affordability.limit_minutes(other, is_probe=False),
                point=candidate.point,
                changes=changes,
                cost_usd=float(costs_usd[other]),
            )
            if not self._is_closed(action):
                return action
        return None
