"""Which rows a design has, and what they can tell, against figures worked out by hand."""

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydoe import fracfact
from scipy import stats

from paretune.commands.design.answer import plan_text
from paretune.commands.design.bill import Bill, RowBill
from paretune.commands.design.file import flat
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.reading import read_design
from paretune.core.errors import BadInput
from paretune.estimating.noise import F1_NOISE, SECONDS_NOISE
from tests.design_examples import write_design

STUDIES = Path(__file__).parents[4] / "studies"
TWO_BY_TWO = {"learning_rate": [1e-5, 2e-5], "num_train_epochs": [1, 2]}


def plan(folder: Path, **changes: Any) -> DesignPlan:
    local = {"job": {"launcher": "local"}, "n_parallel": None, "factors": TWO_BY_TWO}
    return DesignPlan.of(read_design(write_design(folder, **{**local, **changes}), {}))


def test_the_reference_design_is_as_uncorrelated_and_efficient_as_fifteen_runs_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(STUDIES.parent)
    result = DesignPlan.of(read_design("studies/polarity_scaling.yaml", {}))

    assert len(result.rows) == 15
    assert {round(abs(r), 2) for r in result.between_factors.values()} == {0.2}
    assert result.d_efficiency >= 0.63
    assert not result.warnings()


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_the_reference_design_is_as_good_with_another_seed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(STUDIES.parent)
    design = read_design("studies/polarity_scaling.yaml", {})
    result = DesignPlan.of(type(design)(**{**vars(design), "seed": seed}))

    assert max(abs(round(r, 2)) for r in result.between_factors.values()) <= 0.2
    assert result.d_efficiency >= 0.63


def test_no_fifteen_balanced_runs_are_less_correlated_than_a_fifth() -> None:
    """Each of nine cells once or twice, each level five times: which cells are left out once is a permutation."""
    codes = np.array([[1, 0], [0, 1], [-1, -1]])
    worst = []
    for order in itertools.permutations(range(3)):
        counts = 2 - np.eye(3)[list(order)]
        rows = [(item, other) for item in range(3) for other in range(3) for _ in range(int(counts[item, other]))]
        columns = np.array([[*codes[first], *codes[other]] for first, other in rows])
        worst.append(np.abs(np.corrcoef(columns, rowvar=False)[:2, 2:]).max())

    assert min(worst) == pytest.approx(0.2)


def test_a_full_design_has_every_combination_and_no_correlation(tmp_path: Path) -> None:
    design = plan(tmp_path)

    assert len(design.rows) == 4
    assert list(design.between_factors.values()) == [pytest.approx(0.0)]
    assert design.d_efficiency == pytest.approx(1.0)


def test_power_is_that_of_the_test_of_a_difference_worked_out_by_hand(tmp_path: Path) -> None:
    """Two factors of two levels, 8 rows: the difference of two means of 4, 5 degrees of freedom."""
    (rate, epochs) = plan(tmp_path, replicates=2).detectable

    size = (stats.t.ppf(0.975, 5) + stats.t.ppf(0.8, 5)) * math.sqrt(1 / 4 + 1 / 4)
    assert (rate.factor, epochs.factor) == ("learning_rate", "num_train_epochs")
    assert rate.seconds == epochs.seconds == pytest.approx(size * SECONDS_NOISE)
    assert rate.f1 == pytest.approx(size * F1_NOISE)


def test_a_design_without_rows_for_noise_says_so(tmp_path: Path) -> None:
    result = plan(tmp_path, model="learning_rate * num_train_epochs", design="d-optimal", runs=4)

    assert [item.f1 for item in result.detectable] == [None, None]
    assert "no rows are left to measure noise" in result.warnings()[0]


