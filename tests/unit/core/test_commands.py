"""How commands are spelled."""

import shlex

from paretune.core.commands import Spelling, command_line, is_started_by_mlflow, options, spelled

PARAMETERS = {"dataset": "my rows; rm $HOME.csv", "text_column": "--text", "tags": '{"a": "b=c"}', "seed": "7"}
BY_MLFLOW = Spelling(words=("mlflow", "run", ".", "--env-manager", "local"), by_mlflow=True)


def test_a_command_survives_a_shell_in_both_spellings() -> None:
    words = [word for name, text in PARAMETERS.items() for word in (f"--{name}", text)]
    words = ["paretune", "train", *words]
    words[words.index("--text_column") : words.index("--text") + 1] = ["--text_column=--text"]
    assert shlex.split(command_line("train", PARAMETERS)) == words
    with spelled(BY_MLFLOW):
        given = [word for name, text in PARAMETERS.items() for word in ("-P", f"{name}={text}")]
        assert shlex.split(command_line("train", PARAMETERS)) == [*BY_MLFLOW.words, *given]


def test_a_command_is_spelled_as_the_one_that_was_typed() -> None:
    assert (command_line("sync"), options(seed=1, task="a b")) == ("paretune sync", "--seed 1 --task 'a b'")
    with spelled(BY_MLFLOW):
        assert command_line("sync") == "mlflow run . --env-manager local -e sync"
        assert command_line("train", {"seed": "1"}) == "mlflow run . --env-manager local -P seed=1"
        assert options(seed=1, task="a b") == "-P seed=1 -P 'task=a b'"
        assert is_started_by_mlflow()
    assert not is_started_by_mlflow()
