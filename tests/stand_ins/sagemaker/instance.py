"""One machine of a training job: `instance.py FOLDER HOST DESCRIPTOR`, started by job.sh in namespaces of its own.

It makes the machine look like a SageMaker instance, runs the container as process 1 of a process namespace, and talks
to the service through the socket DESCRIPTOR: out go `port N` with a listening socket, `up`, and `exit CODE`; in come
`TERM` and `KILL`. It imports nothing but the standard library.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

MS_BIND, MS_REC = 4096, 16384
CLONE_NEWPID = 0x20000000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: Path | str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """The system call, with its error."""
    words = [str(source).encode(), str(target).encode(), kind.encode() or None]
    if _libc.mount(*words, flags, options.encode() or None):
        error = ctypes.get_errno()
        raise OSError(error, f"mount of {source} ({kind or 'bind'}): {os.strerror(error)}", str(target))


def bind(source: Path, target: Path) -> None:
    """The same files at another place."""
    mount(source, target, flags=MS_BIND | MS_REC)


def overlay(lower: Path, changes: Path, target: Path) -> None:
    """`lower` at `target`; what is written there goes to `changes`."""
    for name in ("upper", "work"):
        (changes / name).mkdir(parents=True)

    def escaped(path: Path) -> str:
        return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")

    layers = f"lowerdir={escaped(lower)},upperdir={escaped(changes / 'upper')},workdir={escaped(changes / 'work')}"
    mount("overlay", target, "overlay", options=f"{layers},userxattr")


def furnish(folder: Path, spec: dict[str, Any]) -> None:
    """Give the machine its own names, image, /opt/ml, home and temporary files."""
    bind(folder / "hosts", Path("/etc/hosts"))
    image = Path(spec["image"])
    (folder / "image").mkdir()
    overlay(image, folder / "image-changes", folder / "image")
    overlay(Path("/opt"), folder / "opt-changes", Path("/opt"))
    for name in ("ml", "home"):
        Path("/opt", name).mkdir(exist_ok=True)
    bind(folder / "ml", Path("/opt/ml"))
    checkpoints = Path(spec["checkpoints"])
    checkpoints.mkdir(parents=True, exist_ok=True)  # on /opt, checked by the service: never on this machine's own disk
    bind(folder / "ml" / "checkpoints", checkpoints)
    mount("tmpfs", Path("/dev/shm"), "tmpfs")  # noqa: S108
    for hidden in spec["hide"]:
        if Path(hidden).is_dir():
            mount("tmpfs", Path(hidden), "tmpfs")
    no_graphics(folder, spec["environment"]["PATH"])
    empty_tmp(folder, [(folder / "image", image), *((Path(path), Path(path)) for path in spec["keep"])])  # comes last


def empty_tmp(folder: Path, kept: list[tuple[Path, Path]]) -> None:
    """An empty /tmp; what is `kept` (source, place) is put at its place, below /tmp or elsewhere."""
    tmp = Path("/tmp")  # noqa: S108
    (folder / "tmp").mkdir(mode=0o1777)
    for source, workspace in kept:
        if workspace.is_relative_to(tmp):
            inside = folder / "tmp" / workspace.relative_to(tmp)
            inside.mkdir(parents=True, exist_ok=True)
            bind(source, inside)
        elif source != workspace:
            bind(source, workspace)
    bind(folder / "tmp", tmp)


def no_graphics(folder: Path, path: str) -> None:
    """`nvidia-smi` is not there, whatever this machine has."""
    (folder / "nothing").touch(mode=0o644)
    for workspace in path.split(":"):
        if Path(workspace, "nvidia-smi").exists():
            bind(folder / "nothing", Path(workspace, "nvidia-smi"))


def open_ports(service: socket.socket, ports: list[int]) -> None:
    """Listen on loopback ports and hand the sockets to the service."""
    for port in ports:
        with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
            socket.send_fds(service, [f"port {port}".encode()], [listener.fileno()])


def start(spec: dict[str, Any], output: int) -> int:
    """Run the container as process 1 of a new process namespace; its process id here."""
    if _libc.unshare(CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), "unshare of the process namespace")
    process = os.fork()
    if process:
        os.close(output)
        return process
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.chdir("/")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        mount("proc", Path("/proc"), "proc")
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"{spec['command'][0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def serve(service: socket.socket, process: int) -> int:
    """Pass signals on until the container has ended; its exit code."""
    end = os.pidfd_open(process)
    while True:
        ready, _, _ = select.select([service, end], [], [])
        if service in ready:
            word = service.recv(64).decode()
            if not word:  # the service is gone
                os.kill(process, signal.SIGKILL)
            elif end not in ready:
                os.kill(process, signal.SIGKILL if word == "KILL" else signal.SIGTERM)
        if end in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            return code if code >= 0 else 128 - code


def main() -> None:
    """Be the machine."""
    folder, host, descriptor = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 4096)
    service = socket.socket(fileno=descriptor)
    service.set_inheritable(False)
    spec = json.loads((folder / "spec.json").read_text())
    socket.sethostname(host)
    os.umask(0o022)
    open_ports(service, spec["ports"])
    output = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)
    furnish(folder, spec)
    process = start(spec, output)
    service.send(b"up")
    code = serve(service, process)
    service.send(f"exit {code}".encode())


if __name__ == "__main__":
    main()
