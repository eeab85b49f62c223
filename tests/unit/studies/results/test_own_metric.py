"""What is said of a metric of the user's own: the same as of F1, by its name."""

from dataclasses import replace

from paretune.studies.results.answer import pareto_csv
from paretune.studies.results.page import page
from tests.study_examples import answer, many_trials


def test_text_table_and_page_name_the_metric() -> None:
    trials = [
        replace(trial, values={{"f1": "val_ndcg"}.get(name, name): value for name, value in trial.values.items()})
        for trial in many_trials(40)
    ]
    result = answer(trials, {"cost_usd": "minimize", "val_ndcg": "maximize"}, {}, name="own")

    assert "within noise of the best val_ndcg" in result.text()
    assert "val_ndcg,val_ndcg_low,val_ndcg_high" in pareto_csv(result.front)
    output = page(result)
    assert "F1" not in result.text()
    assert "F1 is the mean" not in output
    assert "val_ndcg is that of runs that trained" in output
