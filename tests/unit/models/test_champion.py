"""The rule by which the champion changes, case by case."""

from dataclasses import replace

import pytest

from paretune.models.champion import CHEAPER_BY, Figures, decide

CHAMPION = Figures(
    metric="f1",
    value=0.90,
    error=0.005,
    rows="a1",
    baselines={"baseline_f1_majority": 0.33, "baseline_f1_tfidf": 0.75},
    parameters=100e6,
    seconds_per_1000_rows=2.0,
    measured_on="ml.g5.xlarge, A10G, bf16",
)
LIMIT = 2 * (0.005**2 + 0.005**2) ** 0.5  # 0.01414
FASTER = {"seconds_per_1000_rows": 2.0 * (1 - CHEAPER_BY) - 0.001}
SMALLER = {"parameters": 20e6}
ELSEWHERE = {"measured_on": "local, cpu, fp32"}
LOSS = {"metric": "perplexity", "value": 20.0, "error": 0.08}

CASES = {
    "better beyond noise": ({"value": 0.90 + LIMIT + 0.001}, {}, True, "better by 0.0151, more than the noise"),
    "better within noise, not cheaper": ({"value": 0.90 + LIMIT - 0.001}, {}, False, "equal within noise"),
    "equal and faster on the same machine": (FASTER, {}, True, "cheaper to run: 1.80 against 2.00 s per 1,000 rows"),
    "worse within noise, but faster": ({**FASTER, "value": 0.89}, {}, True, "cheaper to run"),
    "worse beyond noise, although faster": ({**FASTER, "value": 0.88}, {}, False, "worse by 0.0200"),
    "faster by too little": ({"seconds_per_1000_rows": 1.9}, {}, False, "not cheaper to run by 10%: 1.90 against"),
    "smaller, but slower on the same machine": (
        {**SMALLER, "seconds_per_1000_rows": 2.5},
        {},
        False,
        "2.50 against 2.00",
    ),
    "smaller, measured elsewhere": ({**SMALLER, **ELSEWHERE}, {}, True, "20,000,000 against 100,000,000 parameters"),
    "faster, but elsewhere and as large": ({**FASTER, **ELSEWHERE}, {}, False, "parameters"),
    "nothing known of its cost": (
        {"parameters": None, "seconds_per_1000_rows": None},
        {},
        False,
        "which is cheaper to run is not recorded",
    ),
    "other rows": ({"value": 0.99, "rows": "b2"}, {}, False, "other validation rows (b2)"),
    "rows not recorded": ({"value": 0.99, "rows": ""}, {}, False, "that this model was judged on is not recorded"),
    "rows of the champion not recorded": ({"value": 0.99}, {"rows": ""}, False, "that the champion was judged on"),
    "another metric": (LOSS, {}, False, "judged by f1, this model by perplexity"),
    "no metric": ({"metric": "", "value": 0.0}, {}, False, "recorded no f1 or perplexity"),
    "champion without figures": ({"value": 0.99}, {"metric": ""}, False, "no figures of paretune"),
    "lower perplexity": ({**LOSS, "value": 19.0}, LOSS, True, "better by 1.00"),
    "higher perplexity": ({**LOSS, "value": 21.0}, LOSS, False, "worse by 1.00"),
    "no noise at all, equal": ({"error": 0.0}, {"error": 0.0}, False, "equal within noise"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_champion_moves_only_to_what_is_better_beyond_noise_or_equal_and_cheaper(case: str) -> None:
    of_new, of_champion, moves, message = CASES[case]
    decision = decide(replace(CHAMPION, **of_new), replace(CHAMPION, **of_champion))

    assert decision.moves is moves
    assert message in decision.reason


def test_a_refusal_tells_both_figures_with_their_errors() -> None:
    reason = decide(replace(CHAMPION, value=0.85), CHAMPION).reason

    assert "F1 0.8500 ± 0.0050 against F1 0.9000 ± 0.0050 of the champion" in reason
    assert "(2 errors: 0.0141)" in reason


FIRST = {
    "above both": ({}, True, "F1 0.9000 ± 0.0050 is above the 0.7500 of TF-IDF, the best baseline"),
    "below TF-IDF": ({"value": 0.7}, False, "not above the 0.7500 of TF-IDF"),
    "as good as TF-IDF": ({"value": 0.75}, False, "not above"),
    "without baselines": ({"baselines": {}}, False, "no baseline is recorded"),
    "without a metric": ({"metric": ""}, False, "recorded no f1"),
}


@pytest.mark.parametrize("case", FIRST)
def test_the_first_version_is_champion_only_above_its_baselines(case: str) -> None:
    changes, moves, message = FIRST[case]
    decision = decide(replace(CHAMPION, **changes), None)

    assert decision.moves is moves
    assert message in decision.reason


@pytest.mark.parametrize("case", CASES)
def test_no_two_models_take_each_other_s_place_by_turns(case: str) -> None:
    of_new, of_champion, _, _ = CASES[case]
    new, champion = replace(CHAMPION, **of_new), replace(CHAMPION, **of_champion)

    assert not (decide(new, champion).moves and decide(champion, new).moves)
