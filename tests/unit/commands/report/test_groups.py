"""Levels of a setting against each other, in means, steps and ratios worked out by hand."""

from typing import Any

import pytest

from paretune.commands.report.document import Section
from paretune.commands.report.groups import groups_of, section_of
from paretune.commands.report.jobs import frame_of, records
from paretune.tracking.recorded_job import RecordedJob
from tests.recorded_jobs import on_p3, recorded

TORCH_COMPILE, COMPILED = "training_arguments.torch_compile", {"torch_compile": True}


def sections_of(
    jobs: list[RecordedJob], factor: str = "shape", view: str = "scaling"
) -> list[tuple[Section, list[dict[str, Any]]]]:
    groups = groups_of(frame_of(jobs, factor), factor, view)
    return [(section, records(frame)) for section, frame in (section_of(group, view) for group in groups)]


def cells(section: Section, about: str = "Means") -> dict[str, list[str]]:
    (table,) = (table for title, table in section.tables if about in title)
    return {name: list(table[name]) for name in table}


def test_means_deviations_and_steps_are_those_worked_out_by_hand() -> None:
    ((section, (row, other)),) = sections_of([*on_p3(4, [3000, 3600]), *on_p3(1, [10_000, 10_400, 10_800])])

    assert cells(section) == {
        "shape": ["1 x ml.p3.2xlarge", "4 x ml.p3.2xlarge"],
        "devices": ["1", "4"],
        "billed time": ["2 h 53 m ± 6 m 40 s", "55 m ± 7 m 4 s"],  # 10,400 ± 400 and 3,300 ± 424.26 s
        "cost (USD)": ["10.40 ± 0.40", "13.20 ± 1.70"],
        "F1": ["0.9000 ± 0.0000", "0.9000 ± 0.0000"],
        "n": ["3", "2"],
        "saved by this step": ["", "1 h 58 m"],  # 10,400 - 3,300 s
        "its dollars": ["", "+2.80"],
        "efficiency": ["100%", "79%"],  # 3.1515 / 4
    }
    assert row["billable_seconds_deviation"] == pytest.approx(400)
    assert other["speed_up"] == pytest.approx(10_400 / 3_300)


def test_origins_data_sets_models_and_notional_dollars_stand_apart() -> None:
    apart: list[dict[str, Any]] = [{}, {"tags": {"origin": "published"}}, {"dataset": "other.csv"}, {"model": "other"}]
    jobs = [job for also in apart for count in (1, 2) for job in on_p3(count, [100.0 / count], **also)]
    jobs += [recorded(instance_count=count, metrics={"billable_seconds": 9.0}) for count in (1, 2)]

    assert [section.heading for section, _ in sections_of(jobs)] == [
        "Measured: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, by shape",
        "Measured: bundled:all-MiniLM-L6-v2 on other.csv, by shape",
        "Measured: other on bundled:rotten_tomatoes, by shape",
        "Measured, notional dollars: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, by shape",
        "Published: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, by shape",
    ]


def test_the_default_is_what_the_others_are_compared_with() -> None:
    jobs = [*on_p3(1, [80, 84], training_arguments=COMPILED), *on_p3(1, [100, 104])]
    ((section, (_, row)),) = sections_of(jobs, TORCH_COMPILE, "compare")
    table = cells(section)

    assert table[TORCH_COMPILE] == ["not set", "true"]
    assert table["billed time / first"][0] == "1.000"
    assert table["billed time / first"][1] == "0.804"  # 82 / 102
    assert row["speed_up"] == pytest.approx(102 / 82)


def test_f1_is_compared_by_its_difference_and_what_else_differs_is_said() -> None:
    jobs = [
        *(job for f1 in (0.830, 0.836, 0.834) for job in on_p3(1, [80], f1=f1, fine_tuning="lora")),
        *(job for f1 in (0.844, 0.842) for job in on_p3(1, [100], f1=f1, seed=7, precision="fp16")),
    ]
    ((section, (_, row)),) = sections_of(jobs, "fine_tuning", "compare")

    assert row["f1_difference"] == pytest.approx(-0.0096667, abs=1e-6)
    assert cells(section)["F1 - first"][1] == "-0.0097"
    assert cells(section)["billed time / first"][1] == "0.800"
    assert section.sentences == [
        "fine_tuning is not all that differs between these runs: so does learning_rate (5e-05, 0.0005); "
        "precision (auto, fp16)."
    ]
    jobs = [*on_p3(1, [80], precision="fp16"), *(on_p3(1, [80], learning_rate=rate / 3e5)[0] for rate in range(4, 10))]
    ((section, _),) = sections_of(jobs, "precision", "compare")
    assert "learning_rate (7 values from 1.33333e-05 to 5e-05)." in section.sentences[0]
