"""What a job does before its command, as the entry point of AWS's images would do it."""

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import paretune.launchers.sagemaker.launcher as request_module
from paretune.launchers.archive import SCRIPT_FOLDER

SCRIPT = Path(request_module.__file__).with_name("container_start.sh")


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    """Return the folder of a job on the second of two instances; next to it, `code` has the start scripts."""
    folder, code = tmp_path / "ml", tmp_path / "code"
    for name in ("config", "data/job"):
        (folder / "input" / name).mkdir(parents=True)
    code.mkdir()
    resources = {"current_host": "algo-2", "hosts": ["algo-2", "algo-1"], "network_interface_name": "eth0"}
    for name, content in (
        ("resourceconfig", resources),
        ("inputdataconfig", {"train": {}}),
        ("hyperparameters", {"mp_parameters": '{"a": 1}', "name": "text"}),
    ):
        (folder / "input" / "config" / f"{name}.json").write_text(json.dumps(content))
    (folder / "input" / "data" / "job" / "job.json").write_text('{"packages": []}')
    for name in ("container_start.sh", "container_start.py", "with_secrets.py"):
        shutil.copy(SCRIPT.with_name(name), code)
    return folder


def run(ml: Path, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    whole = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": "", **environment}
    words = ["bash", "container_start.sh", *command, str(ml)]
    return subprocess.run(words, env=whole, capture_output=True, text=True, check=False, cwd=ml.parent / "code")


@pytest.fixture
def pip() -> str:
    """Return a PYTHONPATH with which this Python can import pip, even in an environment of uv, which has none."""
    if importlib.util.find_spec("pip") is not None:
        return ""
    bundled = Path(str(pytest.importorskip("ensurepip").__file__)).with_name("_bundled")
    return str(next(bundled.glob("pip-*.whl")))


def test_the_cuda_compatibility_script_of_the_image_is_sourced_first(ml: Path) -> None:
    compat = ml.parent / "start_cuda_compat.sh"
    compat.write_text("[ $# -eq 0 ] && export LD_LIBRARY_PATH=/usr/local/cuda/compat:$LD_LIBRARY_PATH\nfalse\n")
    compat.chmod(0o755)

    done = run(
        ml, "bash", "-c", "echo $LD_LIBRARY_PATH", PATH=f"{compat.parent}:{os.environ['PATH']}", LD_LIBRARY_PATH="/old"
    )

    assert done.stdout.strip() == "/usr/local/cuda/compat:/old"


def test_the_command_runs_unchanged_as_the_same_process_with_sagemaker_s_variables(ml: Path) -> None:
    ask = "import os, sys; print(os.getpid(), sys.argv[1], *(os.environ[name] for name in sys.argv[2].split()))"
    names = "SM_MODEL_DIR SM_CHANNEL_TRAIN SM_CURRENT_HOST_RANK SM_HP_NAME SM_HP_MP_PARAMETERS SM_HOSTS SM_NUM_GPUS"
    words = ["bash", "container_start.sh", "python3", "-c", ask, "two words", names, str(ml)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ml.parent / "code")

    pid, *rest = process.communicate()[0].strip().split(" ", 1)

    assert int(pid) == process.pid
    assert rest == [f'two words {ml}/model {ml}/input/data/train 1 text {{"a": 1}} ["algo-1", "algo-2"] 0']


def test_what_pip_cannot_install_is_the_reason_of_the_failure_with_the_next_step(ml: Path, pip: str) -> None:
    folder = ml.parent / "code" / "script"
    folder.mkdir()
    (folder / "requirements.txt").write_text("./no_such_package-1.0-py3-none-any.whl\n")

    done = run(ml, "echo", "never", PYTHONPATH=pip)

    assert done.returncode == 1
    assert "never" not in done.stdout
    reason = (ml / "output" / "failure").read_text()
    assert reason.startswith("code: pip could not install what the job needs (")
    assert "no_such_package-1.0-py3-none-any.whl" in reason


def test_an_image_without_pip_is_the_reason_of_the_failure_with_the_next_step(ml: Path) -> None:
    (ml / "input" / "data" / "job" / "job.json").write_text('{"packages": ["mlflow"]}')
    venv.create(ml.parent / "bare", with_pip=False)

    done = run(ml, "echo", "never", PATH=f"{ml.parent}/bare/bin:{os.environ['PATH']}")

    assert done.returncode == 1
    assert (ml / "output" / "failure").read_text() == (
        "code: pip could not install what the job needs (No module named pip): "
        "install pip in the sagemaker.training_image, or set one that has the packages"
    )


def test_requirements_name_files_next_to_them(ml: Path, pip: str) -> None:
    folder, wheel = ml.parent / "code" / SCRIPT_FOLDER, "own-1.0-py3-none-any.whl"
    (folder / "wheels").mkdir(parents=True)
    with zipfile.ZipFile(folder / "wheels" / wheel, "w") as archive:
        archive.writestr("own.py", "")
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"own-1.0.dist-info/{name}", text)
    (folder / "base.txt").write_text("--no-index\n")
    (folder / "constraints.txt").write_text("own==1.0\n")
    (folder / "logging.py").write_text("raise SystemExit('pip must not import the modules of a script')\n")
    (folder / "requirements.txt").write_text(f"-r base.txt\n-c constraints.txt\n./wheels/{wheel}\n")

    done = run(ml, "pwd", PIP_TARGET=str(ml / "installed"), PYTHONPATH=pip)

    assert done.returncode == 0, done.stdout
    assert (ml / "installed" / "own.py").is_file()


