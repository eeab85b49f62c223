"""Settings of the simulated launcher, and draws that repeat."""

import statistics

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.simulation import Simulation


def test_without_settings_there_is_no_trouble() -> None:
    read = Simulation.read({})

    assert read == Simulation()
    assert (read.failure_rate, read.out_of_memory_rate, read.capacity_error_rate, read.startup_seconds) == (
        0,
        0,
        0,
        120,
    )


def test_all_faults_are_said_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        Simulation.read({"failurerate": 0.5, "f1_noise": "x", "out_of_memory_rate": 1.5, "seed": 1.5, "colour": True})

    text = str(caught.value)
    assert "simulation has no failurerate: did you mean failure_rate?" in text
    assert "f1_noise must be a number, got 'x'" in text
    assert "out_of_memory_rate must be at least 0 and at most 1, got 1.5" in text
    assert "seed must be a whole number, got 1.5" in text
    assert "simulation has no colour: it has seed" in text


@pytest.mark.parametrize("value", [True, None, [1], float("nan"), float("inf"), -1])
def test_a_value_that_is_no_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        Simulation.read({"startup_seconds": value})


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"simulation.runs": "x.csv"}, "recorded_runs is for launcher=simulated"),
        ({"simulation": {"seed": 1}}, "simulation is for launcher=simulated"),
        ({"launcher": "simulated", "simulation": {"sed": 1}}, "did you mean seed"),
    ],
)
def test_a_job_checks_its_simulation(changes: dict[str, object], part: str) -> None:
    with pytest.raises(BadInput, match=part):
        JobSpec(**changes)  # type: ignore[arg-type]


def test_a_draw_is_the_same_for_the_same_question_and_seed() -> None:
    first, other = Simulation(seed=1), Simulation(seed=2)

    assert first.share("failure", "job", 1) == Simulation(seed=1).share("failure", "job", 1)
    assert (
        len({first.share("failure", "job", 1), first.share("failure", "job", 2), other.share("failure", "job", 1)}) == 3
    )


def test_draws_have_the_distributions_they_are_named_for() -> None:
    simulation = Simulation()
    shares = [simulation.share("share", number) for number in range(4000)]
    waits = [simulation.exponential(60.0, "wait", number) for number in range(4000)]
    errors = [simulation.normal(0.5, "error", number) for number in range(4000)]

    assert 0 <= min(shares) < max(shares) < 1
    assert statistics.mean(shares) == pytest.approx(0.5, abs=0.02)
    assert statistics.mean(waits) == pytest.approx(60, rel=0.05)
    assert statistics.stdev(waits) == pytest.approx(60, rel=0.08)
    assert statistics.mean(errors) == pytest.approx(0, abs=0.03)
    assert statistics.stdev(errors) == pytest.approx(0.5, rel=0.05)


def test_without_a_mean_or_a_deviation_nothing_is_drawn() -> None:
    assert Simulation().exponential(0.0, "wait") == Simulation().normal(0.0, "error") == 0
