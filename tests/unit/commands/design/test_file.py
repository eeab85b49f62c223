"""Design files: what they mean, and what is said of bad ones: all faults at once."""

from pathlib import Path
from typing import Any

import pytest

from paretune.cli.main import main
from paretune.commands.design.file import DesignFile, design_help, flat, labels
from paretune.commands.design.reading import read_design
from paretune.core.errors import BadInput
from paretune.studies.definition.file import StudyFile
from tests.design_examples import write_design

LOCAL: dict[str, Any] = {"job": {"launcher": "local"}, "factors": {"learning_rate": [1e-5, 2e-5]}, "n_parallel": None}


def faults(folder: Path, text: str, **typed: str) -> list[str]:
    path = folder / "design.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_design(str(path), typed)
    return [fault.replace(f"{folder}/", "") for fault in caught.value.faults]


def small(folder: Path, typed: dict[str, str] | None = None, **changes: Any) -> DesignFile:
    return read_design(write_design(folder, **{**LOCAL, **changes}), typed or {})


def test_members_of_a_factor_travel_together(tmp_path: Path) -> None:
    design = read_design(write_design(tmp_path), {})

    assert len(design.candidates()) == 4 * 3
    assert {tuple(flat(point)) for point in design.candidates()} == {
        ("instance_type", "instance_count", "learning_rate")
    }
    assert labels(design.factors["clusters"])[:2] == ["1 x ml.g5.xlarge", "4 x ml.g5.xlarge"]
    assert design.job_at(design.candidates()[0]).spec.instance_type == "ml.g5.xlarge"


def test_rows_are_counted_before_the_split_as_the_published_study_did(tmp_path: Path) -> None:
    design = small(tmp_path, factors={"dataset_size": [1000, 2000]}, job={"launcher": "local", "validation_share": 0.2})
    first, second = (design.job_at(point).spec for point in design.candidates())

    assert (first.max_train_samples, first.max_eval_samples) == (800, 200)
    assert (second.max_train_samples, second.max_eval_samples) == (1600, 400)


def test_equal_steps_make_whole_epochs(tmp_path: Path) -> None:
    job = {"launcher": "local", "total_steps": 300, "per_device_train_batch_size": 30}
    design = small(tmp_path, job=job, factors={"dataset_size": [1000, 5000]})

    assert [design.job_at(point).spec.num_train_epochs for point in design.candidates()] == [10.0, 2.0]
    assert [design.job_at(point).steps for point in design.candidates()] == [300, 300]
    assert [design.job_at(point).deviation for point in design.candidates()] == [0.0, 0.0]


def test_steps_without_whole_epochs_are_refused_with_the_nearest_ones_or_rounded_and_shown(tmp_path: Path) -> None:
    job = {"launcher": "local", "total_steps": 70, "per_device_train_batch_size": 30}
    with pytest.raises(BadInput) as caught:
        small(tmp_path, job=job, factors={"dataset_size": [1000, 5000]})
    (first, second) = caught.value.faults
    assert "must be whole epochs, got 2.33333: the nearest are 2 epochs (60 steps) and 3 epochs (90 steps)" in first
    assert "round_epochs=true" in first
    assert "the nearest are 1 epoch (150 steps)" in second

    design = small(tmp_path, {"round_epochs": "true"}, job=job, factors={"dataset_size": [1000, 5000]})
    result = [design.job_at(point) for point in design.candidates()]
    assert [row.spec.num_train_epochs for row in result] == [2.0, 1.0]
    assert [row.deviation for row in result] == [pytest.approx(60 / 70 - 1), pytest.approx(150 / 70 - 1)]


def test_steps_that_whole_epochs_make_with_a_smaller_last_batch_are_taken(tmp_path: Path) -> None:
    """In batches of 16, 900 rows are 56 whole ones and 4 rows: 57 steps an epoch."""
    job = {"launcher": "local", "total_steps": 114}
    design = small(
        tmp_path, job=job, factors={"dataset_size": [1000, 2000], "seed": [1, 2]}, exclude=[{"dataset_size": 2000}]
    )
    (row, _) = [design.job_at(point) for point in design.candidates()]
    assert (row.spec.num_train_epochs, row.steps, row.deviation) == (2.0, 114, 0.0)

    job["total_steps"] = 120
    with pytest.raises(BadInput, match=r"the nearest are 2 epochs \(114 steps\) and 3 epochs \(171 steps\)"):
        small(
            tmp_path, job=job, factors={"dataset_size": [1000, 2000], "seed": [1, 2]}, exclude=[{"dataset_size": 2000}]
        )


