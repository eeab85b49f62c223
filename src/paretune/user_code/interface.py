"""What a program accepts on its command line, read from its syntax tree or from the text of its `--help`.

Nothing is imported or run here. The options of argparse, Hugging Face's parsers and Hydra are read from the program's
text, because that needs no consent. For all other libraries, the program's own `--help` answers (`options_in_help`).
"""

import ast
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SETTINGS, read_text

SWITCH, SWITCHED_OFF = "store_true", "store_false"
SEVERAL, REPEATED = "several", "append"  # takes a list: its items follow the option, or the option precedes each item
OFF = "off:"
"""Action prefix of a switch with an opposite: for --fast and --no-fast, the action of `fast` is `off:no-fast`."""
TEXT_OF_BOOL = "bool"
"""Action of an argparse option with type=bool, to which every string except "" means true."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Field = tuple[str, ast.expr | None, ast.expr | None]
"""Name, annotation and default of a parameter or a field."""
_DEEPEST = 5  # levels of nested dataclasses that are read
_MOST_KEYS = 5_000  # keys of Hydra's YAML files that are read


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The default and the choices of an argument, as far as they are shown where it is declared."""

    default: int | float | str | None = None  # None if it is not shown, or is None
    choices: Sequence[int | float | str] = ()


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a command line."""

    actions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Maps the name of each option, without leading dashes, to its action: "" if it takes a value, OFF and a
    name, SWITCH, SWITCHED_OFF, TEXT_OF_BOOL, SEVERAL or REPEATED."""
    required: tuple[str, ...] = ()  # required arguments: options with leading --, positional arguments without
    is_complete: bool = False  # whether the program accepts no other options
    commands: tuple[str, ...] = ()  # one of these words must precede the options
    trailing: str = ""  # the positional argument that takes any number of words after the options; "" if none does
    declared: Mapping[str, Declared] = field(default_factory=dict, hash=False)  # defaults that are numbers, if known
    floats: frozenset[str] = frozenset()  # options whose type or default is a float
    files: tuple[Path, ...] = ()  # other files, and folders, that they were read from


class Program:
    """The syntax trees of a script and the modules next to it."""

    def __init__(self, script: Path, trees: Mapping[Path, ast.Module]) -> None:
        self.script, self.trees = script, trees
        self.nodes = [node for tree in trees.values() for node in ast.walk(tree)]
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.functions, self.classes = dict[str, _Function](), dict[str, ast.ClassDef]()
        at_top = [node for tree in trees.values() for node in tree.body]
        for node in (*at_top, *self.nodes):  # the top level before methods, and the script before its modules
            if isinstance(node, _Function):
                self.functions.setdefault(node.name, node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, node)

    def calls_of(self, *names: str) -> list[ast.Call]:
        """Return the calls of functions or methods that have one of these names."""
        return [call for call in self.calls if _last_name(call.func) in names]


def read_options(parser: str, program: Program) -> Options:
    """Return the options that a program declares with the library `parser`, a key of `_READERS`.

    If the source does not show all options, `is_complete` of the result is False. For any other `parser`, the result
    has no options. The caller reads the options that the program declares with `add_argument`.
    """
    read = _READERS.get(parser)
    return Options() if read is None else read(program)


# ---- argparse


_WITHOUT_VALUE = {"count", "store_const", "append_const"}  # actions of argparse
_NARGS = {"OPTIONAL": "?", "ZERO_OR_MORE": "*", "ONE_OR_MORE": "+", "REMAINDER": "..."}  # constants of argparse


def _nargs(keywords: Mapping[str | None, str]) -> str:
    """Return the `nargs` of a call of `add_argument` without quotes; "" if it has none."""
    text = keywords.get("nargs", "").strip("'\"")
    return _NARGS.get(text.rpartition(".")[2], text)


