"""A user's own Python script, read once and without running it: its arguments, its metrics, and its loggers.

`Script.read` reads the text of the script and of the modules next to it. If the user allows it and the text does not
show all options, `sandbox` runs the script with `--help`. Nothing else reads a script, and a process reads it again
only if one of these files has changed.
"""

import ast
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SCRIPT, read_text
from paretune.user_code.interface import (
    Declared,
    Options,
    Program,
    added_options,
    declarations,
    floats_of,
    options_of,
    read_options,
    required_by,
    trailing_of,
    trl_uses_bf16,
    types_of,
)
from paretune.user_code.sandbox import ask_options
from paretune.user_code.script_metrics import is_setting, numbers_in, setting_names

_PARSERS = {
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
_SPLITS_WORDS = re.compile(r"\.(?:r?split|partition)\(\s*['\"]=['\"]")  # a parser of the script's own: --name=value
_OPENED = re.compile(r"open\(\s*['\"]([\w./-]+\.py)['\"]")
_MAY_PARSE = re.compile(r"\bargv\b|[Pp]arse|\bget_args\b")  # reveals that a script may parse arguments in its own way
_PLACES = re.compile(r"\bargv\[\d+\]")
_ELSEWHERE = re.compile(r"\bexec\(\s*(?:compile\(\s*)?open\(|\brunpy\.run_")
_FIT = re.compile(r"\bLightningCLI\((?![^)]*\b(?:run=False|args=))")
_NOTEBOOK = re.compile(r"^\s*get_ipython\(\)", re.MULTILINE)
_DEFINES_NOTEBOOK = re.compile(r"^\s*(?:get_ipython\s*=|def get_ipython\b)", re.MULTILINE)
_WITH_TRAINER = r"(?:transformers|trl|setfit|sentence_transformers)"
_LOGGERS = {
    "MLflow": r"^\s*(?:import|from)\b[^\n#]*\bmlflow\b",
    "W&B": r"^\s*(?:import|from)\b[^\n#]*\bwandb\b|\bWandbLogger\b",
    "TensorBoard": r"\bSummaryWriter\b|\bTensorBoard(?:Logger)?\b",
    "Lightning's CSV or TensorBoard": r"^\s*(?:import|from) (?:pytorch_lightning|lightning)\b",
    "Hugging Face's Trainer": rf"^\s*from {_WITH_TRAINER}[\w.]* import (?:\([^)]*|[^\n]*)\b\w*Trainer\b"
    rf"|\b{_WITH_TRAINER}\.\w*Trainer\b",
    "Keras's printed lines": r"^\s*(?:import|from)\b[^\n#]*\bkeras\b",
    "XGBoost's or LightGBM's printed lines": r"^\s*(?:import|from)\b[^\n#]*\b(?:xgboost|lightgbm|catboost)\b",
}
"""Loggers that paretune reads, each with a pattern that reveals it in a script's text."""
_CONFIGURATIONS = ("*.yaml", "*.yml", "*.toml", "conf*/**/*.yaml", "conf*/**/*.yml")
_CONFIGURED = re.compile(
    r"^[\s\-]*[\"']?([A-Za-z_][\w-]*)[\"']?\s*[:=]\s*[-+.\d][\d.eE_+-]*\s*(?:[#,}].*)?$", re.MULTILINE
)
_MOST_CONFIGURATIONS, _LARGEST_CONFIGURATION = 50, 100_000  # files, and bytes of each
_RESULT_CLASS = re.compile(r"metric|result|meter|score|state|output|eval", re.IGNORECASE)
_FORMATTED = re.compile(r"\{[^{}]*\}|%[-+ #0]*\d*(?:\.\d+)?[diouxXeEfFgGs]")  # values in "{:.3f}".format and "%.3f" %
_PRINTS = {"print", "info", "debug", "warning", "echo", "write", "set_description", "set_postfix_str"}
_LOGS_NAME = {"log_metric", "add_scalar", "log"}
_LOGS_DICTIONARY = {"print", "log_metrics", "dump", "dumps", "log", "log_dict", "set_postfix", "info", "add_scalars"}
_ADDS_OPTION = {"add_argument", "option", "Option"}  # of argparse, Click and Typer
_NAME = re.compile(r"[A-Za-z_][\w ./@-]{0,60}")
_QUOTED = re.compile(r"[\"']\s*([A-Za-z_][\w ./@-]{0,60}?)\s*(?:[:=][^\"'\n]{0,40})?\\?[\"']")
_MAY_ADD_OPTIONS = re.compile(r"(?:^|_)(?:args?|arguments?|options?|flags?)(?:_|$)")
"""Reveals a function that adds options to a parser, such as DeepSpeed's `add_config_arguments(parser)`."""
_MOST_MODULES = 50  # modules that are read: the script, and those of its folder that it imports, even indirectly
_MOST_KEPT = 8  # scripts that a process keeps
_SETTLED_NS = 50_000_000
"""A file that changed less than this many nanoseconds before it was read may change again without a newer time.

File systems of Linux have a new time every 1 to 10 ms, depending on the kernel's timer.
"""


@dataclass(frozen=True, kw_only=True)
class Script:
    """Arguments, metrics and loggers of a script, read from its text and from the modules next to it."""

    path: Path
    text: str  # "" if there is no such file
    parser: str
    """A key of `_PARSERS`; `own` for code of its own that reads --name=value; `places` for positional arguments such as
    sys.argv[1]; `elsewhere` if another file that the script runs may read arguments; `none` if it takes no arguments;
    `unknown` if it may take some."""
    arguments: Mapping[str, str]
    """Maps each option, spelled as in the script but without leading dashes, to its action (see `Options`)."""
    opens: tuple[str, ...]  # files next to it that it runs by names which are relative to the current folder
    types: Mapping[str, str]  # `int` or `float`, for options that take a number
    declared: Mapping[str, Declared]
    """Defaults and choices of arguments, by name with underscores, and of keys in configuration files."""
    floats: frozenset[str]  # options whose type or default is a float
    places: tuple[str, ...]  # names of the values that it reads from sys.argv by place, if it has no other arguments
    required: tuple[str, ...]  # required arguments; without -- if positional
    trailing: str  # the positional argument that takes any number of words after the options; "" if none does
    aliases: tuple[frozenset[str], ...]  # groups of options that are spellings of the same one
    is_complete: bool  # whether there are no other arguments
    declares_all: bool  # whether there are no others, except those that a library may add to the script's parser
    mentions_seed: bool
    first_words: tuple[str, ...]  # one of these must precede its options, such as `fit` of LightningCLI
    bf16_by: str  # the class of TRL that makes it train in bf16, if no number format is given; "" if there is none
    is_notebook: bool  # whether it calls get_ipython(), which only notebooks have, and does not define it
    constants: Mapping[str, int]  # variables set to a number or a string at the top level, with their line numbers
    metrics: tuple[str, ...]  # names of numbers that it prints, logs or writes
    settings: frozenset[str]
    """Names of settings, which are not metrics even if the script prints them, such as its arguments, top-level
    constants, and keys of the configuration files in its folder."""
    named: frozenset[str]
    """Names that stand in its text, as metrics or as other strings: a number printed with one may be a metric."""
    loggers: tuple[str, ...]  # keys of `_LOGGERS` that its text reveals
    sets_tracking: bool  # whether it chooses MLflow's tracking server itself
    files: tuple[Path, ...]  # the script, and the modules in its folder that it imports
    syntax_fault: str = ""  # why this version of Python cannot parse it; "" if it can, and for other languages
    was_asked: bool = False  # whether its --help has answered
    help_fault: str = ""  # why its --help did not answer, although it may be asked

    @property
    def has_hugging_face_parser(self) -> bool:
        """Whether it reads its options with Hugging Face's HfArgumentParser or TrlParser."""
        return self.parser == "hugging face"

    @property
    def reads_anything(self) -> bool:
        """Whether it may take arguments that its source does not name."""
        return self.parser in ("hugging face", "unknown") or (self.parser == "argparse" and not self.arguments)

    def argument(self, name: str) -> str | None:
        """Return the argument as the script spells it, with - or _, or None if the script does not declare it."""
        plain = name.replace("-", "_")
        return next((spelling for spelling in self.arguments if spelling.replace("-", "_") == plain), None)

    def declaration(self, argument: str) -> Declared:
        """Return the default and the choices of an argument, as far as the text shows them."""
        plain = argument.replace("-", "_")
        return self.declared.get(argument) or self.declared.get(plain) or Declared()

    @property
    def can_be_asked(self) -> bool:
        """Whether this system can run its --help without network and write access."""
        return sys.platform == "linux" and self.path.is_file()

    @classmethod
    def read(cls, path: Path, *, may_ask: bool = False) -> "Script":
        """Read a script. One that is missing, or that Python cannot parse, counts as taking any argument.

        If `may_ask` and its text does not show all options, its --help is run, in a sandbox. Raises BadInput if the
        script, or a module that it imports, is too large or is not UTF-8.
        """
        kept = _Kept.of(path)
        if not may_ask or kept.script.is_complete or not path.is_file():
            return kept.script
        if kept.asked is None or kept.asked.help_fault:
            kept.asked = _asked(kept.script)
        return kept.asked


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
    asked: Script | None = None  # with the options that its --help lists, if it was asked for them

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
        modules = dict(_modules(path, text, states)) if path.is_file() else {}
        opened = _OPENED.findall(text)
        states |= {path.parent / name: _state_of(path.parent / name) for name in opened}
        parser, program = _parsed(path, modules)
        options = read_options(parser, program)
        states |= {file: _state_of(file) for file in options.files}
        changed_ns = max((state[0] for state in (*states.values(), *configurations.values()) if state), default=0)
        return cls(
            script=_declared(path, text, parser, program, options, configurations, modules),
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


def _asked(script: Script) -> Script:
    """Return a script with the options that its --help lists."""
    try:
        options = ask_options(script.path)
    except BadInput as error:
        return replace(script, help_fault=error.faults[0])
    return replace(
        script,
        arguments={**options.actions},
        required=tuple(dict.fromkeys((*script.required, *options.required))),
        is_complete=options.is_complete,
        declares_all=options.is_complete,
        first_words=script.first_words or options.commands,
        trailing=script.trailing or options.trailing,
        was_asked=True,
    )


def _parsed(path: Path, modules: Mapping[Path, str]) -> tuple[str, Program]:
    """Return a script's parser (see `Script`) and syntax trees; `modules` has its own text, and those it imports."""
    text, main = "\n".join(modules.values()), modules.get(path, "")
    parser = next((name for name, trace in _PARSERS.items() if re.search(trace, text, re.MULTILINE)), "")
    if not parser:
        may_parse = _MAY_PARSE.search(text) or not modules
        parser = "places" if _PLACES.search(main) else "unknown" if may_parse else "none"
        if _ELSEWHERE.search(main):
            parser = "elsewhere"
        others = [(path.parent / name).read_text(errors="replace") for name in _opened(path, main)]
        if "argv" in text + "".join(others) and _SPLITS_WORDS.search("\n".join([text, *others])):
            parser = "own"
    return parser, Program(path, {file: ast.parse(module) for file, module in modules.items()})


def _declared(
    path: Path,
    own_text: str,
    parser: str,
    program: Program,
    options: Options,
    configurations: Iterable[Path],
    modules: Mapping[Path, str],
) -> Script:
    text, main = "\n".join(modules.values()), modules.get(path, "")
    nodes = {file: list(ast.walk(tree)) for file, tree in program.trees.items()}
    calls = [(file, node) for file, inside in nodes.items() for node in inside if isinstance(node, ast.Call)]
    declared = [(file, call) for file, call in calls if getattr(call.func, "attr", "") == "add_argument"]
    words = [(word, call) for _, call in declared for word in call.args]
    arguments, types = {**added_options(words), **options.actions}, types_of(words)
    spellings = (frozenset(options_of(call)) for _, call in calls if _name(call.func) in _ADDS_OPTION)
    required = [required_by(call) for file, call in declared if file.parent == path.parent]
    tree = program.trees.get(path, ast.Module(body=[], type_ignores=[]))
    settings = _settings(tree, configurations, program.nodes, arguments)
    sets_tracking = bool(re.search(r"\bset_tracking_uri\(", text))
    is_named = all(isinstance(word, ast.Constant) for word, _ in words)
    metrics = tuple(dict.fromkeys(name for node in program.nodes for name in _metrics(node, settings)))
    is_argparse = parser == "argparse" and bool(arguments)
    declares_all = parser in ("places", "none") or ((options.is_complete or is_argparse) and is_named)
    return Script(
        path=path,
        text=own_text,
        files=tuple(modules),
        types=types,
        declared={**declarations(tree), **options.declared},
        floats=options.floats | {name for name, kind in types.items() if kind == "float"} | floats_of(words),
        opens=tuple(_opened(path, main)) if _ELSEWHERE.search(main) else (),
        places=tuple(_places(program)) if parser == "places" else (),
        syntax_fault=_syntax_fault(path, own_text),
        settings=settings,
        loggers=tuple(name for name, trace in _LOGGERS.items() if re.search(trace, text, re.MULTILINE)),
        sets_tracking=sets_tracking,
        parser=parser,
        arguments=arguments,
        required=() if "add_subparsers" in text else (*filter(None, required), *options.required),
        trailing=next(filter(None, (trailing_of(call) for _, call in declared)), ""),
        aliases=tuple(group for group in spellings if len(group) > 1),
        is_complete=declares_all and not (declared and _may_be_extended(program, [call for _, call in declared])),
        declares_all=declares_all,
        mentions_seed=bool(re.search(r"\bseed\b", text)),
        first_words=("fit",) if _FIT.search(main) else (*options.commands, *_commands(program)),
        bf16_by=trl_uses_bf16(text) if parser == "hugging face" else "",
        is_notebook=bool(_NOTEBOOK.search(main)) and not _DEFINES_NOTEBOOK.search(main),
        constants={name: node.lineno for node in tree.body for name in _constants(node)},
        metrics=metrics,
        named=frozenset((*metrics, *_strings(program.nodes))),
    )


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            yield "_".join(node.value.split())


def names_in_text(text: str) -> frozenset[str]:
    """Return the names in quotes in a program of another language, or in a notebook, such as `kpi` of "kpi: "."""
    return frozenset("_".join(name.split()) for name in _QUOTED.findall(text))


def _opened(path: Path, main: str) -> Iterator[str]:
    yield from (name for name in _OPENED.findall(main) if (path.parent / name).is_file())


def _syntax_fault(path: Path, text: str) -> str:
    try:
        if path.suffix == ".py":
            ast.parse(text)
    except SyntaxError as error:
        return f"entry_script {path.name}, line {error.lineno}: Python cannot read it: {error.msg}"
    return ""


def _commands(program: Program) -> Iterator[str]:
    """Yield the words one of which a script of argparse or fire needs before its options, such as its subcommands."""
    needs = any(
        item.arg == "required" and isinstance(item.value, ast.Constant) and item.value.value is True
        for call in program.calls_of("add_subparsers")
        for item in call.keywords
    )
    for call in sorted(program.calls_of("add_parser"), key=lambda call: call.lineno) if needs else ():
        yield from (str(word.value) for word in call.args[:1] if isinstance(word, ast.Constant))
    for call in program.calls_of("Fire"):
        yield from (key for word in call.args[:1] for key in _all_keys(word))
        if not (call.args or call.keywords):
            yield from (node.name for node in program.trees[program.script].body if isinstance(node, ast.FunctionDef))


def _places(program: Program) -> Iterator[str]:
    """Yield the names of the variables that the script sets from sys.argv[1], sys.argv[2] and so on, in this order."""
    found = dict[int, str]()
    for node in program.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Subscript) and _name(inner.value) == "argv":
                    place = getattr(inner.slice, "value", None)
                    if isinstance(place, int) and place > 0:
                        found.setdefault(place, node.targets[0].id)
    if sorted(found) == list(range(1, len(found) + 1)):
        yield from (found[place] for place in sorted(found))


def _all_keys(node: ast.AST) -> Iterator[str]:
    keys = node.keys if isinstance(node, ast.Dict) else ()
    yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))


