"""The code that travels to a job: paretune itself, a user's own script, and what must be installed beside them.

The same sources make the same bytes, so the archive is uploaded once for all jobs.
"""

import gzip
import io
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from paretune.errors import BadInput

NAME = "code.tar.gz"
REQUIREMENTS = "requirements.txt"
SCRIPT_FOLDER = "script"
LARGEST_MIB = 50
"""Of an archive, unpacked: beyond this something was packed that is no code."""
_NEVER = {".git", ".paretune", ".venv", "venv", "mlruns", "mlartifacts", "node_modules", "__pycache__"}
_NEVER_NAMES = {".env", ".netrc", ".pypirc", "credentials", "mlflow.db"}


def package_files(package: Path) -> dict[str, Path]:
    """Name in the archive to file: the package in `package`, without what only launches."""
    files = {}
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if path.suffix in {".py", ".csv"} and name.parts[0] != "launchers":
            files[f"{package.name}/{name.as_posix()}"] = path
    return files


def project_files(folder: Path) -> dict[str, Path]:
    """Name to file of a user's folder: what git would not ignore; without git, what is no environment and no secret.

    Raises:
        BadInput: the files are larger together than code can be.
    """
    listed = _listed_by_git(folder)
    paths = listed if listed is not None else [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = {}
    for path in paths:
        name = path.relative_to(folder)
        hidden = _NEVER & set(name.parts) or name.name in _NEVER_NAMES or name.suffix == ".pyc"
        if path.is_file() and not hidden:
            files[name.as_posix()] = path
    size = sum(path.stat().st_size for path in files.values())
    if size > LARGEST_MIB * 2**20:
        largest = sorted(files.items(), key=lambda item: -item[1].stat().st_size)[:3]
        shown = ", ".join(f"{name} ({path.stat().st_size / 2**20:.0f} MiB)" for name, path in largest)
        raise BadInput(
            [
                f"the code in {folder} must be at most {LARGEST_MIB} MiB, got {size / 2**20:.0f}: put {shown} into "
                ".gitignore, or the code into a folder of its own"
            ]
        )
    return files


def pack(files: Mapping[str, Path | str], target: Path) -> Path:
    """Write files and texts as a gzipped tar archive whose bytes depend on nothing else.

    Args:
        files: name in the archive to file, or to a text.
        target: the archive.
    """
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            data = content.encode() if isinstance(content, str) else content.read_bytes()
            executable = isinstance(content, Path) and bool(content.stat().st_mode & 0o100)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return target


def _listed_by_git(folder: Path) -> Iterable[Path] | None:
    """Files below `folder` that git tracks or would; None outside of a repository."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    if done.returncode != 0:
        return None
    return [folder / name for name in sorted(set(done.stdout.decode().split("\0"))) if name]
