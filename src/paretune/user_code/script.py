"""A user's own Python script, read once and without running it: what it accepts, and what it says that it reports.

`Script.read` reads the text of the script and of the modules next to it. If the user allows it and the text does not
show all options, `sandbox` runs the script with `--help`. Nothing else reads a script, and a process reads it again
only if one of these files has changed.
"""

import ast
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SCRIPT, at_home, read_text
from paretune.specification.user_code import CodeSource
from paretune.user_code.arguments import Accepted, Program, accepted, completed, declarations, opened, trl_uses_bf16
from paretune.user_code.reported import Reported, reported_by
from paretune.user_code.sandbox import ask_options

_NOTEBOOK = re.compile(r"^\s*get_ipython\(\)", re.MULTILINE)
_DEFINES_NOTEBOOK = re.compile(r"^\s*(?:get_ipython\s*=|def get_ipython\b)", re.MULTILINE)
_CONFIGURATIONS = ("*.yaml", "*.yml", "*.toml", "conf*/**/*.yaml", "conf*/**/*.yml")
_MOST_CONFIGURATIONS, _LARGEST_CONFIGURATION = 50, 100_000  # files, and bytes of each
_MOST_MODULES = 50  # modules that are read: the script, and those of its folder that it imports, even indirectly
_MOST_KEPT = 8  # scripts that a process keeps
_SETTLED_NS = 50_000_000
"""A file that changed less than this many nanoseconds before it was read may change again without a newer time.

File systems of Linux have a new time every 1 to 10 ms, depending on the kernel's timer.
"""


@dataclass(frozen=True, kw_only=True)
class Script(Accepted):
    """A script: the command line that it accepts, what it reports, and what may keep it from starting."""

    path: Path
    text: str  # "" if there is no such file
    files: tuple[Path, ...]  # the script, and the modules in its folder that it imports
    reported: Reported
    mentions_seed: bool
    sets_tracking: bool  # whether it chooses MLflow's tracking server itself
    bf16_by: str  # the class of TRL that makes it train in bf16, if no number format is given; "" if there is none
    is_notebook: bool  # whether it calls get_ipython(), which only notebooks have, and does not define it
    syntax_fault: str = ""  # why this version of Python cannot parse it; "" if it can, and for other languages
    was_asked: bool = False  # whether its --help has answered
    help_fault: str = ""  # why its --help did not answer, although it may be asked

    @property
    def can_be_asked(self) -> bool:
        """Whether this system can run its --help without network and write access."""
        return sys.platform == "linux" and self.path.is_file()

    @classmethod
    def of(cls, source: CodeSource) -> "Script":
        """Read the script of a job, and its options by --help if the job allows it."""
        path = at_home(source.entry_script or "").resolve()
        return cls.read(path, may_ask=source.may_ask, command=source.command)

    @classmethod
    def read(cls, path: Path, *, may_ask: bool = False, command: str = "") -> "Script":
        """Read a script. One that is missing, or that Python cannot parse, counts as taking any argument.

        If `may_ask` and its text does not show all options, its --help is run, or that of a subcommand `command`, in a
        sandbox. Raises BadInput if the script, or a module that it imports, is too large or is not UTF-8.
        """
        kept = _Kept.of(path)
        if not may_ask or kept.script.is_complete or not path.is_file():
            return kept.script
        if command not in kept.asked or kept.asked[command].help_fault:
            kept.asked[command] = _asked(kept.script, command)
        return kept.asked[command]


_State = tuple[int, int] | None
"""The time of a file's last change, in nanoseconds, and its size, in bytes; None if there is no such file."""


def _state_of(path: Path) -> _State:
    with suppress(OSError, ValueError):
        state = os.stat(path)
        return state.st_mtime_ns, state.st_size
    return None


@dataclass(kw_only=True)
class _Kept:
    """A script that this process has read, and the state of all files that decide what it is."""

    script: Script
    states: Mapping[Path, _State]  # of the files that were read, and of those that would be if they existed
    configurations: Mapping[Path, _State]  # of the configuration files in its folder
    is_settled: bool  # whether each file would have a newer time if it had changed since
    asked: dict[str, Script] = field(default_factory=dict)
    """With the options that its --help lists, by the subcommand that was asked for them; "" for the script itself."""

    @classmethod
    def of(cls, path: Path) -> "_Kept":
        """Return a script, read now unless it is kept."""
        key = path.absolute()
        kept = _KEPT.pop(key, None)
        if kept is None or not kept.is_current():
            kept = cls._read(path)
        _KEPT[key] = kept
        for oldest in [*_KEPT][:-_MOST_KEPT]:
            _KEPT.pop(oldest, None)
        return kept

    @classmethod
    def _read(cls, path: Path) -> "_Kept":
        now_ns, states = time.time_ns(), {path: _state_of(path)}
        configurations = _configurations(path.parent)
        text = read_text(path, LARGEST_SCRIPT) if path.is_file() else ""
        texts = dict(_modules(path, text, states)) if path.is_file() else {}
        states |= {path.parent / name: _state_of(path.parent / name) for name in opened(path, text)}
        script = _script(path, text, texts, configurations)
        states |= {file: _state_of(file) for file in script.read_from}
        changed_ns = max((state[0] for state in (*states.values(), *configurations.values()) if state), default=0)
        return cls(
            script=script,
            states=states,
            configurations=configurations,
            is_settled=changed_ns < now_ns - _SETTLED_NS,
        )

    def is_current(self) -> bool:
        """Return whether no file has changed since the script was read."""
        return (
            self.is_settled
            and all(_state_of(path) == state for path, state in self.states.items())
            and _configurations(self.script.path.parent) == self.configurations
        )


