"""The code that is sent to a job: paretune itself, a user's own script, and their requirements.

The same files always make the same bytes, so an archive is uploaded only once for all jobs that need it.
"""

import gzip
import io
import os
import re
import sqlite3
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SETTINGS, files_below, is_readable
from paretune.core.secrets import is_secret_file

NAME = "code.tar.gz"
REQUIREMENTS = "requirements.txt"
SCRIPT_FOLDER = "script"
LARGEST_MIB = 50  # size limit of the unpacked code; a larger folder probably contains more than code
_NEEDED_IN_A_JOB = ("core", "specification", "estimating", "training")  # folders whose modules the training imports
_SECRET_FOLDERS = {".aws", ".ssh", ".gnupg", ".azure", ".docker", ".kube", ".huggingface", ".pip"}
_NEVER = {
    *(".git", ".paretune", ".venv", "venv", ".conda", ".tox", ".nox", "node_modules", "mlruns", "mlartifacts"),
    *("mlflow.db", "mlflow.db-journal", "mlflow.db-wal", "mlflow.db-shm"),
    *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
    *_SECRET_FOLDERS,
}
_CODE = (".py", ".sh", ".yaml", ".yml", ".toml", ".json", "requirements.txt", "MLproject")  # ends of names
_JOURNAL = re.compile(r"\.(?:db|sqlite3?)-(?:journal|wal|shm)$")  # ends of SQLite's files beside a database
_OF_SQLITE = (".db", ".sqlite", ".sqlite3")
_TABLES = ({"paretune_reservations"}, {"studies", "trials", "study_directions"}, {"runs", "latest_metrics"})
"""Tables by which the database of a ledger, of Optuna's studies, and of MLflow's runs are known."""
_STUDY_KEYS = {
    *("name", "job", "search", "points", "objectives", "constraints"),
    *("budget_usd", "budget_hours", "n_trials", "n_parallel"),
    *("sampler", "stop", "seed", "storage", "once"),
}
_KEY = re.compile(r"^([A-Za-z_]\w*)[ \t]*:", re.MULTILINE)  # of the outer mapping of a YAML file
_PROFILE = "paretune.toml"
_MOST_FILES = 50_000  # limit for a folder of code that is not in a git repository


def package_files(package: Path) -> dict[str, Path]:
    """Return the files of the package at `package` that a job needs, by their names in the archive."""
    files = {f"{package.name}/__init__.py": package / "__init__.py"}
    for path in (path for folder in _NEEDED_IN_A_JOB for path in sorted((package / folder).rglob("*"))):
        if path.suffix in {".py", ".csv"}:
            files[f"{package.name}/{path.relative_to(package).as_posix()}"] = path
    return files


def project_files(folder: Path, *, travels: bool = True) -> dict[str, Path]:
    """Return the files under a user's folder by relative name, without secrets, caches and paretune's own files.

    In a git repository, these are the files that git does not ignore, including those of submodules and of other
    repositories in the folder. Elsewhere, these are all files, except files and folders whose names start with a dot.
    If the code `travels` to a job, links to folders are also returned.

    Raises BadInput if git cannot list the files, if there are too many, if one cannot be read, or if the folder is
    itself an environment. If the code `travels` to a job, also raises BadInput if the files are too large together, or
    if a file or folder is a link that leads outside.
    """
    with _vanishing(folder):
        return _project_files(folder, travels)


@contextmanager
def _vanishing(folder: Path) -> Iterator[None]:
    """Raise BadInput if a file vanishes while the code in `folder` is read, such as one that a program there writes."""
    try:
        yield
    except FileNotFoundError as error:
        gone = f"{error.filename} vanished while the code in {folder} was read, so it may be incomplete"
        raise BadInput([f"{gone}: type the command again when nothing writes there"]) from error


