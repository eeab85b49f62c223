"""Broken and harmful input ends in no traceback, is never run, and leads to no file outside the current folder."""

import os
import random
from pathlib import Path

import pytest

from paretune import cli
from tests.support.stores import copy_store
from tests.support.watch import MARK, Gate, give, watching

HARMFUL = (
    *(f"$(touch {MARK})", f"`touch {MARK}`", f"; touch {MARK} #", f"' && touch {MARK} && '"),
    *(f"ext::sh -c touch% {MARK}", f"--upload-pack=touch {MARK}", f"__import__('os').system('touch {MARK}')"),
    f"{{{{ cycler.__init__.__globals__.os.system('touch {MARK}') }}}}",
    *(f"!!python/object/apply:os.system ['touch {MARK}']", f'=HYPERLINK("http://127.0.0.1/{MARK}")'),
    *(f"<script>document.title='{MARK}'</script>", "</script><script>alert(1)</script>"),
    *(f"../../../{MARK}", f"~/../{MARK}", "..", "/", "~nobody_x/f", "/dev/zero", "/dev/stdin", "/proc/self/mem"),
    *("/proc/self/environ", "/etc/passwd", f"file:///etc/passwd#{MARK}", "file://"),
    *("s3://", "s3:///key", f"s3://bucket/../../{MARK}", "http://169.254.169.254/latest/meta-data/"),
    *("sqlite:////dev/full", "postgresql://user:secret@127.0.0.1:1/none", "models:/../x@candidate", "runs:/../../.."),
    *("-rf", "--help", "-", "%s%s%n", "{0.__class__}", "' OR '1'='1", "'; DROP TABLE runs; --"),
    *("\x00", "a\x00b", "\x1b[2J\x1b]0;title\x07", "\r\nSet-Cookie: a=b", "\u202egnp.exe\u202c", "\ufeff", "\ud800"),
    *("İıſK", "a" * 5_000, "é" * 200, ",".join("a" for _ in range(3_000)), "(" * 2_000, "[" * 100_000),
    *('{"a":' * 50_000, "nan", "-inf", "-1", "0", "1e309", "9" * 5_000, "0x10", "١٢", "9223372036854775808"),
    *("None", "[]", "{}", '{"__proto__": 1, "": {}}', '{"a": NaN, "b": 1e999}', '{"a": ' + "9" * 5_000 + "}"),
    *('{"output_dir": "/etc", "push_to_hub": true}', "&a [*a, *a]", "---\n...\n---\n", "\t- a", "", " "),
)
"""What does harm in a shell, in YAML's objects, in a spreadsheet, page, path or terminal, or as a number."""
COMMANDS = {
    "train": ("--dry_run", "true"),
    "estimate": ("--instance_type", "ml.g5.xlarge,local"),
    "study": ("--study", "study.yaml"),
    **dict.fromkeys(("prices", "report", "doctor", "reconcile", "import"), ()),
}
STUDY = "name: s\njob: {launcher: simulated}\nsearch: {learning_rate: {choices: [1e-5, 1e-4]}}\nn_trials: 1\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> str:
    """Return an MLflow store for all tests of this file."""
    return copy_store(empty_store, tmp_path_factory.mktemp("store"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_no_input_ends_in_a_traceback_starts_anything_or_writes_elsewhere(
    store: str, tmp_path: Path, number: int
) -> None:
    draw = random.Random(number)
    command = draw.choice(sorted(COMMANDS))
    options = sorted(cli.command_named(command).models().keys() - {"dry_run"})
    names = draw.sample(options, min(2, len(options)))
    (tmp_path / "study.yaml").write_text(STUDY)

    words = [command, *COMMANDS[command], *(word for name in names for word in (f"--{name}", draw.choice(HARMFUL)))]
    assert not give(words, tmp_path, store)[1], ascii(words)[:300]


@pytest.mark.parametrize("name", ["dataset", "entry_script", "model"])
def test_a_harmful_name_of_a_file_or_a_folder_does_nothing(store: str, tmp_path: Path, name: str) -> None:
    for text in HARMFUL:
        assert not give(["train", "--dry_run", "true", f"--{name}", text], tmp_path, store)[1], ascii(text[:200])


TAKES_A_FILE = (
    *("study --study", "reconcile --bill", "import --recorded_runs", "estimate --instance_type local --model"),
    *(f"train --dry_run true --{name}" for name in ("dataset", "validation_file", "entry_script", "model", "budget")),
    "train --dry_run true --launcher simulated --simulation.runs",
)
"""Commands, each up to the parameter whose value is a path."""
IN_ANOTHER_PROCESS = tuple(f"train --dry_run true --{name}" for name in ("dataset", "model"))
"""Commands whose path is read by a process that does not start here."""
VARIABLES = {"PARETUNE_PRICES": ("prices",), "PARETUNE_PROFILE": ("train", "--dry_run", "true")}
"""Variables that name a file, with a command that reads it."""


@pytest.mark.parametrize("command", [*TAKES_A_FILE, *VARIABLES])
def test_a_path_to_no_file_that_can_be_read_is_refused(store: str, tmp_path: Path, command: str) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    os.mkfifo(tmp_path / "a_pipe")
    for odd in ("~nobody_x/f", "a_pipe"):
        environment = {command: odd} if command in VARIABLES else {}
        code, wrong = give(VARIABLES.get(command) or (*command.split(), odd), tmp_path, store, environment)

        assert not wrong, odd
        assert code == 2 or (code is None and command in IN_ANOTHER_PROCESS), odd


def test_what_is_watched_for_is_seen(tmp_path: Path) -> None:
    """Check that the tests above can fail; otherwise, they prove nothing."""
    allowed, elsewhere = tmp_path / "allowed", tmp_path / "elsewhere"
    allowed.mkdir()
    elsewhere.mkdir()
    with watching(allowed) as seen:
        (allowed / "a").write_text("")
        (elsewhere / "b").write_text("")
        os.mkdir(elsewhere / "c")
    assert seen.written == [str(elsewhere / "b"), str(elsewhere / "c")]
    with watching(allowed) as seen, pytest.raises(Gate):
        os.system(f"touch {MARK}")  # noqa: S605  # the gate ends it first
    assert seen.begun == [f"touch {MARK}"]
