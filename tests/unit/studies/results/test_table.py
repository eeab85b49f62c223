"""pareto.csv."""

import csv
import io

from paretune.studies.results.front import StudyFront
from paretune.studies.results.table import as_csv
from paretune.studies.results.trials import TrialStatus
from tests.study_examples import COST_AND_F1, failed, trial_of


def test_a_row_per_finished_trial_with_exactly_these_columns() -> None:
    trials = [
        trial_of(1, 2.5, 0.91, repeats=0),
        trial_of(0, 1.5, 0.90),
        failed(2, TrialStatus.OUT_OF_MEMORY, "does not fit", cost=0.25),
        failed(3, TrialStatus.RUNNING, ""),
    ]
    text = as_csv(StudyFront.of(trials, {**COST_AND_F1, "train_seconds": "minimize"}, {}))

    assert text.splitlines() == [
        "trial,run_id,learning_rate,instance_type,f1,train_seconds,status,pareto_rank,cost_usd,spent_usd",
        "0,run0,1e-05,ml.g5.xlarge,0.9,,Completed,,1.5,10.0",
        "1,run1,2e-05,ml.g5.xlarge,0.91,,Completed,,2.5,20.0",
        "2,run2,3.0000000000000004e-05,ml.g5.xlarge,,,OutOfMemory,,0.25,30.0",
    ]


def test_ranks_are_in_it_and_odd_texts_survive() -> None:
    odd = 'a, "b"\nc'
    text = as_csv(StudyFront.of([trial_of(0, 1.0, 0.9, point={"dataset": odd})], COST_AND_F1, {}))

    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["dataset"], row["pareto_rank"]) == (odd, "0")


def test_without_trials_it_is_its_header() -> None:
    text = as_csv(StudyFront.of([], COST_AND_F1, {}))

    assert text == "trial,run_id,f1,status,pareto_rank,cost_usd,spent_usd\n"
