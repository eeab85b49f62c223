"""A user's own training, replayed from a table of its runs."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.simulated.user_runs import UserRuns
from paretune.specification.job import JobSpec

TABLE = """instance_type,layers,learning_rate,kind,billable_seconds,acc,status
ml.m5.large,2,1e-4,sync,100,0.7,
ml.m5.large,2,1e-4,sync,120,0.72,
ml.m5.large,4,1e-4,sync,200,,Failed
ml.m5.large,4,0.001,async,180,0.8,Completed
"""


def runs(folder: Path, table: str = TABLE) -> UserRuns:
    path = folder / "runs.csv"
    path.write_text(table)
    return UserRuns.read(path)


def job(layers: int, rate: float = 1e-4, **more: object) -> JobSpec:
    arguments = {"layers": layers, **more}
    return JobSpec(
        entry_script="train.py", instance_type="ml.m5.large", learning_rate=rate, training_arguments=arguments
    )


WITH_LAUNCHER = TABLE.replace("\nml.", "\nsagemaker,ml.").replace("instance_type", "launcher,instance_type", 1)


@pytest.mark.parametrize("table", [TABLE, WITH_LAUNCHER])
def test_a_row_with_the_arguments_of_the_job_answers_wherever_it_was_launched(tmp_path: Path, table: str) -> None:
    answer = runs(tmp_path, table).answer(job(4, 1e-3, kind="async").replace(launcher="simulated"))

    assert answer.billable_seconds == 180
    assert answer.measured == {"acc": 0.8}


def test_rows_with_equal_settings_are_repeats_of_which_a_draw_takes_one(tmp_path: Path) -> None:
    table = runs(tmp_path)
    answers = {table.answer(job(2), draw=draw).billable_seconds for draw in range(20)}

    assert answers == {100.0, 120.0}
    assert {table.answer(job(2).replace(seed=seed)).billable_seconds for seed in (42, 43)} == answers  # each once


@pytest.mark.parametrize(("seed", "seconds"), [(1, 100.0), (2, 120.0), (43, 120.0), (44, 100.0)])
def test_a_seed_chooses_its_row_and_any_row_if_the_table_has_other_seeds(
    tmp_path: Path, seed: int, seconds: float
) -> None:
    header, *rows = TABLE.splitlines()[:3]
    table = "\n".join([f"{header},seed", *(f"{row},{number}" for number, row in enumerate(rows, 1))])

    assert runs(tmp_path, table).answer(job(2).replace(seed=seed)).billable_seconds == seconds


def test_words_for_true_and_false_are_equal_and_a_metric_that_is_no_number_is_absent(tmp_path: Path) -> None:
    table = "instance_type,billable_seconds,fast,acc\nml.m5.large,100,True,nan\nml.m5.large,90,false,0.5\n"
    answers = [runs(tmp_path, table).answer(job(2, fast=fast)) for fast in (True, False)]

    assert [answer.measured for answer in answers] == [{}, {"acc": 0.5}]


def test_a_setting_that_the_job_leaves_open_is_not_a_metric(tmp_path: Path) -> None:
    table = "instance_type,billable_seconds,num_train_epochs,acc\nml.m5.large,100,3,0.5\n"

    assert runs(tmp_path, table).answer(job(2)).measured == {"acc": 0.5}


def test_a_column_without_a_name_is_not_a_metric(tmp_path: Path) -> None:
    header, *rows = TABLE.splitlines()  # as pandas writes it, with its index first
    table = "\n".join([f",{header}", *(f"{number},{row}" for number, row in enumerate(rows))])

    assert runs(tmp_path, table).answer(job(4, 1e-3, kind="async")).measured == {"acc": 0.8}


def test_a_failed_run_has_seconds_and_no_metric(tmp_path: Path) -> None:
    answer = runs(tmp_path).answer(job(4))

    assert (answer.status, answer.billable_seconds, answer.measured) == ("Failed", 200, {})


def test_a_job_that_no_row_has_is_refused_with_its_settings(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no run with .*layers 8"):
        runs(tmp_path).answer(job(8))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("instance_type,acc\nml.m5.large,0.7\n", "column billable_seconds is missing"),
        ("instance_type,billable_seconds,acc\nml.m5.large,1,200,0.9\n", "line 2: has 4 cells, the header line 3"),
        ("instance_type,billable_seconds,acc\nml.m5.large,200\n", "line 2: has 2 cells, the header line 3"),
        ("instance_type,billable_seconds,acc,acc\nml.m5.large,9,1,2\n", "column acc occurs twice"),
        (
            "instance_type,billable_seconds,status\nml.m5.large,9,completed\n",
            "line 2: status must be one of Completed, OutOfMemory, Failed, got 'completed'",
        ),
        *(
            (
                f"instance_type,billable_seconds\nml.m5.large,{text}\n",
                "line 2: billable_seconds must be a number above 0",
            )
            for text in ("soon", "0", "nan")
        ),
    ],
)
def test_a_table_that_cannot_answer_is_refused(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        runs(tmp_path, table)
