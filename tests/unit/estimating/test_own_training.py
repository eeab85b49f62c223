"""Seconds of trainings of the user's own, from jobs that have run."""

import pytest

from paretune.estimating.forecast import OwnTrainingTimes
from paretune.pricing.prices import local_price
from paretune.specification.job import JobSpec

PRICE = local_price(0.36)


def job(rows: int = 1000, **changes: object) -> JobSpec:
    """A job of a project whose seconds grow with `rows`."""
    arguments = {"project_parameters": {"rows": rows, "alpha": 0.1}, "size": "rows"} | changes
    return JobSpec(project="mine", **arguments)  # type: ignore[arg-type]  # names of its fields


def truth(rows: float) -> float:
    """Seconds of such a job: 4 to start, and 10 for each thousand rows."""
    return 4 + rows / 100


def width(times: OwnTrainingTimes, spec: JobSpec) -> float:
    prediction = times.predict(spec, PRICE)
    assert prediction is not None
    assert prediction.time.seconds_low < prediction.time.seconds < prediction.time.seconds_high
    return prediction.time.seconds_high / prediction.time.seconds_low


def test_nothing_is_known_before_one_has_run_there() -> None:
    elsewhere = job(instance_type="ml.m5.large")
    others = [job(entry_point="other.py"), elsewhere, JobSpec(project="another", project_parameters={"rows": 1000})]

    assert OwnTrainingTimes().predict(job(), PRICE) is None
    assert OwnTrainingTimes(runs=[(spec, 10.0) for spec in others]).predict(job(), PRICE) is None


def test_a_run_tells_its_own_seconds_within_a_wide_interval_and_more_runs_make_it_narrower() -> None:
    own_training_times = OwnTrainingTimes(runs=[(job(), truth(1000))])
    prediction = own_training_times.predict(job(), PRICE)
    several = OwnTrainingTimes(runs=[(job(rows), truth(rows)) for rows in (500, 1000, 2000, 4000, 1000, 2000)])

    assert prediction is not None
    assert prediction.time.seconds == pytest.approx(14)
    assert prediction.cost_usd == pytest.approx(14 * 0.36 / 3600)
    assert width(own_training_times, job()) > 2
    assert width(own_training_times, job(16_000)) > width(own_training_times, job())
    assert width(several, job()) < 0.6 * width(own_training_times, job())
    assert width(several, job(16_000)) < 0.5 * width(own_training_times, job(16_000))


@pytest.mark.parametrize("rows", [500, 1500, 8000])
def test_other_sizes_lie_on_a_start_up_and_a_line(rows: int) -> None:
    runs = [(job(size), truth(size)) for size in (500, 1000, 2000, 4000, 8000, 4000)]
    prediction = OwnTrainingTimes(runs=runs).predict(job(rows), PRICE)

    assert prediction is not None
    assert prediction.time.seconds == pytest.approx(truth(rows), rel=0.1)
    assert prediction.time.seconds_low < truth(rows) < prediction.time.seconds_high
    assert prediction.basis == "6 runs of this training on this cluster: a start-up and a line in rows"


def test_without_a_size_only_equal_jobs_count_whatever_their_seed() -> None:
    runs = [(job(1000, size=None, seed=7), 14.0), (job(4000, size=None), 44.0)]
    prediction = OwnTrainingTimes(runs=runs).predict(job(size=None), PRICE)

    assert prediction is not None
    assert prediction.measured_here == 1
    assert prediction.time.seconds == pytest.approx(14)


def test_a_script_learns_from_its_training_arguments() -> None:
    def script(steps: int) -> JobSpec:
        return JobSpec(entry_script="train.py", training_arguments={"max_steps": steps}, size="max_steps")

    prediction = OwnTrainingTimes(runs=[(script(100), 20.0), (script(400), 50.0)]).predict(script(200), PRICE)

    assert prediction is not None
    assert 20 < prediction.time.seconds < 50
