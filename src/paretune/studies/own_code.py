"""What a study searches in a user's own script or project.

`with_own_code` compares the parameters that a study file searches with those that the code has. For a study without a
file, `search_of_script` proposes the learning rate and the batch size, around the script's own defaults. Every other
argument is left out, with the reason and with the line that adds it to a study file.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, collecting
from paretune.specification.declaration import Fault, spell
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.storage.files import as_yaml
from paretune.studies.definition.file import OF_OWN_CODE, StudyFile, skeleton
from paretune.studies.definition.objectives import Objective
from paretune.studies.definition.space import INSIDE, Choices, Range, why_not_searched
from paretune.user_code.binding import OF_SCRIPTS, argument_of, must_ask, value_faults
from paretune.user_code.script import Script

_FACTOR = 8.0  # factor between a script's learning rate and either end of the searched range
_RATES = {"low": 1e-5, "high": 1e-2, "log": True}  # for a rate without a known default; the user adapts it
_BATCHES = {"choices": [8, 32, 128]}  # the same for a batch size
_NEAR_1 = 0.9  # a share above this is searched by its distance from 1
_SMALL = 0.01  # a number below this is searched on a log scale
_NO_SETTING = re.compile(
    r"log(ging|dir|s)?|print|save|saves|interval|every|freq|frequency|num_workers|workers?|port|seed|device|gpus?|cuda"
    r"|mps|accel|rank|dry|verbose|debug|profile|cache|dir|path|file|folder|root|name|url|id|resume|checkpoint|ckpt"
    r"|out|outf|output|eval|evaluate|test|wandb|tensorboard|mlflow|project|entity|host|backend|threads?|jobs|download"
    r"|version|help|config|local|world|dist|distributed|tokenizer|compile|amp|fp16|bf16|hub|token"
    r"|devices|nodes?|strategy|env|envs|trials|trajectory|img|image|images|channels?|resolution|classes"
)
"""Words in the names of arguments that do not change what a model learns."""
_MOST_NAMED = 30  # arguments that a message lists at most


def with_own_code(file: StudyFile) -> StudyFile:
    """Return the study with the arguments that it searches in the user's script as the script spells and reads them.

    A range of an argument that the script reads as a float gets floats as its ends. Raises BadInput if a project cannot
    be read or does not declare a searched parameter, and for each value that the script's parser would refuse.
    """
    job = file.job
    if job.project is not None:
        file.refuse(_undeclared(file, str(job.project)))
    if job.entry_script is None:
        return file
    script, search, faults = Script.of(job.code_source), dict[str, Choices | Range](), list[Fault]()
    for name, entry in file.search.items():
        _, of_script, own_name = name.rpartition(OF_OWN_CODE)
        found = script.find(own_name) if of_script else None
        if found is not None and found.is_float and isinstance(entry, Range):
            entry = replace(entry, low=float(entry.low), high=float(entry.high))
        values = entry.values if isinstance(entry, Choices) else (entry.low, entry.high)
        faults += [
            Fault(("search", name), text) for value in values for text in value_faults(script, {own_name: value})
        ]
        search[f"{of_script}{own_name if found is None else found.spelled(own_name)}"] = entry
    file.refuse(faults)
    return file.model_copy(update={"search": search})


def defaults_of(file: StudyFile) -> dict[str, Any]:
    """Return the script's own defaults of what a study searches in it, by the searched name, as far as they show."""
    if file.job.entry_script is None:
        return {}
    script, defaults = Script.of(file.job.code_source), dict[str, Any]()
    for name in file.search:
        of_script = name.rpartition(OF_OWN_CODE)[2]
        found = script.find(argument_of(script, name) or of_script)
        if found is not None and found.default is not None:
            defaults[name] = found.default
    return defaults


def _undeclared(file: StudyFile, project: str) -> list[Fault]:
    """Return a fault for each searched parameter that the entry point of a project does not declare.

    An entry point without declared parameters, such as a script, may take any.
    """
    from paretune.user_code.project import declared_parameters  # imports MLflow, which takes a second

    declared, faults, entry_point = dict[str, str](), list[str](), file.job.entry_point
    with collecting(faults):
        declared = dict(declared_parameters(project, entry_point))
    searched = [name for name in file.search if name.startswith(OF_OWN_CODE)] if declared else []
    owner = f"entry point {entry_point} of {Path(project).name} declares {', '.join(declared)}"
    return [
        *(Fault(("job", "project"), text) for text in faults),
        *(
            Fault(("search", name), f"unknown parameter {own_name}: {owner}")
            for name in searched
            if (own_name := name.removeprefix(OF_OWN_CODE)) not in declared
        ),
    ]


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


