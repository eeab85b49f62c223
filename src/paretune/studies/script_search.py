"""What a study without a file searches in a user's script, and which other arguments it could search.

It searches the learning rate and the batch size, around the script's own defaults. Every other argument is left out,
with the reason and with the line that adds it to a study file.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SCRIPT, at_home, read_text
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.storage.files import as_yaml
from paretune.studies.definition.file import skeleton
from paretune.studies.definition.space import INSIDE, why_not_searched
from paretune.user_code.binding import OF_SCRIPTS, argument_of
from paretune.user_code.interface import OFF, REPEATED, SEVERAL, SWITCH, SWITCHED_OFF, TEXT_OF_BOOL
from paretune.user_code.script import Script

_FACTOR = 8.0  # factor between a script's learning rate and either end of the searched range
_RATES = {"low": 1e-5, "high": 1e-2, "log": True}  # for a rate without a known default; the user adapts it
_BATCHES = {"choices": [8, 32, 128]}  # the same for a batch size
_SMALL = 0.01  # a number below this is searched on a log scale
_NO_SETTING = re.compile(
    r"log(ging|dir|s)?|print|save|saves|interval|every|freq|frequency|num_workers|workers?|port|seed|device|gpus?|cuda"
    r"|mps|accel|rank|dry|verbose|debug|profile|cache|dir|path|file|folder|root|name|url|id|resume|checkpoint|ckpt"
    r"|out|outf|output|eval|evaluate|test|wandb|tensorboard|mlflow|project|entity|host|backend|threads?|jobs|download"
    r"|version|help|config|local|world|dist|distributed|tokenizer|compile|amp|fp16|bf16|hub|token"
)
"""Words in the names of arguments that do not change what a model learns."""
_SWITCHES = (SWITCH, SWITCHED_OFF, TEXT_OF_BOOL)
_MOST_NAMED = 30  # arguments that a message lists at most


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A parameter that a study does not search, why not, and what a study file would have under `search` to do it."""

    name: str  # as a study file spells it
    why: str
    entry: Mapping[str, Any] | None = None  # values to search; None if no values can be proposed

    @property
    def line(self) -> str:
        """The line of a study file that searches it; empty if there is none."""
        return "" if self.entry is None else as_yaml({self.name: self.entry}, in_one_line=True).strip()[1:-1]


@dataclass(frozen=True, kw_only=True)
class ScriptSearch:
    """Holds what to search in a script, by parameter, and what is left out."""

    search: Mapping[str, Any]
    left_out: Sequence[LeftOut]


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """The default and the choices of an argument, as the source code shows them."""

    default: Any = None  # None if it is not shown, or is None
    choices: Sequence[Any] = ()


def search_of_script(job: JobSpec, metric: str, *, has_types: bool) -> ScriptSearch:
    """Return what to search for a script: a range of learning rates and choices of batch sizes, around its defaults.

    The search is empty if the request sets both. Raises BadInput if neither can be searched, unless the request sets
    one of them or the study has instance types to search (`has_types`).
    """
    path, search, left_out = at_home(str(job.entry_script)).resolve(), dict[str, Any](), list[LeftOut]()
    script, declared = Script.read(path, may_ask=job.ask_script), _declarations(path)
    rate = argument_of(script, "learning_rate")
    batch = next((name for name in OF_THE_BATCH if name not in OF_THE_BATCH[1:2] and argument_of(script, name)), None)
    lacking = list[str]()
    if rate is not None and "learning_rate" not in job.model_fields_set:
        if (default := _positive(script, declared, rate)) is None:
            lacking.append("learning_rate")
            left_out.append(LeftOut(name="learning_rate", why=_unseen(rate), entry=_RATES))
        else:
            search["learning_rate"] = {"low": default / _FACTOR, "high": default * _FACTOR, "log": True}
    elif rate is None:
        left_out.append(LeftOut(name="learning_rate", why="the script declares no argument for it"))
    if batch is not None and not job.model_fields_set.intersection(OF_THE_BATCH):
        own_name = str(argument_of(script, batch))
        if (default := _positive(script, declared, own_name)) is None:
            lacking.append(batch)
            left_out.append(LeftOut(name=batch, why=_unseen(own_name), entry=_BATCHES))
        else:
            choices = sorted({max(1, round(default * factor)) for factor in (0.25, 0.5, 1, 2, 4)})
            search[batch] = {"choices": choices}
    elif batch is None:
        left_out.append(LeftOut(name="global_batch_size", why="the script declares no argument for it"))
    left_out += _others(job, script, declared)
    is_given = job.model_fields_set.intersection(("learning_rate", *OF_THE_BATCH))
    if not (search or is_given or has_types):
        raise BadInput([script.syntax_fault or _nothing(job, script, lacking, left_out, metric)])
    return ScriptSearch(search=search, left_out=left_out)


