"""How parameters are described, read from what was typed, written back and kept in their ranges."""

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, Literal, TypeVar

from paretune.core.errors import collecting, did_you_mean, refuse
from paretune.core.untrusted import parse_json

_Asked = TypeVar("_Asked")

LONGEST_TEXT = 4_096
"""Characters of a parameter: as many as a path of Linux may have (PATH_MAX); MLflow records 6,000."""
LARGEST_WHOLE = 10**15
"""Of whole numbers, with either sign: more rows than any data have, and exact as a float."""
_MOST_BITS = 10_000  # Python writes no number of more than 4,300 digits

Value = str | int | float
"""Value of one parameter: a number, a truth value, or a text as it would be typed."""
Effect = Literal[
    "data",  # which rows there are, and how they are read and tokenised; which files of the model are read
    "evaluation",  # the rows that F1 is measured on
    "quality",  # what the trained model is worth (F1), beside its batch plan
    "seconds",  # how long one training step takes
    "memory",  # what one device holds
    "batch",  # the batch plan; two jobs are compared by the numbers of their plans, not by these texts
    "cluster",  # which devices there are, and how many; compared by number and size likewise
    "noise",  # only what chance decides
    "limit",  # when a job is given up, or not begun
    "bill",  # dollars, and no result
    "account",  # whose account, network and purse it is; never travels into a job
    "launcher",  # where a job runs, or that it only pretends to
]
"""What a parameter of a job may affect. Every list that says so of parameters is derived from their `affects`."""
COMPUTES: tuple[Effect, ...] = ("data", "quality", "seconds", "memory", "batch", "cluster", "noise")
"""What makes two jobs compute something else; the rest is about limits, money and account."""


def parameter(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    affects: Collection[Effect] = (),
    not_searched: str = "",
    example: str = "",
    group: str = "",
    basic: bool = False,
) -> Any:
    """A field with all that is known of a parameter.

    `about` is one line of help, `above` a number that the value must exceed, `example` a JSON object that it may be.
    `affects` is what of a job depends on it: parameters of a job have at least one effect. `not_searched` says why no
    study searches it, where `affects` does not say so already. `group` is the title of the group of the help that it
    begins: the ones after it belong to the same group. `basic` ones stand on the short page of the help.
    """
    rules: dict[str, Any] = {"about": about, "choices": choices, "minimum": minimum, "maximum": maximum, "above": above}
    rules |= {"affects": frozenset(affects), "not_searched": not_searched, "example": example}
    rules |= {"group": group, "basic": basic}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=rules)
    return field(default=default, metadata=rules)


def affecting(cls: type, *effects: Effect, without: tuple[Effect, ...] = ()) -> tuple[str, ...]:
    """Names of the parameters of `cls` that affect any of `effects` and none of `without`, in their order."""
    return _affecting(cls, effects, without)


@cache
def _affecting(cls: type, effects: tuple[Effect, ...], without: tuple[Effect, ...]) -> tuple[str, ...]:
    return tuple(
        item.name
        for item in fields(cls)
        if item.metadata["affects"] & set(effects) and not item.metadata["affects"] & set(without)
    )


def default_text(item: "dataclasses.Field[Any]") -> str:
    """The default of a field as it would be typed; empty where it is None or an empty mapping."""
    return "" if item.default is dataclasses.MISSING else spell(item.default)


def read(cls: type[_Asked], texts: Mapping[str, str], command: str = "main") -> _Asked:
    """A value of a dataclass whose fields are parameters, from what was typed; an empty text means the default.

    Raises:
        BadInput: all unknown names, wrong types and out-of-range values at once.
    """
    known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    kinds = annotations(cls)  # type: ignore[arg-type]  # a class is hashable
    faults: list[str] = []
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in known:
            faults.append(f"unknown parameter {name}: {parameter_hint(name, known, command)}")
        elif text.strip():
            try:
                values[name] = parse(name, text, kinds[name], known[name].metadata["example"])
            except ValueError as error:
                faults.append(str(error))
    with collecting(faults):
        asked = cls(**values)
    refuse(faults)
    return asked


@cache
def annotations(cls: type) -> dict[str, Any]:
    """Types of the fields; working them out takes longer than all the rest of reading."""
    return typing.get_type_hints(cls)


