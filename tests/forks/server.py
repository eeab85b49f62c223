"""Commands as forks of one process that has imported everything: `python -m tests.forks.server FOLDER`.

A command begins a tenth of a second after it was asked for, not three seconds, so that hundreds can be killed. Each
line of standard input is a request, `Order` as JSON; each line of standard output the process id of what was begun. The
exit code of a process, orphans included, goes to `FOLDER/PID`. The server ends, with what it has begun, when its
standard input is closed.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


@dataclass(frozen=True, kw_only=True)
class Order:
    """A command to be begun.

    Attributes:
        words: `paretune` or `mlflow`, and what follows on its command line.
        log: file for all that it prints.
        under_parent: begin it as the child of a process that only waits for it, as `mlflow run` does; the id that is
            answered is the parent's, and the command's own goes to the file `LOG.child`.
        pace: how many seconds pass for paretune's clock, and for boto's pauses and limits, in one real second.
        ahead_s: seconds by which paretune's time of day is ahead.
    """

    words: list[str]
    cwd: str
    environment: Mapping[str, str]
    log: str
    under_parent: bool = False
    pace: float = 1.0
    ahead_s: float = 0.0


def main(codes: Path) -> None:
    """Serve until standard input is closed."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    import_everything()
    print("ready", flush=True)
    started: set[int] = set()
    buffer = b""
    while True:
        readable = select.select([0], [], [], 0.02)[0]
        _reap(codes, started)
        if not readable:
            continue
        piece = os.read(0, 1 << 20)
        if not piece:
            break
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            child = _begin(Order(**json.loads(line)))
            started.add(child)
            print(child, flush=True)
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def import_everything() -> None:
    """Import what commands import late; a simulated job is run to its end in a place of its own."""
    import mlflow.cli
    import mlflow.projects  # noqa: F401

    import paretune.commands.mlflow_run.project_job
    import paretune.projects.collection
    from paretune.cli import main as paretune

    workspace, custom = os.getcwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.update(MLFLOW_TRACKING_URI=f"sqlite:///{folder}/mlflow.db", PARETUNE_HOME=f"{folder}/home")
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            for command in ("train", "sync"):
                words = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge"] if command == "train" else []
                paretune([command, *words])
        os.chdir(workspace)
    os.environ.clear()
    os.environ.update(custom)
    gc.freeze()


def _begin(order: Order) -> int:
    child = os.fork()
    if child:
        return child
    os.setsid()
    if not order.under_parent:
        _run(order)
    custom = os.fork()
    if custom == 0:
        _run(order)
    Path(f"{order.log}.child").write_text(str(custom))
    _, status = os.waitpid(custom, 0)
    os._exit(abs(os.waitstatus_to_exitcode(status)))


def _run(order: Order) -> None:
    """Be the command; never returns."""
    code: Any = 70
    try:
        _redirect(order.log)
        os.chdir(order.cwd)
        os.environ.clear()
        os.environ.update(order.environment)
        _change_time(order.pace, order.ahead_s)
        try:
            code = _call(order.words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _call(words: list[str]) -> int:
    if words[0] == "paretune":
        return int(sys.modules["paretune.cli"].main(words[1:]))
    sys.argv = words
    sys.modules["mlflow.cli"].cli(words[1:])
    return 0


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # as long as the process lives
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _change_time(pace: float, ahead_s: float) -> None:
    """Make paretune's clock, boto's pauses and boto's limits faster; its time of day only later."""
    import botocore.config
    import botocore.endpoint

    from paretune.core.clock import SystemClock
    from paretune.launchers.sagemaker import account

    if ahead_s:
        SystemClock.now = staticmethod(lambda: time.time() + ahead_s)
    if pace == 1.0:
        return
    SystemClock.monotonic = staticmethod(lambda: time.monotonic() * pace)
    SystemClock.sleep = staticmethod(lambda seconds: time.sleep(seconds / pace))
    botocore.endpoint.time = type("Hurried", (), {"sleep": staticmethod(lambda seconds: time.sleep(seconds / pace))})

    def hurried(**options: Any) -> Any:
        limits = {name: options[name] / pace for name in ("connect_timeout", "read_timeout") if name in options}
        return botocore.config.Config(**(options | limits))

    account.Config = hurried


def _reap(codes: Path, begun: set[int]) -> None:
    """Note the exit code of each child that has ended."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        begun.discard(child)
        draft = codes / f".{child}"
        draft.write_text(str(os.waitstatus_to_exitcode(status)))
        draft.replace(codes / str(child))


def as_line(order: Order) -> str:
    """A request."""
    return json.dumps(asdict(order)) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
