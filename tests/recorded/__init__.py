"""Folders as version 0.3.3 has left them: a later version must open what is in them and go on with it.

Each archive is the folder of a user: what the user has written (study.yaml, team.yaml, runs.csv), the MLflow store with
its artifacts, and .paretune, which is PARETUNE_HOME. Databases are SQL texts in it. `record` has made them; `pack` has
replaced what belongs to the machine of that day: the path of the folder, and the names of processes, which became
those of another machine whose last sign of life is long ago.
"""

import io
import re
import socket
import sqlite3
import tarfile
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

FOLDER = "@FOLDER@"
"""What stands for the path of the folder."""
ELSEWHERE = "elsewhere"
"""What stands for the host in the names of processes."""
_NAMESPACE = "/00000000/4026531836"
"""What stands for its boot and its namespace, which follow since version 0.3."""
LONG_AGO = 1000.0
"""When those processes have given their last sign of life, in seconds since the epoch."""
_RECORDED = Path(__file__).parent
_PROCESS = re.compile(rf"\b{re.escape(socket.gethostname())}(/[0-9a-f]{{8}}/\d+)?(?= \d+ \d{{9,}})")
_RUN = re.compile(r"""INSERT INTO "runs" VALUES\('([0-9a-f]{32})'""")
_LEFT_OUT = (".log", "-journal", "-wal", "-shm")
_AGED = {"paretune_drivers": "seen", "paretune_leases": "until"}


def archive_of(name: str) -> Path:
    """The archive of a recorded folder."""
    return _RECORDED / f"{name}.tar.gz"


def pack(folder: Path, name: str) -> None:
    """Write the archive of a folder; the folder stays as it is, but for the times of processes."""
    with tarfile.open(archive_of(name), "w:gz", compresslevel=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_dir() or path.name.endswith(_LEFT_OUT):
                continue
            inside = path.relative_to(folder)
            is_database = path.suffix == ".db"
            raw = _dump(path).encode() if is_database else path.read_bytes()
            member = tarfile.TarInfo(str(inside.with_suffix(".sql") if is_database else inside))
            content = _without_machine(raw, folder)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def unpack(name: str, folder: Path) -> None:
    """Make the recorded folder anew, in an empty one.

    Runs get new ids: MLflow remembers, as long as its process lives, where the artifacts of a run are.
    """
    with tarfile.open(archive_of(name)) as archive:
        packed = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    changes = {FOLDER: str(folder)}
    changes |= {run_id: uuid.uuid4().hex for run_id in _RUN.findall(packed["mlflow.sql"].decode())}
    for inside, content in packed.items():
        path = folder / _changed(inside, changes)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            text = _changed(content.decode(), changes)
        except UnicodeDecodeError:
            path.write_bytes(content)
            continue
        if path.suffix != ".sql":
            path.write_text(text)
            continue
        with closing(sqlite3.connect(path.with_suffix(".db"))) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.executescript(text)


def _changed(text: str, changes: Mapping[str, str]) -> str:
    return re.sub("|".join(changes), lambda result: changes[result[0]], text)


def _dump(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        reference = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table, column in _AGED.items():
            if table in reference:
                database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} > 0", (LONG_AGO,))  # noqa: S608
        return "\n".join(database.iterdump()) + "\n"


def _without_machine(content: bytes, folder: Path) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    text = text.replace(str(folder), FOLDER)
    return _PROCESS.sub(lambda result: ELSEWHERE + (_NAMESPACE if result[1] else ""), text).encode()
