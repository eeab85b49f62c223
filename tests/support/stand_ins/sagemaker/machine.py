"""The instances of one attempt of a training job: their folders, and the processes that act as instances."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.support.stand_ins.sagemaker.jobs import Job

CHECKPOINTS = "/opt/ml/checkpoints"
_SOURCE = Path(__file__).parents[4] / "src"  # hidden from jobs, which must bring their own copy of paretune
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# `setpriv` kills the job when the thread that started it ends, and so also when the service ends in any way. A job has
# its own network and process namespaces, so that none of its processes is left when its first process ends.
_JOB = [
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "-Urnmpf",
    "--kill-child",
    "--propagation",
    "private",
    "bash",
    "-c",
]
_PORT = 8321  # the port of Secrets Manager inside a job; the job reaches nothing else outside
_ROLE = {
    "AWS_ENDPOINT_URL_SECRETS_MANAGER": f"http://127.0.0.1:{_PORT}",
    "AWS_ACCESS_KEY_ID": "role",
    "AWS_SECRET_ACCESS_KEY": "role",
}
_FORWARD = f"""
import asyncio, sys
async def copy(source, target):
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()
async def forward(source, target):
    further = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(copy(source, further[1]), copy(further[0], target))
async def serve():
    await (await asyncio.start_server(forward, "127.0.0.1", {_PORT})).serve_forever()