def test_an_index_that_cannot_be_reached_names_what_the_subnets_need(ml: Path, pip: str) -> None:
    (ml / "input" / "data" / "job" / "job.json").write_text('{"packages": ["not-there==1"]}')
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}

    run(ml, "echo", "never", PYTHONPATH=pip, **closed)

    reason = (ml / "output" / "failure").read_text()
    for part in ("not-there==1", "NAT gateway", "package_index", "training_image"):
        assert part in reason


@pytest.mark.parametrize(
    ("is_available", "computes", "environment", "runs"),
    [
        (True, True, {}, True),
        (False, True, {}, False),
        (True, False, {}, False),  # no kernel for this GPU
        (False, True, {"PARETUNE_ALLOW_NO_GPU": "1"}, True),
    ],
)
def test_driver_and_cuda_are_printed_and_without_a_usable_gpu_the_job_ends_in_its_first_seconds(
    ml: Path, is_available: bool, computes: bool, environment: dict[str, str], runs: bool
) -> None:
    script, tools = ml.parent / "code" / "container_start.py", ml.parent / "tools"
    script.write_text(script.read_text().replace('list(Path("/dev").glob("nvidia[0-9]*"))', '[Path("/dev/nvidia0")]'))
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 470.57, Tesla T4\n")
    (tools / "nvidia-smi").chmod(0o755)
    (tools / "torch.py").write_text(
        "import types\n__version__, version = '2.9', types.SimpleNamespace(cuda='13.0')\n"
        f"cuda = types.SimpleNamespace(is_available=lambda: {is_available})\n"
        "def ones(size, device):\n"
        f"    if not {computes}: raise RuntimeError('no kernel image is available')\n"
        "    return types.SimpleNamespace(add=lambda number: types.SimpleNamespace(item=lambda: 1 + number))\n"
    )

    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run(ml, "echo", "it runs", PATH=path, PYTHONPATH=str(tools), **environment)

    works = is_available and computes
    assert f"driver 470.57, Tesla T4; PyTorch 2.9 for CUDA 13.0; can use the GPU: {works}" in done.stdout
    assert ("it runs" in done.stdout) is runs
    if not runs:
        reason = (ml / "output" / "failure").read_text()
        assert "PyTorch 2.9 for CUDA 13.0 cannot use the GPU of this instance (driver 470.57" in reason


ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:"
HARD = 'plant"ed\\four é+/ ?'  # a password like those that AWS generates; encoded, it looks different
TEXTS = {"one": "planted-one", "two": json.dumps({"other": "x", "WANDB_API_KEY": "planted-two"}), "four": HARD}


class SecretsManager(BaseHTTPRequestHandler):
    """Answers GetSecretValue for the `TEXTS` and for nothing else."""

    def do_POST(self) -> None:
        name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["SecretId"].removeprefix(ARN)
        answer = {"SecretString": TEXTS[name]} if name in TEXTS else {"__type": "AccessDeniedException"}
        content = json.dumps(answer).encode()
        self.send_response(200 if name in TEXTS else 400)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def secrets() -> Iterator[dict[str, str]]:
    """Yield the variables of a job that has a role and secrets."""
    server = HTTPServer(("127.0.0.1", 0), SecretsManager)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    role = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "role", "AWS_SECRET_ACCESS_KEY": "role"}
    yield role | {"HF_TOKEN": f"secret:{ARN}one", "WANDB_API_KEY": f"secret:{ARN}two"}
    server.shutdown()
    server.server_close()


def test_the_command_gets_the_secrets_and_nobody_reads_them(ml: Path, secrets: dict[str, str]) -> None:
    (ml / "output").mkdir()
    code = f"""
import os, pathlib, sys
token, key = os.environ["HF_TOKEN"], os.environ["WANDB_API_KEY"]
print(len(token), token, key, flush=True)
print("loud", token, file=sys.stderr)
pathlib.Path("{ml}/output/failure").write_text("error: " + token)
sys.exit(7)
"""
    done = run(ml, "python3", "-c", code, **secrets)

    assert (done.returncode, done.stdout, done.stderr) == (7, "11 ... ...\nloud ...\n", "")
    assert (ml / "output" / "failure").read_text() == "error: ..."