def test_a_file_of_the_other_kind_is_refused_with_the_command_that_takes_it(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("name: a study\nsearch: {learning_rate: {choices: [1e-5, 2e-5]}}\n")
    with pytest.raises(BadInput, match=r"has search, so it is a study, not a design: `paretune study --study "):
        read_design(str(study), {})
    with pytest.raises(BadInput, match=r"has factors, so it is a design, not a study: `paretune design --design "):
        StudyFile.read(write_design(tmp_path), {})


@pytest.mark.parametrize(
    ("typed", "message"), [("desing", "did you mean design"), ("velocity", "paretune design --help")]
)
def test_an_unknown_word_that_is_typed_is_not_answered_with_all_that_there_are(
    tmp_path: Path, typed: str, message: str
) -> None:
    with pytest.raises(BadInput, match=f"unknown parameter {typed}: .*{message}"):
        read_design(write_design(tmp_path), {typed: "1"})


def test_excluded_combinations_are_left_out(tmp_path: Path) -> None:
    rule = {"instance_type": "ml.g6.xlarge", "learning_rate": 8e-5}
    design = read_design(write_design(tmp_path, exclude=[rule]), {})

    assert len(design.candidates()) == 12 - 2


def test_one_typed_value_ends_a_factor_and_several_replace_its_levels(tmp_path: Path) -> None:
    path = write_design(tmp_path)

    assert read_design(path, {"learning_rate": "4e-5"}).job["learning_rate"] == 4e-5
    assert len(read_design(path, {"learning_rate": "2e-5,4e-5"}).candidates()) == 4 * 2
    one_type = read_design(path, {"instance_type": "ml.g5.xlarge"})
    assert [dict(level) for level in one_type.factors["clusters"]] == [{"instance_count": 1}, {"instance_count": 4}]
    assert set(read_design(path, {"instance_type": "ml.g5.xlarge", "instance_count": "2"}).factors) == {"learning_rate"}


def test_a_rehearsal_s_table_is_left_aside_where_the_job_is_not_simulated(tmp_path: Path) -> None:
    design = read_design(write_design(tmp_path), {"launcher": "sagemaker", "budget_usd": "9"})

    assert not {"recorded_runs", "simulation"} & set(design.job)


def test_model_and_seed_are_the_job_s_where_they_are_typed(tmp_path: Path) -> None:
    design = small(tmp_path, {"model": "bert-base-uncased", "seed": "7"}, model="learning_rate", seed=3)

    assert (design.model, design.seed) == ("learning_rate", 3)
    assert (design.job["model"], design.job["seed"]) == ("bert-base-uncased", 7)


def test_a_table_gives_the_factors_and_the_rows(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("learning_rate,num_train_epochs,max_seq_length\n1e-5,1,64\n2e-5,2,64\n1e-5,2,64\n")
    design = small(tmp_path, factors=None, design={"table": str(table)})

    assert set(design.factors) == {"learning_rate", "num_train_epochs"}
    assert design.job["max_seq_length"] == 64
    assert [flat(point)["learning_rate"] for point in design.candidates()] == [1e-5, 2e-5, 1e-5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate,nothing\n1e-5,2\n", "unknown column nothing"),
        ("learning_rate\n", "has no rows"),
        ("learning_rate,seed\n1e-5\n", "not as many cells"),
        ("learning_rate\nfast\n", "rows.csv:2: learning_rate must be a number"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(text)
    with pytest.raises(BadInput, match=message):
        small(tmp_path, factors=None, design={"table": str(table)})


def test_all_faults_of_a_design_are_said_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """\
name: wrong
job: {launcher: local, max_seq_lenth: 64, learning_rate: 1e-5}
factors:
  learning_rate: [1e-5, 2e-5]
  speed: [1, 2]
  max_seq_length: [2, 64]
  num_train_epochs: [1]
  max_runtime_minutes: [1, 2]
design: d-optimal
runs: 2
sampler: tpe
exclude: [{seed: 3}]
"""
    messages = faults(tmp_path, text, n_parallel="0")

    assert messages[0] == "n_parallel must be at least 1 and at most 1000, got 0"
    expected = [
        ("design.yaml:2: unknown parameter max_seq_lenth in job: did you mean max_seq_length", ""),
        ("design.yaml:4: learning_rate is in job and in factors", ""),
        ("design.yaml:5: unknown factor speed", "instance_count"),
        ("design.yaml:6: max_seq_length must be at least 4", ""),
        ("design.yaml:7: num_train_epochs must have at least two levels, got 1", ""),
        ("design.yaml:8: max_runtime_minutes cannot be a factor", ""),
        ("design.yaml:11: unknown key sampler", ""),
        ("design.yaml:12: exclude: rule 1 names seed, which no factor has", ""),
    ]
    assert len(messages) == len(expected) + 1
    for fault, (begin, middle) in zip(messages[1:], expected, strict=True):
        assert fault.startswith(begin)
        assert middle in fault


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"design": "d-optimal"}, "runs is missing"),
        ({"design": "d-optimal", "runs": 2, "factors": {"seed": [1, 2, 3]}}, "runs must be at least 3, the terms"),
        ({"runs": 5}, "design full has all its rows"),
        ({"design": "latin"}, "design must be one of full, fractional, d-optimal, i-optimal"),
        ({"exclude": [{"learning_rate": 1e-5}, {"learning_rate": 2e-5}]}, "exclude leaves none of the 2 combinations"),
        ({"job": {"instance_type": "ml.g5.xlarge"}}, "budget_usd is missing"),
        ({"centre_points": 2, "factors": {"precision": ["fp32", "bf16"]}}, "precision has no middle"),
        ({"factors": {"global_batch_size": [7, 8], "gradient_accumulation_steps": [3, 4]}}, "takes such rows out"),
        ({"job": {"launcher": "local", "dataset_size": 100, "max_train_samples": 10}}, "exclude each other"),
        ({"job": {"launcher": "local", "dataset_size": 10**300}}, "dataset_size must be at most 1e"),
        ({"job": {"launcher": "local", "total_steps": 10**300}}, "total_steps must be at most 1e"),
        ({"job": {"launcher": "local", "total_steps": 100, "num_train_epochs": 10}}, "exclude each other"),
        ({"job": {"launcher": "local", "total_steps": 100, "dataset": "a/b"}}, "total_steps needs the number"),
        ({"prices": "nowhere.csv"}, "prices: .*nowhere.csv does not exist"),
        ({"factors": {"my clusters": [{"seed": 1}, {"seed": 2}]}}, "a factor must be named by letters"),
        ({"factors": None}, "factors is missing"),
        ({"factors": {"seed": [1, 2, 1]}}, "seed: seed=1 is among the levels twice"),
    ],
)  # fmt: skip
def test_a_bad_design_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        small(tmp_path, **changes)


