"""What a program says in its text about the numbers that it prints, logs and writes.

`reported_by` reads the names of metrics, of settings, which are no metrics, and the loggers that paretune reads. What a
running job really prints and logs is read by `script_metrics`.
"""

import ast
import glob
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paretune.user_code.arguments import Argument, Program, last_name
from paretune.user_code.model_files import may_be_model
from paretune.user_code.script_metrics import is_setting, numbers_in, setting_names

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
_CONFIGURED = re.compile(
    r"^[ \t\-]*[\"']?([A-Za-z_][\w-]*)[\"']?[ \t]*[:=][ \t]*[-+.\d][\d.eE_+-]*\s*(?:[#,}].*)?$", re.MULTILINE
)
_RESULT_CLASS = re.compile(r"metric|result|meter|score|state|output|eval", re.IGNORECASE)
_FORMATTED = re.compile(r"\{[^{}]*\}|%[-+ #0]*\d*(?:\.\d+)?[diouxXeEfFgGs]")  # values in "{:.3f}".format and "%.3f" %
_PRINTS = {"print", "info", "debug", "warning", "echo", "write", "set_description", "set_postfix_str"}
_LOGS_NAME = {"log_metric", "add_scalar", "log"}
_LOGS_DICTIONARY = {"print", "log_metrics", "dump", "dumps", "log", "log_dict", "set_postfix", "info", "add_scalars"}
_VALUE = "\0"  # stands for a value in a string of the script
_NAME = re.compile(r"[A-Za-z_][\w ./@-]{0,60}")
_QUOTED = re.compile(r"[\"']\s*([A-Za-z_][\w ./@-]{0,60}?)\s*(?:[:=][^\"'\n]{0,40})?\\?[\"']")


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The metrics of a script, as its text names them.

    Attributes:
        metrics: names of numbers that it prints, logs or writes.
        settings: names of settings, which are not metrics even if the script prints them, such as its arguments,
            top-level constants, and keys of the configuration files in its folder.
        named: names that stand in its text, as metrics or as other strings: a number printed with one may be a metric.
        loggers: keys of `_LOGGERS` that its text reveals.
        saves: names of model files in its text, such as `net.pt` or `epoch_*.pt`, where * stands for a value.
        constants: variables set to a number or a string at the top level, with their line numbers.
    """

    metrics: tuple[str, ...]
    settings: frozenset[str]
    named: frozenset[str]
    loggers: tuple[str, ...]
    saves: tuple[str, ...]
    constants: dict[str, int]


def reported_by(program: Program, text: str, arguments: Iterable[Argument], configurations: Iterable[Path]) -> Reported:
    """Return what a program says about its metrics; `text` is that of the script and of its modules."""
    settings = _settings(program, arguments, configurations)
    metrics = tuple(dict.fromkeys(name for node in program.nodes for name in _metrics(node, settings)))
    return Reported(
        metrics=metrics,
        settings=settings,
        named=frozenset((*metrics, *_strings(program.nodes))),
        loggers=tuple(name for name, trace in _LOGGERS.items() if re.search(trace, text, re.MULTILINE)),
        saves=tuple(dict.fromkeys(_saved(program.nodes))),
        constants={name: node.lineno for node in program.main.body for name in _constants(node)},
    )


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            yield "_".join(node.value.split())


def _saved(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of model files in a script's text that have at least three letters of their own."""
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call):
            name = glob.escape(_template(node, _VALUE)).replace(_VALUE, "*")
            if may_be_model(name) and len(re.findall(r"[A-Za-z]", Path(name).stem)) >= 3 and len(name) < 200:
                yield name


def names_in_text(text: str) -> frozenset[str]:
    """Return the names in quotes in a program of another language, or in a notebook, such as `kpi` of "kpi: "."""
    return frozenset("_".join(name.split()) for name in _QUOTED.findall(text))


def _constants(node: ast.stmt) -> Iterator[str]:
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(node, ast.Assign) and isinstance(value, ast.Constant) and type(value.value) in (int, float, str):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _settings(program: Program, arguments: Iterable[Argument], configurations: Iterable[Path]) -> frozenset[str]:
    """Return the names of a script's settings, except those that contain a metric word, such as `--loss`."""
    nodes = program.nodes
    names = {name.replace("-", "_") for argument in arguments for name in argument.spellings}
    assigned = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    constants = {name for node in program.main.body for name in _constants(node)}
    names |= {name for name in constants if assigned[name] == 1}
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
        name = last_name(node.func)
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


def _template(node: ast.AST, value: str = "1") -> str:
    """Return a string of the script with `value` in place of each value that it formats."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(each, value) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _FORMATTED.sub(value, _template(node.left, value))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return _FORMATTED.sub(value, _template(node.func.value, value))  # type: ignore[attr-defined]  # it has one
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else value


def _keys(node: ast.AST | None) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and not isinstance(value, ast.Dict | ast.List | ast.ListComp):
                yield str(key.value)