def _unseen(argument: str) -> str:
    return f"the text of the script shows no number as the default of {argument}"


def _nothing(job: JobSpec, script: Script, lacking: Sequence[str], left_out: Sequence[LeftOut], metric: str) -> str:
    """Return the fault of a script whose text shows nothing to search, with a study file to start from."""
    if script.parser == "none":
        remedy = "add them, for example with argparse"
        return f"{script.path.name} reads no arguments, so a study cannot change anything: {remedy}"
    names = list(script.arguments)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    why = (
        f"no default of its {' and '.join(lacking)} can be read"
        if lacking
        else "it declares no learning rate and no batch size"
    )
    search = {each.name: each.entry for each in left_out if each.entry is not None}
    file = skeleton(job.given(), dict(list(search.items())[:3]) or {"learning_rate": _RATES}, metric)
    arguments = f"(its arguments: {', '.join(names[:_MOST_NAMED]) or 'none'}{more})"
    return f"{script.path.name}: {why} {arguments}: list what to search in a study file, with one line such as {file}"


def _others(job: JobSpec, script: Script, declared: Mapping[str, _Declared]) -> Iterator[LeftOut]:
    """Yield the arguments of a script other than its learning rate and batch size, except those that the job sets."""
    searched = ("learning_rate", *OF_THE_BATCH)
    ours = {argument_of(script, name): name for name in (*OF_SCRIPTS, *searched)}
    names, set_by_job = list(script.arguments), {*job.training_arguments, *job.model_fields_set}
    opposites = {action.removeprefix(OFF) for action in script.arguments.values() if action.startswith(OFF)}
    spellings = [group - {max(group, key=len)} for group in script.aliases]
    for argument in names:
        name = ours.get(argument, f"training_arguments{INSIDE}{argument}")
        is_given = bool({name, argument} & set_by_job) or (name in OF_THE_BATCH and set_by_job & {*OF_THE_BATCH})
        is_double = argument in opposites or any(argument in group for group in spellings)
        if is_given or is_double or name in searched:
            continue
        known, action = declared.get(_plain(argument), _Declared()), script.arguments[argument]
        words = re.findall(r"[a-z0-9]+", argument.lower())
        if reason := "" if INSIDE in name else why_not_searched(name):
            yield LeftOut(name=name, why=reason)
        elif known.choices and not any(map(_NO_SETTING.fullmatch, words)):
            entry = {"choices": list(known.choices)}
            yield LeftOut(name=name, why=f"the script's own choices{_by_default(known.default)}", entry=entry)
        elif any(map(_NO_SETTING.fullmatch, words)):
            yield LeftOut(name=name, why="its name does not look like a setting of the model")
        elif action in _SWITCHES or action.startswith(OFF) or isinstance(known.default, bool):
            yield LeftOut(name=name, why="a switch", entry={"choices": [False, True]})
        elif action in (SEVERAL, REPEATED):
            yield LeftOut(name=name, why="it takes a list")
        elif isinstance(known.default, int | float) and known.default >= 0:
            costs = "; more epochs cost more" if name == "num_train_epochs" else ""
            why = f"{spell(known.default)} by default{costs}"
            yield LeftOut(name=name, why=why, entry=_around(known.default))
        elif isinstance(known.default, str):
            yield LeftOut(name=name, why="text, and the script declares no choices")
        else:
            yield LeftOut(name=name, why=_unseen(argument))


