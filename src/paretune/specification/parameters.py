"""Parameters as dataclass fields: their help, rules and effects, and values read from and written as text."""

import contextlib
import dataclasses
import json
import math
import os
import re
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, Literal, TypeVar

from paretune.core.errors import collecting, did_you_mean, refuse
from paretune.core.untrusted import parse_json

_T = TypeVar("_T")

LONGEST_TEXT = 4_096  # characters of a text, the longest path that Linux allows (PATH_MAX); MLflow records 6,000
LARGEST_WHOLE = 10**15  # of a whole number, by absolute value: more than any data set has rows, and exact as a float
_MOST_BITS = 10_000  # Python prints no number of more than 4,300 digits

Value = str | int | float  # value of one parameter: a number, true or false, or a text as the user would type it
Effect = Literal[
    "data",  # which rows and files of the model are read, and how rows are tokenised
    "evaluation",  # the rows that F1 is measured on
    "quality",  # the quality of the trained model (F1), apart from the batch plan
    "seconds",  # the time of a training step
    "memory",  # the memory of one device
    "batch",  # the batch plan; jobs are compared by the numbers of their plans, not by these texts
    "cluster",  # type and number of devices; also compared by number and size
    "noise",  # random variation only
    "stopping",  # when a job is refused, stopped, or moved to another instance type
    "dollars",  # the price of the job, and nothing that it computes
    "ownership",  # whose account, network and budget are used; never sent into a job
    "launcher",  # where and how a job is launched and recorded
]
"""The effects that a job parameter can have. Lists of parameters by their effects are derived from their `affects`."""
COMPUTES: tuple[Effect, ...] = ("data", "quality", "seconds", "memory", "batch", "cluster", "noise")
"""Effects that make two jobs compute different things; the others concern limits, money and account."""
STEP: frozenset[Effect] = frozenset({"seconds", "memory"})
"""Time and memory of a training step; nearly every parameter that changes one changes the other."""
TRAINING: frozenset[Effect] = STEP | {"quality"}


def parameter(
    default: Any,
    help_text: str,
    *,
    choices: tuple[str, ...] = (),
    instead: Mapping[str, str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    affects: Collection[Effect] = (),
    not_searched: str = "",
    example: str = "",
    group: str = "",
    basic: bool = False,
) -> Any:
    """A dataclass field with the help and the rules of a parameter.

    `help_text` is one line of help. `instead` has what to do in place of values that are no choice. The bounds
    `minimum` and `maximum` are allowed values, `above` is not. Every parameter of a job `affects` something;
    `not_searched` says why no study searches it, unless `affects` already implies the reason. `example` is a JSON
    object that it could be, for messages. `group` is the title of the help group that begins with it. The short help
    shows the `basic` ones.
    """
    rules: dict[str, Any] = {"help": help_text, "choices": choices, "minimum": minimum, "maximum": maximum}
    rules |= {"above": above, "affects": frozenset(affects), "not_searched": not_searched, "example": example}
    rules |= {"group": group, "basic": basic, "instead": instead or {}}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=rules)
    return field(default=default, metadata=rules)


def affecting(cls: type, *effects: Effect, without: tuple[Effect, ...] = ()) -> tuple[str, ...]:
    """Names of the parameters of `cls` that have any of `effects` and none of `without`, in field order."""
    return _affecting(cls, effects, without)


@cache  # apart from `affecting`, because type checkers do not check the arguments of a cached function
def _affecting(cls: type, effects: tuple[Effect, ...], without: tuple[Effect, ...]) -> tuple[str, ...]:
    return tuple(
        item.name
        for item in fields(cls)
        if item.metadata["affects"] & set(effects) and not item.metadata["affects"] & set(without)
    )


def default_text(item: "dataclasses.Field[Any]") -> str:
    """The default of a field as the user would type it; empty for None and for an empty mapping."""
    return "" if item.default is dataclasses.MISSING else spell(item.default)


