"""Binds a job to a user's script: decides which words the script gets, and what the job's run records of them.

`bind` decides this once, before the job. The command in its result has the words of the command line with slots for the
batch and the model's folder, so every attempt of the job runs the same words on any machine. Nothing reads the script
again, and what is recorded is what the words say. This module reads no file and starts nothing.

A parameter that was given is passed even if it equals paretune's default, because the script may have a different
default, and the recorded value must be the one that ran.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from paretune.core.errors import did_you_mean
from paretune.core.machine import may_have_gpu
from paretune.core.reading import at_home, is_file
from paretune.core.shell import options
from paretune.specification.container import Command, Slot, slot_values
from paretune.specification.declaration import spell
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL_ID, IN_S3, INPUT_FILES, split_configuration
from paretune.specification.job import other_names, parameters_affecting
from paretune.specification.metrics import SCRIPT_METRICS
from paretune.specification.parallelism import OF_STRATEGY, OF_THE_BATCH
from paretune.specification.user_code import CodeRequest
from paretune.user_code.arguments import ASKED, REPEATED, SEVERAL, Argument
from paretune.user_code.model_files import LARGEST
from paretune.user_code.script import Script
from paretune.user_code.script_metrics import setting_names, totals_in

LOGGING_STEPS = 10
ADD_A_METRIC = (
    "print one on a line such as `val_f1: 0.9`, or log it with MLflow (`mlflow.log_metric('val_f1', value)`), W&B or "
    "TensorBoard; metric_definitions reads lines of another form"
)
"""What to do if a script logs no metric."""
_MOST_LISTED = 30  # a message lists at most this many arguments of a script; if there are more, it refers to --help
_OF_TRANSFORMERS = {"model": "model_name_or_path", "precision": None}
"""Maps a parameter to its name in Hugging Face's scripts, or to None if several arguments replace it."""
_OF_KEYS = ("hydra", "omegaconf", "jsonargparse")  # parsers whose options are keys of nested settings
_IN_KEYS = ("learning_rate", "num_train_epochs", *OF_THE_BATCH)  # parameters that may be such a key
_ELSEWHERE = {
    *(*parameters_affecting("cluster"), *OF_STRATEGY, "training_arguments", "entry_script", "probe_steps"),
    *(
        "project",
        "entry_point",
        "environment",
        "script_words",
        "ask_script",
        "program",
        "test_rows",
        "activation_offloading",
    ),
    *("learning_rate_scaling", *OF_THE_BATCH),
}
"""Parameters that OF_SCRIPTS leaves out.

They choose the cluster and the strategy, decide the batch plan (`_given_values` passes its values), or are used by
paretune itself, such as `entry_script` and `program`.
"""
OF_SCRIPTS = tuple(
    name
    for name in parameters_affecting("data", "evaluation", "quality", "seconds", "memory", "batch", "noise")
    if name not in _ELSEWHERE
)
"""Parameters of a job that are passed to a script as arguments, if the user gave them."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The user's own training, bound to a job.

    Attributes:
        command: what the job runs.
        inputs: the data that the command reads, by channel: a file or folder here, or an address in S3.
        described: what a dry run says of it, by heading.
        faults: why it cannot run with the parameters that were given; empty if it can.
    """

    command: Command
    inputs: Mapping[str, Path | str] = field(default_factory=dict)
    described: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


def bind(request: CodeRequest, script: Script, *, place: str = "", moved: Mapping[str, str] | None = None) -> Bound:
    """Decide what a script gets, which is at the path `place` in the job. If it cannot run, the `faults` say why.

    `moved` has the paths in the job of parameters that name files here. They are recorded as they were given.

    A script with Hugging Face's parser gets the TrainingArguments that paretune sets, and the parameters that the user
    gave. Any other script gets only what the user gave, and a folder for its model if it has the argument `output_dir`;
    a script with Hydra or OmegaConf gets them as overrides `key=value`. The entries of `training_arguments` override
    all other values.
    """
    values = _values(request, script)
    words = _command_line(script, request.source.words, values)
    in_job = _command_line(script, request.source.words, _values(request, script, moved)) if moved else words
    other_seed = replace(request, seed=request.seed ^ 1, given={**request.given, "seed": request.seed ^ 1})
    slots = _slots_in(words)
    faults = _faults(request, script, values, words)
    logging = str(values.get("logging_steps") if script.has_hugging_face_parser else "")
    command = Command(
        words=tuple(in_job),
        script=place or str(script.path),
        recorded=_recorded(request, script, values),
        takes_seed=_values(other_seed, script) != values,
        takes_batch=bool(slots - {Slot.STEPS}),
        accumulates=Slot.STEPS in slots and bool(slots & {Slot.BATCH, Slot.TOTAL}) and not faults,
        settings=tuple(sorted({*setting_names(request.options), *script.reported.settings})),
        named=tuple(sorted({*request.metric, *script.reported.named})),
        renamed=dict(SCRIPT_METRICS),
        metric_definitions=request.metric_definitions,
        logging_steps=int(logging) if logging.isdigit() and int(logging) else None,
        leaves_model=True,
        keeps_models=request.keeps_models,
        saves=script.reported.saves,
        usage_hint="; use --training_arguments.NAME VALUE to pass an option that "
        f"`python {script.path.name} --help` lists, or add {options(ask_script='true')}",
        totals=totals_in({name: each.default for each in script.arguments for name in each.names}, words),
    )
    return Bound(command=command, described=_described(request, script, words), faults=tuple(faults))


