"""What runs in the job, run here in folders of a test."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from paretune.core import silence
from paretune.projects import container_entrypoint as inside
from tests.processes import wait_until


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    """An empty /opt/ml, with the project's folder where the code is unpacked."""
    for name in ("input/data/job", "input/data/code/project", "input/config", "output/data"):
        (tmp_path / "ml" / name).mkdir(parents=True)
    resources = {"current_host": "algo-1", "hosts": ["algo-1"]}
    (tmp_path / "ml" / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
    return tmp_path / "ml"


def start(ml: Path, command: str, **changes: Any) -> "subprocess.Popen[str]":
    document = {
        "command": command,
        "requirements": [],
        "folder": ".",
        "run_id": "r",
        "experiment": "e",
        "collect": False,
        "max_silence_minutes": 0,
    }
    for name, source in (("inside.py", inside), ("silence.py", silence)):
        shutil.copy(source.__file__, ml / "input" / "data" / "code" / name)
    (ml / "input" / "data" / "job" / "job.json").write_text(json.dumps(document | changes))
    return subprocess.Popen(
        [sys.executable, "inside.py", str(ml)],
        cwd=ml / "input" / "data" / "code",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_command_runs_in_the_project_s_folder_and_gives_the_exit_code(ml: Path) -> None:
    process = start(ml, 'echo "it\'s" grün; pwd; exit 3')
    said, _ = process.communicate(timeout=60)

    assert said.splitlines()[1:] == ["it's grün", str(ml / "input" / "data" / "code" / "project")]
    assert process.returncode == 3
    assert (ml / "output" / "failure").read_text() == "error: the project's command ended with exit code 3"


def test_a_reason_of_the_command_s_own_is_kept(ml: Path) -> None:
    process = start(ml, f"echo mine > {ml / 'output' / 'failure'}; exit 3")
    process.communicate(timeout=60)

    assert (ml / "output" / "failure").read_text() == "mine\n"


def test_sigterm_reaches_whatever_the_command_has_started_and_its_end_is_waited_for(ml: Path) -> None:
    child = "trap 'sleep 0.3; echo saved > saved; exit 0' TERM; touch ready; while true; do sleep 0.05; done"
    process = start(ml, f'bash -c "{child}"; echo never')
    project = ml / "input" / "data" / "code" / "project"
    wait_until((project / "ready").exists, within_s=30, what="the command runs")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)

    assert (project / "saved").read_text() == "saved\n"
    assert "never" not in said
    assert not (ml / "output" / "failure").exists()


def test_requirements_are_installed_from_the_folder_where_their_paths_begin(ml: Path) -> None:
    installer = ml / "input" / "data" / "sm_drivers" / "scripts" / "install_requirements.py"
    installer.parent.mkdir(parents=True)
    installer.write_text("import os, sys\nprint(os.path.basename(os.getcwd()), open(sys.argv[1]).read().split())")
    (ml / "input" / "data" / "code" / "project" / "envs").mkdir()
    process = start(ml, "ls -A envs", requirements=["-r a.txt", "./b.whl"], folder="envs")
    said, _ = process.communicate(timeout=60)

    assert said.splitlines() == [
        "paretune: installing what the project depends on",
        "envs ['-r', 'a.txt', './b.whl']",
        "paretune: the project's command starts",
    ]
    assert process.returncode == 0


def test_what_cannot_be_installed_is_the_reason(ml: Path) -> None:
    process = start(ml, "echo never", requirements=["./not-there.whl"])
    said, _ = process.communicate(timeout=120)

    assert process.returncode != 0
    assert "never" not in said
    assert (ml / "output" / "failure").read_text().startswith("bad_input: pip could not install")


@pytest.mark.parametrize(("host", "kept"), [("algo-1", True), ("algo-2", False)])
def test_only_the_first_instance_s_store_is_a_result(ml: Path, host: str, kept: bool) -> None:
    resources = {"current_host": host, "hosts": ["algo-10", "algo-2", "algo-1"]}
    (ml / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))

    assert inside.is_first(ml) is kept


def test_a_command_that_hangs_is_ended_with_all_that_it_has_started(ml: Path) -> None:
    process = start(ml, "sleep 613.25 & sleep 613.25", max_silence_minutes=1 / 60)
    said, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert (ml / "output" / "failure").read_text().startswith("error: it hangs: no event, no CPU time")
    assert "Thread" in said
    assert not [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "613.25"]]