def added_options(words: Iterable[tuple[ast.expr, ast.Call]]) -> dict[str, str]:
    """Return the options that `add_argument` declares, with their actions."""
    actions = dict[str, str]()
    for word, call in words:
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value.startswith("--"):
            name, keywords = word.value[2:], {item.arg: ast.unparse(item.value) for item in call.keywords}
            plain = name.replace("-", "_")
            action = keywords.get("action", "").strip("'\"").rpartition(".")[2]
            if action == "BooleanOptionalAction":
                actions |= {name: f"{OFF}no-{name}", f"no-{name}": f"{OFF}{name}"}
            elif keywords.get("type") == "bool":
                actions[name] = TEXT_OF_BOOL
            elif action in _WITHOUT_VALUE:
                actions[name] = SWITCH
            elif action == SWITCHED_OFF and keywords.get("dest", f"'{plain}'") != f"'{plain}'":
                actions[name] = SWITCH  # --no-shuffle with dest="shuffle": `no-shuffle` is true if it is passed
            elif action == REPEATED or (action != "extend" and "nargs" not in keywords):
                actions[name] = action if action in (SWITCH, SWITCHED_OFF, REPEATED) else ""
            else:
                actions[name] = "" if _nargs(keywords) == "?" else SEVERAL
    return actions


def options_of(call: ast.Call) -> list[str]:
    """Return the options that a call declares, without their leading dashes."""
    words = [word.value for word in call.args if isinstance(word, ast.Constant)]
    return [word[2:] for word in words if isinstance(word, str) and word.startswith("--")]


def required_by(call: ast.Call) -> str:
    """Return the argument that a call of `add_argument` requires: with -- unless it is positional; "" if none."""
    words = [str(word.value) for word in call.args if isinstance(word, ast.Constant)]
    options = {item.arg: ast.unparse(item.value) for item in call.keywords}
    if not words:
        return ""
    if not words[0].startswith("-"):
        return "" if _nargs(options) in {"?", "*", "..."} else words[0]  # argparse ignores any other one's default
    return next((word for word in words if word.startswith("--")), "") if options.get("required") == "True" else ""


def trailing_of(call: ast.Call) -> str:
    """Return the positional argument of a call of `add_argument` if it takes any number of words; "" otherwise."""
    word = call.args[0] if call.args else None
    takes_all = _nargs({item.arg: ast.unparse(item.value) for item in call.keywords}) in {"*", "+", "..."}
    name = str(word.value) if isinstance(word, ast.Constant) else "-"
    return "" if name.startswith("-") or not takes_all else name


def types_of(words: Iterable[tuple[ast.expr, ast.Call]]) -> dict[str, str]:
    """Return `int` or `float` for the options that `add_argument` declares with this type."""
    types = dict[str, str]()
    for word, call in words:
        kind = next((_last_name(item.value) for item in call.keywords if item.arg == "type"), "")
        if isinstance(word, ast.Constant) and str(word.value).startswith("--") and kind in ("int", "float"):
            types[str(word.value)[2:]] = kind
    return types


def floats_of(words: Iterable[tuple[ast.expr, ast.Call]]) -> frozenset[str]:
    """Return the options whose default in a call of `add_argument` is a float."""
    return frozenset(
        str(word.value)[2:]
        for word, call in words
        for item in call.keywords
        if isinstance(word, ast.Constant)
        and item.arg == "default"
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, float)
    )


# ---- defaults and choices


def declarations(tree: ast.Module) -> dict[str, Declared]:
    """Return what a module shows about the arguments that it declares, by name with underscores.

    An argument is declared by a call, such as argparse's or Click's, by an annotated field of a class, or by a
    parameter of a function. A call counts before the others, because a helper function may have a parameter of the same
    name. Arguments without a known default or choices are left out.
    """
    found = dict[str, Declared]()
    for node in sorted(ast.walk(tree), key=lambda node: not isinstance(node, ast.Call)):
        for name, declared in _declared_by(node):
            if declared.default is not None or declared.choices:
                found.setdefault(name.replace("-", "_"), declared)
    return found