def test_all_that_is_wrong_with_a_design_is_one_message_that_ends_the_command_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("learning_rat,instance_cout,seed\n1e-5,1,1\n")
    path = write_design(tmp_path, design={"table": str(table)}, factors=None, runs=1, replicates=0, n_parallel=0)
    assert main(["design", "--design", path, "--budget_usd", "-3"]) == 2

    output = capsys.readouterr().err
    for text in (
        "unknown column learning_rat: did you mean learning_rate",
        "unknown column instance_cout: did you mean instance_count",
        "runs must be at least 2, got 1",
        "replicates must be at least 1 and at most 100, got 0",
        "n_parallel must be at least 1 and at most 1000, got 0",
        "budget_usd must be greater than 0, got -3",
    ):
        assert output.count(text) == 1


def test_what_is_recorded_of_a_design_reads_as_the_same_design(tmp_path: Path) -> None:
    design = read_design(write_design(tmp_path, design="d-optimal", runs=8), {"n_parallel": "2"})
    again = tmp_path / "again.yaml"
    again.write_text(design.as_yaml())

    assert read_design(str(again), {}).candidates() == design.candidates()
    assert design.as_text()["runs"] == "8"


def test_help_has_what_can_be_typed() -> None:
    assert {"budget_usd", "total_steps", "dry_run", "dataset_size"} <= set(design_help())
    assert not {"model", "runs"} & set(design_help())