def read(cls: type[_T], texts: Mapping[str, str], command: str = "main") -> _T:
    """An instance of a dataclass of parameters from the texts that the user typed; an empty text means the default.

    Raises:
        BadInput: all unknown names, wrong types and out-of-range values at once.
    """
    items = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    kinds = annotations(cls)  # type: ignore[arg-type]  # a class is hashable
    faults: list[str] = []
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in items:
            faults.append(f"unknown parameter {name}: {parameter_hint(name, items, command)}")
        elif text.strip():
            try:
                values[name] = parse(name, text, kinds[name], items[name].metadata["example"])
            except ValueError as error:
                faults.append(str(error))
    with collecting(faults):
        instance = cls(**values)
    refuse(faults)
    return instance


@cache
def annotations(cls: type) -> dict[str, Any]:
    """Types of the fields; cached, because resolving them takes longer than everything else in `read`."""
    return typing.get_type_hints(cls)


def check(instance: Any) -> list[str]:
    """The values of a dataclass of parameters that break the rules of their own fields, one fault each."""
    return [fault for item in fields(instance) for fault in range_faults(item, getattr(instance, item.name))]


_SYNONYMS = {
    "lr": "learning_rate",
    "epochs": "num_train_epochs",
    "max_length": "max_seq_length",
    "lora": "fine_tuning",
    "script": "entry_script",
    **dict.fromkeys(("gpu", "gpus", "gpu_type", "accelerators", "instance"), "instance_type"),
    **dict.fromkeys(("nodes", "num_nodes", "instances"), "instance_count"),
    **dict.fromkeys(("bs", "train_batch_size"), "per_device_train_batch_size"),
    **dict.fromkeys(("fp16", "bf16", "fp32", "dtype"), "precision"),
    **dict.fromkeys(("timeout", "max_runtime", "max_run", "max_time"), "max_runtime_minutes"),
}
"""Names that other tools give to parameters."""
_MINUTES = {"s": 1 / 60, "m": 1, "min": 1, "h": 60, "d": 1440}


def parameter_hint(name: str, names: Collection[str], command: str = "main") -> str:
    """Suggestion of similar parameters for an unknown `name`, or of the command that lists all of them."""
    if (meant := _SYNONYMS.get(name.lower())) in names:
        return f"did you mean {meant}?"
    return did_you_mean(name, names, or_longer=True) or f"`paretune {command} --help all` lists all parameters"


def parse(name: str, text: str, annotation: Any, example: str = "") -> Any:
    """The value of the parameter `name` from a text that is not empty; `annotation` is the type of its field.

    Raises:
        ValueError: the text has another type; the message is a whole sentence, with `example` for a JSON object.
    """
    is_optional = isinstance(annotation, types.UnionType)
    if is_optional:
        (annotation,) = [member for member in annotation.__args__ if member is not types.NoneType]
    if annotation is str:
        return text  # unchanged: a column may be called " text", a configuration "all"
    text = text.strip()
    if is_optional and text.lower() in {"none", "all"}:
        return None
    if annotation is bool:
        return _flag(name, text)
    if annotation in (int, float):
        return _number(name, text, annotation)
    return _json_object(name, text, example or '{"key": "value"}')


def _flag(name: str, text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ValueError(f"{name} must be true or false, got {text!r}")
    return words[text.lower()]


def _number(name: str, text: str, kind: type[int | float]) -> int | float:
    with contextlib.suppress(ValueError):
        return kind(text)
    with contextlib.suppress(ValueError):
        if kind is int and float(text).is_integer():
            return int(float(text))
    rule = f"{name} must be {'a whole number' if kind is int else 'a number'}, got {text!r}"
    raise ValueError(rule + _minutes_hint(name, text))


def _minutes_hint(name: str, text: str) -> str:
    """The minutes of a duration such as `2h` as the end of a message; empty for other parameters and texts."""
    duration = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d)", text)
    if duration is None or not name.endswith("_minutes"):
        return ""
    return f": it is in minutes, {float(duration[1]) * _MINUTES[duration[2]]:g} of them"


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    rule = f"{name} must be a JSON object such as {example}"
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{rule}, got {text!r}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{rule}, got {text!r}")
    return value