def _project_files(folder: Path, travels: bool) -> dict[str, Path]:
    files, _ = _sorted_out(folder)
    if closed := [name for name, path in files.items() if not is_readable(path)]:
        more = f" and {len(closed) - 3} more files" if len(closed) > 3 else ""
        lead = f"the files of {folder} must be readable, and you may not read {', '.join(closed[:3])}{more}"
        raise BadInput([f"{lead}: change the permissions, or move what the job does not need elsewhere"])
    if not travels:
        return {name: path for name, path in files.items() if path.is_file()}
    if links := _leading_out(folder, files):
        lead = f"{', '.join(links)} in {folder} {'links' if len(links) == 1 else 'link'} outside that folder"
        or_else = "put it into .gitignore, without a slash at its end" if _is_in_git(folder) else "move it elsewhere"
        raise BadInput([f"{lead}, and only that folder is uploaded: replace each link with a copy, or {or_else}"])
    size = sum(path.stat().st_size for path in files.values())
    if size > LARGEST_MIB * 2**20:
        largest = sorted(files.items(), key=lambda item: -item[1].stat().st_size)[:3]
        listing = ", ".join(f"{name} ({path.stat().st_size / 2**20:.0f} MiB)" for name, path in largest)
        ignore = f"put {listing}, or the whole folder of a cloned repository, into .gitignore"
        leave_out = ignore if _is_in_git(folder) else f"move {listing} elsewhere"
        rule = f"the code in {folder} must be at most {LARGEST_MIB} MiB, got {size / 2**20:.0f}"
        raise BadInput([f"{rule}: {leave_out}, or the code into a separate folder"])
    return files


def left_behind(folder: Path) -> list[str]:
    """Return the names of files and folders that are not sent because they are named like secrets or begin with a dot.

    Links to files that are named like secrets are included. Environments and caches are not listed.
    """
    return _sorted_out(folder)[1]


