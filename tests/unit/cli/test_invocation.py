"""How commands are typed where a process was started."""

import sys
from pathlib import Path

import pytest

from paretune.cli import mlflow_run, program


@pytest.mark.parametrize(
    ("prefix", "environment", "options"),
    [
        ("/env", {}, ("--env-manager", "local")),
        ("/home/me/.mlflow/envs/mlflow-0a1b", {"MLFLOW_EXPERIMENT_ID": "0"}, ()),
        ("/envs/mlflow-0a1b", {"MLFLOW_EXPERIMENT_ID": "7"}, ("--experiment-id", "7")),
    ],
)
def test_a_command_of_mlflow_run_is_repeated_in_its_environment_and_experiment(
    prefix: str, environment: dict[str, str], options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", prefix)

    assert mlflow_run(tmp_path, environment).words == ("mlflow", "run", ".", *options)
    assert mlflow_run(Path("/clone"), environment).words == ("mlflow", "run", "/clone", *options)


def test_a_program_that_the_search_path_does_not_lead_to_is_spelled_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program().words == (sys.executable, "-m", "paretune")

    (tmp_path / "paretune").touch(mode=0o755)
    assert program().words == (sys.executable, "-m", "paretune")  # that of another environment
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert program().words == ("paretune",)