def _declared_by(node: ast.AST) -> Iterator[tuple[str, Declared]]:
    if isinstance(node, ast.Call):
        declared = _of_call(node)
        yield from ((word.lstrip("-"), declared) for word in _texts(node.args))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, _of_annotated(node.value, node.annotation)
    elif isinstance(node, _Function):
        for name, annotation, default in _parameters(node):
            yield name, _of_annotated(default, annotation)


def _of_call(call: ast.Call) -> Declared:
    """Return what a call declares about an option."""
    words = {word.arg: word.value for word in call.keywords}
    default, choices = _constant(words.get("default")), _constants(words.get("choices"))
    if isinstance(kind := words.get("type"), ast.Call):  # click.Choice([...])
        choices = choices or _constants(kind.args[0] if kind.args else None)
    if _last_name(call.func).startswith("DEFINE_") and len(call.args) > 1:
        default = _constant(call.args[1])  # absl
        choices = _constants(call.args[2]) if len(call.args) > 2 else ()
    return Declared(default=default, choices=choices)


def _of_annotated(value: ast.expr | None, annotation: ast.expr | None) -> Declared:
    """Return what a field or parameter declares: its default, also inside `field(...)` or `typer.Option(...)`."""
    default = _constant(value)
    if isinstance(value, ast.Call):
        words = {word.arg: word.value for word in value.keywords}
        default = _constant(words.get("default", value.args[0] if value.args else None))
    is_literal = isinstance(annotation, ast.Subscript) and "Literal" in ast.dump(annotation.value)
    choices = _constants(annotation.slice) if is_literal and isinstance(annotation, ast.Subscript) else ()
    return Declared(default=default, choices=choices)


def _constant(node: ast.expr | None) -> int | float | str | None:
    """Return the number, text or boolean that a node is; None if it is none of these."""
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = None if node is None else ast.literal_eval(node)
        return value if isinstance(value, int | float | str) else None
    return None


def _constants(node: ast.expr | None) -> tuple[int | float | str, ...]:
    values = tuple(map(_constant, getattr(node, "elts", ())))
    return () if None in values else tuple(value for value in values if value is not None)


# ---- Hugging Face


def _hugging_face(program: Program) -> Options:
    """Return the fields of the dataclasses given to HfArgumentParser or TrlParser.

    These may include TrainingArguments, whose fields are read from the installed transformers.
    """
    words = [
        node for call in program.calls_of("HfArgumentParser", "TrlParser") for node in (*call.args, *call.keywords)
    ]
    names = [node.id for word in words for node in ast.walk(word) if isinstance(node, ast.Name)]
    actions, required, is_complete = dict[str, str](), list[str](), bool(names)
    floats = set[str]()
    for name in names:
        fields = list[_Field]()
        if name in program.classes:
            fields = list(_fields(program, program.classes[name], installed_arguments()))
        elif name in installed_arguments():
            fields = [(each, None, ast.Constant(None)) for each in installed_arguments()[name]]
        is_complete = is_complete and bool(fields)
        for each, annotation, default in fields:
            actions[each] = ""
            floats |= {each} if "float" in _kinds(annotation) else set()
            required += [] if default is not None else [f"--{each}"]
    return Options(actions=actions, required=tuple(required), is_complete=is_complete, floats=frozenset(floats))


@lru_cache(maxsize=1)
def installed_arguments() -> Mapping[str, tuple[str, ...]]:
    """Map the names TrainingArguments and Seq2SeqTrainingArguments to their fields in the installed transformers."""
    found = dict[str, tuple[str, ...]]()
    spec = importlib.util.find_spec("transformers")
    for module in ("training_args", "training_args_seq2seq"):
        with suppress(OSError, SyntaxError, AttributeError, TypeError, ValueError):
            tree = ast.parse((Path(str(spec and spec.origin)).parent / f"{module}.py").read_text(encoding="utf-8"))
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("TrainingArguments"):
                    inherited = [name for base in node.bases for name in found.get(_last_name(base), ())]
                    found[node.name] = (*inherited, *(name for name, _, _ in _own_fields(node)))
    return found


