"""The options that a script lists when it runs with `--help`, in a process without network or write access.

The script runs only if its source does not show all options, because it computes them or declares them with a library
that `arguments` does not read. The user must allow this, because the script's code runs up to the line that parses
the arguments.
"""

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.core.shell import options
from paretune.presentation.text import duration
from paretune.user_code.arguments import Accepted, accepted_by_help
from paretune.user_code.child import module_of

LONGEST_S = 60.0  # seconds after which the script is killed: importing torch and transformers may take half of them
_MOST_OUTPUT = 1_000_000  # bytes of its output that are read
_KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CONDA_PREFIX")  # variables without secrets
_MOST_CPU_S = 60  # CPU seconds of all its threads together
_NEW_NAMESPACES = 0x00020000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, NEWIPC, NEWUSER, NEWPID and NEWNET of Linux (sched.h)."""
_NOBODY, _DIE_WITH_PARENT = 65534, 1  # id of the user nobody; PR_SET_PDEATHSIG (prctl.h)
_PRIVATE, _READ_ONLY = 0x4000 | 0x40000, 0x1  # MS_REC | MS_PRIVATE; MOUNT_ATTR_RDONLY (mount.h)
_MOUNT_SETATTR, _CURRENT, _RECURSIVE = 442, -100, 0x8000  # the system call, AT_FDCWD, AT_RECURSIVE
_SOCKETS = "/run"  # has sockets of daemons, through which the script could do what it must not do itself


def ask_options(script: Path, command: str = "") -> Accepted:
    """Run `python SCRIPT --help` and return the options that it lists. Raises BadInput if it fails or lists none.

    If there is a subcommand `command`, return the options of it.
    """
    root, module = module_of(str(script))
    words = [*(["-m", module] if module else [script.name]), *filter(None, [command])]
    shown = options(script_words=" ".join([*filter(None, [command]), "--NAME", "VALUE"]))
    instead = f"give {shown}, with a name that `python {' '.join(words)} --help` shows, in place of --ask_script true"
    try:
        code, text = help_of([sys.executable, *words], Path(root))
    except subprocess.TimeoutExpired:
        raise BadInput([f"{script.name} --help did not end within {duration(LONGEST_S)}: {instead}"]) from None
    except OSError as error:
        reason = "this system cannot start a process that has no network and cannot write files"
        raise BadInput(
            [f"{script.name} was not asked for its options, because {reason} ({error}): {instead}"]
        ) from error
    answer = accepted_by_help(text)
    if not answer.names and not answer.commands:
        lines = (line.strip(" │") for line in reversed(text.splitlines()) if re.search(r"\w", line))
        last_line = next(lines, f"exit code {code}")
        if missing := re.match(r"ModuleNotFoundError: No module named '([\w.]+)'", last_line):
            instead = f"install {missing[1].partition('.')[0]} for {sys.executable}"
        raise BadInput([f"{script.name} --help names no option ({last_line[:200]}): {instead}"])
    return answer


def help_of(program: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run `PROGRAM --help` in `folder`, without network, secrets or write access; return its exit code and output.

    Raises TimeoutExpired after LONGEST_S seconds, and OSError if the system cannot isolate a process in this way.
    """
    if sys.platform != "linux":
        raise OSError("needs the namespaces of Linux")
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(prefix="paretune-help-") as home:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {"HOME": home, "TMPDIR": home, "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        try:
            process = subprocess.Popen(
                [*program, "--help"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_confine_or_say_why, home.encode()),
            )
        except subprocess.SubprocessError as error:  # it does not say why
            output.seek(0)
            raise OSError(output.read().decode() or str(error)) from error
        try:
            code = process.wait(LONGEST_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read(_MOST_OUTPUT).decode(errors="replace")


def _confine_or_say_why(home: bytes) -> None:
    """Confine this process, and print why if the system does not allow it."""
    try:
        _confine(home)
    except OSError as error:
        os.write(1, str(error).encode())
        raise


def _confine(home: bytes) -> None:
    """Cut this process off from the network and from other processes, before it runs another program.

    Afterwards it can read files, but write only in `home`, a folder in memory. Its CPU time is limited. Raises OSError
    if the system does not allow this isolation.
    """
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()

    def mount(kind: bytes, place: bytes, flags: int, data: bytes | None = None) -> None:
        _check(libc.mount(kind, place, kind, ctypes.c_ulong(flags), data), "mount")

    _check(libc.unshare(_NEW_NAMESPACES), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    # The program that starts next runs as nobody, without the rights that are used here.
    Path("/proc/self/uid_map").write_text(f"{_NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{_NOBODY} {group} 1")
    mount(b"none", b"/", _PRIVATE)
    if Path(_SOCKETS).is_dir():
        mount(b"tmpfs", _SOCKETS.encode(), 0)
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY, 0, 0, 0)
    arguments = (_CURRENT, b"/", _RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes))
    _check(libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *arguments), "mount_setattr")
    mount(b"tmpfs", home, 0, b"size=64m,mode=777")
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if child := os.fork():  # the first process of its namespace: when it ends, all its descendants end
        for name in os.listdir("/proc/self/fd"):  # `Popen` waits until all of its pipe's ends are closed
            with suppress(OSError):  # the one that has read this list
                os.close(int(name))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    _check(libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL), "prctl")


def _check(result: int, call: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), call)
