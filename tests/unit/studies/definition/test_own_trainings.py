"""Studies of projects and scripts of the user's own."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.studies.definition.file import StudyFile

STUDY = """name: ridge
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


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine", "MLproject").write_text(
        "name: mine\nentry_points:\n  train:\n    parameters: {alpha: float, depth: float, kind: string}\n"
        '    command: "python train.py {alpha} {depth} {kind}"\n'
    )


def read(text: str = STUDY, **typed: str) -> StudyFile:
    Path("study.yaml").write_text(text)
    return StudyFile.read("study.yaml", typed)


def faults_of(text: str, **typed: str) -> list[str]:
    with pytest.raises(BadInput) as refused:
        read(text, **typed)
    return list(refused.value.faults)


def test_declared_parameters_are_searched_by_their_names_wherever_the_project_stands_in_the_file() -> None:
    study = read()
    names = [f"project_parameters.{name}" for name in ("alpha", "depth", "kind")]
    assert list(study.search) == [*names, "instance_type"]
    assert study.takes_split

    spec = study.spec_at({names[0]: 0.5, names[1]: 3, names[2]: "1", "instance_type": "local"})

    assert (spec.project, spec.entry_point) == ("mine", "train")
    assert spec.project_parameters == {"alpha": 0.5, "depth": 3, "kind": "1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STUDY.replace("alpha:", "alhpa:"), "unknown parameter alhpa: entry point train of mine declares alpha, depth"),
        (STUDY.replace("entry_point: train", "entry_point: trian"), "Could not find trian among entry points"),
        (STUDY.replace("project: mine", "project: ours"), "project ours does not exist"),
        (STUDY.replace("rmse: minimize", "rmse: less"), "objective rmse must be minimize or maximize"),
        (STUDY + "job: {learning_rate: 1e-4}\n", "project=mine goes without learning_rate"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, message: str) -> None:
    faults = faults_of(text)

    assert any(message in fault for fault in faults), faults
    assert all(fault.startswith("study.yaml:") for fault in faults)
