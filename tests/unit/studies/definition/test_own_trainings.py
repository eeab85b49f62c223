"""Studies of any metric and of users' own trainings: what their files mean, and what is refused."""

import os
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile, resolve
from paretune.studies.definition.objectives import default_objectives, objective_faults
from paretune.studies.definition.space import Choices, Range
from paretune.studies.own_code import with_own_code

OWN = """\
name: own
job: {entry_script: own.py, training_arguments: {rounds: 5}}
search:
  training_arguments.leaves: {choices: [7, 15]}
  training_arguments.shrinkage: {low: 1e-3, high: 3e-1, log: true}
n_trials: 4
"""


def read(folder: Path, more: str, text: str = OWN) -> StudyFile:
    (folder / "own.py").touch()
    path = folder / "study.yaml"
    path.write_text(text.replace("own.py", str(folder / "own.py")) + more)
    return with_own_code(StudyFile.read(str(path), {}))


def faults(folder: Path, more: str, text: str = OWN) -> str:
    with pytest.raises(BadInput) as caught:
        read(folder, more, text)
    return "\n".join(caught.value.faults)


def test_any_metric_of_an_own_training_is_an_objective_and_the_first_measures_the_model(tmp_path: Path) -> None:
    file = read(tmp_path, "objectives: {cost_usd: minimize, val_ndcg: maximize, val_loss: minimize}\n")

    assert file.judged_by is not None
    assert (file.judged_by.metric, file.judged_by.direction) == ("val_ndcg", "maximize")
    assert not file.takes_split
    assert read(tmp_path, "").takes_split


def test_names_in_a_mapping_of_the_job_are_searched_with_the_types_they_are_written_with(tmp_path: Path) -> None:
    more = "  training_arguments.{}: {}\n"
    text = OWN.replace("n_trials", more.format("trees", "{low: 10, high: 90}") + "n_trials")
    text = text.replace("n_trials", more.format("boosting", "{choices: [gbdt, true, 0.5]}") + "n_trials")
    file = read(tmp_path, "", text)

    assert file.search["training_arguments.trees"] == Range(low=10, high=90)
    assert file.search["training_arguments.boosting"] == Choices(values=("gbdt", True, 0.5))
    searched = {"leaves": 7, "shrinkage": 0.1, "trees": 20, "boosting": True}
    spec = file.spec_at({f"training_arguments.{name}": value for name, value in searched.items()})
    assert spec.training_arguments == {"rounds": 5, **searched}
    assert JobSpec.read(spec.as_text()).spec_hash() == spec.spec_hash()


def test_a_study_of_a_task_weighs_dollars_against_what_the_task_is_judged_by() -> None:
    for name, task in metrics.TASKS.items():
        objectives = default_objectives({"task": name})

        assert list(objectives) == ["cost_usd", task.quality]
        assert [objective_faults(metric, direction, name) for metric, direction in objectives.items()] == [[], []]


def test_a_study_finds_the_files_next_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    study = tmp_path / "own.yaml"
    for path in (study, tmp_path / "rows.csv", tmp_path / "mine.csv", Path("mine.csv")):
        path.touch()

    assert resolve(str(study), "rows.csv") == str(tmp_path / "rows.csv")
    assert resolve(str(study), "mine.csv") == "mine.csv"  # from the current folder
    for text in ("gpt2", "bundled:imdb", "s3://films/rows.csv", "~nobody/rows.csv", "x" * 5000, os.sep + "no", "a\0b"):
        assert resolve(str(study), text) == text


PROJECT = """name: ridge
search:
  alpha: {low: 0.1, high: 10, log: true}
  depth: {low: 2, high: 6}
  kind: {choices: [plain, "1"]}
  instance_type: {choices: [local]}
objectives: {cost_usd: minimize, rmse: minimize}
project: mine
entry_point: train
n_trials: 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with an MLflow project in it."""
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine", "MLproject").write_text(
        "name: mine\nentry_points:\n  train:\n    parameters: {alpha: float, depth: float, kind: string}\n"
        '    command: "python train.py {alpha} {depth} {kind}"\n'
    )
    return tmp_path


def test_declared_parameters_are_searched_by_their_names_wherever_the_project_stands_in_the_file(
    project: Path,
) -> None:
    study = read(project, "", PROJECT)
    names = [f"training_arguments.{name}" for name in ("alpha", "depth", "kind")]
    assert list(study.search) == [*names, "instance_type"]
    assert study.takes_split

    spec = study.spec_at({names[0]: 0.5, names[1]: 3, names[2]: "1", "instance_type": "local"})

    assert (spec.project, spec.entry_point) == ("mine", "train")
    assert spec.training_arguments == {"alpha": 0.5, "depth": 3, "kind": "1"}


