"""A user's own Python script, read without running it: the arguments that it declares and what it imports."""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.core.untrusted import LARGEST_SCRIPT, read_text

_HUGGING_FACE = re.compile(r"\b(?:HfArgumentParser|TrlParser)\b")
_OTHER_PARSERS = {"click", "typer", "fire", "absl", "jsonargparse", "hydra", "docopt", "tyro", "simple_parsing"}
"""Packages that read a command line in ways that cannot be told from the text of the script."""
_LIGHTNING = "LightningCLI"
LIGHTNING_ARGUMENTS = ("seed_everything", "trainer.default_root_dir")
"""Arguments of every LightningCLI (lightning 2.6.6)."""
_INSTALLS = re.compile(r"\bsys\.path\b|\bpip\b.{0,40}\binstall\b")  # in a script: it finds or installs packages itself
_MOST_MODULES = 200  # of the script's folder that it imports, itself included
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python-headless", "yaml": "pyyaml"}
_DISTRIBUTIONS |= {
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "skimage": "scikit-image",
    "git": "gitpython",
}
"""Name of a module to the name that pip knows it by, where they differ."""


@dataclass(frozen=True, kw_only=True)
class OwnScript:
    """Arguments and imports of a script, read from its text and from that of the modules beside it."""

    arguments: Mapping[str, str]
    """Name of each option as argparse has it, without the dashes before it, to its action, such as `store_true`; empty
    for an option with a value."""
    reads_anything: bool
    """Whether it takes arguments that its text does not name: those of Hugging Face's parser, or all that are written
    after it."""
    is_complete: bool  # whether no other arguments than these exist
    imports: tuple[str, ...]  # packages that are imported whenever it runs, in alphabetic order
    command: str = ""  # the word before its options that a LightningCLI needs, `fit`, or empty

    def argument(self, name: str) -> str | None:
        """The script's spelling of an argument, with - or _ in its name, or None if it declares none of this name."""
        plain = name.replace("-", "_")
        return next((spelling for spelling in self.arguments if spelling.replace("-", "_") == plain), None)

    def missing_packages(self) -> list[str]:
        """Names, for pip, of imported packages that are not installed here."""
        missing = [name for name in self.imports if not _is_installed(name)]
        return [_DISTRIBUTIONS.get(name, name) for name in missing]


def read_own_script(path: Path) -> OwnScript:
    """The arguments and imports of a script; any arguments if it is no Python. Raises BadInput if it is too large."""
    trees = list(_trees(path)) if path.is_file() else []
    texts = [text for _, text, _ in trees]
    all_calls = [node for tree, _, _ in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in all_calls if _called(call) == "add_argument"]
    arguments = {word: _action(call) for call in calls for word in _options(call)}
    lightning = [call for call in all_calls if _called(call) == _LIGHTNING]
    has_constant_names = all(isinstance(word, ast.Constant) for call in calls for word in call.args)
    modules = {name for _, _, names in trees for name in names}
    has_other = bool(modules & _OTHER_PARSERS) or any(_LIGHTNING in text for text in texts)
    is_hugging_face = any(_HUGGING_FACE.search(text) for text in texts)
    imports = {name for tree, _, _ in trees for name in _imported_always(tree.body)}
    if any(_INSTALLS.search(text) for text in texts):
        imports = set()
    local = {item.stem for item in path.parent.iterdir() if item.suffix == ".py" or item.is_dir()} if trees else set()
    return OwnScript(
        arguments=arguments | dict.fromkeys(LIGHTNING_ARGUMENTS if lightning else (), ""),
        reads_anything=is_hugging_face or not (arguments or has_other),
        is_complete=bool(arguments) and not has_other and has_constant_names,
        imports=tuple(sorted(imports - local - set(sys.stdlib_module_names))),
        command="fit" if any(_runs_commands(call) for call in lightning) else "",
    )


def _trees(script: Path) -> Iterator[tuple[ast.Module, str, set[str]]]:
    """Syntax tree, text and imported packages of the script and of the modules beside it that it imports."""
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_MODULES:
        path = waiting.pop()
        text = read_text(path, LARGEST_SCRIPT)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # Python says why, when it runs it
        names = {name for node in ast.walk(tree) for name in _packages(node)}
        yield tree, text, names
        beside = {script.parent / f"{name}.py" for name in names} - seen
        new = [path for path in beside if path.is_file()]
        seen.update(new)
        waiting += new


def _packages(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module.partition(".")[0]


def _imported_always(body: list[ast.stmt]) -> Iterator[str]:
    """Packages that a module imports at its top, or when it is the script; not those in `try` or another `if`."""
    for node in body:
        yield from _packages(node)
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            yield from _imported_always(node.body)


def _options(call: ast.Call) -> list[str]:
    words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return [word.lstrip("-") for word in words if word.startswith("--")]


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _runs_commands(call: ast.Call) -> bool:
    """Whether a LightningCLI reads a command such as `fit`, as it does without `run=False`."""
    return not any(item.arg == "run" and ast.unparse(item.value) == "False" for item in call.keywords)


def _action(call: ast.Call) -> str:
    action = next((ast.unparse(item.value) for item in call.keywords if item.arg == "action"), "")
    return action.strip("'\"").rpartition(".")[2]


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return True  # a package that cannot be looked up says why itself
