"""How commands are spelled."""

import shlex

from paretune.core.shell import command_line, options, started_by

PARAMETERS = {"dataset": "my rows; rm $HOME.csv", "text_column": "--text", "tags": '{"a": "b=c"}', "seed": "7"}


def test_a_command_survives_a_shell() -> None:
    words = [word for name, text in PARAMETERS.items() for word in (f"--{name}", text)]
    words = ["paretune", "train", *words]
    words[words.index("--text_column") : words.index("--text") + 1] = ["--text_column=--text"]
    assert shlex.split(command_line("train", PARAMETERS)) == words


def test_a_command_begins_with_the_program_that_was_started() -> None:
    assert (command_line("sync"), options(seed=1, task="a b")) == ("paretune sync", "--seed 1 --task 'a b'")
    with started_by("python", "-m", "paretune"):
        assert command_line("sync") == "python -m paretune sync"
    assert command_line("sync") == "paretune sync"
