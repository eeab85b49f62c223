"""What a program accepts on its command line, read from its syntax tree or from the text of its `--help`.

Nothing is imported or run here. The arguments of argparse, Hugging Face's parsers and Hydra are read from the program's
text, because that needs no consent. For all other libraries, the program's own `--help` answers (`accepted_by_help`).
"""

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SETTINGS, read_text

PARSERS = {
    "hugging face": r"\b(?:HfArgumentParser|TrlParser)\b",
    "hydra": r"^\s*(?:import|from) hydra\b",
    "omegaconf": r"\bOmegaConf\.from_cli\b",
    "typer": r"\btyper\.run\(|\bTyper\(",
    "click": r"^\s*(?:import|from) click\b",
    "fire": r"\bFire\(",
    "absl": r"\bDEFINE_\w+\(",
    "tyro": r"\btyro\.(?:cli|extras)\b|^\s*from tyro\b",
    "jsonargparse": r"^\s*(?:import|from) jsonargparse\b|\bLightningCLI\b",
    "simple-parsing": r"^\s*(?:import|from) simple_parsing\b",
    "docopt": r"\bdocopt\(",
    "argparse": r"\.add_argument\(",
}
"""Command-line parsers, each with a pattern that reveals it in a script's text. The first match counts."""
ASKED = {
    "click": "Click",
    "typer": "Typer",
    "fire": "fire",
    "absl": "absl",
    "tyro": "tyro",
    "docopt": "docopt",
    "jsonargparse": "jsonargparse",
    "simple-parsing": "simple-parsing",
}
"""Parsers whose options only `--help` shows, with their names. Those of the others are read from the text."""
SEVERAL, REPEATED = "several", "repeated"  # the values of a list follow the option, or the option precedes each value
_SPLITS_WORDS = re.compile(r"\.(?:r?split|partition)\(\s*['\"]=['\"]")  # a parser of the script's own: --name=value
_OPENED = re.compile(r"open\(\s*['\"]([\w./-]+\.py)['\"]")
_MAY_PARSE = re.compile(r"\bargv\b|[Pp]arse|\bget_args\b")  # reveals that a script may parse arguments in its own way
_PLACES = re.compile(r"\bargv\[\d+\]")
_ELSEWHERE = re.compile(r"\bexec\(\s*(?:compile\(\s*)?open\(|\brunpy\.run_")
_FIT = re.compile(r"\bLightningCLI\((?![^)]*\b(?:run=False|args=))")
_MAY_ADD_OPTIONS = re.compile(r"(?:^|_)(?:args?|arguments?|options?|flags?)(?:_|$)")
"""Reveals a function that adds options to a parser, such as DeepSpeed's `add_config_arguments(parser)`."""
_MOST_KEYS = 5_000  # keys of Hydra's YAML files that are read

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Field = tuple[str, ast.expr | None, ast.expr | None]
"""Name, annotation and default of a parameter or a field."""
Plain = int | float | str


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a program: an option such as `--lr`, a positional argument, or a key of a configuration.

    Attributes:
        names: its spellings as in the program, without leading dashes.
        type: name of the function that reads it, such as int, float or bool; "" if unknown.
        default: a number, text or boolean; None if it is not shown, or is None.
        choices: the only values that it takes; empty if it takes any or if they are not shown.
        switch: the value that its name alone sets; None if a value follows its name.
        off: the name that turns a switch off; "" if it has none.
        many: SEVERAL or REPEATED if it takes a list; else "".
        is_required: whether the program does not run without it.
        is_positional: whether it is given by its place, without its name.
        commands: the subcommands after which it must stand; empty if it stands before them, or if there are none.
    """

    names: tuple[str, ...]
    type: str = ""
    default: Plain | None = None
    choices: tuple[Plain, ...] = ()
    switch: bool | None = None
    off: str = ""
    many: str = ""
    is_required: bool = False
    is_positional: bool = False
    commands: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its longest spelling, which says most."""
        return max(self.names, key=len)

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names by which it is given, also the one that turns it off."""
        return (*self.names, self.off) if self.off else self.names

    @property
    def is_float(self) -> bool:
        """Whether its type or its default is a float."""
        return self.type == "float" or isinstance(self.default, float)

    def spelled(self, name: str) -> str | None:
        """Return its spelling that is `name` with - or _; None if it has none."""
        plain = name.replace("-", "_")
        return next((spelling for spelling in self.spellings if spelling.replace("-", "_") == plain), None)


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The command line that a program accepts.

    Attributes:
        parser: a key of `PARSERS`; `own` for code of its own that reads --name=value; `places` for sys.argv[1] and so
            on; `elsewhere` if another file that it runs may read arguments; `none` if it takes no arguments; `unknown`
            if it may take some.
        arguments: its arguments, in the order of the text.
        is_complete: whether there are no others.
        declares_all: whether there are no others, except those that a library may add to its parser.
        commands: its subcommands, such as `fit` of LightningCLI: one of them precedes its own options.
        needs_command: whether it does not run without one of them.
        opens: files next to it that it runs by names which are relative to the current folder.
        read_from: other files, and folders, that this was read from.
    """

    parser: str
    arguments: tuple[Argument, ...] = ()
    is_complete: bool = False
    declares_all: bool = False
    commands: tuple[str, ...] = ()
    needs_command: bool = False
    opens: tuple[str, ...] = ()
    read_from: tuple[Path, ...] = ()

    @property
    def names(self) -> list[str]:
        """All spellings of its options, also those that turn a switch off."""
        return [name for each in self.arguments if not each.is_positional for name in each.spellings]

    @property
    def trailing(self) -> str:
        """The positional argument that takes any number of words after the options; "" if none does."""
        return next((each.name for each in self.arguments if each.is_positional and each.many), "")

    @property
    def has_hugging_face_parser(self) -> bool:
        """Whether it reads its options with Hugging Face's HfArgumentParser or TrlParser."""
        return self.parser == "hugging face"

    @property
    def reads_anything(self) -> bool:
        """Whether it may take arguments that its source does not name."""
        return self.parser in ("hugging face", "unknown") or (self.parser == "argparse" and not self.names)

    def find(self, name: str) -> Argument | None:
        """Return the option with a name, in which - and _ are equal, or None if none is declared."""
        return next((each for each in self.arguments if not each.is_positional and each.spelled(name)), None)

    def argument(self, name: str) -> str | None:
        """Return an option's name as the program spells it, with - or _, or None if none is declared."""
        found = self.find(name)
        return None if found is None else found.spelled(name)