@pytest.mark.parametrize(
    "form",
    [
        "json.dumps(secret)",
        "json.dumps([secret], ensure_ascii=False)",
        "repr(secret)",
        "repr({secret: 1})",
        "urllib.parse.quote(secret)",
        "urllib.parse.quote(secret, safe='')",
        "'https://h/?key=' + urllib.parse.quote_plus(secret)",
        "base64.b64encode(secret.encode()).decode()",
        "base64.urlsafe_b64encode(b'user:' + secret.encode()).decode()",
        "base64.b64encode(b'me:' + secret.encode() + b'@').decode()",
        "base64.encodebytes(b'm:' + secret.encode()).decode()",
    ],
)
def test_no_form_of_a_secret_is_readable_in_the_log(ml: Path, secrets: dict[str, str], form: str) -> None:
    code = f"import base64, json, os, sys, urllib.parse; secret = os.environ['PASSWORD']; print('<', {form}, '>')"

    done = run(ml, "python3", "-c", code, **secrets, PASSWORD=f"secret:{ARN}four")

    assert done.returncode == 0
    assert "..." in done.stdout
    assert not [part for part in ("plant", "four") if part in done.stdout]
    assert len(done.stdout) < 30  # base64 would be longer


@pytest.mark.parametrize("dots", [2**16 - 1, 2**16 - 3, 2**16 - 9, 2 * 2**16 - 5])
def test_no_secret_is_readable_in_a_line_of_any_length(ml: Path, secrets: dict[str, str], dots: int) -> None:
    code = f"import os; print('-' * {dots} + os.environ['HF_TOKEN'] * 3 + '-' * 2**16 + os.environ['HF_TOKEN'], end='')"

    done = run(ml, "python3", "-c", code, **secrets)

    assert done.stdout == f"{'-' * dots}.........{'-' * 2**16}..."


def test_a_stopped_command_with_secrets_may_end_in_peace(ml: Path, secrets: dict[str, str]) -> None:
    code = "import signal; signal.signal(15, lambda *_: exit(3)); print('ready', flush=True); signal.pause()"
    words = ["bash", "container_start.sh", "python3", "-c", code, str(ml)]
    options = {"env": {"PATH": os.environ["PATH"], **secrets}, "cwd": ml.parent / "code"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)

    assert process.returncode == 3


def test_orphans_of_a_command_with_secrets_end_when_it_is_the_first_process(ml: Path, secrets: dict[str, str]) -> None:
    subreaper = 36  # PR_SET_CHILD_SUBREAPER: orphans become its children, as those of a container's first process do
    command = "(sleep 0.3 & echo $! > orphan); while kill -0 $(cat orphan) 2> /dev/null; do sleep 0.05; done; exit 7"
    done = subprocess.run(
        [sys.executable, "with_secrets.py", "bash", "-c", command, str(ml)],
        env={**os.environ, **secrets},
        cwd=ml.parent / "code",
        check=False,
        timeout=30,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(subreaper, 1),
    )

    assert done.returncode == 7


def test_a_secret_that_the_role_may_not_read_ends_the_job_with_the_action_that_it_needs(
    ml: Path, secrets: dict[str, str]
) -> None:
    done = run(ml, "echo", "never", **{**secrets, "HF_TOKEN": f"secret:{ARN}three"})

    assert done.returncode == 1
    assert "never" not in done.stdout
    reason = (ml / "output" / "failure").read_text()
    for part in ("bad_input: environment.HF_TOKEN cannot be read", "AccessDenied", "secretsmanager:GetSecretValue"):
        assert part in reason


def test_a_command_with_secrets_notices_that_its_launcher_was_killed(ml: Path, secrets: dict[str, str]) -> None:
    code = "import os, signal; print(os.getpid(), os.getppid() == int(os.environ['PARETUNE_STARTER'])); signal.pause()"
    words = [sys.executable, str(ml.parent / "code" / "with_secrets.py"), sys.executable, "-uc", code, str(ml)]
    launch = ["bash", "-c", 'PARETUNE_STARTER=$$ "$@" & wait', "launcher", *words]
    with subprocess.Popen(launch, stdout=subprocess.PIPE, text=True, env={**os.environ, **secrets}) as launcher:
        assert launcher.stdout is not None
        pid, watches = launcher.stdout.readline().split()
        launcher.kill()
        launcher.stdout.read()  # until the process that masks has ended, which the command watches

    os.kill(int(pid), signal.SIGKILL)
    assert watches == "True"


def test_the_command_learns_when_the_container_started_even_if_pip_took_long(ml: Path, tmp_path: Path) -> None:
    (ml / "input" / "data" / "job" / "job.json").write_text('{"packages": ["slow"]}')
    (tmp_path / "pip.py").write_text("import time\ntime.sleep(1.5)\n")
    age = "import os, time; print('age', time.monotonic() - float(os.environ['PARETUNE_STARTED_AT']))"

    done = run(ml, "python3", "-c", age, PYTHONPATH=str(tmp_path))

    assert float(done.stdout.rpartition("age ")[2]) > 1.5
