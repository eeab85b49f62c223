"""Addresses of databases as SQLAlchemy accepts them, and whether SQLite can use the file of an address."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from paretune.core.untrusted import exists, is_file

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

    SQLite itself reads the file: a process that opened and closed it in another way would lose its locks on it (SQLite,
    "How To Corrupt An SQLite Database File", section 2.2).
    """
    if not exists(path):
        folder = path.absolute().parent
        is_closed = folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)
        return f"{folder} must be a folder that can be written to, for {path.name}" if is_closed else ""
    if not is_file(path):
        return f"{path} must be a SQLite file, is a folder, a pipe or a device"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{path} must be a SQLite file, cannot be read as one ({error})"
    return ""