def spell(value: Any) -> str:
    """The value as the user would type it; empty for None and for an empty mapping."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True) if value else ""
    return repr(value) if isinstance(value, float) else str(value)


def split_list(text: str | None) -> tuple[str, ...]:
    """The entries of a comma-separated parameter, without empty ones."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def range_faults(item: "dataclasses.Field[Any]", value: Any) -> list[str]:
    """At most one fault: the rule of the field that the value breaks."""
    rules = item.metadata
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return [f"{item.name} must have at most {LONGEST_TEXT:,} characters, got {len(value):,}: {value[:40]!r}..."]
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE and rules["maximum"] is None:
        return [f"{item.name} must be at most {LARGEST_WHOLE:.0e}, whatever its sign, got a larger number"]
    if rules["choices"] and value not in rules["choices"]:
        instead = rules["instead"].get(str(value).replace("_", "-").lower())
        hint = f": {instead}" if instead else did_you_mean(str(value), rules["choices"], lead="; ", most=1)
        return [f"{item.name} must be one of {', '.join(rules['choices'])}, got {value!r}{hint}"]
    if isinstance(value, str) and not value.strip():
        return [f"{item.name} must not be empty: leave it out for the default"]
    if value is None or isinstance(value, (str, bool, Mapping)):
        return []
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{item.name} must be a finite number, got {value}"]
    low, high, above = rules["minimum"], rules["maximum"], rules["above"]
    if (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high):
        return []
    number = "a far larger number" if isinstance(value, int) and value.bit_length() > _MOST_BITS else value
    return [f"{item.name} must be {_range_in_words(rules)}, got {number}"]


def _range_in_words(rules: Mapping[str, Any]) -> str:
    """The allowed range of a number, as in `greater than 0 and at most 10`; empty if any number is allowed."""
    above, high = rules["above"], rules["maximum"]
    low = f"at least {rules['minimum']}" if rules["minimum"] is not None else ""
    bounds = [f"greater than {above}" if above is not None else low, f"at most {high}" if high is not None else ""]
    return " and ".join(filter(None, bounds))


def convert(instance: Any) -> list[str]:
    """Convert the values of a frozen dataclass to the types of its fields; returns one fault for each that has another.

    A path becomes a text, a number of NumPy or pandas Python's own, and 1e5 a whole number.
    """
    faults = []
    for item, kinds in _typed_fields(type(instance)):  # type: ignore[arg-type]  # a class is hashable
        value = getattr(instance, item.name)
        if type(value) in kinds:
            continue
        try:
            object.__setattr__(instance, item.name, _converted(value, kinds))
        except (TypeError, ValueError):
            faults.append(f"{item.name} must be {_type_in_words(item, kinds)}, got {repr(value)[:80]}")
    return faults


@cache
def _typed_fields(cls: type) -> "list[tuple[dataclasses.Field[Any], tuple[type, ...]]]":
    kinds = annotations(cls)
    members = {name: kind.__args__ if isinstance(kind, types.UnionType) else (kind,) for name, kind in kinds.items()}
    plain = {name: tuple(typing.get_origin(kind) or kind for kind in kinds) for name, kinds in members.items()}
    return [(item, (dict,) if Mapping in plain[item.name] else plain[item.name]) for item in fields(cls)]


def _converted(value: Any, kinds: tuple[type, ...]) -> Any:
    """The value as one of the types. Raises TypeError or ValueError if it is none of them."""
    if dict in kinds and isinstance(value, Mapping):
        return value
    if str in kinds and isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (str, bool)):
        raise TypeError
    if hasattr(value, "item"):  # of NumPy
        value = value.item()
    if bool in kinds and isinstance(value, bool):
        return value
    if float in kinds:
        return value if isinstance(value, int) else float(value)
    if int not in kinds or not float(value).is_integer():
        raise ValueError
    return int(value)


def _type_in_words(item: "dataclasses.Field[Any]", kinds: tuple[type, ...]) -> str:
    """Type and allowed values, as in `a number greater than 0 and at most 10`."""
    rules = item.metadata
    if rules["choices"]:
        return f"one of {', '.join(rules['choices'])}"
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a text", dict: "a dict"}
    kind = next(word for kind, word in words.items() if kind in kinds)
    example = f"such as {rules['example']}" if dict in kinds and rules["example"] else _range_in_words(rules)
    return f"{kind} {example}".strip() + (" or None" if types.NoneType in kinds else "")
