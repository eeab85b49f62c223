from pathlib import Path

import pytest

from paretune.commands.recur.file import RecurFile
from paretune.core.errors import BadInput
from paretune.studies.definition.file import StudyFile

ROOT = Path(__file__).parents[4]
GOOD = """
name: nightly
job:
  launcher: simulated
  instance_type: ml.g5.xlarge
  learning_rate: 4e-5
  dataset: data/{night}.csv
search:
  instance_type: {choices: [ml.g5.xlarge, ml.g6.xlarge]}
  learning_rate: {choices: [2e-5, 8e-5]}
floor: {f1: 0.9}
"""


def written(folder: Path, text: str) -> str:
    """Path of a file with this text."""
    path = folder / "nightly.yaml"
    path.write_text(text)
    return str(path)


def test_the_default_is_what_the_job_says_and_comes_first(tmp_path: Path) -> None:
    file = RecurFile.read(written(tmp_path, GOOD), {})

    points = file.points()
    assert points[0] == {"instance_type": "ml.g5.xlarge", "learning_rate": 4e-5}
    assert len(points) == 1 + 2 * 2
    assert file.spec_at(points[0]).learning_rate == 4e-5
    assert (file.metric, file.floor) == ("f1", 0.9)


def test_dry_run_is_refused_for_a_night_would_launch_a_job(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dry_run launches nothing"):
        RecurFile.read(written(tmp_path, GOOD), {"dry_run": "true"})


def test_a_default_among_the_choices_is_one_point(tmp_path: Path) -> None:
    file = RecurFile.read(written(tmp_path, GOOD.replace("learning_rate: 4e-5", "learning_rate: 2e-5")), {})

    assert len(file.points()) == 2 * 2


def test_the_name_of_the_night_takes_its_place_in_the_job(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "2026-11-22.csv").write_text("text,label\n")
    file = RecurFile.read(written(tmp_path, GOOD), {}).dated("2026-11-22")

    assert file.night == "2026-11-22"
    assert file.spec_at(file.default_point()).dataset == str(tmp_path / "data" / "2026-11-22.csv")


def test_what_is_typed_wins(tmp_path: Path) -> None:
    file = RecurFile.read(written(tmp_path, GOOD), {"night": "n1", "max_cost_usd": "7", "num_train_epochs": "2"})

    assert (file.night, file.max_cost_usd) == ("n1", 7.0)
    assert file.spec_at(file.default_point()).num_train_epochs == 2


def test_all_faults_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    text = GOOD.replace("{f1: 0.9}", "{cost_usd: x, f1: 0.9}").replace("name: nightly", "name: it's\nmax_cost_usd: -1")
    text = text.replace("[2e-5, 8e-5]", "[]") + "budget_usd: 3\n"
    with pytest.raises(BadInput) as refused:
        RecurFile.read(written(tmp_path, text), {"night": "a/b"})

    message = "\n".join(refused.value.faults)
    for part in ("floor: cost_usd must be a number", "max_cost_usd", "name must", "night must", "choices must"):
        assert part in message
    assert "unknown key budget_usd" in message
    assert f"{tmp_path / 'nightly.yaml'}:2: name" in message


@pytest.mark.parametrize(
    ("floor", "message"),
    [
        ("", "has search, so it is a study"),
        ("floor: {f1: 0.9, f1_micro: 0.9}", "floor must name one metric"),
        ("floor: {job_seconds: 10}", "floor must name a metric of the model"),
        ("floor: {rmse: 1}", "not measured with task classification"),
        ("floor: {f1: nan}", "f1 must be a number, got 'nan'"),
        ("floor: {f1: inf}", "f1 must be a number"),
        ("floor: {f1: 90}", "f1 must be 0 to 1, as its values are, got 90"),
        ("floor: {f1: -1}", "f1 must be 0 to 1"),
    ],
)
def test_a_floor_is_one_metric_of_the_model(tmp_path: Path, floor: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        RecurFile.read(written(tmp_path, GOOD.replace("floor: {f1: 0.9}", floor)), {})


def test_a_range_is_refused_for_a_night_chooses_among_points(tmp_path: Path) -> None:
    text = GOOD.replace("{choices: [2e-5, 8e-5]}", "{low: 1e-5, high: 1e-4}")
    with pytest.raises(BadInput, match="a range has no list of points"):
        RecurFile.read(written(tmp_path, text), {})


def test_a_recurring_training_given_to_study_is_told_its_command_and_the_other_way_round(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="paretune recur --file"):
        StudyFile.read(written(tmp_path, GOOD), {})
    with pytest.raises(BadInput, match="paretune study --study"):
        RecurFile.read(str(ROOT / "studies" / "smoke.yaml"), {})


def test_the_example_is_a_recurring_training() -> None:
    assert len(RecurFile.read(str(ROOT / "examples" / "nightly.yaml"), {}).points()) == 36


def test_of_a_parameter_without_a_default_of_ours_the_first_choice_is_the_default(tmp_path: Path) -> None:
    search = (
        "  training_arguments.weight_decay: {choices: [0.1, 0.2]}\n  global_batch_size: {choices: [32, 64]}\nfloor:"
    )
    file = RecurFile.read(written(tmp_path, GOOD.replace("floor:", search)), {})

    default = file.points()[0]
    assert default["training_arguments.weight_decay"] == 0.1
    assert file.spec_at(default).plan().global_batch_size == 16  # as without it
    assert len(file.points()) == 1 + 16
