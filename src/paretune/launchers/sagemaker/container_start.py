"""Prepares the container of a training job, then replaces itself with the job's command. It does not import paretune.

    python3 container_start.py COMMAND... ML        set variables, install packages, check the GPU, run the command
    python3 container_start.py --install FILE ML    install the requirements in a file

ML is the folder /opt/ml of the job.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ML = Path(sys.argv[-1])
SCRIPT = Path("script")  # the folder of a user's script: SCRIPT_FOLDER in launchers/archive.py
REQUIREMENTS = "requirements.txt"
ALLOW_NO_GPU = "PARETUNE_ALLOW_NO_GPU"
# Strings that pip 25 prints if it cannot reach the package index.
UNREACHABLE = ("Failed to establish a new connection", "ConnectTimeoutError", "NewConnectionError", "Retrying (")
NO_PIP = "No module named pip"  # what Python prints
LOOK = """
import torch
try:
    works = torch.cuda.is_available() and torch.ones(1, device="cuda").add(1).item() == 2
except RuntimeError:  # such as no kernel for this GPU
    works = False
print(torch.__version__, torch.version.cuda, works)
"""
"""Prints versions and whether PyTorch can use the GPU. A project's image may have no PyTorch."""


def main(words: list[str]) -> None:
    """Prepare the container and run the command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by default, a container's first process ignores SIGTERM
    if words[0] == "--install":
        install(["-r", words[1]], Path())
        return
    os.environ["PARETUNE_STARTED_AT"] = str(time.monotonic())  # the deadline in watchdog.py counts from here
    os.environ.update(variables())
    packages = json.loads((ML / "input" / "data" / "job" / "job.json").read_text())["packages"]
    if (SCRIPT / REQUIREMENTS).is_file():
        install([*packages, "-r", REQUIREMENTS], SCRIPT)
    elif packages:
        install(packages, Path())
    look_at_gpu()
    sys.stdout.flush()
    if any(text.startswith("secret:arn:") for text in os.environ.values()):
        words = [sys.executable, "with_secrets.py", *words]
    os.execvp(words[0], words)  # noqa: S606


def variables() -> dict[str, str]:
    """Return the SM_* variables from which SageMaker scripts read folders, hosts and hyperparameters."""
    config = {
        name: json.loads((ML / "input" / "config" / f"{name}.json").read_text())
        for name in ("resourceconfig", "inputdataconfig", "hyperparameters")
    }
    resources, channels = config["resourceconfig"], list(config["inputdataconfig"])
    hosts = sorted(resources["hosts"], key=lambda name: (len(name), name))
    hyperparameters = config["hyperparameters"]
    values = {
        "SM_MODEL_DIR": ML / "model",
        "SM_INPUT_DIR": ML / "input",
        "SM_INPUT_DATA_DIR": ML / "input" / "data",
        "SM_INPUT_CONFIG_DIR": ML / "input" / "config",
        "SM_OUTPUT_DIR": ML / "output",
        "SM_OUTPUT_FAILURE": ML / "output" / "failure",
        "SM_OUTPUT_DATA_DIR": ML / "output" / "data",
        "SM_SOURCE_DIR": Path.cwd(),
        "SM_MASTER_ADDR": hosts[0],
        "SM_MASTER_PORT": 7777,
        "SM_CHANNELS": channels,
        **{f"SM_CHANNEL_{name.upper()}": ML / "input" / "data" / name for name in channels},
        "SM_HPS": hyperparameters,
        **{f"SM_HP_{name.replace('-', '_').upper()}": value for name, value in hyperparameters.items()},
        "SM_HOSTS": hosts,
        "SM_HOST_COUNT": len(hosts),
        "SM_CURRENT_HOST": resources["current_host"],
        "SM_CURRENT_HOST_RANK": hosts.index(resources["current_host"]),
        "SM_CURRENT_INSTANCE_TYPE": resources.get("current_instance_type", ""),
        "SM_NETWORK_INTERFACE_NAME": resources.get("network_interface_name", "eth0"),
        "SM_NUM_CPUS": os.cpu_count(),
        "SM_NUM_GPUS": len(gpus()),
        "SM_RESOURCE_CONFIG": resources,
        "SM_INPUT_DATA_CONFIG": config["inputdataconfig"],
    }
    return {name: json.dumps(value) if isinstance(value, dict | list) else str(value) for name, value in values.items()}


def gpus() -> list[Path]:
    """Return the device files of this instance's GPUs."""
    return list(Path("/dev").glob("nvidia[0-9]*"))


def install(needed: list[str], folder: Path) -> None:
    """Install requirements with pip. If that fails, end the job with pip's last errors.

    Relative paths in the requirements are relative to `folder`.
    """
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pip", "install", *needed],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        cwd=folder,
    )
    errors, is_unreachable = [], False
    for line in process.stdout or ():
        print(line, end="", flush=True)
        is_unreachable |= any(words in line for words in UNREACHABLE)
        errors += [line.removeprefix("ERROR: ").strip()] if line.startswith("ERROR: ") else []
        errors += [NO_PIP] if line.strip() == f"{sys.executable}: {NO_PIP}" else []
    if process.wait():
        reason = "; ".join(errors[-2:]) or f"exit code {process.returncode}"
        step = "check the versions in requirements.txt"
        if is_unreachable:
            step = (
                "no package index could be reached from the job: give its subnets a route to a NAT gateway, set a "
                "sagemaker.package_index that they can reach, or set a sagemaker.training_image that has the packages"
            )
        elif errors == [NO_PIP]:
            step = "install pip in the sagemaker.training_image, or set one that has the packages"
        fail(f"code: pip could not install what the job needs ({reason}): {step}")


def look_at_gpu() -> None:
    """Print the driver, the CUDA version, and whether PyTorch can use the GPU.

    If it cannot, end the job, unless ALLOW_NO_GPU is set.
    """
    if not gpus():
        return
    driver = printed(["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]).partition("\n")[0]
    torch, cuda, can_use = printed([sys.executable, "-c", LOOK]).split() or (None, None, None)
    print(f"paretune: driver {driver}; PyTorch {torch} for CUDA {cuda}; can use the GPU: {can_use}")
    if can_use == "False" and ALLOW_NO_GPU not in os.environ:
        fail(
            f"bad_input: PyTorch {torch} for CUDA {cuda} cannot use the GPU of this instance (driver {driver}): "
            "set sagemaker.training_image to an image for an older CUDA, or use another instance_type"
        )


def printed(words: list[str]) -> str:
    """Return the standard output of a program; "" if the program is missing."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def fail(reason: str) -> NoReturn:
    """Write the reason to the file that SageMaker reads, and end the job."""
    print(f"paretune: {reason}", flush=True)
    (ML / "output").mkdir(parents=True, exist_ok=True)
    (ML / "output" / "failure").write_text(reason)
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