_OF_TRL = re.compile(r"^\s*from trl\b[^\n]* import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_TRAINED = re.compile(r"\b(?!ModelConfig\b|DatasetMixtureConfig\b)(\w+)Config\b")


def trl_uses_bf16(text: str) -> str:
    """Return the class of TRL in a script's text that trains in bf16 unless told otherwise; "" if there is none.

    The text of the installed TRL says which classes do: those of version 0.23 and newer.
    """
    spec = importlib.util.find_spec("trl")
    folder = Path(str(spec and spec.origin)).parent / "trainer"
    for name in (name for imported in _OF_TRL.findall(text) for name in _TRAINED.findall(imported)):
        for file in (folder / f"{name.lower()}_config.py", folder / "base_config.py"):
            with suppress(OSError):
                if "self.bf16 = not" in file.read_text(encoding="utf-8"):
                    return f"{name}Config"
    return ""


# ---- Hydra


def _hydra(program: Program) -> Options:
    """Return the keys of the configuration that `hydra.main` names.

    `is_complete` is False if code or other files may add keys.
    """
    mains = [node for node in program.calls_of("main") if "config_name" in _keywords(node)]
    if len(mains) != 1 or program.calls_of("ConfigStore", "instance"):
        return Options()
    texts = {item.arg: item.value.value for item in mains[0].keywords if isinstance(item.value, ast.Constant)}
    name, folder = str(texts.get("config_name")), texts.get("config_path")
    root = program.script.parent if folder is None else program.script.parent / str(folder)
    found = _HydraKeys(root)
    found.add_file(name, "")
    return Options(
        actions=dict.fromkeys(found.names, ""),
        is_complete=found.is_complete,
        declared={name: Declared(default=value) for name, value in found.defaults.items()},
        floats=frozenset(found.floats),
        files=tuple(found.files),
    )


class _HydraKeys:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.names: dict[str, None] = {}  # in the order of the files
        self.defaults: dict[str, int | float] = {}
        self.floats: set[str] = set()
        self.files: dict[Path, None] = {}
        self.is_complete = True

    def add_file(self, name: str, package: str) -> None:
        path = self._root / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        content: Any = None
        self.files[path] = None
        with suppress(BadInput, OSError, ValueError):
            text = read_text(path, LARGEST_SETTINGS)
            self.is_complete &= not re.match(r"\s*#\s*@package", text)
            content = _from_yaml(text)
        if not isinstance(content, dict):
            self.is_complete = False
            return
        for entry in content.get("defaults") or ():
            self._add_default(entry, name, package)
        self._add({key: value for key, value in content.items() if key != "defaults"}, package)

    def _add_default(self, entry: Any, name: str, package: str) -> None:
        if entry == "_self_":
            return
        if not isinstance(entry, dict) or len(entry) != 1 or "/" in name or package:
            self.is_complete = False  # nested lists of defaults, and renamed packages, are not read
            return
        ((group, option),) = entry.items()
        words = str(group).split()
        if "hydra/" in words[-1]:
            return
        if len(words) > 1 or "@" in words[-1] or not isinstance(option, str):
            self.is_complete = False
            return
        self.names[words[-1]] = None  # the choice itself: `model=large`
        self.add_file(f"{words[-1]}/{option}", words[-1].replace("/", "."))
        self.files[self._root / words[-1]] = None
        for path in sorted((self._root / words[-1]).glob("*.yaml")):  # the keys of the other choices
            self.add_file(f"{words[-1]}/{path.stem}", words[-1].replace("/", "."))

    def _add(self, value: Any, prefix: str) -> None:
        if len(self.names) > _MOST_KEYS:
            self.is_complete = False
        elif isinstance(value, dict):
            for key, inner in value.items():
                path = f"{prefix}.{key}" if prefix else str(key)
                self.names[path] = None
                self._add(inner, path)
                if isinstance(inner, int | float) and not isinstance(inner, bool):
                    self.defaults.setdefault(path, inner)
                    self.floats |= {path} if isinstance(inner, float) else set()


def _from_yaml(text: str) -> Any:
    """Return the content of a YAML document: {} if it is empty, None if it is not valid."""
    import yaml  # type: ignore[import-untyped]  # only for Hydra scripts

    try:
        return yaml.safe_load(text) or {}
    except (ValueError, yaml.YAMLError, RecursionError):
        return None


# ---- help


_MARGIN = re.compile(r"^[\s│|*]*")
_OPTION_OF_HELP = re.compile(r"--(\[no-?\])?([A-Za-z][\w.-]*)")
_VALUE_OF_HELP = re.compile(
    r"(?:\s+-\w\b)*(?:[ =]|\s{2,})(?:\[?<(?!bool>)[^>]+>|\{[^}]*\}|\[\w[\w.-]*\||[A-Z][A-Z_]+(?=\s{2}|\s*$))"
)
_BETWEEN_NAMES = re.compile(r"[\s,/|]*(?:-\w)?[\s,/|]*(?:[^\s-][^\s]*)?[\s,/|]*")


def options_in_help(text: str) -> Options:
    """Read options from help text of argparse, Click, Typer, tyro, absl, fire or docopt.

    An option takes a value if a word stands between its name and the description or, as in absl's help, a colon follows
    its name. `is_complete` is True if the text was not written by fire and names at least one option besides those that
    every program has, such as --help.
    """
    actions, required = dict[str, str](), list[str]()
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        in_box = line.lstrip().startswith(("│", "|"))
        margin = _MARGIN.match(line)
        body = line[margin.end() if margin else 0 :].rstrip(" │|")
        if not re.match(r"--?[\w\[]", body) or body.startswith("---"):
            continue
        head = body if in_box else re.split(r"\s{2,}", body, maxsplit=1)[0]
        names, last = list[str](), 0
        for match in _OPTION_OF_HELP.finditer(head):
            if names and not _BETWEEN_NAMES.fullmatch(head, last, match.start()):
                break  # the description mentions another option
            names.append(match[2])
            last = match.end()
            if match[1]:
                names.append(match[1].strip("[]") + match[2])
        if not names:
            continue
        rest = head[last:]
        takes_value = _VALUE_OF_HELP.match(rest) if in_box else re.match(r"\[?[ =]\S|:", rest)
        is_switch = not takes_value or "--[no" in head
        is_pair = len(names) == 2 and "/" in head[:last]
        actions |= _of_help(names, is_switch=is_switch, is_pair=is_pair)
        if "*" in (margin[0] if margin else "") or "[required]" in body:
            required.append(f"--{names[0]}")
    actions.pop("help", None)
    own = {name: action for name, action in actions.items() if name not in _OF_EVERY_HELP}
    is_complete = bool(own) and not re.search(r"^SYNOPSIS$", text, re.MULTILINE)  # fire also lists options elsewhere
    return Options(
        actions=own,
        required=tuple(required),
        is_complete=is_complete,
        commands=_commands_in_help(text),
        trailing=_trailing_in_help(text),
    )


def _trailing_in_help(text: str) -> str:
    """Return the last positional argument in argparse's usage if it takes any number of words; "" otherwise."""
    usage = re.split(r"\n\s*\n", text.partition("usage: ")[2], maxsplit=1)[0].rstrip()
    if not (last := re.search(r"\s(?:\[([\w-]+) \.\.\.\]|\.\.\.)$", usage)):
        return ""
    section = text.partition("positional arguments:")[2].partition("\n\n")[0]
    listed = re.findall(r"^  ([A-Za-z]\w*)", section, re.MULTILINE)
    return last[1] or next(reversed(listed), "")  # usage shows nargs="..." without its name


def _commands_in_help(text: str) -> tuple[str, ...]:
    """Return the subcommands that the help text of Click, Typer or fire lists."""
    names, is_list, indent = list[str](), False, 0
    for line in text.splitlines():
        body = line.lstrip(" │")
        depth = len(line) - len(body)
        if _HEAD_OF_COMMANDS.match(line.strip("╭─╮ ")):
            is_list, indent = True, 0
        elif is_list and body and not depth:
            is_list = False
        elif is_list and (word := re.match(r"[a-z][\w-]*", body)) and depth == (indent or depth):
            indent = depth
            names.append(word[0])
    return tuple(dict.fromkeys(names))


_HEAD_OF_COMMANDS = re.compile(r"Commands:?$|COMMANDS?$")


_OF_EVERY_HELP = {"install-completion", "show-completion", "helpfull", "helpshort", "helpxml"}


def _of_help(names: list[str], *, is_switch: bool, is_pair: bool) -> dict[str, str]:
    """Return the actions of the option names in one line of help text."""
    actions = dict.fromkeys(names, SWITCH if is_switch else "")
    for name in names if is_switch else ():
        path, dot, last = name.rpartition(".")
        others = [f"{path}{dot}{off}{last}" for off in ("no-", "no_", "no")] + names[1:] * (
            is_pair and name == names[0]
        )
        if off := next((other for other in others if other in actions and other != name), None):
            actions |= {name: f"{OFF}{off}", off: f"{OFF}{name}"}
    return actions


# ---- syntax


def _last_name(node: ast.AST | None) -> str:
    """Return `c` for `a.b.c` and for `c`; empty for anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _texts(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _keywords(call: ast.Call) -> dict[str, str]:
    return {item.arg: ast.unparse(item.value) for item in call.keywords if item.arg}


def _unwrapped(annotation: ast.expr | None) -> tuple[ast.expr | None, list[ast.expr]]:
    """Return the type of an annotation, and the metadata if it is an Annotated."""
    if isinstance(annotation, ast.Subscript) and _last_name(annotation.value) == "Annotated":
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return parts[0], parts[1:]
    return annotation, []


def _kinds(annotation: ast.expr | None) -> Collection[str]:
    """Return the names of the types in `A | B` or `Optional[A]`, or the name of a single type."""
    if isinstance(annotation, ast.BinOp):
        return {*_kinds(annotation.left), *_kinds(annotation.right)}
    if isinstance(annotation, ast.Subscript) and _last_name(annotation.value) == "Optional":
        return _kinds(annotation.slice)
    return {_last_name(annotation)}


def _parameters(function: _Function) -> Iterator[_Field]:
    arguments = function.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(by_place) - len(arguments.defaults))
    defaults += arguments.defaults
    pairs = [*zip(by_place, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    yield from ((each.arg, each.annotation, default) for each, default in pairs if each.arg not in ("self", "cls"))


def _own_fields(each: ast.ClassDef) -> Iterator[_Field]:
    for item in each.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if (
                _last_name(item.annotation) in {"ClassVar", "KW_ONLY"}
                or _last_name(getattr(item.annotation, "value", None)) == "ClassVar"
            ):
                continue
            keywords = _keywords(item.value) if isinstance(item.value, ast.Call) else {}
            if keywords.get("init") == "False":
                continue
            is_field = isinstance(item.value, ast.Call) and "field" in _last_name(item.value.func).lower()
            has_default = not is_field or bool({"default", "default_factory"} & keywords.keys() or item.value.args)  # type: ignore[union-attr]
            yield item.target.id, item.annotation, item.value if has_default else None


def _fields(
    program: Program, each: ast.ClassDef, known: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[_Field]:
    """Yield the fields of a dataclass and of those of its bases that the program defines or `known` lists."""
    for base in each.bases:
        name = _last_name(base)
        if name in program.classes and program.classes[name] is not each:
            yield from _fields(program, program.classes[name], known)
        yield from ((inner, None, ast.Constant(None)) for inner in (known or {}).get(name, ()))
    yield from _own_fields(each)


def _is_enum(each: ast.ClassDef) -> bool:
    return any("Enum" in _last_name(base) for base in each.bases)


def _enums(program: Program) -> list[ast.ClassDef]:
    return [each for each in program.classes.values() if _is_enum(each)]


_READERS = {"hugging face": _hugging_face, "hydra": _hydra}