def _slots_in(words: Sequence[str]) -> set[str]:
    """Return the slots of the batch that a command line has."""
    return {slot for slot in (Slot.BATCH, Slot.STEPS, Slot.TOTAL, Slot.SHARE) if any(slot in word for word in words)}


def _values(request: CodeRequest, script: Script, moved: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the values that a script gets, by its own names for them; those of the batch are slots."""
    values = {**_given_values(request, script, moved), **request.options}
    if script.has_hugging_face_parser:
        batch, steps, _ = OF_THE_BATCH
        usual = {"output_dir": Slot.OUTPUT, "learning_rate": request.batch.learning_rate}
        usual |= {batch: Slot.BATCH, steps: Slot.STEPS, "num_train_epochs": request.num_train_epochs}
        usual |= {"seed": request.seed, "logging_steps": LOGGING_STEPS, "disable_tqdm": True, "report_to": "none"}
        if script.is_complete:  # a parser without TrainingArguments may have only some of these
            if request.given_batch or any(map(script.argument, OF_THE_BATCH)):  # by the script's own name
                own = {name: argument_of(script, name) or name for name in OF_THE_BATCH[:2]}
                usual = {own.get(name, name): value for name, value in usual.items()}
            usual = {name: value for name, value in usual.items() if script.argument(name)}
        return usual | values
    return ({"output_dir": Slot.OUTPUT} if script.argument("output_dir") else {}) | values


def _recorded(request: CodeRequest, script: Script, values: Mapping[str, Any]) -> dict[str, str]:
    """Return every value that the script gets as a parameter of the job's run.

    A value that has a parameter of paretune is recorded under the parameter's name, any other one as
    `training_arguments.NAME`. MLflow does not allow Hydra's `+` and `~` in names, so they are left out.
    """
    slots = slot_values(request.batch, "")
    parameters = {argument_of(script, name): name for name in (*OF_SCRIPTS, *OF_THE_BATCH, "learning_rate")}
    recorded = dict[str, str]()
    for name, value in values.items():
        if value == Slot.OUTPUT:
            continue
        parameter = None if name in request.options else parameters.get(name)
        if parameter == "learning_rate" and request.scales_rate:
            parameter = "scaled_learning_rate"  # as for paretune's own training
        text = slots.get(value) if isinstance(value, str) else None
        plain = re.sub(r"[^\w./: -]", "_", name.lstrip("+~"))
        recorded[parameter or f"training_arguments.{plain}"] = text or spell(value)
    return recorded


def _described(request: CodeRequest, script: Script, shown: Sequence[str]) -> dict[str, str]:
    """Describe what a script gets, the metrics that it should report, and what its text does not show.

    `shown` has the words of the command line with the files that were given, as people read them.
    """
    unclear, values = (
        list(_unclear(script, request.source.words, request.given)),
        slot_values(request.batch, "OUTPUT_DIR"),
    )
    words = [reduce(lambda text, slot: text.replace(slot, values[slot]), values, word) for word in shown]
    reports = [*script.reported.metrics, *(item["Name"] for item in request.metric_definitions)]
    if unseen := [
        name for name in request.metric if name not in {*reports, *(SCRIPT_METRICS.get(each) for each in reports)}
    ]:
        unclear.append(f"whether it reports {', '.join(unseen)}, which its text does not show")
    if not reports:
        unclear.append(f"which metrics it logs: if it logs none, {ADD_A_METRIC}")
    if script.sets_tracking:
        unclear.append(
            "where it logs, because it calls mlflow.set_tracking_uri: if you remove this call, MLflow records into the "
            "run of the job"
        )
    left_out, most = list(_left_out(script, words)), _MOST_LISTED
    more = f" and {len(left_out) - most} more" if len(left_out) > most else ""
    return {
        "passes": shlex.join(words) or "no arguments",
        "its own defaults": ", ".join(left_out[:most]) + more,
        "reports": ", ".join(reports),
        "logs with": _loggers(script, words),
        "keeps": kept_in_words(request),
        "unclear": "; ".join(unclear),
    }


_OF_LOGGERS = re.compile(r"tensor_?board|wandb|mlflow|tb_?log|report_to", re.IGNORECASE)


def _loggers(script: Script, words: Sequence[str]) -> str:
    """Return the loggers that a script uses, and the options that turn on others, whose names have groups and steps."""
    offered = [name for name in _left_out(script, words) if _OF_LOGGERS.search(name.replace("-", "_"))]
    shown = f"{' and '.join(f'--{name}' for name in offered[:2])} would log with more than printed lines"
    return "; ".join(filter(None, [", ".join(script.reported.loggers), shown if offered else ""]))


def kept_in_words(request: CodeRequest) -> str:
    """Return what a dry run says of the model files that a job keeps."""
    if not request.keeps_models:
        return "no model files"
    most = f"model files that it saves, up to {LARGEST // 2**20} MiB together, in models/ of its run"
    return f"{most}; {options(keep_models='false')} keeps none"


def _unclear(script: Script, own: Sequence[str], given: Iterable[str]) -> Iterator[str]:
    """Yield what the text of a script does not show; `given` names the parameters of the job that were given."""
    if script.commands and not own:
        yield f"whether it needs one of its subcommands {', '.join(script.commands)}, which is typed after the script"
    places = [each.name for each in script.arguments] if script.parser == "places" else []
    if len(places) > len(own):
        number = f"{len(places)} word{'s' * (len(places) > 1)}"
        yield f"whether it runs without {number} from sys.argv ({', '.join(places)}), which are typed after the script"
    for name in sorted(given):
        if name not in OF_SCRIPTS and name not in OF_THE_BATCH and script.argument(name):
            passes = options(**{f"training_arguments.{name}": "VALUE"})
            yield f"whether {name} is meant for it: it was taken for paretune's parameter, and {passes} passes its own"
    ask = f"; {options(ask_script='true')} reads them from {script.path.name} --help"
    if script.reads_anything and not script.has_hugging_face_parser and not script.is_complete:
        yield f"how it reads its arguments: they are passed under Hugging Face's names{ask}"
    elif not script.is_complete:
        passed = "under Hugging Face's names" if script.reads_anything else "as typed"
        yield f"whether it has more arguments: names that its text does not show are passed {passed}{ask}"


def _command_line(script: Script, own: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line: the words that the user typed, and the values where their options stand."""
    if script.commands and own:  # an option that the text does not show is more probably one of the subcommand
        before = {name: value for name, value in values.items() if (found := script.find(name)) and not found.commands}
        after = {name: value for name, value in values.items() if name not in before}
        return [*_option_words(script, before), *own, *_option_words(script, after)]
    if script.trailing:  # a positional argument with nargs="..." takes all words after it
        return [*_option_words(script, values), *own]
    return [*own, *_option_words(script, values)]


def _option_words(script: Script, values: Mapping[str, Any]) -> list[str]:
    """Return the values as words of a command line: `--name value`, or `name=value` for Hydra or OmegaConf."""
    if script.parser in ("hydra", "omegaconf"):
        # Studies repeat a job with other seeds. Without ++, Hydra refuses a key that its config does not have.
        added = {"seed": "++seed"} if script.parser == "hydra" else {}
        return [f"{added.get(name, name)}={_override(script.parser, value)}" for name, value in values.items()]
    return [word for name, value in values.items() for word in _words(script, name, value)]


def _left_out(script: Script, words: Sequence[str]) -> Iterator[str]:
    """Yield the options that are not passed, each by its first name."""
    given = {word.removeprefix("--").partition("=")[0] for word in words}
    for each in script.arguments:
        is_elsewhere = each.commands and given.isdisjoint(each.commands)  # of another subcommand
        if not (each.is_positional or is_elsewhere or given.intersection(each.spellings)):
            yield each.names[0]


def _batch_faults(request: CodeRequest, script: Script, words: Sequence[str]) -> list[str]:
    """Return a fault if a script would not get the batch that the user gave, and one for each unsuitable fallback type.

    On a fallback type, the script runs the same words, with other numbers in their slots.
    """
    faults, given, (batch, steps, _) = list[str](), request.given_batch, OF_THE_BATCH
    name, has_plan = script.path.name, script.has_hugging_face_parser
    if given and has_plan and script.is_complete:
        needed = [batch] * ({*given} != {steps}) + [steps] * (request.batch.gradient_accumulation_steps > 1)
        if lost := [name for name in needed if not _declares(script, name)]:
            values = " and ".join(f"{name}={value}" for name, value in given.items())
            them = "it" if len(lost) == 1 else "them"
            faults.append(
                f"{name} has no argument {' and '.join(lost)}, so it cannot train with {values}: add {them} to the "
                f"script, or leave {' and '.join(given)} out"
            )
    slots, total = _slots_in(words), request.batch.global_batch_size
    has_place = Slot.BATCH not in slots or bool(slots & {Slot.STEPS, Slot.TOTAL})  # for more accumulation
    remedy = "" if has_plan else "of the batch parameters, give only global_batch_size, or "
    for instance_type, plan in request.fallbacks.items() if slots else ():
        if plan is None:
            fault = f"the devices of {instance_type} cannot share the global batch size of {total} evenly"
            faults.append(f"fallback_instance_types: {fault}: leave {instance_type} out")
        elif plan.gradient_accumulation_steps > 1 and not has_place:
            faults.append(
                f"fallback_instance_types: to keep the global batch size of {total} on {instance_type}, {name} would "
                f"need an argument {steps}, which it does not have: {remedy}leave fallback_instance_types out"
            )
    return faults


def _faults(request: CodeRequest, script: Script, values: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """Return faults for parameters that the script does not accept, and for required arguments that are missing.

    The checks come in this order: the script's syntax, its --help, bundled inputs, whether the script can be started
    with arguments, and the arguments themselves. If a check finds faults, later checks are left out. One exception: if
    the script needs a word such as `fit` before its options, unknown arguments are reported as well.
    """
    if not request.has_instances and script.syntax_fault:  # a container may have another version of Python
        return [script.syntax_fault]
    names, own = {**_given_values(request, script), **request.options}, request.source.words
    if script.help_fault:
        return [_command_fault(script, list(names), own) or script.help_fault]
    if faults := _bundled_faults(request, script):
        return faults
    if script.bf16_by and not (request.has_instances or {"bf16", "fp16", "use_cpu"} & values.keys() or may_have_gpu()):
        rule = f"{script.path.name} trains in bf16, the default of TRL's {script.bf16_by}, which needs a GPU"
        return [f"{rule}, and this machine has none: add {options(precision='fp32')}"]
    if script.opens and request.source.project is None and (request.has_instances or script.path.parent != Path.cwd()):
        where = os.path.relpath(script.path.parent)
        text = f"opens {', '.join(script.opens)} in the current folder, which is another one: replace entry_script with"
        return [f"{script.path.name} {text} these two lines\n    project: {where}\n    entry_point: {script.path.name}"]
    if faults := start_faults(script, names, own):
        return [*faults, *(_unknown_arguments(script, names) if script.commands else ())]
    faults = [
        *_given_twice(request, script),
        *_misplaced(script, names, own),
        *_unknown_arguments(script, names),
        *value_faults(script, names),
    ]
    faults += _batch_faults(request, script, words)
    if not (script.has_hugging_face_parser or script.declares_all):
        return faults
    passed = {script.argument(name) or name for name in (*names, "output_dir")}
    if script.has_hugging_face_parser:
        passed |= {word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")}
    needed = _required(script, own, by_place=False)
    if missing := [each for each in needed if passed.isdisjoint(each.names)]:
        parameter_of = {argument_of(script, name): name for name in (*OF_THE_BATCH, *OF_SCRIPTS)}
        called = [next(filter(parameter_of.get, each.names), each.names[0]) for each in missing]
        added = [parameter_of.get(name, f"training_arguments.{name}") for name in called]
        shown = ", ".join(f"--{each.names[0]}" for each in missing)
        faults.append(
            f"{script.path.name} does not run without {shown}: add {options(**dict.fromkeys(added, 'VALUE'))}"
        )
    return faults


def _given_twice(request: CodeRequest, script: Script) -> list[str]:
    """Return a fault for each option of a script that was given two values: as a parameter, and by its own name."""
    own = {name.replace("-", "_"): name for name in request.options}
    faults = list[str]()
    for name in (*OF_SCRIPTS, *OF_THE_BATCH):
        option = argument_of(script, name) if name in request.given and name != "seed" else None
        if option is None or (found := script.find(option)) is None:
            continue
        also = next((own[each] for each in (n.replace("-", "_") for n in found.spellings) if each in own), None)
        if also is not None and request.options[also] != request.given[name]:
            faults.append(f"{name} and {also} are the same option of {script.path.name}, --{option}: give one of them")
    return faults


def _misplaced(script: Script, names: Iterable[str], own: Sequence[str]) -> list[str]:
    """Return a fault for each option of another subcommand than the one that the user typed."""
    faults, command = list[str](), next(iter(own), "")
    for name in names:
        found = script.find(name)
        if found is not None and found.commands and command in script.commands and command not in found.commands:
            others = " or ".join(found.commands)
            faults.append(f"--{found.spelled(name)} of {script.path.name} is an option of {others}, not of {command}")
    return faults


def is_expected(script: Script, name: str, own: Sequence[str]) -> bool:
    """Return whether `start_faults` says how a script can get a name that is not one of its options.

    `own` has the words that the user typed after the script.
    """
    by_place = script.trailing or name in [each.name for each in script.arguments if each.is_positional]
    lacks_command = script.needs_command and not own
    return bool(by_place or lacks_command or name in script.reported.constants or must_ask(script))


def must_ask(script: Script) -> str:
    """Return the fault of a script whose options only its own --help shows, unless it was asked; "" for any other."""
    if script.parser not in ASKED or script.was_asked or not script.can_be_asked:
        return ""
    name = script.path.name
    reads = f"{name} reads its options with {ASKED[script.parser]}"
    return f"{reads}: paretune reads them by running {name} --help without network: add {options(ask_script='true')}"


def _bundled_faults(request: CodeRequest, script: Script) -> list[str]:
    """Return faults for bundled models and data sets, which only paretune's own training can read."""
    given = {name: request.files[name] for name in ("model", "dataset") if name in request.given}
    instead = {"model": f"a hub id, such as {BUNDLED_MODEL_ID}, or a folder", "dataset": "a hub id, a file or a folder"}
    return [
        f"{name} {text} works only with paretune's own training: give {script.path.name} {instead[name]}"
        for name, text in given.items()
        if text.startswith(BUNDLED)
    ]


def _unknown_arguments(script: Script, names: Iterable[str]) -> list[str]:
    """Return one fault that lists the names that a script does not accept.

    The list is empty if the script accepts all of them, or if it may have arguments that are not known.
    """
    if not (unknown := _unknown(script, names)):
        return []
    them = "it" if len(unknown) == 1 else "them"
    remedy = "give the script's own names in training_arguments" if script.names else f"add {them} with argparse"
    if script.parser == "hydra":
        remedy = f"+{unknown[0]} in training_arguments adds a key"
    return [f"{_what_it_has(script, unknown)}; leave {them} out, or {remedy}"]


def _unknown(script: Script, names: Iterable[str]) -> list[str]:
    """Return the names that a script does not accept; none if it may have arguments that are not known."""
    if not script.is_complete:
        return []
    return [name for name in names if script.argument(name) is None and not _is_added(script, name)]


def _what_it_has(script: Script, unknown: Sequence[str]) -> str:
    """Say that a script does not have these arguments, and which ones it has."""
    listed = ", ".join(sorted(script.names)) or "none"
    all_names = f"it has {listed}" if len(script.names) <= _MOST_LISTED else f"{script.path.name} --help lists all"
    hints = [*dict.fromkeys(filter(None, (_meant(script, name) for name in unknown))), all_names]
    return f"{script.path.name} has no argument {', '.join(unknown)}: {'; '.join(hints)}"


def _last(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_")


def _meant(script: Script, name: str) -> str:
    """Return a suggestion: names with the same last part, such as `optimizer.lr` for lr, or else a similar name."""
    by_last = {_last(known): known for known in script.names}
    if same := [known for known in script.names if _last(known) == _last(name)]:
        return f"did you mean {' or '.join(same[:3])}?"
    if whole := did_you_mean(name, script.names, most=1):
        return whole
    similar = did_you_mean(_last(name), by_last, most=1)
    return did_you_mean(by_last.get(similar[len("did you mean ") : -1], ""), script.names, most=1)


def _is_added(script: Script, name: str) -> bool:
    """Return whether a name is accepted although the script does not declare it.

    Such names are Hydra and OmegaConf overrides that add or delete a key, options of Hydra, and for Hydra `seed`, which
    is passed as an override that adds it.
    """
    return script.parser in ("hydra", "omegaconf") and (
        name.startswith(("+", "~", "hydra.", "hydra/")) or (script.parser == "hydra" and name == "seed")
    )


def value_faults(script: Script, values: Mapping[str, Any]) -> list[str]:
    """Return a fault for each value that the script's parser would refuse: of a switch, a number, or a choice."""
    faults = list[str]()
    for name, value in values.items():
        if (found := script.find(name)) is None:
            continue
        items = value if isinstance(value, list | tuple) else [value]
        rule, wrong = "", [value]
        if (found.switch is not None or found.type == "bool") and _state(value) is None:
            rule = "is a switch and must be true or false" if found.switch is not None else "must be true or false"
        elif found.type in _NUMBERS and not (isinstance(value, list | tuple) or _is_number(value, found.type)):
            rule = f"must be {_NUMBERS[found.type]}"
        elif wrong := [item for item in items if not _is_choice(script, found, item)]:
            meant = did_you_mean(_spelled(wrong[0]), [*map(_spelled, found.choices)], most=1)
            rule = f"must be one of {', '.join(map(_spelled, found.choices))}"
            faults += [
                f"--{found.spelled(name)} of {script.path.name} {rule}, got {_spelled(wrong[0])}{meant and ': '}{meant}"
            ]
            continue
        if rule:
            faults.append(f"--{found.spelled(name)} of {script.path.name} {rule}, got {_spelled(value) or 'nothing'}")
    return faults


def _is_choice(script: Script, argument: Argument, item: Any) -> bool:
    """Return whether an argument takes a value, as far as the text shows its choices; slots of the batch count as such.

    Click may ignore the case of a choice, and a function as `type` may make one of any text.
    """
    text, choices = _spelled(item), [*map(_spelled, argument.choices)]
    if not choices or "\0" in text or argument.type not in ("", "str", "int", "float") or text in choices:
        return True
    if script.parser in ("click", "typer"):
        return text.casefold() in [choice.casefold() for choice in choices]
    with suppress(ValueError):
        return any(float(text) == each for each in argument.choices if isinstance(each, int | float))
    return False


_NUMBERS = {"int": "a whole number", "float": "a number"}


def _is_number(value: Any, kind: str) -> bool:
    text = _spelled(int(value) if isinstance(value, float) and value.is_integer() else value)
    if "\0" in text:  # a slot of the batch
        return True
    with suppress(ValueError):
        return (int if kind == "int" else float)(text) is not None
    return False


def start_faults(script: Script, values: Mapping[str, Any], own: Sequence[str] = ()) -> list[str]:
    """Return why `python SCRIPT OWN --name value` cannot run the script, and what fixes it; empty if it can.

    `own` has the words that the user typed after the script.
    """
    path, names = script.path, list(values)
    # A project that has the current folder finds all files that the script finds there.
    root = Path.cwd() if path.is_relative_to(Path.cwd()) else path.parent
    where, program = os.path.relpath(root), path.relative_to(root).as_posix()
    needed = _required(script, own, by_place=True)
    is_given = len(own) - bool(own and own[0] in script.commands) >= len(needed)
    places = [each.name for each in script.arguments] if script.parser == "places" else []
    keys = _unknown(script, names) if script.trailing else []
    settable = [name for name in names if name in script.reported.constants]
    if script.is_notebook:
        text = "calls get_ipython(), which only notebooks have: begin it with these two lines"
        first = "from IPython.terminal.interactiveshell import TerminalInteractiveShell"
        second = "get_ipython = lambda: TerminalInteractiveShell.instance(user_ns=globals())"
    elif fault := _command_fault(script, names, own):
        return [f"{fault}; {ask}" if names and (ask := must_ask(script)) else fault]
    elif places and (others := [name for name in names if name not in places]):
        them = "it" if len(others) == 1 else "them"
        return [
            f"{path.name} has no argument {', '.join(others)}: it reads only {', '.join(places)}, from sys.argv "
            f"by place; leave {them} out, or read {them} with argparse"
        ]
    elif (needed and not is_given) or keys or (script.parser in ("places", "elsewhere") and names):
        by_place = [each.name for each in needed if not (keys and each.name == script.trailing)]
        by_place = by_place or places or (names if script.parser == "places" else [])
        switches = [name for name in names if (found := script.find(name)) and found.switch is not None]
        by_name = [name for name in names if name not in (*by_place, *keys, *switches)]
        # Options come first: a positional argument with nargs="..." takes all words after it.
        words = [word for name in switches for word in _words(script, name, values[name])]
        words += [f"--{name}={{{name}}}" for name in by_name] + [f"{{{name}}}" for name in by_place]
        words += [f"{_key_of(name)} {{{_parameter_of(name)}}}" for name in keys]
        parameters = ", ".join(f"{name}: string" for name in [*by_name, *by_place, *map(_parameter_of, keys)])
        text = f"{path.name} runs another file, which may read sys.argv in its own way: if it takes --name=value, write"
        if by_place:
            typed = f"`{path.name} {' '.join(map(str.upper, by_place))}`"
            text = f"{path.name} takes positional arguments, but paretune passes names: type their values after the "
            text += f"script, as in {typed}, or, to give them names, write"
        if keys:
            typed = f"`{path.name} {' '.join(f'{name} VALUE' for name in keys)}`"
            text = f"{_what_it_has(script, keys)}; if its words {script.trailing} are pairs KEY VALUE, type them after "
            text += f"the script, as in {typed}, or, to search them, write"
        file = os.path.join(where, "MLproject")
        text += f" these two lines into {file}, and replace entry_script with `project: {where}`"
        renamed = [f"{name} with {_parameter_of(name)}" for name in keys if name != _parameter_of(name)]
        text += "".join(f", and {each}" for each in [*renamed, *(f"leave --{name} out" for name in switches)])
        first, command = f"name: {root.name}", f"python {program} {' '.join(words)}"
        second = f'entry_points: {{main: {{parameters: {{{parameters}}}, command: "{command}"}}}}'
        return [f"{text}\n    {first}\n    {second}"]
    elif settable and script.is_complete and not script.names:
        line = max(script.reported.constants[name] for name in settable)
        text = f"reads no arguments: add these two lines below line {line}, after {', '.join(settable)}"
        added = "; ".join(f'parser.add_argument("--{name}", type=type({name}), default={name})' for name in settable)
        first = f"import argparse; parser = argparse.ArgumentParser(); {added}"
        second = "globals().update(vars(parser.parse_args()))"
    else:
        return [fault] if names and (fault := must_ask(script)) else []
    return [f"{path.name} {text}\n    {first}\n    {second}"]


def _required(script: Script, own: Sequence[str], *, by_place: bool) -> list[Argument]:
    """Return the options, or the positional arguments, without which a script does not run after the user's words."""
    return [
        each
        for each in script.arguments
        if each.is_required and each.is_positional is by_place and (not each.commands or {*own[:1]} & {*each.commands})
    ]


_TRAINS = ("train", "fit", "run", "finetune", "main")  # usual names of the subcommand that trains


def _command_fault(script: Script, names: Sequence[str], own: Sequence[str]) -> str:
    """Return the fault of a script with subcommands of which the user typed none, or none of its; "" otherwise."""
    name, known = script.path.name, list(script.commands)
    inside = [found.commands for each in names if (found := script.find(each)) and found.commands]
    if own and known and own[0] not in known and known != ["fit"]:
        meant = did_you_mean(own[0], known, most=1) or f"it has {', '.join(known)}"
        return f"{name} has no subcommand {own[0]}: {meant}"
    takes_words = (
        known or script.parser not in ("argparse", "none") or any(each.is_positional for each in script.arguments)
    )
    if own and script.is_complete and not takes_words:
        return f"{name} takes no words, got {' '.join(own)}: leave them out"
    if own or not (script.needs_command or inside):
        return ""
    able = [word for word in known if all(word in each for each in inside)] or known
    best = next((word for word in _TRAINS if word in able), able[0])
    text = f"{name} needs the word {' or '.join(known)} before its options: type the one that trains after the script, "
    text += f"as in `{name} {best}`, or add {options(script_words=best)}"
    config = script.path.with_name("config.yaml")
    if best == "fit" and config.is_file() and "config" not in names:
        text += f" {options(**{'training_arguments.config': os.path.relpath(config)})}"
    return text


def _key_of(name: str) -> str:
    """Return the key of a pair KEY VALUE: the name that the user gave, unless it is a parameter of paretune."""
    return "KEY" if name in (*OF_SCRIPTS, *OF_THE_BATCH) else name


def _parameter_of(name: str) -> str:
    """Return the name of a key's parameter in MLproject, whose commands cannot name one with dots."""
    return re.sub(r"\W", "_", name)


def _given_values(request: CodeRequest, script: Script, moved: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the given parameters by the script's own names, with the learning rate scaled to the batch."""
    values = dict[str, Any]()
    has_plan = script.has_hugging_face_parser  # such a script gets the whole plan anyway
    batch, steps, total = OF_THE_BATCH
    if (given := {*request.given_batch}) and not has_plan:
        names = (
            [batch, steps] if script.reads_anything else [name for name in OF_THE_BATCH if argument_of(script, name)]
        )
        if names == [steps] and given != {steps}:
            names = [batch, steps]  # the script has no argument for the batch, which `_faults` then reports
        slots = dict(zip(OF_THE_BATCH, (Slot.BATCH, Slot.STEPS, Slot.TOTAL), strict=True))
        values = {name: slots[name] for name in names or [batch]}
        if not {steps, total} & values.keys():
            # The script has no argument for the accumulation. If the user set only the global batch, each device gets
            # its whole share at once. Otherwise the unknown argument is passed, and `_faults` reports it.
            if given == {total}:
                values[batch] = Slot.SHARE
            elif request.batch.gradient_accumulation_steps > 1:
                values[steps] = Slot.STEPS
    values |= {name: request.given[name] for name in OF_SCRIPTS if name in request.given}
    # A shell would replace ~, and the script does not.
    values |= {name: str(at_home(values[name])) for name in INPUT_FILES if str(values.get(name)).startswith("~")}
    if "learning_rate" in values:
        values["learning_rate"] = request.batch.learning_rate
    may_take_seed = script.mentions_seed and not script.declares_all
    if not (script.argument("seed") or has_plan or script.parser == "hydra" or may_take_seed):
        values.pop("seed", None)  # a study sets the seed to repeat a job, even if the script has no such argument
    formats = ("fp32", "bf16", "fp16")  # a script may have a switch for each, or one argument that takes these names
    if values.get("precision") in ("auto", *formats) and argument_of(script, "precision") in (None, *formats):
        precision = values.pop("precision")
        others = [name for name in ("bf16", "fp16") if name != precision != "auto" and _may_be_on(script, name)]
        values |= ({precision: True} if precision in ("bf16", "fp16") else {}) | dict.fromkeys(others, False)
    dataset, configuration = split_configuration(request.files["dataset"])
    values |= {name: path for name, path in (moved or {}).items() if name in values}
    if "dataset" in values and configuration and "dataset" not in (moved or {}):
        values |= {"dataset": dataset, "dataset_config_name": configuration}
    is_one_file = request.files["dataset"].startswith(IN_S3) or is_file(request.files["dataset"])
    if "dataset" in values and (name := argument_of(script, "train_file" if is_one_file else "dataset_name")):
        values[name] = values.pop("dataset")
    if script.reads_anything and values.pop("init", "") == "random" and "model" in values:
        values |= dict.fromkeys(("config_name", "tokenizer_name"), values.pop("model"))
    for name in INPUT_FILES:  # a script without an argument for a file reads SM_CHANNEL_TRAIN and similar variables
        if name in values and not argument_of(script, name):
            del values[name]
    return {argument_of(script, name) or name: value for name, value in values.items()}


def _may_be_on(script: Script, number_format: str) -> bool:
    """Return whether a script may use a number format by default, and has an argument that turns it off."""
    if script.reads_anything:
        return number_format == "bf16"  # some scripts, such as TRL's, use bf16 by default
    option = script.argument(number_format)
    if script.parser in ("hydra", "jsonargparse"):
        # Their switches have values. But if there is a key fp16.enabled, fp16 is a group of DeepSpeed's settings.
        return option is not None and not any(name.startswith(f"{option}.") for name in script.names)
    found = script.find(number_format)
    return found is not None and (bool(found.off) or found.type == "bool")


def _declares(script: Script, name: str) -> bool:
    """Return whether a script's text or --help shows an argument for a parameter, under any of its names."""
    return script.argument(argument_of(script, name) or name) is not None


def argument_of(script: Script, name: str) -> str | None:
    """Return the script's own name for a job parameter, such as lr for learning_rate: one of its names (`also`).

    If the script declares none of them, return the parameter's name in Hugging Face's scripts if the script passes
    unknown arguments on to such a parser (`reads_anything`), and otherwise None.
    """
    names = (name, *other_names(name))
    declared = next(filter(None, map(script.argument, names)), None)
    if declared is None and script.parser in _OF_KEYS and name in _IN_KEYS:  # model.optimizer.lr, data.batch_size
        inside = [known for known in script.names if "." in known and _last(known) in names]
        declared = inside[0] if len(inside) == 1 else None
    return declared or (_OF_TRANSFORMERS.get(name, name) if script.reads_anything else None)


def _override(parser: str, value: Any) -> str:
    """Write a value as Hydra or OmegaConf reads it, such as `[1,'a']`, `{lr: 0.1}` or `null`; text stays as it is."""
    return value if isinstance(value, str) else _inside(parser, value)


def _inside(parser: str, value: Any) -> str:
    """Write a value inside of a list or mapping of an override: text is quoted."""
    if isinstance(value, str) and parser == "hydra":
        # Hydra takes a backslash as it is, except before a quote.
        return "'" + re.sub(r"(\\*)('|\Z)", lambda end: end[1] * 2 + ("\\'" if end[2] else ""), value) + "'"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # OmegaConf reads YAML
    if isinstance(value, list | tuple):
        return f"[{','.join(_inside(parser, item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}: {_inside(parser, item)}" for key, item in value.items()) + "}"
    return "null" if value is None else _spelled(value)


def _words(script: Script, name: str, value: Any) -> list[str]:
    """Return the words of one option: its name and its value, in one word `--name=-1` if the value begins with -.

    A switch has no value: its name is passed or left out. A switch with an opposite is always passed, under the name
    that turns it on or off. The items of a list follow each other if the script declares that the option takes several.
    """
    option, is_on = script.argument(name) or name, _state(value)
    found = script.find(name) or Argument(names=(name,))
    if found.off:
        turns_on = bool(is_on) is not (option == found.off)
        return [f"--{(found.names[0] if option == found.off else option) if turns_on else found.off}"]
    if found.switch is not None:
        return [f"--{option}"] if is_on is found.switch else []
    if found.type == "bool":
        return [f"--{option}", "true" if is_on else ""]
    if isinstance(value, list | tuple) and found.many == SEVERAL:
        return [f"--{option}", *map(_spelled, value)]
    if isinstance(value, list | tuple) and (found.many == REPEATED or script.parser in ("click", "typer")):
        return [word for item in value for word in (f"--{option}", _spelled(item))]
    is_whole = isinstance(value, float) and value.is_integer() and found.type != "float"
    text = _spelled(int(value) if is_whole else value)
    # argparse takes a word such as -1e-05 for an option, unless it follows `=`. Parsers of the script's own may split
    # each word there.
    return [f"--{option}={text}"] if text.startswith("-") or script.parser == "own" else [f"--{option}", text]


def _state(value: Any) -> bool | None:
    """Return the value as a boolean, or None if it is neither true nor false."""
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(str(value).lower())


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool | dict) else spell(value)
