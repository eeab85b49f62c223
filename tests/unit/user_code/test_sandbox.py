"""A script that runs to list its options can print them, and do nothing else."""

import os
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.user_code import sandbox
from paretune.user_code.sandbox import ask_options, help_of
from tests.support.bound_scripts import argument_faults, script_arguments, script_in_words

COMPUTED = """
import argparse
parser = argparse.ArgumentParser()
for name in ("learning-rate", "epochs"):
    parser.add_argument(f"--{name}", type=float)
parser.add_argument("--fast", action=argparse.BooleanOptionalAction)
parser.parse_args()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


@pytest.mark.linux
def test_a_script_that_hides_its_options_is_asked_only_if_it_may_be(script: Path) -> None:
    script.write_text(COMPUTED)
    given = {"entry_script": str(script), "training_arguments": {"fast": False}, "learning_rate": 0.5}
    silent, asked = JobSpec.read(given), JobSpec.read({**given, "ask_script": "true"})

    assert script_arguments(silent, silent.plan(), "/out") == ["--learning_rate", "0.5", "--no-fast"]
    assert script_arguments(asked, asked.plan(), "/out") == ["--learning-rate", "0.5", "--no-fast"]
    unclear = script_in_words(silent)["unclear"]
    assert (
        "names that its text does not show are passed as typed; --ask_script true reads them from train.py" in unclear
    )
    assert "--ask_script" not in script_in_words(asked).get("unclear", "")
    wrong = asked.replace(training_arguments={"epoch": 3})
    assert argument_faults(silent.replace(training_arguments={"epoch": 3})) == []
    assert argument_faults(wrong)[0].startswith("train.py has no argument epoch: did you mean epochs?")


@pytest.mark.linux
def test_a_script_that_has_changed_is_asked_again(script: Path) -> None:
    spec = JobSpec(entry_script=str(script), ask_script=True, training_arguments={"rounds": 3})
    script.write_text(COMPUTED)
    assert argument_faults(spec)[0].startswith("train.py has no argument rounds")

    script.write_text(COMPUTED.replace("epochs", "rounds"))

    assert argument_faults(spec) == []


@pytest.mark.linux
def test_a_script_that_is_asked_reaches_no_network_no_secret_and_no_file(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    script.write_text(
        f"import os, socket\ndef tried(action):\n    try: action()\n    except OSError: return 'refused'\n"
        f"    return 'DONE'\nprint(tried(lambda: socket.create_connection(('127.0.0.1', {port}), 2)))\n"
        "print(tried(lambda: open('new.txt', 'w')), tried(lambda: os.remove(__file__)), tried(lambda: os.kill("
        f"{sys.modules['os'].getpid()}, 0)), tried(lambda: open(os.path.expanduser('~/cache'), 'w')), "
        "os.environ.get('AWS_SECRET_ACCESS_KEY'))\n"
    )

    code, text = help_of([sys.executable, script.name], script.parent)

    server.close()
    assert (code, text.split()) == (0, ["refused", "refused", "refused", "refused", "DONE", "None"])
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


@pytest.mark.linux
def test_a_script_that_is_asked_sees_no_socket_of_a_daemon(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "docker.sock").touch()
    monkeypatch.setattr(sandbox, "_SOCKETS", str(tmp_path / "run"))
    script.write_text(f"import os\nprint(os.listdir({str(tmp_path / 'run')!r}), os.path.isfile(__file__))\n")

    assert help_of([sys.executable, script.name], script.parent) == (0, "[] True\n")


@pytest.mark.linux
def test_a_script_that_gives_no_answer_ends_in_time_although_this_process_has_many_open_files(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text("import time\ntime.sleep(5)\n")
    monkeypatch.setattr(sandbox, "LONGEST_S", 0.5)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
        while files.enter_context(open(os.devnull)).fileno() <= 1024:
            pass

        with pytest.raises(subprocess.TimeoutExpired):
            help_of([sys.executable, script.name], script.parent)


@pytest.mark.linux
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import time\ntime.sleep(60)\n", "train.py --help did not end within 0.50 s"),
        ("raise ValueError('no data')\n", "train.py --help names no option (ValueError: no data)"),
    ],
)
def test_a_script_that_gives_no_answer_is_refused_with_what_to_do(
    script: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str
) -> None:
    script.write_text(text)
    monkeypatch.setattr(sandbox, "LONGEST_S", 0.5)

    with pytest.raises(BadInput) as refused:
        ask_options(script)

    assert str(refused.value).startswith(fault)
    instead = "give '--script_words=--NAME VALUE', with a name that `python train.py --help` shows, in place of"
    assert f"{instead} --ask_script true" in str(refused.value)


def test_a_system_that_cannot_keep_it_from_the_network_does_not_ask(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(COMPUTED)
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(BadInput, match="was not asked for its options, because this system cannot start a process"):
        ask_options(script)


@pytest.mark.linux
def test_a_system_that_does_not_allow_the_isolation_says_which_call_failed(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(COMPUTED)
    monkeypatch.setattr(sandbox, "_NEW_NAMESPACES", 0x1)  # no kind of namespace

    with pytest.raises(BadInput, match=r"cannot write files \(\[Errno 22\] Invalid argument: 'unshare'\): give"):
        ask_options(script)


@pytest.mark.linux
def test_a_script_that_prints_without_end_is_read_to_a_limit(script: Path) -> None:
    script.write_text("for _ in range(40): print('x' * 50_000)\n")

    code, text = help_of([sys.executable, script.name], script.parent)

    assert (code, len(text)) == (0, 1_000_000)
