"""Broken and harmful input of every command: one message, exit code 2, and nothing else has happened."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paretune import cli
from tests.hostile.inputs import HostileInput, give, store_in
from tests.hostile.values import HARMFUL, MARK
from tests.hostile.watch import Gate, watching


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MLflow store for all of them."""
    return store_in(tmp_path_factory.mktemp("store"))


COMMANDS = {
    "train": ("--dry_run", "true"),
    "estimate": ("--instance_type", "ml.g5.xlarge,local"),
    "study": ("--study", "study.yaml"),
    **dict.fromkeys(("prices", "report", "doctor", "reconcile", "import"), ()),
}
STUDY = b"name: s\njob: {launcher: simulated}\nsearch: {learning_rate: {choices: [1e-5, 1e-4]}}\nn_trials: 1\n"


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, ...]:
    """A command, some of its parameters with a harmful text each."""
    command = draw(st.sampled_from(sorted(COMMANDS)))
    names = sorted(cli.command_named(command).models().keys() - {"dry_run"})
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    typed = (word for name in chosen for word in (f"--{name}", draw(st.sampled_from(HARMFUL))))
    return (command, *COMMANDS[command], *typed)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(command_lines())
@pytest.mark.slow
def test_no_input_ends_in_a_traceback_starts_anything_or_writes_elsewhere(store: str, words: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = give(HostileInput(words=words, files={"study.yaml": STUDY}), Path(folder), store)

    assert not outcome.wrong, "\n".join(outcome.wrong)


@pytest.mark.parametrize("name", ["dataset", "entry_script", "model"])
@pytest.mark.parametrize("part", range(3))
def test_a_harmful_name_of_a_file_or_a_folder_does_nothing(store: str, tmp_path: Path, name: str, part: int) -> None:
    for text in HARMFUL[part::3]:
        outcome = give(HostileInput(words=("train", "--dry_run", "true", f"--{name}", text)), tmp_path, store)

        assert not outcome.wrong, ascii(text[:200])


TAKES_A_FILE = (
    *("study --study", "reconcile --bill", "import --recorded_runs", "estimate --instance_type local --model"),
    *(
        f"train --dry_run true --{name}"
        for name in ("dataset", "validation_file", "test_file", "entry_script", "model")
    ),
    *(f"train --dry_run true --{name}" for name in ("budget", "launcher simulated --simulation.runs")),
)
"""Commands, each up to the parameter whose value is a path."""
IN_ANOTHER_PROCESS = tuple(f"train --dry_run true --{name}" for name in ("dataset", "test_file", "model"))
"""Those whose path is read by a process that is not begun here."""
VARIABLES = {"PARETUNE_PRICES": ("prices",), "PARETUNE_PROFILE": ("train", "--dry_run", "true")}
"""Variables that name a file, with a command that reads it."""


@pytest.mark.parametrize("command", [*TAKES_A_FILE, *VARIABLES])
def test_a_path_to_no_file_that_can_be_read_is_refused(store: str, tmp_path: Path, command: str) -> None:
    files = {"rows.csv": b"text,label\na,b\n"}
    for odd in ("~nobody_x/f", "a_pipe"):
        words = VARIABLES.get(command) or (*command.split(), odd)
        environment = {command: odd} if command in VARIABLES else {}
        made = {odd: odd} if odd.startswith("a_") else {}
        outcome = give(HostileInput(words=words, files=files, environment=environment, odd=made), tmp_path, store)

        assert not outcome.wrong, odd
        assert outcome.code == 2 or (outcome.code is None and command in IN_ANOTHER_PROCESS), odd


def test_what_is_watched_for_is_seen(tmp_path: Path) -> None:
    """So that the tests above can fail."""
    allowed, elsewhere = tmp_path / "allowed", tmp_path / "elsewhere"
    allowed.mkdir()
    elsewhere.mkdir()
    with watching(allowed) as seen:
        (allowed / "a").write_text("")
        (elsewhere / "b").write_text("")
        os.mkdir(elsewhere / "c")
    assert seen.written == [str(elsewhere / "b"), str(elsewhere / "c")]
    with watching(allowed) as seen, pytest.raises(Gate):
        os.system(f"touch {MARK}")  # noqa: S605  # it does not come to that
    assert seen.begun == [f"touch {MARK}"]
