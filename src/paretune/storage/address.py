"""Addresses of databases as SQLAlchemy accepts them, and whether SQLite can use the file of an address."""

import os
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

_ADDRESS = re.compile(r"sqlite:///(?!:memory:)[^?#]+|postgresql(\+\w+)?://.+", re.DOTALL)


def address_fault(address: str) -> str:
    """The reason why `storage` cannot have this value, or empty if it can."""
    if _ADDRESS.fullmatch(address):
        return ""
    rule = "storage must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE (a file or a database that "
    return rule + f"outlives the command), got {redacted(address)!r}"


def redacted(address: str) -> str:
    """The address without user and password, for messages and records."""
    scheme, colon, rest = address.partition(":")
    if "@" in rest:  # a password may contain any other character, even one that should have been escaped
        rest = f"//{rest.rpartition('@')[2]}"
    return re.sub(r"(?i)([?&](?:password|passfile|sslpassword|user)=)[^&\s]*", r"\1...", scheme + colon + rest)


def file_fault(path: Path) -> str:
    """The reason why SQLite can neither open nor create the file, or empty if it can. Nothing is created.

    Pipes and devices are not opened. SQLite itself reads the file: a process that opened and closed it in another way
    would lose its locks on it (SQLite, "How To Corrupt An SQLite Database File", section 2.2).
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        folder = Path(os.path.realpath(path)).parent
        if path.is_symlink() and not folder.is_dir():
            return f"{path} must be a SQLite file, is a link to {folder}, which is not there"
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} must be a folder that can be written to, for {path.name}"
        return ""
    except (OSError, ValueError) as error:  # a link to itself, a name that is too long
        return f"{path} must be a SQLite file, is none ({error})"
    if not stat.S_ISREG(mode):
        return f"{path} must be a SQLite file, is a folder, a pipe or a device"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{path} must be a SQLite file, cannot be read as one ({error})"
    return ""
