"""What the run of every job keeps as artifacts, however the job ended: its code, its log, its command line, versions.

    code/               the user's source files, with the commit and the changes if they are in a git repository
    log.txt             what the job printed; of a long log, its begin and its end
    traceback.txt       the exception that ended the job
    command.txt         the command line that ran
    versions.txt        versions of Python and of all packages

Everything is limited in size. Secrets are masked: those that are recognized by their form, values that the text itself
gives to the name of a secret, and the values of variables of the launching environment with such names.
"""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from paretune.core.reading import is_file
from paretune.core.secrets import is_secret_name, without_named_secrets
from paretune.launchers.base import Job
from paretune.specification.container import UserCode
from paretune.user_code.runner import COMMAND, LOG, TRACEBACK, VERSIONS

CODE = "code"  # folder of the source files
_LARGEST_CODE, _LARGEST_DIFF, _LARGEST_LOG = 1_000_000, 500_000, 6_000_000  # bytes
_LINES = 2_000  # lines of a log that another program than `runner` has not kept
_SHORTEST_SECRET = 6  # shorter values of the environment are not masked: they stand in many words


def code_of(code: UserCode, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the source files of a user's own training by name, and the state of their git repository."""
    texts, left = dict[str, str](), _LARGEST_CODE
    for name, path in code.texts.items():
        with suppress(OSError):
            if is_file(path) and path.stat().st_size <= left and not is_secret_name(path.name):
                text = path.read_text(encoding="utf-8", errors="replace")
                texts[name], left = text, left - len(text)
    first = next(iter(code.texts.values()), None)
    if first is not None:
        texts |= _git_state(first.parent)
    return {name: masked(text, environment, in_code=True) for name, text in texts.items()}


def _git_state(folder: Path) -> dict[str, str]:
    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, timeout=30, check=True)
            return done.stdout.decode(errors="replace")
        return ""

    if not (commit := git("rev-parse", "HEAD").strip()):
        return {}
    changes = git("diff", "--no-color", "--no-ext-diff", "HEAD", "--", ".")
    if len(changes) > _LARGEST_DIFF:
        changes = f"{changes[:_LARGEST_DIFF]}\n... {len(changes) - _LARGEST_DIFF} characters are left out here ...\n"
    return {"git_commit.txt": f"{commit}\n", **({"git_changes.diff": changes} if changes else {})}


def records_of(store: Path | None, job: Job, command: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the log, traceback, command line and versions of an ended job, by name.

    `store` has what the job itself has kept; without it, the launcher's log and the command of paretune are used.
    """
    texts = dict[str, str]()
    for name in (LOG, TRACEBACK, COMMAND, VERSIONS):
        with suppress(OSError):
            path = None if store is None else store / name
            if path is not None and path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST_LOG:
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
    if not texts.get(LOG):
        texts[LOG] = "\n".join([*job.log_tail(_LINES), ""])
    texts.setdefault(COMMAND, f"{command}\n")
    if TRACEBACK not in texts and (traceback := _traceback_in(texts[LOG])):
        texts[TRACEBACK] = traceback
    return {name: masked(text, environment) for name, text in texts.items() if text.strip()}


def _traceback_in(log: str) -> str:
    """Return the last traceback in a log, or "" if it has none."""
    _, start, rest = log.rpartition("Traceback (most recent call last):")
    lines = rest.lstrip("\n").splitlines() if start else []
    end = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join([start, *lines[: end + 1], ""]) if start else ""


def masked(text: str, environment: Mapping[str, str], *, in_code: bool = False) -> str:
    """Return the text without secrets. `in_code` says whether it is source code."""
    hidden = {value for name, value in environment.items() if is_secret_name(name) and len(value) >= _SHORTEST_SECRET}
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "...")
    return without_named_secrets(text, in_code=in_code)