def test_a_typed_argument_ends_the_search_of_a_script_s_argument_or_replaces_its_choices(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        'parser.add_argument("--lr", type=float)\nparser.add_argument("--rounds", type=int)\n'
    )
    search = {"lr": {"choices": [0.1, 0.2]}, "rounds": {"choices": [5, 10]}}
    content = {"name": "own", "entry_script": str(tmp_path / "t.py"), "search": search, "n_trials": 2}

    study = StudyFile.read(content, {"training_arguments.lr": "0.3", "training_arguments.rounds": "20,30"})

    assert study.job.training_arguments == {"lr": 0.3}
    assert study.search == {"training_arguments.rounds": Choices(values=(20, 30))}


@pytest.mark.parametrize("typed", ["training_arguments.weight-decay", "training_arguments.weight_decay"])
def test_a_typed_name_ends_a_search_in_either_spelling_and_a_tag_keeps_its_dashes(tmp_path: Path, typed: str) -> None:
    (tmp_path / "t.py").write_text(
        'parser.add_argument("--weight-decay", type=float)\nparser.add_argument("--rounds", type=int)\n'
    )
    search = {"weight_decay": {"choices": [0.1, 0.2]}, "rounds": {"choices": [5, 10]}}
    content = {"name": "own", "entry_script": str(tmp_path / "t.py"), "search": search, "n_trials": 2}

    study = StudyFile.read(content, {typed: "0.3", "tags.cost-center": "a"})

    assert study.job.training_arguments == {"weight_decay": 0.3}
    assert study.job.tags == {"cost-center": "a"}
    assert list(study.search) == ["training_arguments.rounds"]

    content |= {"search": {"rounds": {"choices": [5, 10]}}, "job": {"training_arguments": {"weight_decay": 0.1}}}
    study = StudyFile.read(content, {typed: "0.3"})
    assert study.job.training_arguments == {"weight_decay": 0.3}


def test_a_fault_of_a_typed_value_names_no_line_of_the_file_in_either_spelling(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text('parser.add_argument("--weight-decay", type=float)\n')
    path = tmp_path / "s.yaml"
    search = "search:\n  weight-decay: {choices: [0.1, 0.2]}\n  seed: {choices: [1, 2]}\n"
    path.write_text(f"name: own\nentry_script: {tmp_path}/t.py\nn_trials: 2\n{search}")

    with pytest.raises(BadInput) as caught:
        StudyFile.read(str(path), {"training_arguments.weight_decay": "0.3,0.3"})
    assert not caught.value.faults[0].startswith(str(path))


def test_a_script_s_own_number_of_rows_is_searched_without_a_number_of_rows_for_the_evaluation(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text('parser.add_argument("--max_train_samples", type=int)\n')
    search = {"max_train_samples": {"choices": [100, 200]}}
    content = {"name": "own", "entry_script": str(tmp_path / "t.py"), "search": search, "n_trials": 2}

    assert StudyFile.read(content).spec_at({"max_train_samples": 100}).max_train_samples == 100


def searching(entry: str) -> str:
    """Return a study of a user's own script that also searches this."""
    return OWN.replace("n_trials", f"  training_arguments.{entry}\nn_trials")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (searching("seed: {choices: [1, 2]}"), "must not set seed: use the parameter seed"),
        (searching("a: {choices: [1, [2]]}"), "arguments.a must be text, a number, true or false, got '[2]'"),
        (searching("a: {low: few, high: 3}"), "training_arguments.a: 'few' is not a number"),
        (
            PROJECT.replace("alpha:", "alhpa:"),
            "unknown parameter alhpa: entry point train of mine declares alpha",
        ),
        (
            PROJECT.replace("entry_point: train", "entry_point: trian"),
            "entry_point trian is not in project mine: it has train",
        ),
        (PROJECT.replace("project: mine", "project: ours"), "project ours does not exist"),
        (PROJECT.replace("rmse: minimize", "rmse: less"), "objective rmse must be minimize or maximize"),
        (PROJECT + "job: {learning_rate: 1e-4}\n", "project=mine cannot be combined with learning_rate"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, message: str, project: Path) -> None:
    lines = faults(project, "", text).splitlines()

    assert any(message in line for line in lines), lines
    assert all(line.startswith(f"{project / 'study.yaml'}:") for line in lines)


def test_a_project_without_a_list_of_its_parameters_is_searched_by_names_that_paretune_has_too(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text('trl sft "$@"\n')
    search = {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}
    content = {"name": "TRL", "project": str(tmp_path), "entry_point": "run.sh", "search": search, "n_trials": 3}

    file = StudyFile.read({**content, "objectives": {"cost_usd": "minimize", "eval_loss": "minimize"}, "budget_usd": 9})

    (name,) = file.search
    assert file.spec_at({name: 1e-4}).training_arguments == {"learning_rate": 1e-4}