def _may_be_extended(program: Program, declared: Iterable[ast.Call]) -> bool:
    """Return whether a library may add options to a parser, because it gets the parser or makes one of its `parents`.

    `declared` has the calls of `add_argument`.
    """
    own = {node.name for node in program.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    parsers = {_name(getattr(call.func, "value", None)) for call in declared} - {""}
    for call in program.calls:
        words = [*call.args, *(item.value for item in call.keywords)]
        may_add = _MAY_ADD_OPTIONS.search(_name(call.func)) and _name(call.func) not in own
        if may_add and not parsers.isdisjoint(map(_name, words)):
            return True
        parents = [each for item in call.keywords if item.arg == "parents" for each in getattr(item.value, "elts", ())]
        if any(isinstance(each, ast.Call) and _name(each.func) not in own for each in parents):
            return True
    return False


def _name(node: ast.AST | None) -> str:
    """Return `c` for `a.b.c` and for `c`; empty for anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


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


def _constants(node: ast.stmt) -> Iterator[str]:
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(node, ast.Assign) and isinstance(value, ast.Constant) and type(value.value) in (int, float, str):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _configurations(folder: Path) -> dict[Path, _State]:
    """Return the configuration files in a script's folder, each with its state."""
    files = [file for pattern in _CONFIGURATIONS for file in sorted(folder.glob(pattern))][:_MOST_CONFIGURATIONS]
    states = {file: _state_of(file) for file in files if file.is_file()}
    return {file: state for file, state in states.items() if state and state[1] <= _LARGEST_CONFIGURATION}


def _settings(
    main: ast.Module, configurations: Iterable[Path], nodes: Collection[ast.AST], arguments: Collection[str]
) -> frozenset[str]:
    """Return the names of a script's settings, except those that contain a metric word, such as `--loss`."""
    names = {name.replace("-", "_") for name in arguments}
    assigned = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names |= {name for node in main.body for name in _constants(node)} & {
        name for name in assigned if assigned.count(name) == 1
    }
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(each) for each in node.decorator_list):
            names |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        elif isinstance(node, ast.ClassDef) and "dataclass" in " ".join(map(ast.unparse, node.decorator_list)):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            names |= {
                field.id for field in fields if isinstance(field, ast.Name) and not _RESULT_CLASS.search(node.name)
            }
    for file in configurations:
        with suppress(OSError):
            names.update(_CONFIGURED.findall(file.read_text(errors="replace")))
    return setting_names(names)


