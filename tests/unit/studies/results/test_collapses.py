"""A run that collapsed: what is stated with it, and how likely the next one is to collapse."""

import math
import random
from collections.abc import Sequence

import pytest

from paretune.specification.job import JobSpec
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.trials import Trial
from paretune.studies.sampler.process import Axes, Points
from paretune.studies.sampler.quality import (
    F1_SPREAD,
    QualityModel,
    quality_axes,
    quality_points,
    quality_settings,
)
from tests.support.study_examples import COST_AND_F1, answer, trial_of

MAJORITY = 0.34
RATES = (2e-5, 4e-5, 8e-5, 1.6e-4)
BATCHES = (8, 16, 32, 64)


def f1_of(batch: int, rate: float) -> float:
    off = math.log2(rate / (6e-5 * math.sqrt(batch / 16)))
    return 0.9 - 0.01 * off**2 - 0.003 * abs(math.log2(batch / 16))


def trials_with_repeats(seed: int) -> list[Trial]:
    """Return a run of every setting, and two more of the best one."""
    draw = random.Random(seed)
    settings = [(batch, rate) for batch in BATCHES for rate in RATES]
    best = max(range(len(settings)), key=lambda number: f1_of(*settings[number]))

    def run(number: int, of: int, first: int | None = None) -> Trial:
        batch, rate = settings[of]
        point: dict[str, str | int | float] = {"per_device_train_batch_size": batch, "learning_rate": rate}
        return trial_of(number, 1 + 10 / batch, f1_of(batch, rate) + draw.gauss(0, 0.003), point=point, repeats=first)

    trials = [run(number, number) for number in range(len(settings))]
    return [*trials, *(run(len(settings) + number, best, best) for number in range(2))]


def answered(trials: list[Trial]) -> StudyAnswer:
    return answer(trials, COST_AND_F1, {}, name="s", budget_usd=None)


def test_a_collapsed_run_changes_no_statement_about_other_points() -> None:
    trials = trials_with_repeats(seed=0)
    lost = [
        trial_of(trial.number, 1.0, MAJORITY, point=trial.point) if trial.number in (0, 15) else trial
        for trial in trials
    ]

    calm, with_lost = answered(trials).front, answered(lost).front

    for before, after in zip(calm.points[1:15], with_lost.points[1:15], strict=True):
        assert after.means["f1"] == pytest.approx(before.means["f1"], abs=0.004)
        assert after.errors["f1"] < 2 * before.errors["f1"] + 0.002


def test_a_point_is_judged_by_its_runs_that_trained_and_its_collapses_are_counted() -> None:
    trials = trials_with_repeats(seed=1)
    first = trials[-1].repeats
    trials[-1] = trial_of(trials[-1].number, 1.0, MAJORITY, point=trials[-1].point, repeats=first)

    point = next(point for point in answered(trials).front.points if point.number == first)

    assert (point.collapses, len(point.trials)) == (1, 3)
    assert point.means["f1"] == pytest.approx(0.9, abs=0.01)
    assert point.collapse_probability is not None
    assert 0.05 < point.collapse_probability < 0.5


def inputs_of(settings: Sequence[tuple[float, float]]) -> tuple[Axes, Points]:
    """Return the model's inputs for jobs with these per-device batches and learning rates."""
    specs = [
        JobSpec(instance_type="ml.g5.xlarge", per_device_train_batch_size=int(batch), learning_rate=rate)
        for batch, rate in settings
    ]
    axes = quality_axes({}, runs_user_code=False)
    return axes, quality_points(axes, [quality_settings(spec, spec.plan(), {}) for spec in specs])


def test_beyond_a_cliff_in_the_rate_a_collapse_is_likely_and_below_it_is_not() -> None:
    rates = [2e-5 * 2**step for step in range(6)]
    settings = [(batch, rate) for batch in BATCHES for rate in rates]
    values = [MAJORITY if rate > 3e-4 else f1_of(batch, rate) for batch, rate in settings]

    axes, points = inputs_of(settings)
    model = QualityModel(axes, points, values, F1_SPREAD)
    probability = model.collapse_probability(points).reshape(len(BATCHES), len(rates))

    assert (probability[:, -1:] > 0.5).all()
    assert (probability[:, -2:] > 0.3).all()
    assert (probability[:, :2] < 0.15).all()


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_steep_fall_next_to_another_ridge_is_not_taken_for_noise(power: float) -> None:
    draw = random.Random(0)

    def value(batch: int, rate: float) -> float:
        off = math.log2(rate / 6e-5) - power * math.log2(batch / 16)
        return 0.9 - 0.06 * (1 - math.exp(-((off / 2) ** 2))) + draw.gauss(0, 0.0015)

    settings = [(batch, rate) for batch in BATCHES for rate in (1e-5, 4e-5, 1.6e-4)]

    model = QualityModel(*inputs_of(settings), [value(*setting) for setting in settings], F1_SPREAD)

    assert model.noise < 0.006, "the usual noise of 0.004, raised a little; the fall of 0.06 is not part of it"
