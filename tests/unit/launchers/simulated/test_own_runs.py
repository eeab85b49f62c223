"""A training of the user's own, replayed from a table of its runs."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.simulated.own_runs import OwnRuns
from paretune.specification.job import JobSpec

TABLE = """instance_type,layers,learning_rate,kind,billable_seconds,acc,status
ml.m5.large,2,1e-4,sync,100,0.7,
ml.m5.large,2,1e-4,sync,120,0.72,
ml.m5.large,4,1e-4,sync,200,,Failed
ml.m5.large,4,0.001,async,180,0.8,Completed
"""


def runs(folder: Path, table: str = TABLE) -> OwnRuns:
    path = folder / "runs.csv"
    path.write_text(table)
    return OwnRuns.read(path)


def job(layers: int, rate: float = 1e-4, **more: object) -> JobSpec:
    arguments = {"layers": layers, **more}
    return JobSpec(
        entry_script="train.py", instance_type="ml.m5.large", learning_rate=rate, training_arguments=arguments
    )


def test_a_row_with_the_arguments_of_the_job_answers_with_all_its_metrics(tmp_path: Path) -> None:
    answer = runs(tmp_path).answer(job(4, 1e-3, kind="async"))

    assert answer.billable_seconds == 180
    assert answer.measured == {"acc": 0.8}


def test_a_table_may_tell_where_its_runs_were_launched(tmp_path: Path) -> None:
    table = TABLE.replace("\nml.", "\nsagemaker,ml.").replace("instance_type", "launcher,instance_type", 1)
    spec = job(4, 1e-3, kind="async").replace(launcher="simulated")

    assert runs(tmp_path, table).answer(spec).measured == {"acc": 0.8}


def test_rows_with_equal_settings_are_repeats_of_which_a_draw_takes_one(tmp_path: Path) -> None:
    table = runs(tmp_path)
    answers = {table.answer(job(2), draw=draw).billable_seconds for draw in range(20)}

    assert answers == {100.0, 120.0}
    assert {table.answer(job(2).replace(seed=seed)).billable_seconds for seed in (42, 43)} == answers  # none twice


def test_a_failed_run_has_seconds_and_no_metric(tmp_path: Path) -> None:
    answer = runs(tmp_path).answer(job(4))

    assert (answer.status, answer.billable_seconds, answer.measured) == ("Failed", 200, {})


def test_a_job_that_no_row_has_is_refused_with_its_settings(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no run with .*layers 8"):
        runs(tmp_path).answer(job(8))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("instance_type,acc\nml.m5.large,0.7\n", "column billable_seconds is missing"),
        ("instance_type,billable_seconds\nml.m5.large,soon\n", "line 2 has no number"),
    ],
)
def test_a_table_that_cannot_answer_is_refused(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        runs(tmp_path, table)
