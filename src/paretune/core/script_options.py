"""The options of a user's Python program, read from its syntax tree or from the text of its `--help`.

Nothing is imported or run here. Each library spells names and switches in its own way:

    argparse, HfArgumentParser, simple-parsing    --learning_rate, as declared
    Click, Typer, tyro                            --learning-rate; switches --fast and --no-fast
    fire, jsonargparse                            the parameters of a function, with values for switches
    absl                                          --learning_rate; switches --fast and --nofast
    Hydra                                         keys of its YAML files: optimizer.lr
"""

import ast
import importlib.util
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
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
LITERAL = "literal"
"""Action of an option of fire, which reads True and False as Python writes them."""

OF_LIGHTNING = "trainer"
"""The option of LightningCLI whose nested options, such as `trainer.max_epochs`, are not listed."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPEST = 5  # levels of nested dataclasses that are read
_MOST_KEYS = 5_000  # keys of Hydra's YAML files that are read


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a command line."""

    actions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Maps the name of each option, without leading dashes, to its action: "" if it takes a value, OFF and a
    name, SWITCH, SWITCHED_OFF, TEXT_OF_BOOL, LITERAL, SEVERAL or REPEATED."""
    required: tuple[str, ...] = ()  # required arguments: options with leading --, positional arguments without
    is_complete: bool = False  # whether the program accepts no other options
    commands: tuple[str, ...] = ()  # one of these words must precede the options


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


# ---- Click and Typer


def _click(program: Program) -> Options:
    actions, required, is_complete = dict[str, str](), list[str](), True
    for call in program.calls_of("option", "Option"):
        names, keywords = _texts(call.args), _keywords(call)
        if not names:
            is_complete = is_complete and not call.args  # the name is computed
            continue
        is_switch = keywords.get("is_flag") == "True" or "flag_value" in keywords or keywords.get("count") == "True"
        found = _click_names(names, is_switch=is_switch)
        if not is_switch and keywords.get("multiple") == "True":
            found = dict.fromkeys(found, REPEATED)
        elif not is_switch and keywords.get("nargs", "1") != "1":
            found = dict.fromkeys(found, SEVERAL)
        actions |= found
        if found and (keywords.get("required") == "True" or keywords.get("prompt", "False") != "False"):
            required.append(f"--{next(iter(found))}")
    for call in program.calls_of("argument"):
        keywords = _keywords(call)
        is_needed = keywords.get("required") != "False" and keywords.get("nargs") != "-1" and "default" not in keywords
        required += [name for name in _texts(call.args)[:1] if is_needed]
    commands = _commands(program) if program.calls_of("group") or _decorated(program, "group") else []
    is_complete = is_complete and bool(actions)
    return Options(actions=actions, required=tuple(required), is_complete=is_complete, commands=tuple(commands))


def _click_names(names: Iterable[str], *, is_switch: bool) -> dict[str, str]:
    actions = dict[str, str]()
    for name in names:
        on, is_pair, off = (part.strip() for part in name.partition("/"))
        if on.startswith("--"):
            action = SWITCH if is_switch or is_pair else ""
            actions[on[2:]] = f"{OFF}{off[2:]}" if off.startswith("--") else action
        if off.startswith("--"):
            actions[off[2:]] = f"{OFF}{on[2:]}" if on.startswith("--") else SWITCHED_OFF
    return actions


def _decorated(program: Program, attribute: str) -> list[tuple[_Function, ast.expr]]:
    """Return the functions that have a decorator of this name, each with the decorator."""
    return [
        (function, decorator)
        for function in program.nodes
        if isinstance(function, _Function)
        for decorator in function.decorator_list
        if _last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) == attribute
    ]


def _commands(program: Program) -> list[str]:
    if "invoke_without_command" in (keyword.arg for call in program.calls for keyword in call.keywords):
        return []
    names = list[str]()
    for function, decorator in _decorated(program, "command"):
        owner = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(owner, ast.Attribute) and _last_name(owner.value) != "click":
            given = _texts(decorator.args) if isinstance(decorator, ast.Call) else []
            names += given[:1] or [function.name.replace("_", "-")]
    return names


def _typer(program: Program) -> Options:
    functions = [function for function, _ in _decorated(program, "command")]
    callbacks = [function for function, _ in _decorated(program, "callback")]
    for call in program.calls_of("run"):
        if _last_name(getattr(call.func, "value", None)) == "typer":
            functions += [found for word in call.args if (found := program.functions.get(_last_name(word)))]
    actions, required = dict[str, str](), list[str]()
    for function in [*functions, *callbacks]:
        for name, annotation, default in _parameters(function):
            named, needed = _typer_parameter(name, annotation, default)
            actions |= named
            required += needed
    several = len(functions) > 1 or callbacks or program.calls_of("add_typer")
    return Options(
        actions=actions,
        required=tuple(required),
        is_complete=bool(functions),
        commands=tuple(_commands(program)) if several else (),
    )


def _typer_parameter(
    name: str, annotation: ast.expr | None, default: ast.expr | None
) -> tuple[dict[str, str], list[str]]:
    kind, extras = _unwrapped(annotation)
    if _last_name(kind) in {"Context", "CallbackParam"}:
        return {}, []
    described = next(
        (node for node in (default, *extras) if _last_name(getattr(node, "func", None)) in _OF_TYPER), None
    )
    words, keywords = list[str](), dict[str, str]()
    if isinstance(described, ast.Call):
        words, keywords = _texts(described.args), _keywords(described)
    if described is default:  # typer.Option(0.1, "--lr"): its first argument is the default
        first = None if not isinstance(described, ast.Call) else next(iter(described.args), None)
        has_default = default is not None if described is None else first is not None or "default" in keywords
        has_default = has_default and not (isinstance(first, ast.Constant) and first.value is Ellipsis)
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("-"):
            words = words[1:]
    else:
        has_default = default is not None
    is_by_place = _last_name(described.func) == "Argument" if isinstance(described, ast.Call) else not has_default
    if is_by_place:
        return {}, [] if has_default else [name]
    names, is_switch = [word for word in words if word.startswith("-")], "bool" in _kinds(kind)
    spelled = name.replace("_", "-")
    if not any("--" in word for word in names):
        names = [f"--{spelled}/--no-{spelled}" if is_switch else f"--{spelled}"]
    is_switch = is_switch or keywords.get("count") == "True"
    actions = _click_names(names, is_switch=is_switch)
    if not is_switch and {"list", "List"} & {_last_name(node) for node in (ast.walk(kind) if kind else ())}:
        actions = dict.fromkeys(actions, REPEATED)
    return actions, [] if has_default else [f"--{next(iter(actions))}"]


_OF_TYPER = {"Option", "Argument"}


# ---- functions and dataclasses as command lines


def _fire(program: Program) -> Options:
    components = [
        next(iter([*call.args, *(item.value for item in call.keywords)]), None) for call in program.calls_of("Fire")
    ]
    function = program.functions.get(_last_name(components[0])) if len(components) == 1 else None
    if function is None:
        return Options()
    parameters = list(_parameters(function))
    return Options(
        actions={name: LITERAL for name, _, _ in parameters},
        required=tuple(f"--{name}" for name, _, default in parameters if default is None),
        is_complete=function.args.kwarg is None,
    )


def _jsonargparse(program: Program) -> Options:
    lightning = [name for name, each in program.classes.items() if "LightningCLI" in map(_last_name, each.bases)]
    if calls := program.calls_of("LightningCLI", *lightning):
        return _lightning_cli(program, calls)
    calls = program.calls_of("CLI", "auto_cli")
    function = program.functions.get(_last_name(next(iter(calls[0].args), None))) if len(calls) == 1 else None
    if function is None or function.args.kwarg is not None:
        return Options()
    actions, is_complete = {"config": "", "print_config": ""}, True
    for name, annotation, _ in _parameters(function):
        nested = program.classes.get(_last_name(_unwrapped(annotation)[0]))
        is_complete = is_complete and nested is None
        actions[name] = ""
    required = [name for name, _, default in _parameters(function) if default is None]
    by_option = any(keyword.arg == "as_positional" for keyword in calls[0].keywords)
    names = tuple(f"--{name}" for name in required) if by_option else tuple(required)
    return Options(actions=actions, required=names, is_complete=is_complete)


def _lightning_cli(program: Program, calls: list[ast.Call]) -> Options:
    """Return the parameters of the model and the data module, but not those of the Trainer.

    `is_complete` is False if, for example, the program adds arguments in code, the class of the model is defined
    elsewhere or takes **kwargs, or the type of a parameter is a class of the program.
    """
    given = {word.arg: word.value for call in calls for word in call.keywords if word.arg}
    given |= dict(zip(("model_class", "datamodule_class"), calls[0].args, strict=False))
    is_complete = len(calls) == 1 and "add_arguments_to_parser" not in program.functions
    is_complete = is_complete and not any(name.startswith("subclass_mode") for name in given)
    actions = dict.fromkeys(("config", "seed_everything", "ckpt_path", OF_LIGHTNING), "")
    for group, word in (("model", given.get("model_class")), ("data", given.get("datamodule_class"))):
        if word is None:
            is_complete = is_complete and group == "data"
            continue
        each = program.classes.get(_last_name(word))
        made = next((item for item in each.body if getattr(item, "name", "") == "__init__"), None) if each else None
        if not isinstance(made, ast.FunctionDef) or made.args.kwarg is not None:
            is_complete = False
            continue
        for name, annotation, _ in _parameters(made):
            is_complete = is_complete and _last_name(_unwrapped(annotation)[0]) not in program.classes
            actions[f"{group}.{name}"] = ""
    return Options(actions=actions, is_complete=is_complete)


def _tyro(program: Program) -> Options:
    calls = program.calls_of("cli")
    name = _last_name(next(iter(calls[0].args), None)) if len(calls) == 1 else ""
    if (function := program.functions.get(name)) is not None:
        fields = list(_parameters(function))
    elif name in program.classes:
        fields = list(_fields(program, program.classes[name]))
    else:
        return Options()
    actions, required = dict[str, str](), list[str]()
    is_complete = _tyro_fields(program, fields, "", actions, required)
    return Options(actions=actions, required=tuple(required), is_complete=is_complete)


_Field = tuple[str, ast.expr | None, ast.expr | None]
"""Name, annotation and default of a parameter or a field."""


def _tyro_fields(
    program: Program, fields: Iterable[_Field], prefix: str, actions: dict[str, str], required: list[str]
) -> bool:
    """Add the fields to `actions` and `required`. Return False if some were left out, because they nest too deeply."""
    is_complete = prefix.count(".") < _DEEPEST
    for name, annotation, default in fields if is_complete else ():
        kind, _ = _unwrapped(annotation)
        spelled = prefix + name.replace("_", "-")
        if (nested := program.classes.get(_last_name(kind))) is not None and not _is_enum(nested):
            inner = list(_fields(program, nested))
            is_complete &= _tyro_fields(program, inner, f"{spelled}.", actions, required if default is None else [])
        elif "bool" in _kinds(kind) and default is not None:
            off = f"{prefix}no-{name.replace('_', '-')}"
            actions |= {spelled: f"{OFF}{off}", off: f"{OFF}{spelled}"}
        else:
            actions[spelled] = ""
            required += [] if default is not None else [f"--{spelled}"]
    return is_complete


def _simple_parsing(program: Program) -> Options:
    names = [_last_name(word) for call in program.calls_of("add_arguments", "parse") for word in call.args[:1]]
    classes = [program.classes[name] for name in names if name in program.classes]
    actions, required = dict[str, str](), list[str]()
    for each in _with_nested(program, classes):
        for name, annotation, default in _fields(program, each):
            if program.classes.get(_last_name(_unwrapped(annotation)[0])) in (None, *_enums(program)):
                actions[name] = ""
                required += [] if default is not None else [f"--{name}"]
    return Options(actions=actions, required=tuple(required), is_complete=bool(classes) and len(classes) == len(names))


def _with_nested(program: Program, classes: Iterable[ast.ClassDef]) -> list[ast.ClassDef]:
    found = list[ast.ClassDef]()
    waiting = list(classes)
    while waiting:
        each = waiting.pop(0)
        if each in found or _is_enum(each):
            continue
        found.append(each)
        kinds = (_last_name(_unwrapped(annotation)[0]) for _, annotation, _ in _fields(program, each))
        waiting += [program.classes[kind] for kind in kinds if kind in program.classes]
    return found


def _hugging_face(program: Program) -> Options:
    """Return the fields of the dataclasses given to HfArgumentParser or TrlParser.

    These may include TrainingArguments, whose fields are read from the installed transformers.
    """
    words = [
        node for call in program.calls_of("HfArgumentParser", "TrlParser") for node in (*call.args, *call.keywords)
    ]
    names = [node.id for word in words for node in ast.walk(word) if isinstance(node, ast.Name)]
    actions, required, is_complete = dict[str, str](), list[str](), bool(names)
    for name in names:
        fields = list[_Field]()
        if name in program.classes:
            fields = list(_fields(program, program.classes[name], installed_arguments()))
        elif name in installed_arguments():
            fields = [(each, None, ast.Constant(None)) for each in installed_arguments()[name]]
        is_complete = is_complete and bool(fields)
        for each, _, default in fields:
            actions[each] = ""
            required += [] if default is not None else [f"--{each}"]
    return Options(actions=actions, required=tuple(required), is_complete=is_complete)


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


# ---- absl and docopt


def _absl(program: Program) -> Options:
    actions, required, is_complete = dict[str, str](), list[str](), True
    for call in program.calls:
        kind = _last_name(call.func).removeprefix("DEFINE_")
        if kind == _last_name(call.func):
            continue
        keywords = _keywords(call)
        name = next(iter(_texts(call.args[:1])), keywords.get("name", "").strip("'\""))
        if not name or kind.startswith("config"):  # a computed name, or a whole tree of names (ml_collections)
            is_complete = False
            continue
        is_switch = kind in ("bool", "boolean")
        actions |= {name: f"{OFF}no{name}", f"no{name}": f"{OFF}{name}"} if is_switch else {name: ""}
        required += [f"--{name}"] if keywords.get("required") == "True" else []
    for call in program.calls_of("mark_flag_as_required", "mark_flags_as_required"):
        required += [f"--{name}" for word in call.args for name in _texts(getattr(word, "elts", [word]))]
    return Options(actions=actions, required=tuple(required), is_complete=is_complete and bool(actions))


def _docopt(program: Program) -> Options:
    text = ast.get_docstring(program.trees[program.script]) if program.script in program.trees else None
    return options_in_help(text or "")


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
    return Options(actions=dict.fromkeys(found.names, ""), is_complete=found.is_complete)


class _HydraKeys:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.names: dict[str, None] = {}  # in the order of the files
        self.is_complete = True

    def add_file(self, name: str, package: str) -> None:
        path = self._root / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        content: Any = None
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


@lru_cache(maxsize=256)  # one command reads the same files several times
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
    return Options(actions=own, required=tuple(required), is_complete=is_complete)


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


_READERS = {
    "hugging face": _hugging_face,
    "hydra": _hydra,
    "click": _click,
    "typer": _typer,
    "fire": _fire,
    "absl": _absl,
    "tyro": _tyro,
    "jsonargparse": _jsonargparse,
    "simple-parsing": _simple_parsing,
    "docopt": _docopt,
}