_KEPT: dict[Path, _Kept] = {}
"""The scripts that this process has read, the last one last."""


def _script(path: Path, own_text: str, texts: Mapping[Path, str], configurations: Mapping[Path, _State]) -> Script:
    """Return a script; `texts` has its own text, and those of the modules that it imports."""
    program = Program(path, {file: ast.parse(module) for file, module in texts.items()})
    text, main = "\n".join(texts.values()), texts.get(path, "")
    accepts = accepted(program, texts)
    return Script(
        **vars(accepts),
        path=path,
        text=own_text,
        files=tuple(texts),
        reported=reported_by(program, text, accepts.arguments, configurations),
        mentions_seed=bool(re.search(r"\bseed\b", text)),
        sets_tracking=bool(re.search(r"\bset_tracking_uri\(", text)),
        bf16_by=trl_uses_bf16(text) if accepts.has_hugging_face_parser else "",
        is_notebook=bool(_NOTEBOOK.search(main)) and not _DEFINES_NOTEBOOK.search(main),
        syntax_fault=_syntax_fault(path, own_text),
    )


def _asked(script: Script, command: str) -> Script:
    """Return a script with the options that its --help lists, or that of a subcommand, and what its text shows."""
    try:
        answer = ask_options(script.path, command)
    except BadInput as error:
        return replace(script, help_fault=error.faults[0])
    shown = declarations(ast.parse(script.text))
    by_place = [each for each in script.arguments if each.is_positional] if not answer.trailing else []
    known = [script.find(each.name) or completed(each, shown) for each in answer.arguments]
    return replace(
        script,
        arguments=(*(replace(each, commands=(command,) if command else ()) for each in known), *by_place),
        is_complete=answer.is_complete,
        declares_all=answer.is_complete,
        commands=script.commands or answer.commands,
        needs_command=script.needs_command or answer.needs_command,
        was_asked=True,
    )


def _syntax_fault(path: Path, text: str) -> str:
    try:
        if path.suffix == ".py":
            ast.parse(text)
    except SyntaxError as error:
        return f"entry_script {path.name}, line {error.lineno}: Python cannot read it: {error.msg}"
    return ""


def _modules(script: Path, own_text: str, states: dict[Path, _State]) -> Iterator[tuple[Path, str]]:
    """Yield the script, and the modules in its folder that it imports, directly or not, each with its text.

    Files that are not valid Python are left out: Python reports the error when the script runs. The state of each file
    that may be imported is added to `states` before it is read.
    """
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_MODULES:
        path = waiting.pop()
        text = own_text if path == script else read_text(path, LARGEST_SCRIPT)
        if (candidates := _imports_of(path, text, script.parent)) is None:
            continue
        states |= {file: _state_of(file) for file in candidates if file not in states}
        imported = {file for file in candidates if states[file] is not None and file.is_file()}
        yield path, text
        waiting += imported - seen
        seen |= imported


def _imports_of(path: Path, text: str, root: Path) -> frozenset[Path] | None:
    """Return the files below `root` that a module may import; None if its text is not valid Python."""
    try:
        return frozenset(file for node in ast.walk(ast.parse(text)) for file in _imported(node, path, root))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(node: ast.AST, path: Path, root: Path) -> Iterator[Path]:
    stems = list[Path]()
    if isinstance(node, ast.Import):
        stems = [root / alias.name.replace(".", "/") for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level < len(path.parents):
        module = (path.parents[node.level - 1] if node.level else root) / (node.module or "").replace(".", "/")
        stems = [module, *(module / alias.name for alias in node.names)]
    files = (file for stem in stems for file in (stem.parent / f"{stem.name}.py", stem / "__init__.py"))
    yield from (file for file in files if file.is_relative_to(root))


def _configurations(folder: Path) -> dict[Path, _State]:
    """Return the configuration files in a script's folder, each with its state."""
    files = [file for pattern in _CONFIGURATIONS for file in sorted(folder.glob(pattern))][:_MOST_CONFIGURATIONS]
    states = {file: _state_of(file) for file in files if file.is_file()}
    return {file: state for file, state in states.items() if state and state[1] <= _LARGEST_CONFIGURATION}