def check(asked: Any) -> list[str]:
    """What is wrong with the values of a dataclass whose fields are parameters, by each field's own rules."""
    return [fault for item in fields(asked) for fault in range_faults(item, getattr(asked, item.name))]


def switches_of(cls: type) -> frozenset[str]:
    """Parameters that are true or false, so that their bare name is as good as the value true."""
    return frozenset(name for name, kind in annotations(cls).items() if kind is bool)


def help_lines(cls: type) -> dict[str, str]:
    """Name of every parameter to one line of help, with its default and choices."""
    lines = {}
    for item in fields(cls):
        default = spell(item.default) if item.default is not dataclasses.MISSING else "{}"
        choices = f" [{' | '.join(item.metadata['choices'])}]" if item.metadata["choices"] else ""
        lines[item.name] = f"{item.metadata['about']}{choices}" + (f" (default: {default})" if default else "")
    return lines


def basics_of(cls: type) -> frozenset[str]:
    """Parameters on the short page of the help."""
    return frozenset(item.name for item in fields(cls) if item.metadata["basic"])


def choices_of(cls: type, name: str) -> tuple[str, ...]:
    """The values that a parameter may have; empty where it may have any, or where there is no such parameter."""
    found = {item.name: item for item in fields(cls)}.get(name)
    if found is None:
        return ()
    return ("true", "false") if annotations(cls)[name] is bool else tuple(found.metadata["choices"])


def groups_of(cls: type) -> dict[str, str]:
    """First parameter of each group of the help to the group's title."""
    return {item.name: item.metadata["group"] for item in fields(cls) if item.metadata["group"]}


def parameter_hint(name: str, known: Collection[str], command: str = "main") -> str:
    """The parameters that were probably meant by an unknown `name`, or where all are listed."""
    return did_you_mean(name, known, or_longer=True) or f"`paretune {command} --help all` lists all parameters"


def parse(name: str, text: str, annotation: Any, example: str = "") -> Any:
    """The value of the parameter `name` that `text`, which is not empty, means; `annotation` is the field's type.

    `example` is a JSON object that it may be, for the message where it is none.

    Raises:
        ValueError: `text` is no such value; the message is a whole sentence.
    """
    is_optional = isinstance(annotation, types.UnionType)
    if is_optional:
        (annotation,) = [member for member in annotation.__args__ if member is not types.NoneType]
    if annotation is str:
        return text  # as it is: a column may be called " text", a configuration "all"
    text = text.strip()
    if is_optional and text.lower() in {"none", "all"}:
        return None
    if annotation is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return words[text.lower()]
    if annotation in (int, float):
        return _number(name, text, annotation)
    return _json_object(name, text, example or '{"key": "value"}')


def _number(name: str, text: str, kind: type[int | float]) -> int | float:
    with contextlib.suppress(ValueError):
        return kind(text)
    with contextlib.suppress(ValueError):
        if kind is int and float(text).is_integer():
            return int(float(text))
    raise ValueError(f"{name} must be {'a whole number' if kind is int else 'a number'}, got {text!r}")


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
    """The value as it would be typed; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True) if value else ""
    return repr(value) if isinstance(value, float) else str(value)


def range_faults(item: "dataclasses.Field[Any]", value: Any) -> list[str]:
    """What is wrong with the value of one field, by its own rules; empty if nothing is."""
    rules = item.metadata
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return [f"{item.name} must have at most {LONGEST_TEXT:,} characters, got {len(value):,}: {value[:40]!r}..."]
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE and rules["maximum"] is None:
        return [f"{item.name} must be at most {LARGEST_WHOLE:.0e}, whatever its sign, got a larger number"]
    if rules["choices"] and value not in rules["choices"]:
        hint = did_you_mean(str(value), rules["choices"], lead="; ", most=1)
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
    allowed = f"greater than {above}" if above is not None else f"at least {low}"
    shown = "a far larger number" if isinstance(value, int) and value.bit_length() > _MOST_BITS else value
    return [f"{item.name} must be {allowed}" + (f" and at most {high}" if high is not None else "") + f", got {shown}"]