class Program:
    """The syntax trees of a script and the modules next to it."""

    def __init__(self, script: Path, trees: Mapping[Path, ast.Module]) -> None:
        self.script, self.trees = script, trees
        of_files = {file: list(ast.walk(tree)) for file, tree in trees.items()}
        self.nodes = [node for nodes in of_files.values() for node in nodes]
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.of_packages = {
            id(node) for file, nodes in of_files.items() if file.parent != script.parent for node in nodes
        }
        self.functions, self.classes = dict[str, _Function](), dict[str, ast.ClassDef]()
        at_top = [node for tree in trees.values() for node in tree.body]
        for node in (*at_top, *self.nodes):  # the top level before methods, and the script before its modules
            if isinstance(node, _Function):
                self.functions.setdefault(node.name, node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, node)

    @property
    def main(self) -> ast.Module:
        """The tree of the script itself; empty if Python cannot read it."""
        return self.trees.get(self.script, ast.Module(body=[], type_ignores=[]))

    def calls_of(self, *names: str) -> list[ast.Call]:
        """Return the calls of functions or methods that have one of these names."""
        return [call for call in self.calls if last_name(call.func) in names]


def accepted(program: Program, texts: Mapping[Path, str]) -> Accepted:
    """Return what a program accepts. `texts` has the text of the script and of each module."""
    text, main, path = "\n".join(texts.values()), texts.get(program.script, ""), program.script
    parser = _parser_of(path, text, main) if texts else "unknown"
    read = {"hugging face": _hugging_face, "hydra": _hydra}.get(parser, lambda _: Accepted(parser=parser))(program)
    added = [call for call in program.calls if getattr(call.func, "attr", "") == "add_argument"]
    arguments = {argument.names: argument for argument in _of_calls(program, added)}
    shown = declarations(program.main)
    if parser == "places":
        arguments |= {(name,): Argument(names=(name,), is_positional=True) for name in _places(program)}
    known = tuple(completed(each, shown) for each in (*arguments.values(), *read.arguments))
    is_named = all(isinstance(word, ast.Constant) for call in added for word in call.args)
    commands = ("fit",) if _FIT.search(main) else tuple(dict.fromkeys(_commands(program, parser)))
    is_argparse = parser == "argparse" and any(not each.is_positional for each in known)
    declares_all = parser in ("places", "none") or ((read.is_complete or is_argparse) and is_named)
    return replace(
        read,
        arguments=known,
        is_complete=declares_all and not (added and _may_be_extended(program, added)),
        declares_all=declares_all,
        commands=commands,
        needs_command=bool(commands) and _needs_command(program, parser),
        opens=tuple(opened(path, main)) if _ELSEWHERE.search(main) else (),
    )