def test_correlated_factors_are_named(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("learning_rate,num_train_epochs\n1e-5,1\n1e-5,1\n2e-5,2\n2e-5,2\n2e-5,1\n")
    result = plan(tmp_path, factors=None, design={"table": str(table)})

    (text,) = result.warnings()
    assert text.startswith("learning_rate and num_train_epochs are correlated (r = 0.67, above 0.2 in size)")


def test_repeated_rows_have_other_seeds_and_the_order_is_drawn(tmp_path: Path) -> None:
    design = plan(tmp_path, replicates=3)
    again = plan(tmp_path, replicates=3)
    in_order = plan(tmp_path, replicates=3, randomise=False)

    assert [row.spec for row in design.rows] == [row.spec for row in again.rows]
    assert len({row.spec.spec_hash() for row in design.rows}) == 12
    assert Counter(row.spec.seed for row in design.rows) == {42: 4, 43: 4, 44: 4}
    assert [flat(row.point) for row in in_order.rows[:4]] == [flat(point) for point in in_order.file.candidates()]
    assert [row.spec for row in design.rows] != [row.spec for row in in_order.rows]
    assert [row.run for row in design.rows] == list(range(1, 13))


def test_centre_points_lie_in_the_middle_of_all_factors(tmp_path: Path) -> None:
    factors = {"learning_rate": [1e-5, 3e-5], "instance_count": [1, 4]}
    design = plan(tmp_path, factors=factors, centre_points=2, randomise=False)

    assert len(design.rows) == 6
    assert [flat(row.point) for row in design.rows[4:]] == [
        {"learning_rate": pytest.approx(2e-5), "instance_count": 2}
    ] * 2
    assert design.rows[4].spec.seed != design.rows[5].spec.seed


def test_a_fraction_of_a_design_is_balanced(tmp_path: Path) -> None:
    factors = {"learning_rate": [1e-5, 2e-5], "num_train_epochs": [1, 2], "max_seq_length": [32, 64]}
    result = plan(tmp_path, factors=factors, design="fractional")

    assert len(result.rows) == 4
    assert max(abs(r) for r in result.between_factors.values()) == pytest.approx(0.0)
    with pytest.raises(BadInput, match="runs must hold a fraction of 8 combinations, got 2"):
        plan(tmp_path, factors=factors, design="fractional", runs=2)


FOUR = {"learning_rate": [1e-5, 2e-5], "num_train_epochs": [1, 2], "max_seq_length": [32, 64], "seed": [1, 2]}


def test_half_of_four_factors_of_two_levels_is_the_fraction_of_resolution_four(tmp_path: Path) -> None:
    """I = ABCD: each main effect is aliased with an interaction of three factors, none with one of two."""
    result = plan(tmp_path, factors=FOUR, design="fractional", randomise=False)

    signs = [[1 if flat(row.point)[name] == high else -1 for name, (_, high) in FOUR.items()] for row in result.rows]
    assert sorted(map(tuple, signs)) == sorted(map(tuple, fracfact("a b c abc").astype(int).tolist()))
    matrix = np.array(signs)
    pairs = np.array([first * other for first, other in itertools.combinations(matrix.T, 2)]).T
    assert not (matrix.T @ pairs).any()
    assert (matrix[:, 0] == matrix[:, 1] * matrix[:, 2] * matrix[:, 3]).all()


def test_a_third_of_three_factors_of_three_levels_has_every_pair_of_levels_once(tmp_path: Path) -> None:
    names = ("learning_rate", "num_train_epochs", "max_seq_length")
    factors = dict(zip(names, ([1e-5, 2e-5, 4e-5], [1, 2, 3], [32, 64, 128]), strict=True))
    result = plan(tmp_path, factors=factors, design="fractional", runs=9)

    for first, other in itertools.combinations(names, 2):
        pairs = Counter((flat(row.point)[first], flat(row.point)[other]) for row in result.rows)
        assert set(pairs.values()) == {1}
        assert len(pairs) == 9


def mean_variance(design_plan: DesignPlan) -> float:
    """Mean variance of a prediction over all combinations, as a share of the variance of a run."""
    every = design_plan.model.matrix(design_plan.file.candidates())
    custom = design_plan.model.matrix(design_plan.points)
    return float(np.mean(np.sum(every @ np.linalg.inv(custom.T @ custom) * every, axis=1)))


@pytest.mark.parametrize(
    ("runs", "model"),
    [
        (5, None),
        pytest.param(7, "np.log(dataset_size) + I(np.log(dataset_size) ** 2) + seed", marks=pytest.mark.slow),
    ],
)
def test_an_i_optimal_design_predicts_no_worse_than_a_d_optimal_one_or_random_rows(
    tmp_path: Path, runs: int, model: str | None
) -> None:
    factors = {"dataset_size": [1000, 3000, 9000], "seed": [1, 2]}
    custom = {"factors": factors, "runs": runs, "model": model}
    result = plan(tmp_path, design="i-optimal", **custom)

    best = mean_variance(result)
    assert best <= mean_variance(plan(tmp_path, design="d-optimal", **custom)) + 1e-9
    draw, every = np.random.default_rng(0), result.file.candidates()
    for _ in range(20):
        rows = result.model.matrix([every[at] for at in draw.integers(len(every), size=runs)])
        if np.linalg.matrix_rank(rows) == result.model.terms:
            all_rows = result.model.matrix(every)
            other = np.mean(np.sum(all_rows @ np.linalg.inv(rows.T @ rows) * all_rows, axis=1))
            assert best <= other + 1e-9


@pytest.mark.parametrize("replicates", [1, 2, 3])
def test_replicates_repeat_centre_points_too_and_no_job_is_there_twice(tmp_path: Path, replicates: int) -> None:
    result = plan(tmp_path, factors=FOUR, centre_points=2, replicates=replicates, design="fractional")

    assert len(result.rows) == (8 + 2) * replicates
    assert len({row.spec.spec_hash() + str(row.spec.seed) for row in result.rows}) == len(result.rows)


def test_an_i_optimal_design_estimates_its_model(tmp_path: Path) -> None:
    result = plan(tmp_path, factors={"learning_rate": [1e-5, 2e-5, 4e-5], "seed": [1, 2]}, design="i-optimal", runs=8)

    assert len(result.rows) == 8
    assert result.d_efficiency > 0.5


@pytest.mark.parametrize(
    ("model", "runs", "message"),
    [
        ("learning_rate +* nothing", 4, "model must be a formula over the factors"),
        ("learning_rate + speed", 4, "model must be a formula over the factors"),
        ("learning_rate + I(__import__('os').system('touch hostile'))", 4, "unknown: __import__, hostile, os, system"),
        ("learning_rate + {open('hostile', 'w')}", 4, "model must be a formula over the factors"),
        ("np.save(learning_rate, 1)", 4, "unknown: np.save"),
        ("learning_rate * num_train_epochs", 3, "runs must be at least 4, the terms of the model, got 3"),
        ("learning_rate + np.log(learning_rate)", 4, "cannot be estimated from these factors"),
    ],
)
def test_a_model_that_cannot_be_is_refused(tmp_path: Path, model: str, runs: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan(tmp_path, model=model, design="d-optimal", runs=runs)


def test_the_differences_of_language_models_are_of_perplexity(tmp_path: Path) -> None:
    text = plan(tmp_path, replicates=2, job={"task": "causal-lm"}).findings()[-1]

    assert "of perplexity are found" in text
    assert "F1" not in text


def test_a_bill_without_an_estimate_says_why(tmp_path: Path) -> None:
    design = plan(tmp_path)
    row = RowBill(seconds=None, seconds_low=None, seconds_high=None, usd=None, worst_usd=2.0)
    bill = Bill(
        rows=[row] * 4, no_estimate="the rows of some/data are unknown until they are read; set max_train_samples"
    )

    assert "no estimate, at worst 8.00 USD (not estimated: the rows of some/data" in plan_text(design, bill)
