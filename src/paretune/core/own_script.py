"""A user's own Python script, read without running it: the arguments that it declares."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.core.untrusted import LARGEST_SCRIPT, read_text

_READS_ANYTHING = re.compile(r"\b(?:HfArgumentParser|TrlParser)\b")
_OTHER_PARSERS = re.compile(
    r"^\s*(?:import|from) (?:click|typer|fire|absl|jsonargparse|hydra|docopt|tyro)\b|\bLightningCLI\b", re.MULTILINE
)
"""Packages that read a command line in ways that cannot be told from the text of the script."""
_MAY_PARSE = re.compile(r"\bargv\b|[Pp]arse|\bget_args\b")  # traces of a parser in a script that declares no argument
_OVERRIDES = re.compile(r"^\s*(?:import|from) hydra\b|\bOmegaConf\.from_cli\b", re.MULTILINE)
_MOST_MODULES = 200  # of the script's folder that it imports, itself included


@dataclass(frozen=True, kw_only=True)
class OwnScript:
    """Arguments of a script, read from its text and from that of the modules beside it."""

    arguments: Mapping[str, str]
    """Name of each option as argparse has it, without the dashes before it, to its action, such as `store_true`; empty
    for an option with a value."""
    reads_anything: bool
    """Whether it takes arguments that its text does not name: those of Hugging Face's parser, or all that are written
    after it."""
    takes_overrides: bool  # whether its arguments are `key=value`, as Hydra and OmegaConf read them
    required: tuple[str, ...]  # arguments without which it does not run; without -- if positional
    is_complete: bool  # whether no other arguments than these exist

    def argument(self, name: str) -> str | None:
        """The script's spelling of an argument, with - or _ in its name, or None if it declares none of this name."""
        plain = name.replace("-", "_")
        return next((spelling for spelling in self.arguments if spelling.replace("-", "_") == plain), None)


def read_own_script(path: Path) -> OwnScript:
    """The arguments of a script; any arguments if it is no Python. Raises BadInput if it is too large."""
    modules = dict(_modules(path)) if path.is_file() else {}
    text = "\n".join(modules.values())
    trees = [ast.parse(module) for module in modules.values()]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    words = [(word, call) for call in calls for word in call.args]
    arguments = {
        word.value.lstrip("-"): _action(call)
        for word, call in words
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value.startswith("--")
    }
    has_other = bool(_OTHER_PARSERS.search(text) or _OVERRIDES.search(text))
    # Not Hugging Face's parser, and no other.
    has_none = bool(modules) and not (calls or has_other or _MAY_PARSE.search(text))
    return OwnScript(
        arguments=arguments,
        reads_anything=bool(_READS_ANYTHING.search(text)) or not (arguments or has_other or has_none),
        takes_overrides=bool(_OVERRIDES.search(text)),
        required=() if "add_subparsers" in text else tuple(filter(None, map(_required, calls))),
        is_complete=has_none
        or (bool(arguments) and not has_other and all(isinstance(word, ast.Constant) for word, _ in words)),
    )


def _modules(script: Path) -> Iterator[tuple[Path, str]]:
    """The script and the modules beside it that it imports, each with its text; those that are no Python are left out.

    Python says why, when it runs them.
    """
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_MODULES:
        path = waiting.pop()
        text = read_text(path, LARGEST_SCRIPT)
        try:
            names = {name for node in ast.walk(ast.parse(text)) for name in _packages(node)}
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield path, text
        new = {path for name in names if (path := script.parent / f"{name}.py").is_file()} - seen
        seen |= new
        waiting += new


def _packages(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module.partition(".")[0]


def _action(call: ast.Call) -> str:
    action = next((ast.unparse(item.value) for item in call.keywords if item.arg == "action"), "")
    return action.strip("'\"").rpartition(".")[2]


def _required(call: ast.Call) -> str:
    """The name of an argument that must be given, with its dashes; "" if it may be left out."""
    words = [str(word.value) for word in call.args if isinstance(word, ast.Constant)]
    options = {item.arg: ast.unparse(item.value) for item in call.keywords}
    if not words:
        return ""
    if not words[0].startswith("-"):
        return "" if options.get("nargs", "").strip("'\"") in {"?", "*"} or "default" in options else words[0]
    return next((word for word in words if word.startswith("--")), "") if options.get("required") == "True" else ""