def _parser_of(path: Path, text: str, main: str) -> str:
    if parser := next((name for name, trace in PARSERS.items() if re.search(trace, text, re.MULTILINE)), ""):
        return parser
    others = [(path.parent / name).read_text(errors="replace") for name in opened(path, main)]
    if "argv" in text + "".join(others) and _SPLITS_WORDS.search("\n".join([text, *others])):
        return "own"
    if _ELSEWHERE.search(main):
        return "elsewhere"
    if _PLACES.search(main):
        return "places"
    return "unknown" if _MAY_PARSE.search(text) else "none"


def opened(path: Path, main: str) -> Iterator[str]:
    """Yield the names of Python files next to a script that its text opens."""
    yield from (name for name in _OPENED.findall(main) if (path.parent / name).is_file())


def _places(program: Program) -> Iterator[str]:
    """Yield the names of the variables that the script sets from sys.argv[1], sys.argv[2] and so on, in this order."""
    found = dict[int, str]()
    for node in program.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Subscript) and last_name(inner.value) == "argv":
                    place = getattr(inner.slice, "value", None)
                    if isinstance(place, int) and place > 0:
                        found.setdefault(place, node.targets[0].id)
    if sorted(found) == list(range(1, len(found) + 1)):
        yield from (found[place] for place in sorted(found))


def _needs_command(program: Program, parser: str) -> bool:
    """Return whether a program with subcommands does not run without one of them."""
    if parser == "argparse":
        return any(_keywords(call).get("required") == "True" for call in program.calls_of("add_subparsers"))
    return not any("invoke_without_command" in _keywords(call) for call in program.calls)


def _commands(program: Program, parser: str) -> Iterator[str]:
    """Yield the subcommands that a program of argparse, Click, Typer or fire declares."""
    for call in sorted(program.calls_of("add_parser"), key=lambda call: call.lineno):
        yield from _texts(call.args[:1])
    if parser in ("click", "typer"):
        names = list(_decorated(program))
        is_alone = parser == "typer" and len(names) == 1 and not program.calls_of("callback")
        yield from () if is_alone else names  # Typer runs its only command without its name
    for call in program.calls_of("Fire"):
        yield from (text for word in call.args[:1] if isinstance(word, ast.Dict) for text in _texts(word.keys))
        if not (call.args or call.keywords):
            yield from (node.name for node in program.main.body if isinstance(node, ast.FunctionDef))


def _decorated(program: Program) -> Iterator[str]:
    """Yield the names of functions that are commands of a Click group or of a Typer app: `@app.command()`."""
    for function in (node for node in program.nodes if isinstance(node, _Function)):
        for each in function.decorator_list:
            made = each.func if isinstance(each, ast.Call) else each
            if last_name(made) == "command" and last_name(getattr(made, "value", None)) not in ("", "click", "typer"):
                named = (
                    [*each.args[:1], *(item.value for item in each.keywords if item.arg == "name")]
                    if isinstance(each, ast.Call)
                    else []
                )
                yield next(iter(_texts(named)), function.name.replace("_", "-"))
    for call in program.calls_of("add_command"):
        yield next(iter(_texts(call.args[1:2])), last_name(call.args[0] if call.args else None).replace("_", "-"))


