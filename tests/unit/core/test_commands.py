"""How commands are spelled, and read back."""

import shlex

import pytest

from paretune.core.commands import Spelling, command_line, is_started_by_mlflow, options, parameters_of, spelled

PARAMETERS = {"dataset": "my rows; rm $HOME.csv", "text_column": "--text", "tags": '{"a": "b=c"}', "seed": "7"}
BY_MLFLOW = Spelling(words=("mlflow", "run", ".", "--env-manager", "local"), by_mlflow=True)


def test_a_command_survives_a_shell_in_both_spellings() -> None:
    assert parameters_of(command_line("train", PARAMETERS)) == PARAMETERS
    with spelled(BY_MLFLOW):
        assert parameters_of(command_line("train", PARAMETERS)) == PARAMETERS


def test_a_command_is_spelled_as_the_one_that_was_typed() -> None:
    assert (command_line("sync"), options(seed=1, task="a b")) == ("paretune sync", "--seed 1 --task 'a b'")
    with spelled(BY_MLFLOW):
        assert command_line("sync") == "mlflow run . --env-manager local -e sync"
        assert command_line("train", {"seed": "1"}) == "mlflow run . --env-manager local -P seed=1"
        assert options(seed=1, task="a b") == "-P seed=1 -P 'task=a b'"
        assert is_started_by_mlflow()
    assert not is_started_by_mlflow()


@pytest.mark.parametrize("line", ["", "paretune sync", "paretune train seed", "mlflow run . -P seed", "main 'open"])
def test_what_is_no_command_of_a_job_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parameters_of(line)


def test_a_value_that_begins_with_a_dash_is_no_parameter() -> None:
    assert shlex.split(command_line("train", {"text_column": "-x"})) == ["paretune", "train", "--text_column=-x"]