asyncio.run(serve())
"""
_HOST = "unshare -mupf --kill-child --propagation private bash"


def furnish(folder: Path, job: Job, host: str, image: Path, keep: list[Path], *, has_secrets: bool = False) -> None:
    """Create the folders and the configuration of an instance, and the script that turns a process into it."""
    for part in ("input/config", "input/data", "model", "output/data", "checkpoints", "code"):
        (folder / "ml" / part).mkdir(parents=True)
    for part in ("tmp", "image", "changes/image/upper", "changes/image/work", "changes/opt/upper", "changes/opt/work"):
        (folder / part).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    names = "".join(f"10.77.0.{number} {name}\n" for number, name in enumerate(job.hosts, start=1))
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    for name in ("log", "nothing"):
        (folder / name).touch()
    channels = [channel["ChannelName"] for channel in job.request.get("InputDataConfig", [])]
    kind = job.resources.get("SelectedInstanceType") or job.resources["InstanceType"]
    configuration = {
        "resourceconfig": {
            "current_host": host,
            "current_instance_type": kind,
            "hosts": job.hosts,
            "instance_groups": [{"instance_group_name": "all", "instance_type": kind, "hosts": job.hosts}],
            "network_interface_name": "lo",
        },
        "hyperparameters": job.request.get("HyperParameters", {}),
        "inputdataconfig": {name: {"TrainingInputMode": "File"} for name in channels},
    }
    for name, values in configuration.items():
        (folder / "ml" / "input" / "config" / f"{name}.json").write_text(json.dumps(values))
    (folder / "machine.sh").write_text("\n".join(_lines(folder, job, host, image, keep, has_secrets)))


def _lines(folder: Path, job: Job, host: str, image: Path, keep: list[Path], has_secrets: bool) -> list[str]:
    """Return the lines of the script that sets up an instance and then runs the command of the container.

    They set up host names, the image, /opt/ml, the home folder and temporary files.
    """
    path = f"{image}/bin:{_SYSTEM_PATH}"
    algorithm = job.request["AlgorithmSpecification"]
    command = [*algorithm.get("ContainerEntrypoint", []), *algorithm.get("ContainerArguments", [])] or ["train"]
    environment: Mapping[str, str] = {
        "PATH": path,
        "HOME": "/opt/home",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",  # if threads outnumber cores, they busy-wait for each other
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": job.arn,
        "CURRENT_HOST": host,
        **(_ROLE if has_secrets else {}),
        **job.request.get("Environment", {}),
    }
    checkpoints = job.request.get("CheckpointConfig", {}).get("LocalPath", CHECKPOINTS)
    interpreter = (image / "bin" / "python3").resolve().parent.parent
    tools = [Path(place, "nvidia-smi") for place in path.split(":")]
    below_tmp = {image: folder / "image", **{place: place for place in (*keep, interpreter)}}
    tmp = Path("/tmp")  # noqa: S108
    inside = {
        source: folder / "tmp" / to.relative_to(tmp) for to, source in below_tmp.items() if to.is_relative_to(tmp)
    }
    return [
        f"set -eu\nPATH={_SYSTEM_PATH}\nexec >> {folder}/log 2>&1",
        f"read -r process _ < /proc/self/stat  # its process id outside\nexec 3> {folder}/process",
        f"hostname {host}",
        f"mount --bind {folder}/hosts /etc/hosts",
        *(_overlay(folder / "changes" / name, lower, at) for name, lower, at in _layers(folder, image)),
        f"mkdir -p /opt/ml /opt/home && mount --bind {folder}/ml /opt/ml",
        f"mkdir -p {checkpoints} && mount --bind {folder}/ml/checkpoints {checkpoints}",
        "mount -t tmpfs none /dev/shm",
        f"mount -t tmpfs none {_SOURCE}",
        *(f"mount --bind {folder}/nothing {tool}" for tool in tools if tool.exists()),  # hide this machine's GPUs
        *(f"mkdir -p {at} && mount --rbind {source} {at}" for source, at in inside.items()),
        "" if image.is_relative_to(tmp) else f"mount --bind {folder}/image {image}",
        "mount --rbind {} {}".format(folder / "tmp", tmp),
        "mount -t proc proc /proc\ncd /",
        'echo "$process" >&3\nexec 3>&-',
        shlex.join(
            [
                "exec",
                "env",
                "-i",
                "--default-signal",
                *(f"{name}={text}" for name, text in environment.items()),
                *command,
            ]
        ),
    ]


def _layers(folder: Path, image: Path) -> list[tuple[str, Path, Path]]:
    return [("image", image, folder / "image"), ("opt", Path("/opt"), Path("/opt"))]


def _overlay(changes: Path, lower: Path, at: Path) -> str:
    layers = f"lowerdir={lower},upperdir={changes}/upper,workdir={changes}/work,userxattr"
    return f"mount -t overlay -o {layers} overlay {at}"


class Instances:
    """The running containers of one attempt, in folders that `furnish` created."""

    def __init__(self, folder: Path, hosts: list[str], secrets: str = "") -> None:
        self._places = {host: folder / host for host in hosts}
        lines = ["ip link set lo up"]
        lines += [f"ip addr add 10.77.0.{number}/32 dev lo" for number in range(1, len(hosts) + 1)]
        lines += [f"{sys.executable} -c {shlex.quote(_FORWARD)} {secrets} &"] if secrets else []
        for place in self._places.values():
            lines.append(f"({_HOST} {place}/machine.sh; echo $? > {place}/exit) &")
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with (folder / "job.log").open("wb") as log:
            self._process = subprocess.Popen([*_JOB, "\n".join([*lines, "wait"])], stdout=log, **options)

    @property
    def exits(self) -> dict[str, int | None]:
        """Exit codes by host, in the order in which they ended; None if an instance ended without one."""
        files = [path for place in self._places.values() if (path := place / "exit").exists() and path.read_text()]
        files.sort(key=lambda path: path.stat().st_mtime_ns)
        result = {path.parent.name: int(path.read_text()) if self._number(path.parent.name) else None for path in files}
        gone = self._places.keys() - result if self._process.poll() is not None else ()
        return result | dict.fromkeys(gone)

    @property
    def are_over(self) -> bool:
        """Whether every container has ended."""
        return len(self.exits) == len(self._places)

    @property
    def are_up(self) -> bool:
        """Whether every container has been started."""
        return all(self._number(host) for host in self._places)

    def send(self, number: signal.Signals, host: str | None = None) -> None:
        """Send a signal to process 1 of one container or of all."""
        for name in self._places.keys() - self.exits.keys():
            process = self._number(name)
            if process and host in (None, name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)

    def end(self) -> None:
        """End all containers."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for first in psutil.Process(self._process.pid).children():
                first.kill()  # process 1 of the job; the kernel ends all others before this one is gone
        self._process.wait()

    def _number(self, host: str) -> int:
        path = self._places[host] / "process"
        return int((path.exists() and path.read_text()) or 0)