def _may_be_extended(program: Program, added: Iterable[ast.Call]) -> bool:
    """Return whether a library may add options to a parser, because it gets the parser or makes one of its `parents`.

    `added` has the calls of `add_argument`.
    """
    own = {node.name for node in program.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    parsers = {last_name(getattr(call.func, "value", None)) for call in added} - {""}
    for call in program.calls:
        words, name = [*call.args, *(item.value for item in call.keywords)], last_name(call.func)
        if _MAY_ADD_OPTIONS.search(name) and name not in own and not parsers.isdisjoint(map(last_name, words)):
            return True
        parents = [each for item in call.keywords if item.arg == "parents" for each in getattr(item.value, "elts", ())]
        if any(isinstance(each, ast.Call) and last_name(each.func) not in own for each in parents):
            return True
    return False


# ---- argparse


_WITHOUT_VALUE = {"count", "store_const", "append_const"}  # actions of argparse
_MOST_GROUPS = 5  # levels of groups of arguments that are followed to their parser
_NARGS = {"OPTIONAL": "?", "ZERO_OR_MORE": "*", "ONE_OR_MORE": "+", "REMAINDER": "..."}  # constants of argparse


def _of_calls(program: Program, added: Iterable[ast.Call]) -> Iterator[Argument]:
    """Yield the argument of each call of `add_argument` that names one.

    What a module in a folder below the script's declares is not required: it may be for another program.
    """
    found, commands = dict[tuple[str, ...], Argument](), _Subcommands(program)
    for call in added:
        if (argument := argument_of(call)) is None:
            continue
        is_needed = argument.is_required and id(call) not in program.of_packages
        own = commands.of(call)
        if argument.names in found:  # several subcommands have it
            before = found[argument.names].commands
            own = tuple(dict.fromkeys((*before, *own))) if before and own else ()
        found[argument.names] = replace(argument, is_required=is_needed, commands=own)
    yield from found.values()


def argument_of(call: ast.Call) -> Argument | None:
    """Return the argument that a call of `add_argument` declares; None if the call shows no long name of it."""
    words, keys = _texts(call.args), {item.arg: item.value for item in call.keywords}
    texts = {name: ast.unparse(value) for name, value in keys.items()}
    nargs = texts.get("nargs", "").strip("'\"")
    nargs = _NARGS.get(nargs.rpartition(".")[2], nargs)
    default, choices = _constant(keys.get("default")), _constants(keys.get("choices"))
    kind = last_name(keys.get("type"))
    names = tuple(word[2:] for word in words if word.startswith("--"))
    if words and not words[0].startswith("-"):
        many, is_needed = SEVERAL if nargs in ("*", "+", "...") else "", nargs not in ("?", "*", "...")
        # argparse ignores the default of a positional argument that it needs.
        return Argument(
            names=(words[0],), type=kind, choices=choices, many=many, is_required=is_needed, is_positional=True
        )
    if not names:
        return None
    action, plain = texts.get("action", "").strip("'\"").rpartition(".")[2], names[0].replace("-", "_")
    switch = {"store_true": True, "store_false": False, "BooleanOptionalAction": True}.get(action)
    if action == "store_false" and texts.get("dest", f"'{plain}'") != f"'{plain}'":
        switch = True  # --no-shuffle with dest="shuffle": `no-shuffle` is true if it is passed
    many = REPEATED if action == "append" else ""
    if not many and (action == "extend" or "nargs" in texts) and nargs != "?":
        many = SEVERAL
    return Argument(
        names=names,
        type=kind,
        default=default,
        choices=choices,
        switch=True if action in _WITHOUT_VALUE else switch,
        off=f"no-{names[0]}" if action == "BooleanOptionalAction" else "",
        many=many,
        is_required=texts.get("required") == "True",
    )


class _Subcommands:
    """The subcommands of a program with argparse, and which arguments stand after them."""

    def __init__(self, program: Program) -> None:
        parsers = program.calls_of("add_parser")
        self.names = tuple(dict.fromkeys(word for call in parsers for word in _texts(call.args[:1])))
        self._made = [  # the variables of all calls' results
            (last_name(node.targets[0]), node.value)
            for node in (program.nodes if parsers else ())
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        ]
        self._children = dict[str, list[str]]()  # by the name of a parser in `parents` of subcommands
        for call in parsers:
            for item in call.keywords:
                for parent in getattr(item.value, "elts", ()) if item.arg == "parents" else ():
                    self._children.setdefault(last_name(parent), []).extend(_texts(call.args[:1]))

    def of(self, call: ast.Call) -> tuple[str, ...]:
        """Return the subcommands after which the argument of a call of `add_argument` stands; none if before them.

        If the text does not show it, as for a parser that a function gets, these are all subcommands.
        """
        owner = getattr(call.func, "value", None)
        for _ in range(_MOST_GROUPS if self.names else 0):
            made = owner if isinstance(owner, ast.Call) else self._parser_of(owner, call.lineno)
            if made is None:
                return self.names
            kind = last_name(made.func)
            if kind == "add_parser":
                return tuple(_texts(made.args[:1]))
            if kind not in ("add_argument_group", "add_mutually_exclusive_group"):
                return tuple(self._children.get(last_name(owner), ()))
            owner = getattr(made.func, "value", None)
        return ()

    def _parser_of(self, owner: ast.expr | None, line: int) -> ast.Call | None:
        """Return the call whose result a variable has in a line; it may name one parser after the other."""
        name = last_name(owner)
        return next((made for variable, made in reversed(self._made) if variable == name and made.lineno <= line), None)


# ---- defaults and choices of other libraries


def declarations(tree: ast.Module) -> dict[str, tuple[Plain | None, tuple[Plain, ...]]]:
    """Return the default and the choices of the arguments that a module declares, by name with underscores.

    An argument is declared by a call, such as Click's, by an annotated field of a class, or by a parameter of a
    function. A call counts before the others, because a helper function may have a parameter of the same name.
    Arguments without a known default or choices are left out.
    """
    found = dict[str, tuple[Plain | None, tuple[Plain, ...]]]()
    for node in sorted(ast.walk(tree), key=lambda node: not isinstance(node, ast.Call)):
        for name, default, choices in _declared_by(node):
            if default is not None or choices:
                found.setdefault(name.replace("-", "_"), (default, choices))
    return found


def completed(argument: Argument, shown: Mapping[str, tuple[Plain | None, tuple[Plain, ...]]]) -> Argument:
    """Return an argument with the default and the choices of another declaration if its own shows none."""
    if argument.default is not None or argument.choices or argument.is_positional:
        return argument
    default, choices = next((shown[name] for name in map(_plain, argument.names) if name in shown), (None, ()))
    return replace(argument, default=default, choices=choices)


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _declared_by(node: ast.AST) -> Iterator[tuple[str, Plain | None, tuple[Plain, ...]]]:
    if isinstance(node, ast.Call):
        yield from ((word.lstrip("-"), *_of_call(node)) for word in _texts(node.args))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, *_of_annotated(node.value, node.annotation)
    elif isinstance(node, _Function):
        yield from ((name, *_of_annotated(default, kind)) for name, kind, default in _parameters(node))


def _of_call(call: ast.Call) -> tuple[Plain | None, tuple[Plain, ...]]:
    """Return the default and the choices that a call declares."""
    words = {word.arg: word.value for word in call.keywords}
    default, choices = _constant(words.get("default")), _constants(words.get("choices"))
    if isinstance(kind := words.get("type"), ast.Call):  # click.Choice([...])
        choices = choices or _constants(kind.args[0] if kind.args else None)
    if last_name(call.func).startswith("DEFINE_") and len(call.args) > 1:
        default = _constant(call.args[1])  # absl
        choices = _constants(call.args[2]) if len(call.args) > 2 else ()
    return default, choices


def _of_annotated(value: ast.expr | None, annotation: ast.expr | None) -> tuple[Plain | None, tuple[Plain, ...]]:
    """Return the default and choices of a field or parameter, also inside `field(...)` or `typer.Option(...)`."""
    default = _constant(value)
    if isinstance(value, ast.Call):
        words = {word.arg: word.value for word in value.keywords}
        default = _constant(words.get("default", value.args[0] if value.args else None))
    is_literal = isinstance(annotation, ast.Subscript) and "Literal" in ast.dump(annotation.value)
    choices = _constants(annotation.slice) if is_literal and isinstance(annotation, ast.Subscript) else ()
    return default, choices


def _constant(node: ast.expr | None) -> Plain | None:
    """Return the number, text or boolean that a node is; None if it is none of these."""
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = None if node is None else ast.literal_eval(node)
        return value if isinstance(value, int | float | str) else None
    return None


def _constants(node: ast.expr | None) -> tuple[Plain, ...]:
    values = tuple(map(_constant, getattr(node, "elts", ())))
    return () if None in values else tuple(value for value in values if value is not None)


# ---- Hugging Face


def _hugging_face(program: Program) -> Accepted:
    """Return the fields of the dataclasses given to HfArgumentParser or TrlParser.

    These may include TrainingArguments, whose fields are read from the installed transformers.
    """
    calls = program.calls_of("HfArgumentParser", "TrlParser")
    words = [node for call in calls for node in (*call.args, *call.keywords)]
    names = [node.id for word in words for node in ast.walk(word) if isinstance(node, ast.Name)]
    arguments, is_complete = list[Argument](), bool(names)
    for name in names:
        fields = list[_Field]()
        if name in program.classes:
            fields = list(_fields(program, program.classes[name], installed_arguments()))
        elif name in installed_arguments():
            fields = [(each, None, ast.Constant(None)) for each in installed_arguments()[name]]
        is_complete = is_complete and bool(fields)
        for each, annotation, value in fields:
            kinds, (default, choices) = _kinds(annotation) - {"None"}, _of_annotated(value, annotation)
            kind = next(iter(kinds)) if kinds in ({"int"}, {"float"}) else ""
            arguments.append(
                Argument(names=(each,), type=kind, default=default, choices=choices, is_required=value is None)
            )
    return Accepted(parser="hugging face", arguments=tuple(arguments), is_complete=is_complete)


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
                    inherited = [name for base in node.bases for name in found.get(last_name(base), ())]
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


def _hydra(program: Program) -> Accepted:
    """Return the keys of the configuration that `hydra.main` names.

    `is_complete` is False if code or other files may add keys.
    """
    mains = [node for node in program.calls_of("main") if "config_name" in _keywords(node)]
    if len(mains) != 1 or program.calls_of("ConfigStore", "instance"):
        return Accepted(parser="hydra")
    texts = {item.arg: item.value.value for item in mains[0].keywords if isinstance(item.value, ast.Constant)}
    name, folder = str(texts.get("config_name")), texts.get("config_path")
    root = program.script.parent if folder is None else program.script.parent / str(folder)
    found = _HydraKeys(root)
    found.add_file(name, "")
    return Accepted(
        parser="hydra",
        arguments=tuple(Argument(names=(key,), default=value) for key, value in found.defaults.items()),
        is_complete=found.is_complete,
        read_from=tuple(found.files),
    )


class _HydraKeys:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.defaults: dict[str, int | float | None] = {}  # of each key, in the order of the files, if it is a number
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
        self.defaults.setdefault(words[-1], None)  # the choice itself: `model=large`
        self.add_file(f"{words[-1]}/{option}", words[-1].replace("/", "."))
        self.files[self._root / words[-1]] = None
        for path in sorted((self._root / words[-1]).glob("*.yaml")):  # the keys of the other choices
            self.add_file(f"{words[-1]}/{path.stem}", words[-1].replace("/", "."))

    def _add(self, value: Any, prefix: str) -> None:
        if len(self.defaults) > _MOST_KEYS:
            self.is_complete = False
        elif isinstance(value, dict):
            for key, inner in value.items():
                path = f"{prefix}.{key}" if prefix else str(key)
                is_number = isinstance(inner, int | float) and not isinstance(inner, bool)
                if self.defaults.get(path) is None:
                    self.defaults[path] = inner if is_number else None
                self._add(inner, path)


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
_DEFAULT_IN_HELP = re.compile(
    r"[(\[](?:type: (?P<type>[\w.]+), )?default:? (?P<value>[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)[)\],]", re.IGNORECASE
)
"""A number as a default, as argparse, Click, Typer, tyro and jsonargparse write it."""
_BETWEEN_NAMES = re.compile(r"[\s,/|]*(?:-\w)?[\s,/|]*(?:[^\s-][^\s]*)?[\s,/|]*")


def accepted_by_help(text: str, parser: str = "") -> Accepted:
    """Read options from help text of argparse, Click, Typer, tyro, absl, fire or docopt.

    An option takes a value if a word stands between its name and the description or, as in absl's help, a colon follows
    its name. `is_complete` is True if the text was not written by fire and names at least one option besides those that
    every program has, such as --help.
    """
    arguments, last_name = dict[str, Argument](), ""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        in_box = line.lstrip().startswith(("│", "|"))
        margin = _MARGIN.match(line)
        body = line[margin.end() if margin else 0 :].rstrip(" │|")
        if not re.match(r"--?[\w\[]", body) or body.startswith("---"):
            if (known := arguments.get(last_name)) is not None:  # the description may go on in the next line
                arguments[last_name] = _with_default(known, body)
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
        off = _off_of(names, is_pair=is_pair) if is_switch else ""
        argument = Argument(
            names=tuple(name for name in names if name != off),
            switch=True if is_switch else None,
            off=off,
            is_required="*" in (margin[0] if margin else "") or "[required]" in body,
        )
        if not _OF_EVERY_HELP & {*names}:
            last_name = names[0]
            arguments.setdefault(last_name, _with_default(argument, body))
    is_complete = bool(arguments) and not re.search(r"^SYNOPSIS$", text, re.MULTILINE)  # fire lists others elsewhere
    trailing = _trailing_in_help(text)
    by_place = [Argument(names=(trailing,), many=SEVERAL, is_positional=True)] if trailing else []
    return Accepted(
        parser=parser,
        arguments=(*arguments.values(), *by_place),
        is_complete=is_complete,
        declares_all=is_complete,
        commands=(commands := _commands_in_help(text)),
        needs_command=bool(commands),
    )


def _with_default(argument: Argument, description: str) -> Argument:
    """Return an argument with the number that its description names as its default, if it has none yet."""
    found = _DEFAULT_IN_HELP.search(description)
    if found is None or argument.default is not None or argument.switch is not None:
        return argument
    is_whole = re.fullmatch(r"[-+]?\d+", found["value"]) and found["type"] != "float"
    return replace(argument, default=int(found["value"]) if is_whole else float(found["value"]))


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


_OF_EVERY_HELP = {"help", "install-completion", "show-completion", "helpfull", "helpshort", "helpxml"}


def _off_of(names: Sequence[str], *, is_pair: bool) -> str:
    """Return the name among those in one line of help that turns the others off; "" if there is none."""
    for name in names:
        path, dot, last = name.rpartition(".")
        others = [f"{path}{dot}{off}{last}" for off in ("no-", "no_", "no")]
        if off := next((other for other in others if other in names and other != name), ""):
            return off
    return names[1] if is_pair else ""


# ---- syntax


def last_name(node: ast.AST | None) -> str:
    """Return `c` for `a.b.c` and for `c`; empty for anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _texts(nodes: Iterable[ast.AST | None]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _keywords(call: ast.Call) -> dict[str, str]:
    return {item.arg: ast.unparse(item.value) for item in call.keywords if item.arg}


def _kinds(annotation: ast.expr | None) -> set[str]:
    """Return the names of the types in `A | B` or `Optional[A]`, or the name of a single type."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return {"None"}
    if isinstance(annotation, ast.BinOp):
        return _kinds(annotation.left) | _kinds(annotation.right)
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Optional":
        return _kinds(annotation.slice)
    return {last_name(annotation)}


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
                last_name(item.annotation) in {"ClassVar", "KW_ONLY"}
                or last_name(getattr(item.annotation, "value", None)) == "ClassVar"
            ):
                continue
            keywords = _keywords(item.value) if isinstance(item.value, ast.Call) else {}
            if keywords.get("init") == "False":
                continue
            is_field = isinstance(item.value, ast.Call) and "field" in last_name(item.value.func).lower()
            has_default = not is_field or bool({"default", "default_factory"} & keywords.keys() or item.value.args)  # type: ignore[union-attr]
            yield item.target.id, item.annotation, item.value if has_default else None


def _fields(
    program: Program, each: ast.ClassDef, known: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[_Field]:
    """Yield the fields of a dataclass and of those of its bases that the program defines or `known` lists."""
    for base in each.bases:
        name = last_name(base)
        if name in program.classes and program.classes[name] is not each:
            yield from _fields(program, program.classes[name], known)
        yield from ((inner, None, ast.Constant(None)) for inner in (known or {}).get(name, ()))
    yield from _own_fields(each)
