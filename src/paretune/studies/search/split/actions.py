"""Jobs that a split search may begin next, and which of them is worth most."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from paretune.jobs.estimates.probing import PROBE_STEPS
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, affecting
from paretune.studies.search.split.knowledge import SECONDS_KNOWN, Knowledge

PROBE, LEARN, VERIFY = "probe", "learn", "verify"
_LEAST_GAIN = 0.001  # of the hypervolume: below it an expected gain is not told from the models' own errors
_SHOWN_BY_A_PROBE = {*affecting(JobSpec, "seconds", "memory")}  # all that matters for what a probe shows
_LOOKED_AT = 200  # candidates with the largest gains


@dataclass(frozen=True, kw_only=True)
class Action:
    """A job that finds something out.

    Attributes:
        spec: the job of its point, without the changes.
        limit_minutes: of its job; None: that of its point.
        kind: a short probe of its seconds, a training for its F1, or the verification of a prediction.
        changes: parameters of its job that are not those of its point.
        cost_usd: what finding out costs, with whatever else it takes to know its candidate.
        gain: share of the hypervolume that it may add.
        predicted: what a verification is held against.
    """

    kind: str
    spec: JobSpec
    limit_minutes: float | None
    point: Mapping[str, Value]
    changes: Mapping[str, object]
    cost_usd: float
    gain: float = 0.0
    predicted: Mapping[str, float] = field(default_factory=dict)

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
    """What could be done next.

    Args:
        is_closed: whether an action was refused, is under way, or cannot be paid for.
        value_usd: dollars that the whole front is worth: no action costs more than its share; None: not known.
    """

    def __init__(self, know: Knowledge, is_closed: Callable[[Action], bool], value_usd: float | None) -> None:
        self._know = know
        self._is_closed = is_closed
        self._value_usd = value_usd

    def best(self) -> Action | None:
        """The job that promises most hypervolume per dollar; None when none promises enough."""
        worth = (action for action in self._candidates() if self._is_worth_it(action))
        return next((one for one in sorted(worth, key=lambda one: -one.value) if not self._is_closed(one)), None)

    def first(self, waiting: set[Value | None], *, is_learning: bool) -> Action | None:
        """Before any F1 is known: a probe on each instance type, then a training in the middle of the space.

        Of the trainings that can be paid, that is the nearest to the middle; where none can, a further probe may show
        that one costs less than has to be feared. `waiting` are the instance types of jobs under way; `is_learning`
        whether one of them is a training.
        """
        know = self._know
        seen = know.known_types() | waiting
        sizes = [(item.spec.instance_count, item.plan.per_device_train_batch_size) for item in know.pool]
        for name in dict.fromkeys(item.spec.instance_type for item in know.pool):
            indices = [index for index, item in enumerate(know.pool) if item.spec.instance_type == name]
            is_open = name not in seen and not know.is_hopeless[indices].all()
            action = self._probe(min(indices, key=sizes.__getitem__)) if is_open else None
            if action is not None:  # one that was refused, for its price or its worst case, hides no other type
                return action
        if is_learning:
            return None
        order = self._from_the_middle()
        trainings = (self._training(int(index)) for index in order)
        found = next((action for action in trainings if action is not None), None)
        if found is not None or waiting:
            return found
        is_open = (know.time_open > SECONDS_KNOWN) & ~know.is_hopeless
        probes = (self._probe(int(index)) for index in order if is_open[index])
        return next((action for action in probes if action is not None), None)

    def unbiased(self) -> Action | None:
        """The training that a search without earlier studies begins with, once one chosen by them was begun.

        Jobs that a misleading earlier study chooses may all bear it out, for it is right about a part of the space.
        None where a training has the same quality key, and where it cannot be paid for.
        """
        know = self._know
        nearest = next((int(index) for index in self._from_the_middle() if not know.is_hopeless[index]), None)
        if nearest is None or know.was_trained[nearest] or not know.was_trained.any():
            return None
        return self._training(nearest)

    def _from_the_middle(self) -> np.ndarray:
        """Indices of all candidates, those whose quality depends on the most usual settings first."""
        places = np.array([key[1] for key in self._know.quality_keys])
        middle = np.quantile(places, 0.5, axis=0, method="higher")  # of one and two epochs: two
        return np.argsort(np.linalg.norm(places - middle, axis=1), kind="stable")

    def _candidates(self) -> Iterator[Action]:
        """For each promising candidate the job itself, and the cheaper way of only knowing what it would reach."""
        know = self._know
        knowing, running = know.information_gain(), know.expected_improvement()
        both = knowing + running
        for index in map(int, np.argsort(-both)[:_LOOKED_AT]):
            if both[index] < _LEAST_GAIN:
                return
            if know.is_payable[index]:
                yield replace(self._here(index), gain=float(both[index]))
            elsewhere = self._elsewhere(index) if knowing[index] >= _LEAST_GAIN else None
            if elsewhere is not None:
                yield replace(elsewhere, gain=float(knowing[index]))

    def _is_worth_it(self, action: Action) -> bool:
        return self._value_usd is None or action.gain * self._value_usd >= action.cost_usd

    def _here(self, index: int) -> Action:
        """The candidate's own job; where its F1 is as good as known, that is held against what comes out."""
        know = self._know
        f1_known = bool(know.f1_open[index] <= know.f1_known)
        return Action(
            kind=VERIFY if f1_known else LEARN,
            spec=know.pool[index].spec,
            limit_minutes=know.limit_minutes(index, is_probe=False),
            point=know.pool[index].point,
            changes={},
            cost_usd=float(know.costs[index]),
            predicted=know.predicted(index) if f1_known else {},
        )

    def _elsewhere(self, index: int) -> Action | None:
        """A probe where its seconds are open, or a training on the cheapest cluster; priced as all that is needed."""
        know = self._know
        time_open = know.time_open[index] > SECONDS_KNOWN or not know.fits[index]
        probe = self._probe(index) if time_open else None
        training = self._training(index) if know.f1_open[index] > know.f1_known else None
        found = [option for option in (probe, training) if option is not None]
        return replace(found[0], cost_usd=sum(option.cost_usd for option in found)) if found else None

    def _probe(self, index: int) -> Action | None:
        know = self._know
        if know.is_own:  # nobody can cut it off after some steps
            return None
        item = know.pool[index]
        row = float((know.seconds[index] - know.overhead[index]) / know.rows[index])
        step = row * item.plan.global_batch_size
        seconds = float(know.overhead[index] + PROBE_STEPS * step)
        cost = seconds * float(know.usd_per_second[index])
        if know.is_brief(index, cost) or not know.can_probe(index, seconds):
            return None
        action = Action(
            kind=PROBE,
            spec=item.spec,
            limit_minutes=know.limit_minutes(index, is_probe=True),
            point=item.point,
            changes={"probe_steps": PROBE_STEPS},
            cost_usd=cost,
        )
        return None if self._is_closed(action) else action

    def _training(self, index: int) -> Action | None:
        """The cheapest way to train with the candidate's global batch size and rate: accumulation keeps the batch."""
        know = self._know
        wanted = know.pool[index]
        size = wanted.plan.global_batch_size
        able = know.is_payable & (know.rest == know.rest[index]) & ~know.impossible
        able &= (size % know.share == 0) | know.is_own
        others = np.flatnonzero(able)
        for other in map(int, others[np.argsort(know.costs[others], kind="stable")]):
            item = know.pool[other]
            changes: dict[str, object] = {}
            if item.plan.global_batch_size != size and not know.is_own:
                by_size = "global_batch_size" in item.point
                changes = {"gradient_accumulation_steps": None if by_size else size // int(know.share[other])}
            action = Action(
                kind=LEARN,
                spec=item.spec,
                limit_minutes=know.limit_minutes(other, is_probe=False),
                point=item.point,
                changes=changes,
                cost_usd=float(know.costs[other]),
            )
            if not self._is_closed(action):
                return action
        return None
