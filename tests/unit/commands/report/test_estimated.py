"""Jobs that were only estimated, read back from the tables of `estimate`."""

from paretune.commands.report.findings import findings
from paretune.commands.report.observations import estimated_jobs, observations
from paretune.commands.report.scaling import Scaling, scalings
from paretune.core.result import csv_text
from paretune.tracking import RecordedJob, RecordedRun
from tests.recorded_jobs import on_p3

OLD, NEW = (RecordedRun(letter * 32, {"learning_rate": "3e-05"}, {}) for letter in "ab")


def table(seconds: float, **row: object) -> str:
    """The part of an estimate.csv that is read: a job on one and on two instances."""
    rows = [
        {
            "instance_type": "ml.p3.2xlarge",
            "instance_count": count,
            "seconds": seconds / count,
            "cost_usd": 2.0,
            "memory_gib_per_device": 3.5,
            "global_batch_size": 32 * count,
            "fits": "yes",
            **row,
        }
        for count in (1, 2)
    ]
    return csv_text(list(rows[0]), rows)


def test_a_row_is_a_job_with_what_the_table_and_the_command_tell() -> None:
    first, two = estimated_jobs([NEW], lambda _: table(600.0))

    assert (first.origin, first.cluster.instance_count, two.cluster.instance_count) == ("estimated", 1, 2)
    assert (first.bill.billable_seconds, two.bill.billable_seconds, first.bill.cost_usd, first.f1) == (
        600,
        300,
        2,
        None,
    )
    assert (first.param("learning_rate"), two.param("global_batch_size")) == ("3e-05", "64")


def test_a_job_estimated_twice_is_there_once_as_it_was_estimated_last() -> None:
    result = estimated_jobs([NEW, OLD], {NEW.run_id: table(600.0), OLD.run_id: table(900.0)}.get)

    assert [job.bill.billable_seconds for job in result] == [600, 300]


def test_what_does_not_fit_and_runs_without_a_table_are_left_out() -> None:
    tables = {NEW.run_id: table(600.0, fits="no"), OLD.run_id: None}

    assert estimated_jobs([NEW, OLD], tables.get) == []


def test_trainings_of_a_user_s_own_are_left_out() -> None:
    columns = ("instance_type", "instance_count", "seconds", "cost_usd", "basis", "project", "entry_script")
    row = {**dict.fromkeys(columns, ""), "instance_type": "local", "instance_count": 1, "project": "ridge"}

    assert estimated_jobs([NEW], lambda _: csv_text(columns, [row, row | {"seconds": 9.0}])) == []


def scalings_of(jobs: list[RecordedJob]) -> list[Scaling]:
    result, _ = scalings(observations(jobs))
    return result


def test_estimates_stand_apart_and_nothing_is_tested_on_them() -> None:
    measured = [job for count in (1, 2) for job in on_p3(count, [700 / count, 720 / count])]
    result = scalings_of([*measured, *estimated_jobs([NEW], lambda _: table(600.0))])
    (sentence, step) = findings(result[0])

    assert [item.kind.origin for item in result] == ["estimated", "measured"]
    assert sentence.startswith("None of these has run")
    assert step.startswith("From 1 x ml.p3.2xlarge to 2 x ml.p3.2xlarge: saves 5 m (50%)")