def _metrics(node: ast.AST, settings: Collection[str]) -> Iterator[str]:
    """Yield the names of numbers that a syntax node prints, logs, returns or assigns.

    Returned numbers count only in `compute_metrics`, and assigned ones only in items of variables such as `metrics` or
    `test_results`. Printed strings are read with `numbers_in`, which also reads the lines that a running job prints.
    """
    if isinstance(node, ast.FunctionDef) and node.name == "compute_metrics":
        results = (item.value for item in ast.walk(node) if isinstance(item, ast.Return))
        yield from (f"eval_{key}" for result in results for key in _keys(result))
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        name = getattr(target.value, "id", getattr(target.value, "attr", ""))
        if name.endswith(("metrics", "results", "summary")):
            yield from _keys(ast.Dict(keys=[target.slice], values=[node.value]))
    elif isinstance(node, ast.Call):
        name = _name(node.func)
        if name in _PRINTS:
            yield from numbers_in(_printed(node.args), settings)
        if name in _LOGS_DICTIONARY:
            named = [key for word in node.args for key in _keys(word)]
            named += [item.arg for item in node.keywords if item.arg and name == "set_postfix"]
            yield from (key for key in named if not is_setting(key, settings))
        if name in _LOGS_NAME:
            words = (word.value for word in node.args[:1] if isinstance(word, ast.Constant))
            yield from (word for word in words if isinstance(word, str) and not is_setting(word, settings))
        elif name == "save_metrics":  # of Hugging Face's Trainer
            yield from (f"{word.value!s}_loss" for word in node.args[:1] if isinstance(word, ast.Constant))


def _printed(arguments: Sequence[ast.expr]) -> str:
    """Return the line that a call prints, with 1 in place of each value."""
    first = _template(arguments[0]) if arguments else ""
    if len(arguments) > 1 and _FORMATTED.search(first):  # logging's and loguru's own formatting
        return _FORMATTED.sub("1", first)
    return " ".join([first, *map(_template, arguments[1:])])


def _template(node: ast.AST) -> str:
    """Return a printed string with 1 in place of each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_template, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _FORMATTED.sub("1", _template(node.left))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return _FORMATTED.sub("1", _template(node.func.value))  # type: ignore[attr-defined]  # it has an attribute
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "1"


def _keys(node: ast.AST | None) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and not isinstance(value, ast.Dict | ast.List | ast.ListComp):
                yield str(key.value)
