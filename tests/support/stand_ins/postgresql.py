"""A PostgreSQL server for tests: a cluster in a temporary folder, on a free loopback port."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.support.processes import free_port

_SERVER = "postgres"


def what_is_missing() -> str:
    """Return why no server can run here and what to do about it, or an empty string if one can."""
    if _programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql (Debian), then run this test again"
    if find_spec("psycopg") is None:
        return "psycopg is not installed: python -m pip install -e '.[postgresql]', then run this test again"
    if os.getuid() == 0 and _server_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres: run this test as another user"
    return ""


@dataclass(frozen=True)
class Cluster:
    """A server that can be restarted.

    Attributes:
        address: the address of an empty database, in the form that a study file takes.
    """

    address: str
    control: tuple[object, ...]

    def restart(self) -> None:
        """Stop the server as a crash would, which breaks all connections, and start it again."""
        _run(*self.control, "-m", "immediate", "-w", "restart")


@contextmanager
def server() -> Iterator[str]:
    """Yield the address of an empty database, in the form that a study file takes."""
    with cluster() as result:
        yield result.address


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Yield a server with an empty database."""
    programs = _programs()
    assert programs is not None  # `what_is_missing` has checked it
    folder = Path(tempfile.mkdtemp(prefix="paretune-postgresql-"))
    data, log, port = folder / "data", folder / "log", free_port()
    user = _server_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
    try:
        _run(programs / "initdb", "-D", data, "-U", _SERVER, "--auth=trust", "--no-sync")
        _run(programs / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            control = (programs / "pg_ctl", "-D", data, "-l", log, "-o", options)
            yield Cluster(f"postgresql://{_SERVER}@127.0.0.1:{port}/postgres", control)
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(*words: object) -> None:
    user = _server_user()
    options = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    result = subprocess.run(
        [str(word) for word in words],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the server inherits it, so a pipe would never end
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert result.returncode == 0, words


def _server_user() -> pwd.struct_passwd | None:
    """Return the user for the server if this process is root; None if it is not, or if there is no such user."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVER)
    except KeyError:
        return None


def _programs() -> Path | None:
    """Return the folder with the programs of the newest installed version, or None if there is none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    result = str(debian[-1]) if debian else shutil.which("initdb")
    return None if result is None else Path(result).resolve().parent
