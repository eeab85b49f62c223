"""Addresses of databases, as SQLAlchemy takes them, and whether there is a file of SQLite at one."""

import os
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

SERVERS_ONLY = "PARETUNE_SERVERS_ONLY"
"""Variable of the environment of a round whose files end with it: storage and tracking must be servers."""
TRACKING_SERVERS = ("http://", "https://", "arn:", "postgresql")
"""How addresses of MLflow begin that are no files."""

_ADDRESS = re.compile(r"sqlite:///(?!:memory:)[^?#]+|postgresql(\+\w+)?://.+", re.DOTALL)


def address_fault(address: str) -> str:
    """Why `storage` cannot have this value; empty where it can."""
    if _ADDRESS.fullmatch(address):
        return ""
    text = "storage must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE (a file or a database that "
    return text + f"outlives the command), got {shown(address)!r}"


def shown(address: str) -> str:
    """An address without user and password, for people to read."""
    scheme, colon, rest = address.partition(":")
    if "@" in rest:  # a password may hold any other character, also one that should have been escaped
        rest = f"//{rest.rpartition('@')[2]}"
    return re.sub(r"(?i)([?&](?:password|passfile|sslpassword|user)=)[^&\s]*", r"\1...", scheme + colon + rest)


def file_fault(path: Path) -> str:
    """Why SQLite can neither open nor create the file; empty where it can. Nothing is created.

    A pipe or a device is not opened. SQLite itself reads the file: a process that opened and closed it in another way
    would lose the locks that it holds on it (SQLite, "How To Corrupt An SQLite Database File", section 2.2).
    """
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        folder = Path(os.path.realpath(path)).parent
        if path.is_symlink() and not folder.is_dir():
            return f"{path} must be a SQLite file, is a link to {folder}, which is not there"
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} must be a folder that can be written to, for {path.name}"
        return ""
    except (OSError, ValueError) as error:  # a link to itself, a name that is too long
        return f"{path} must be a SQLite file, is none ({error})"
    if not stat.S_ISREG(kind):
        return f"{path} must be a SQLite file, is a folder, a pipe or a device"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{path} must be a SQLite file, cannot be read as one ({error})"
    return ""


def file_faults(storage: str, tracking_uri: str) -> list[str]:
    """What a round in a container would keep in files, which end with it; `storage` is an address."""
    faults = []
    if not tracking_uri.startswith(TRACKING_SERVERS):
        faults.append(
            "MLFLOW_TRACKING_URI must name a server for rounds in containers, such as https://... or the ARN of a "
            f"managed MLflow, got {shown(tracking_uri) or 'nothing'}: a file ends with its container"
        )
    if not storage.startswith("postgresql"):
        faults.append(
            f"storage must be postgresql://... for rounds in containers, got {shown(storage) or 'nothing'}: a file "
            "ends with its container; set PARETUNE_STORAGE in the scheduler's secret"
        )
    return faults
