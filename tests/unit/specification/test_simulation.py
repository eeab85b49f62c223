"""Settings of the simulated launcher, and draws that repeat."""

import statistics

import pytest

from paretune.specification.simulation import Simulation


def test_without_settings_there_is_no_trouble() -> None:
    read = Simulation.read({})

    assert read == Simulation()
    assert (read.failure_rate, read.capacity_error_rate, read.startup_seconds) == (0, 0, 120)


def test_a_draw_is_the_same_for_the_same_question_and_seed() -> None:
    first, other = Simulation(seed=1), Simulation(seed=2)

    assert first.share("failure", "job", 1) == Simulation(seed=1).share("failure", "job", 1)
    assert (
        len({first.share("failure", "job", 1), first.share("failure", "job", 2), other.share("failure", "job", 1)}) == 3
    )


def test_draws_have_the_distributions_they_are_named_for() -> None:
    simulation = Simulation()
    shares = [simulation.share("share", number) for number in range(4000)]
    errors = [simulation.normal(0.5, "error", number) for number in range(4000)]

    assert 0 <= min(shares) < max(shares) < 1
    assert statistics.mean(shares) == pytest.approx(0.5, abs=0.02)
    assert statistics.mean(errors) == pytest.approx(0, abs=0.03)
    assert statistics.stdev(errors) == pytest.approx(0.5, rel=0.05)


def test_without_a_deviation_nothing_is_drawn() -> None:
    assert Simulation().normal(0.0, "error") == 0