def _by_default(value: Any) -> str:
    return "" if value is None or value == "" else f", {spell(value)} by default"


def _around(default: float) -> dict[str, Any]:
    """Return values around the default of an argument: half and twice as much, or usual small ones if it is 0."""
    if isinstance(default, int):
        return {"choices": sorted({max(1, default // 2), default, 2 * default}) if default else [0, 1, 2]}
    if not default:
        return {"choices": [0.0, 0.01, 0.1]}
    if default < _SMALL:
        return {"low": _rounded(default / 10), "high": _rounded(default * 10), "log": True}
    highest = min(2 * default, (1 + default) / 2) if default < 1 else 2 * default  # a share stays below 1
    return {"low": _rounded(default / 2), "high": _rounded(highest)}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _positive(script: Script, declared: Mapping[str, _Declared], argument: str) -> float | None:
    if (known := script.defaults.get(argument)) is not None:  # in a configuration file
        return known if known > 0 else None
    default = declared.get(_plain(argument), _Declared()).default
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    return float(default) if is_number and default > 0 else None


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _declarations(path: Path) -> dict[str, _Declared]:
    """Return what a script's source code shows about its arguments, by name with underscores.

    An argument is declared by a call, such as argparse's or Click's, by an annotated field of a class, or by a
    parameter of a function. A call counts before the others, because a helper function may have a parameter of the same
    name.
    """
    nodes = list[ast.AST]()
    with suppress(SyntaxError):
        nodes += ast.walk(ast.parse(read_text(path, LARGEST_SCRIPT)))
    found = dict[str, _Declared]()

    def add(name: str, declared: _Declared) -> None:
        if declared.default is not None or declared.choices:
            found.setdefault(_plain(name), declared)

    for node in sorted(nodes, key=lambda node: not isinstance(node, ast.Call)):
        if isinstance(node, ast.Call):
            declared = _of_call(node)
            for word in node.args:
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    add(word.value.lstrip("-"), declared)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            add(node.target.id, _of_annotated(node.value, node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            positional = [*given.posonlyargs, *given.args]
            last = positional[len(positional) - len(given.defaults) :]  # only these have a default
            pairs = zip([*last, *given.kwonlyargs], [*given.defaults, *given.kw_defaults], strict=True)
            for name, value in pairs:
                add(name.arg, _of_annotated(value, name.annotation))
    return found


def _of_call(call: ast.Call) -> _Declared:
    """Return what a call declares about an option."""
    words = {word.arg: word.value for word in call.keywords}
    default, choices = _constant(words.get("default")), _constants(words.get("choices"))
    if isinstance(kind := words.get("type"), ast.Call):  # click.Choice([...])
        choices = choices or _constants(kind.args[0] if kind.args else None)
    if str(getattr(call.func, "attr", getattr(call.func, "id", ""))).startswith("DEFINE_") and len(call.args) > 1:
        default = _constant(call.args[1])  # absl
        choices = _constants(call.args[2]) if len(call.args) > 2 else ()
    return _Declared(default=default, choices=choices)


def _of_annotated(value: ast.expr | None, annotation: ast.expr | None) -> _Declared:
    """Return what a field or parameter declares: its default, also inside `field(...)` or `typer.Option(...)`."""
    default = _constant(value)
    if isinstance(value, ast.Call):
        words = {word.arg: word.value for word in value.keywords}
        default = _constant(words.get("default", value.args[0] if value.args else None))
    is_literal = isinstance(annotation, ast.Subscript) and "Literal" in ast.dump(annotation.value)
    choices = _constants(annotation.slice) if is_literal and isinstance(annotation, ast.Subscript) else ()
    return _Declared(default=default, choices=choices)


def _constant(node: ast.expr | None) -> Any:
    """Return the number, text or boolean that a node is; None if it is none of these."""
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = None if node is None else ast.literal_eval(node)
        return value if isinstance(value, int | float | str) else None
    return None


def _constants(node: ast.expr | None) -> tuple[Any, ...]:
    values = tuple(map(_constant, getattr(node, "elts", ())))
    return () if None in values else values
