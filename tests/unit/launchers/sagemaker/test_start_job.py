"""What a job does before its command, as the entry point of AWS's images would."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import paretune.launchers.sagemaker.request as request_module

SCRIPT = Path(request_module.__file__).with_name("start_job.sh")
HOST_NAME = "#include <string.h>\nint gethostname(char *name, unsigned long size) "
HOST_NAME += "{ strncpy(name, PLACEHOLDER_HOSTNAME, size); return 0; }\n"


def run(script: Path, *command: str, **environment: str) -> str:
    whole = {"PATH": os.environ["PATH"], **environment}
    done = subprocess.run(["bash", str(script), *command], env=whole, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_cuda_compatibility_script_of_the_image_is_sourced_first(tmp_path: Path) -> None:
    compat = tmp_path / "start_cuda_compat.sh"
    compat.write_text("[ $# -eq 0 ] && export LD_LIBRARY_PATH=/usr/local/cuda/compat:$LD_LIBRARY_PATH\nfalse\n")
    compat.chmod(0o755)

    path = run(SCRIPT, "printenv", "LD_LIBRARY_PATH", PATH=f"{tmp_path}:{os.environ['PATH']}", LD_LIBRARY_PATH="/old")

    assert path == "/usr/local/cuda/compat:/old"


def test_without_it_the_command_runs_unchanged_as_the_same_process() -> None:
    process = subprocess.Popen(
        ["bash", str(SCRIPT), "python3", "-c", "import os, sys; print(os.getpid(), *sys.argv[1:])", "two words"],
        stdout=subprocess.PIPE,
        text=True,
    )

    assert process.communicate()[0].strip() == f"{process.pid} two words"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="apt-get install gcc")
@pytest.mark.parametrize(("hosts", "has_name"), [("2", True), ("1", False)])
def test_each_of_several_instances_has_the_name_by_which_the_others_reach_it(
    tmp_path: Path, hosts: str, has_name: bool
) -> None:
    (tmp_path / "changehostname.c").write_text(HOST_NAME)
    script = tmp_path / SCRIPT.name
    script.write_text(SCRIPT.read_text().replace("=/changehostname.c", f"={tmp_path}/changehostname.c"))
    ask = "import socket; print(socket.gethostname())"

    name = run(script, "python3", "-c", ask, SM_HOST_COUNT=hosts, SM_CURRENT_HOST="algo-2")

    assert (name == "algo-2") is has_name
