"""How commands are spelled."""

from paretune.core.shell import command_line, options, started_by


def test_a_command_begins_with_the_program_that_was_started() -> None:
    assert (command_line("sync"), options(seed=1, task="a b")) == ("paretune sync", "--seed 1 --task 'a b'")
    with started_by("python", "-m", "paretune"):
        assert command_line("sync") == "python -m paretune sync"
    assert command_line("sync") == "paretune sync"