def search_of_script(job: JobSpec, quality: Objective, *, has_types: bool, terms: Mapping[str, Any]) -> ScriptSearch:
    """Return what to search for a script: a range of learning rates and choices of batch sizes, around its defaults.

    `terms` are the keys of the study that were typed, which the study file in a message repeats.

    The request sets them by paretune's names or by the script's own; the search is empty if it sets both. Raises
    BadInput if neither can be searched, unless the request sets one of them or the study has instance types to
    search (`has_types`).
    """
    script, search, left_out = Script.of(job.code_source), dict[str, Any](), list[LeftOut]()
    rate = argument_of(script, "learning_rate")
    batch = next((name for name in OF_THE_BATCH if name not in OF_THE_BATCH[1:2] and argument_of(script, name)), None)
    given = {script.argument(name) or name for name in job.training_arguments}  # by the script's own names
    sets_rate = "learning_rate" in job.model_fields_set or rate in given
    sets_batch = bool(job.model_fields_set.intersection(OF_THE_BATCH))
    sets_batch |= batch is not None and argument_of(script, batch) in given
    lacking = list[str]()
    if rate is not None and not sets_rate:
        if (default := _positive(script, rate)) is None:
            lacking.append("learning_rate")
            left_out.append(LeftOut(name="learning_rate", why=_unseen(rate), entry=_RATES))
        else:
            search["learning_rate"] = {"low": default / _FACTOR, "high": default * _FACTOR, "log": True}
    elif rate is None:
        left_out.append(LeftOut(name="learning_rate", why="the script declares no argument for it"))
    if batch is not None and not sets_batch:
        own_name = str(argument_of(script, batch))
        if (default := _positive(script, own_name)) is None:
            lacking.append(batch)
            left_out.append(LeftOut(name=batch, why=_unseen(own_name), entry=_BATCHES))
        else:
            choices = sorted({max(1, round(default * factor)) for factor in (0.25, 0.5, 1, 2, 4)})
            search[batch] = {"choices": choices}
    elif batch is None:
        left_out.append(LeftOut(name="global_batch_size", why="the script declares no argument for it"))
    left_out += _others({*job.training_arguments, *job.model_fields_set}, script)
    if not (search or sets_rate or sets_batch or has_types):
        raise BadInput([script.syntax_fault or _nothing(job.given(), script, lacking, left_out, quality, terms)])
    return ScriptSearch(search=search, left_out=left_out)


def _unseen(argument: str) -> str:
    return f"the text of the script shows no number as the default of {argument}"


def _nothing(
    given: Mapping[str, Any],
    script: Script,
    lacking: Sequence[str],
    left_out: Sequence[LeftOut],
    quality: Objective,
    terms: Mapping[str, Any],
) -> str:
    """Return the fault of a script whose text shows nothing to search, with a study file to start from."""
    if script.parser == "none":
        remedy = "add them, for example with argparse"
        return f"{script.path.name} reads no arguments, so a study cannot change anything: {remedy}"
    if fault := script.help_fault or must_ask(script):
        return fault
    names = script.names
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    why = (
        f"no default of its {' and '.join(lacking)} can be read"
        if lacking
        else "it declares no learning rate and no batch size"
    )
    search = {each.name: each.entry for each in left_out if each.entry is not None}
    file = skeleton(given, dict(list(search.items())[:3]) or {"learning_rate": _RATES}, quality, terms)
    arguments = f"(its arguments: {', '.join(names[:_MOST_NAMED]) or 'none'}{more})"
    return f"{script.path.name}: {why} {arguments}: list what to search in a study file, with one line such as {file}"


def _others(given: Collection[str], script: Script) -> Iterator[LeftOut]:
    """Yield the arguments of a script other than its learning rate and batch size, except those that are given."""
    searched = ("learning_rate", *OF_THE_BATCH)
    ours = {argument_of(script, name): name for name in (*OF_SCRIPTS, *searched)}
    for known in script.arguments:
        own = next(filter(ours.get, known.names), known.name)
        name = ours.get(own, f"{OF_OWN_CODE}{own}")
        is_given = bool({name, *known.names} & {*given}) or (name in OF_THE_BATCH and {*OF_THE_BATCH} & {*given})
        if is_given or known.is_positional or name in searched:
            continue
        words = re.findall(r"[a-z0-9]+", own.lower())
        if reason := "" if INSIDE in name else why_not_searched(name):
            yield LeftOut(name=name, why=reason)
        elif known.choices and not any(map(_NO_SETTING.fullmatch, words)):
            entry = {"choices": list(known.choices)}
            yield LeftOut(name=name, why=f"the script's own choices{_by_default(known.default)}", entry=entry)
        elif any(map(_NO_SETTING.fullmatch, words)):
            yield LeftOut(name=name, why="its name does not look like a setting of the model")
        elif known.switch is not None or known.type == "bool" or isinstance(known.default, bool):
            yield LeftOut(name=name, why="a switch", entry={"choices": [False, True]})
        elif known.many:
            yield LeftOut(name=name, why="it takes a list")
        elif isinstance(known.default, int | float) and known.default >= 0:
            costs = "; more epochs cost more" if name == "num_train_epochs" else ""
            why = f"{spell(known.default)} by default{costs}"
            yield LeftOut(name=name, why=why, entry=_around(known.default))
        elif isinstance(known.default, str):
            yield LeftOut(name=name, why="text, and the script declares no choices")
        else:
            yield LeftOut(name=name, why=_unseen(own))


def _by_default(value: Any) -> str:
    return "" if value is None or value == "" else f", {spell(value)} by default"


def _around(default: float) -> dict[str, Any]:
    """Return values around the default of an argument: half and twice as much, or usual small ones if it is 0."""
    if isinstance(default, int):
        return {"choices": sorted({max(1, default // 2), default, 2 * default}) if default else [0, 1, 2]}
    if not default:
        return {"choices": [0.0, 0.01, 0.1]}
    if _NEAR_1 <= default < 1:  # such as the decay of Adam's averages: half and twice as far from 1
        return {"low": _rounded(1 - 2 * (1 - default), 6), "high": _rounded(1 - (1 - default) / 2, 6)}
    if default < _SMALL:
        return {"low": _rounded(default / 10), "high": _rounded(default * 10), "log": True}
    highest = min(2 * default, (1 + default) / 2) if default < 1 else 2 * default  # a share stays below 1
    return {"low": _rounded(default / 2), "high": _rounded(highest)}


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


def _positive(script: Script, argument: str) -> float | None:
    """Return the default of an argument if it is a number above 0."""
    found = script.find(argument)
    default = found and found.default
    if isinstance(default, bool) or not isinstance(default, int | float):
        return None
    return float(default) if default > 0 else None