def _sorted_out(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files, links to folders and unreadable folders, by name, and the names that `left_behind` returns."""
    names = {path: path.relative_to(folder) for path in _not_ignored(folder)}
    dots_travel = _is_in_git(folder)
    environments = {name.parent for name in names.values() if name.name == "pyvenv.cfg"}
    environments |= {name.parents[1] for name in names.values() if name.parent.name == "conda-meta"}
    if Path() in environments:
        separate = "make a folder in it for the code, or for the environment"
        raise BadInput([f"{folder} is itself a virtual environment, which is not sent with the code: {separate}"])
    files, left, inside = dict[str, Path](), list[str](), folder.resolve()
    for path, name in names.items():
        hidden = _NEVER & set(name.parts) or environments & set(name.parents) or path.suffix == ".pyc"
        is_folder = os.path.isdir(path) and (path.is_symlink() or not is_readable(path))
        if hidden or not (os.path.isfile(path) or is_folder):
            continue
        hidden_at = 0 if dots_travel else next((at for at, part in enumerate(name.parts, 1) if part[0] == "."), 0)
        if hidden_at:
            left.append("/".join(name.parts[:hidden_at]) + "/" * (hidden_at < len(name.parts)))
        elif _names_a_secret(path, name, inside):
            left.append(name.as_posix())
        elif not is_folder and _is_paretunes(path):
            continue
        else:
            files[name.as_posix()] = path
    return files, list(dict.fromkeys(left))


def _is_paretunes(path: Path) -> bool:
    """Return whether a file is paretune's own, such as a study, a budget file or its ledger, or a database of MLflow.

    No code reads them, they may have passwords, and they change while jobs run: a job of the same code has the same
    archive whatever its budget is.
    """
    if path.name == _PROFILE or _JOURNAL.search(path.name):
        return True
    with suppress(OSError):
        if path.suffix in (".yaml", ".yml") and path.stat().st_size <= LARGEST_SETTINGS:
            text = path.read_text(encoding="utf-8", errors="replace")
            keys = set(_KEY.findall(text))
            is_study = keys <= _STUDY_KEYS and keys & {"search", "points"} and keys & {"job", "budget_usd"}
            return bool(is_study) or (keys <= {"budgets", "storage"} and "budgets" in keys and "usd_per_month" in text)
        return path.suffix in _OF_SQLITE and any(each <= _tables_of(path) for each in _TABLES)
    return False


def _tables_of(path: Path) -> set[str]:
    with suppress(sqlite3.Error):
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {str(name) for (name,) in rows}
    return set()


def _names_a_secret(path: Path, name: Path, inside: Path) -> bool:
    """Return whether a file in the folder `inside`, or the file there to which it links, is named like a secret.

    Such a link would travel as a copy of the file. All files in a folder such as .docker count as secrets.
    """
    names = [name]
    if path.is_symlink() and path.is_file() and (target := path.resolve()).is_relative_to(inside):
        names.append(target.relative_to(inside))
    if any(_SECRET_FOLDERS.intersection(each.parts) for each in names):
        return True
    return any(is_secret_file(text) for each in names for text in (each.name, each.as_posix()))


def _leading_out(folder: Path, files: Mapping[str, Path]) -> list[str]:
    """Return the names of links that lead outside the folder, because another person's project may link to a secret.

    A hard link counts if its file also has a name that is not in `files`, such as one outside the folder. Folders of an
    installed paretune are an exception, because uv hard-links paretune's files to its cache.
    """
    inside = folder.resolve()
    links = [name for name, path in files.items() if path.is_symlink() and not path.resolve().is_relative_to(inside)]
    if inside.is_relative_to(Path(__file__).resolve().parents[1]):
        return links
    stats = {name: path.stat() for name, path in files.items() if not path.is_symlink()}
    names = Counter((each.st_dev, each.st_ino) for each in stats.values())
    return links + [name for name, each in stats.items() if each.st_nlink > names[each.st_dev, each.st_ino]]


def code_key(files: Mapping[str, Path]) -> str:
    """Return a digest of files with code or settings and of links: the same for jobs that run the same code.

    Other files do not count: a log in the folder may grow before the same command is typed again.
    """
    digest = sha256()
    for name, path in sorted(files.items()):
        if path.is_dir() or name.endswith(_CODE):
            with _vanishing(path.parent):
                content = _link_target(path) if path.is_dir() else sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name} {content}\n".encode(errors="surrogateescape"))  # a name may not be UTF-8
    return digest.hexdigest()[:16]


def pack(files: Mapping[str, Path], target: Path) -> Path:
    """Write a gzipped tar archive whose bytes depend only on the names, contents and execute permissions of the files.

    A link to a folder stays a link. Returns `target`. Raises BadInput if a file has vanished.
    """
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            if path.is_dir():
                entry.type, entry.linkname = tarfile.SYMTYPE, _link_target(path)
                archive.addfile(entry)
                continue
            with _vanishing(path.parent):
                data, mode = path.read_bytes(), path.stat().st_mode
            entry.size, entry.mode = len(data), 0o755 if mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return target


def _link_target(link: Path) -> str:
    """Return where a link leads, relative to its own folder, so that it leads there in a job too."""
    return os.path.relpath(link.resolve(), link.parent.resolve())


def _is_in_git(folder: Path) -> bool:
    return any((path / ".git").exists() for path in (folder, *folder.parents))


def _is_repository(folder: Path) -> bool:
    """Return whether a folder is a repository or a submodule, but not another work tree of the same repository."""
    entry = folder / ".git"
    return os.path.isdir(entry) or (os.path.isfile(entry) and b"/worktrees/" not in entry.read_bytes())


def _not_ignored(folder: Path) -> list[Path]:
    """Return the files, links to folders and unreadable folders under `folder`, without those that git ignores."""
    if not _is_in_git(folder):
        files = files_below(folder, _MOST_FILES)
        if files is None:
            must = f"{folder} must be a folder of code, but has more than {_MOST_FILES:,} files"
            raise BadInput([f"{must}: move the code into a folder of its own"])
        folders = [Path(parent, name) for parent, names, _ in os.walk(folder) for name in names]
        return sorted([*files, *(path for path in folders if path.is_symlink() or not is_readable(path))])
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise BadInput([f"{folder} is in a git repository and git is not installed: install it"]) from None
    if done.returncode != 0:  # such as in another user's repository; its ignored files must not be sent
        messages = done.stderr.decode(errors="replace").strip().splitlines()
        raise BadInput([f"git cannot list the files of {folder}: {' '.join(messages)[:500]}"])
    names = {*done.stdout.split(b"\0")} - {b""}
    paths = [folder / os.fsdecode(name) for name in sorted(names)]
    paths += sorted(parent for parent in {path.parent for path in paths} - {folder} if not is_readable(parent))
    # Of a submodule or another repository, git lists only the folder.
    nested = {path for path in paths if not path.is_symlink() and _is_repository(path)}
    return [each for path in paths for each in (_not_ignored(path) if path in nested else [path])]
