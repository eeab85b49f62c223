"""The base class `Parameters`, and `parameter`, which declares one parameter as a field of a pydantic model.

    class Training(Parameters):
        learning_rate: float = parameter(5e-5, "quality", gt=0, le=10, also="lr")
        "peak learning rate"

    Training(learning_rate="1e-4").learning_rate     # 0.0001
    Training(lr=1, learning_rate="abc")              # BadInput, with a sentence for each of the two faults

Values may be strings, as a user types them, or other Python objects. A dotted name such as `lora.r` sets a nested
value. Messages, the help, the JSON schema, the reference page and suggestions are generated from the declaration.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.reading import parse_json
from paretune.core.shell import options

LONGEST_TEXT = 4_096  # characters of a string: the longest path on Linux (PATH_MAX); MLflow can record 6,000

Value = str | int | float  # value of one parameter: a number, true or false, or a string as typed by the user
Effect = Literal[
    "data",  # which rows and which files of the model are read, and how the rows are tokenized
    "evaluation",  # the rows that F1 is measured on
    "quality",  # the quality of the trained model, such as F1
    "seconds",  # the time of a training step
    "memory",  # the memory of one device; nearly every parameter that changes memory also changes time
    "batch",  # the batch plan; jobs are compared by their plans, not by the values of these parameters
    "cluster",  # type and number of devices; jobs are compared by these, not by the values of the parameters
    "noise",  # random variation only
    "stopping",  # when a job is refused, stopped, or moved to another instance type
    "dollars",  # the price of the job, but not what it computes
    "ownership",  # whose account, network and budget the job uses; not sent into SageMaker jobs
    "launcher",  # where and how a job is launched and recorded
]
"""The effects that a job parameter can have. `affecting` lists the parameters with an effect."""
ANY = "*"  # marks a parameter as experimental with every value except its default
COMPUTES: tuple[Effect, ...] = ("data", "quality", "seconds", "memory", "batch", "cluster", "noise")
"""Effects on what a job computes, including its speed. The others concern evaluation, limits, money and the launch."""


class Fault(NamedTuple):
    """A fault of an input: the keys that lead to the wrong value, and a complete sentence for the user."""

    path: tuple[str | int, ...]
    text: str


Rules = tuple[Callable[[Any], Iterable[Fault | str]], ...]
"""Functions that each yield the faults of a model. A fault may be a sentence that begins with the parameter's name."""


def rules_of(table: Mapping[str, Callable[[Any], Any]]) -> Rules:
    """Turn each entry of `table`, a sentence and a condition, into a rule. Return the rules.

    A rule yields its sentence if its condition is true for the model. `{name}` in a sentence is replaced by the value
    of that parameter.
    """

    def rule(template: str, is_broken: Callable[[Any], Any]) -> Callable[[Any], Iterable[str]]:
        names = re.findall(r"{(\w+)}", template)
        return lambda model: (
            [template.format_map({name: spell(getattr(model, name)) for name in names})] if is_broken(model) else []
        )

    return tuple(rule(*item) for item in table.items())


class Plain(str):
    """A string that was not quoted in YAML, or that comes from a command line or a CSV file.

    It is read as a number or a boolean, unless the field requires a string.
    """


def parameter(
    default: Any,
    affects: str = "",
    *,
    not_searched: str = "",
    group: str = "",
    basic: bool = False,
    also: str = "",
    instead: Mapping[str, str] | None = None,
    example: Any = None,
    none: str = "",
    choices: Collection[str] = (),
    experimental: str = "",
    **rules: Any,
) -> Any:
    """Declare a field with bounds (`gt`, `ge`, `lt`, `le`) and metadata. The string below the field is its help text.

    affects: effects of the parameter, separated by spaces (see `Effect`). Every parameter of a job has at least one.
    not_searched: why a study cannot search the parameter, unless `affects` already implies the reason.
    group: title of a group in the help, if the group begins with this parameter.
    basic: whether the short help shows the parameter.
    also: names that other tools use for the parameter, separated by spaces.
    instead: what to do instead, for each value that users may try although it is not a choice.
    example: a value to show in messages.
    none: the word that means "no limit", such as `all`.
    choices: allowed values of a string, if its type does not list them.
    experimental: values that have not run on a GPU cluster or in an AWS account, separated by spaces, or ANY. Help,
        reference page, dry runs and results mark them.
    """
    extra: dict[str, Any] = {"affects": affects.split(), "not_searched": not_searched, "group": group, "basic": basic}
    extra |= {"also": also.split(), "instead": dict(instead or {}), "none": none}
    extra |= {"enum": list(choices)} if choices else {}
    extra |= {"experimental": experimental.split()} if experimental else {}
    examples = None if example is None else [example]
    return Field(default, examples=examples, json_schema_extra=extra, **rules)


def experimental_in(model: "Parameters", outer: str = "") -> tuple[str, ...]:
    """Return the experimental settings in use: `name`, or `name=value` if only some values are experimental."""
    used = list[str]()
    for name, field in type(model).model_fields.items():
        value, marked = getattr(model, name), _marked(field)
        if isinstance(value, Parameters):
            used += experimental_in(value, f"{outer}{name}.")
        elif ANY in marked and value != field.default:
            used.append(f"{outer}{name}")
        elif spell(value) in marked:
            used.append(f"{outer}{name}={spell(value)}")
    return tuple(used)


def experimental_names(cls: type["Parameters"], outer: str = "") -> tuple[str, ...]:
    """Return everything that `experimental_in` can return for a model of this class."""
    names = list[str]()
    for name, field in cls.model_fields.items():
        names += [f"{outer}{name}" if value == ANY else f"{outer}{name}={value}" for value in _marked(field)]
        if isinstance(field.default, Parameters):
            names += experimental_names(type(field.default), f"{outer}{name}.")
    return tuple(names)


def _marked(field: Any) -> Sequence[str]:
    return tuple(field.json_schema_extra.get("experimental", ()))


def experimental_words(used: Iterable[str]) -> str:
    """Return a remark that lists the result of `experimental_in`, or an empty string if there is nothing to list."""
    listed = ", ".join(used)
    return f"experimental, not yet run on a GPU cluster or in an AWS account: {listed}" if listed else ""


class _Hidden:
    def __get__(self, instance: object, owner: type) -> None:
        raise AttributeError


class Parameters(BaseModel):
    """Base class of all models that users fill in: jobs, studies and their sections.

    Every field has a default, and `model_fields_set` has the names that were given. Objects are frozen. A rule of
    `rules` is checked if the fields that it reads are valid. So one call reports all faults of fields and `rules`, each
    of them once. `last_rules` are checked only if there are no such faults.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        str_max_length=LONGEST_TEXT,
        use_attribute_docstrings=True,
        ignored_types=(_Hidden,),
    )
    rules: ClassVar[Rules] = ()
    last_rules: ClassVar[Rules] = ()  # checked only if there is no other fault
    listed_by: ClassVar[str] = "train"  # the command whose help lists all names
    hidden: ClassVar[str] = ""  # prefix of names that messages leave out
    register = _Hidden()  # JobSpec has a field `register`; without this, pydantic warns that it hides ABCMeta.register

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise BadInput(list(dict.fromkeys(fault.text for fault in self._faults(error)))) from None

    # Tells pydantic to skip this __init__ when it validates a model inside another one.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Return this object, which nothing changes: pydantic copies the default of a section for each new job."""
        return self

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Create the model from strings or other values. An empty string means the default, except inside a mapping.

        With a dotted name, it is kept only if all values of the mapping must be strings, as for `tags.team`.
        Raises BadInput with the faults.
        """
        return cls(**{str(name): value for name, value in values.items()})

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> tuple[Self | None, list[Fault]]:
        """Return the model and no faults, or None and the faults."""
        try:
            return cls.model_validate(dict(values)), []
        except ValidationError as error:
            return None, cls._faults(error)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, handler: Callable[[Any], Self]) -> Self:
        """Return the checked model, or raise a ValidationError, which pydantic merges into that of an outer model."""
        if not isinstance(values, dict):
            return handler(values)
        values, errors = cls._typed(values), list[Any]()
        try:
            made = handler(values)
        except ValidationError as error:
            errors = [_of_script(cls, item, values) for item in error.errors(include_url=False)]
            made = _made_without(errors, values, handler)
        for rule in cls.rules:
            try:
                errors += [_error(fault) for fault in rule(made)]
            except AttributeError:  # it reads a field that is not valid
                if not errors:
                    raise
        if not errors:
            errors = [_error(fault) for rule in cls.last_rules for fault in rule(made)]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, [_detail(item) for item in errors])
        return made

    @classmethod
    def _typed(cls, values: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the values by name, with strings converted for their field.

        The values of dotted names are moved into the mapping to which they belong.
        """
        nested, fields = dict[str, Any](), cls.model_fields
        for name, value in sorted(values.items(), key=lambda item: "." in str(item[0])):
            outer, _, inner = str(name).partition(".")
            outer = outer.replace("-", "_")
            is_text = bool(inner) and outer in fields and fields[outer].annotation == dict[str, str]
            if outer in fields and (value is None or (isinstance(value, str) and not value.strip() and not is_text)):
                continue
            if inner:
                before = nested.get(outer) or {}
                with suppress(ValueError):
                    before = parse_json(before) if isinstance(before, str) else before
                value = {**dict(before), inner: value} if isinstance(before, Mapping) else before
            nested[outer] = value
        read = {name: _read_value(value, fields[name]) if name in fields else value for name, value in nested.items()}
        return {name: value for name, value in read.items() if value is not None and value not in ({}, [], ())}

    @classmethod
    def _faults(cls, error: ValidationError) -> list[Fault]:
        return [cls._fault(item) for item in error.errors(include_url=False)]

    @classmethod
    def _fault(cls, error: Any) -> Fault:
        path, value = error["loc"], error["input"]
        name = ".".join(map(str, path)).removeprefix(cls.hidden)
        if error["type"] == "rule":
            return Fault(path, error["msg"])
        if error["type"] == "extra_forbidden":
            return Fault(path, unknown(cls, name))
        schema = cls.schema_at(path)
        got = repr(value)[:80] if isinstance(value, str) else (spell(value) or "nothing")[:80]
        got = re.sub(r"://[^\s/]*@", "://", got)  # hides the password of a database
        words = bounds_in_words(schema) if error["type"] in _OUT_OF_BOUNDS else in_words(schema)
        text = f"{name} must be {words}, got {got}"
        if error["type"] == "string_too_long":
            text = f"{name} must have at most {LONGEST_TEXT:,} characters, got {len(value):,}: {value[:40]!r}..."
        elif error["type"] == "finite_number":
            text = f"{name} must be a finite number, got {value}"
        elif isinstance(value, str) and schema.get("type") in ("object", "array") and value.strip()[:1] in ("{", "["):
            text += _json_fault(value.strip())
        return Fault(path, text + _hint(name, value, schema))

    @classmethod
    def model_json_schema(cls, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return pydantic's JSON schema, with the experimental parameters marked in their descriptions."""
        schema = super().model_json_schema(**options)
        for owner in (schema, *schema.get("$defs", {}).values()):
            for field in owner.get("properties", {}).values():
                if marked := field.get("experimental"):
                    values = "" if ANY in marked else f": {', '.join(marked)}"
                    field["description"] += f" (experimental{values})"
        return schema

    @classmethod
    def schema_at(cls, path: Iterable[str | int] = ()) -> dict[str, Any]:
        """Return the JSON schema of the value at these keys; empty if the value may be anything."""
        whole = schema = _schema(cls)
        for key in path:
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties") or schema.get("items")
            schema = inner if isinstance(inner, dict) else {}
            schema = next((item for item in schema.get("anyOf", ()) if item.get("type") != "null"), {}) | schema
            schema = whole["$defs"].get(schema.get("$ref", "").rpartition("/")[2], {}) | schema
        return schema

    def given(self) -> dict[str, Any]:
        """Return the values that were given, even those that equal a default. `read` turns them into the same model."""
        dumped = self.model_dump(mode="json", exclude_unset=True)
        return {name: dumped[name] for name in type(self).model_fields if name in dumped}

    def given_text(self) -> dict[str, str]:
        """Return the values that were given as strings that `read` parses. MLflow records these."""
        return {name: spell(value) for name, value in self.given().items()}

    def as_text(self) -> dict[str, str]:
        """Return the value of every field as the user would type it; empty for None and for empty collections."""
        return {name: spell(getattr(self, name)) for name in type(self).model_fields}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these changes, and validate it. None resets a parameter to its default."""
        return self.read(self.given() | changes)


@cache
def affecting(cls: type[Parameters], *effects: Effect, without: tuple[Effect, ...] = ()) -> tuple[str, ...]:
    """Return the names of parameters of `cls` that have one of `effects` and none of `without`, in field order."""
    of_each = {name: set(effects_of(cls, name)) for name in cls.model_fields}
    return tuple(name for name, effect in of_each.items() if effect & {*effects} and not effect & {*without})


def effects_of(cls: type[Parameters], name: str) -> list[str]:
    """Return the effects of a parameter.

    A nested parameter that declares none, such as `sagemaker.subnets`, has the effects of its mapping.
    """
    return list(extra_of(cls, name, "affects") or extra_of(cls, name.partition(".")[0], "affects"))


def extra_of(cls: type[Parameters], name: str, key: str) -> Any:
    """Return the metadata that `parameter` stored for a field under `key`, such as `also`; empty if there is none."""
    return cls.schema_at(name.split(".", 1)).get(key) or []


@cache
def _schema(cls: type[Parameters]) -> dict[str, Any]:
    return {"$defs": {}} | cls.model_json_schema()


def _made_without(errors: Iterable[Any], values: dict[str, Any], handler: Callable[[Any], Any]) -> Any:
    """Create a model from the values without errors. The model lacks the others: reading them raises AttributeError."""
    for depth in (2, 1):
        paths = [item["loc"][:depth] for item in errors]
        right = {name: _without(value, paths, name) for name, value in values.items() if (name,) not in paths}
        with suppress(ValidationError):
            made = handler(right)
            break
    for outer, *inner in paths:
        owner = vars(made).get(outer)
        if not inner or not owner:
            vars(made).pop(outer, None)
        elif isinstance(owner, BaseModel):
            vars(owner).pop(inner[0], None)
    return made


def _without(value: Any, paths: Collection[tuple[Any, ...]], name: str) -> Any:
    is_mapping = isinstance(value, dict)
    return {key: item for key, item in value.items() if (name, key) not in paths} if is_mapping else value


def faults_error(faults: Iterable[Fault]) -> ValidationError:
    """Create an error to raise in a validator; pydantic merges it into the error of the whole model."""
    return ValidationError.from_exception_data("", [_detail(_error(fault)) for fault in faults])


def _of_script(cls: type[Parameters], error: Any, values: Mapping[str, Any]) -> Any:
    """Return the error; for an unknown name and a script, one that says how the script's arguments are given."""
    name, script = ".".join(map(str, error["loc"])), str(values.get("entry_script") or "")
    if error["type"] != "extra_forbidden" or not script or len(error["loc"]) != 1:
        return error
    return _error(Fault(error["loc"], with_own_argument(unknown(cls, name), name, script)))


def with_own_argument(message: str, name: str, script: str | None) -> str:
    """Return the message for an unknown name; for a script, it also says how an argument of the script is given."""
    if not script:
        return message
    argument = options(**{f"training_arguments.{name}": "VALUE"})
    joined = f"{message} An" if message.endswith("?") else f"{message}; an"
    return f"{joined} argument of {PurePath(script).name} is given as {argument}"


def _error(fault: Fault | str) -> dict[str, Any]:
    if isinstance(fault, str):
        name = re.match(r"[\w.]*\w", fault)
        fault = Fault(tuple(name[0].split(".")) if name else (), fault)
    return {"type": "rule", "msg": fault.text, "loc": fault.path, "input": None}


def _detail(error: Any) -> InitErrorDetails:
    kind = PydanticCustomError(error["type"], "{text}", {"text": error.get("msg", "")})
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"])


def _read_value(value: Any, field: Any) -> Any:
    """Convert a string to a whole number, list or JSON value if the field needs one. Pydantic converts the rest."""
    kinds = get_args(field.annotation) if isinstance(field.annotation, UnionType) else (field.annotation,)
    kind = next(kind for kind in kinds if kind is not NoneType)
    origin = get_origin(kind) or kind
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if hasattr(value, "item"):  # a NumPy number
        value = value.item()
    if not isinstance(value, str):
        if isinstance(value, bool) and origin in (int, float):
            return repr(value)  # pydantic refuses this string; it would take True as 1
        return untyped(value) if origin is dict and Any in get_args(kind) else value
    if origin is str:
        return str(value)  # unchanged: a column may be called " text"
    text = value.strip()
    if field.json_schema_extra["none"] and text.lower() == field.json_schema_extra["none"]:
        return None
    if text[:1] in ("{", "["):
        with suppress(ValueError):
            return parse_json(text)
    if origin is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if origin is int:
        with suppress(ValueError, OverflowError):
            return int(text) if text.isdigit() else int(float(text)) if float(text).is_integer() else text
    return text


def _json_fault(text: str) -> str:
    """Return the reason, in parentheses, why a string is not JSON; empty if it is JSON."""
    try:
        parse_json(text)
    except ValueError as error:
        return f" ({error})"
    return ""


def untyped(value: Any) -> Any:
    """Convert unquoted strings (`Plain`), NumPy values and paths to JSON types. `no` and `010` stay strings."""
    if isinstance(value, Mapping):
        return {name: untyped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [untyped(item) for item in value]
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Plain):
        with suppress(ValueError):
            return json.loads(value, parse_constant=str)
        with suppress(ValueError):
            return float(value) if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value) else str(value)
        return str(value)
    return value


def spell(value: Any) -> str:
    """Write the value as the user would type it; empty for None and for empty collections."""
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple) and all(isinstance(item, str) and "," not in item for item in value):
        return ",".join(value)
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(untyped(value), sort_keys=True) if value else ""
    return repr(value) if isinstance(value, float) else str(value)


def split_list(text: str | None) -> tuple[str, ...]:
    """Split a comma-separated string into entries, without empty ones."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def unknown(cls: type[Parameters], name: str, listed_by: str = "") -> str:
    """Return the message for an unknown name. It suggests parameters that list the name in `also`, or similar ones.

    `listed_by` is the command whose help lists all parameters, by default `cls.listed_by`.
    """
    outer, _, last = name.rpartition(".")
    inside = {
        f"{prefix}.{inner}" if prefix else inner: schema
        for prefix in ([outer] if outer else ["", *cls.model_fields])
        for inner, schema in cls.schema_at(prefix.split(".") if prefix else ()).get("properties", {}).items()
    }
    meant = [
        other
        for other, schema in inside.items()
        if last.lower() in schema.get("also", ()) or (not outer and other.endswith(f".{last}"))
    ]
    if meant:
        return f"unknown parameter {name}: did you mean {' or '.join(meant)}?"
    names = [other for other in inside if outer or "." not in other]
    all_names = f"there are {', '.join(names)}" if names else "there is none"
    if len(names) == 1:
        all_names = f"the only one is {names[0]}"
    if len(names) > 15:
        all_names = f"`paretune {listed_by or cls.listed_by} --help all` lists all parameters"
    return f"unknown parameter {name}: {did_you_mean(name, names, or_longer=True) or all_names}"


_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a JSON object",
}
_BOUNDS = {
    "exclusiveMinimum": "greater than",
    "minimum": "at least",
    "exclusiveMaximum": "less than",
    "maximum": "at most",
}
_OUT_OF_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}


def bounds_in_words(schema: Mapping[str, Any]) -> str:
    """Describe the bounds of a number, as in `greater than 0 and at most 10`."""
    return " and ".join(f"{words} {schema[key]:.12g}" for key, words in _BOUNDS.items() if key in schema)


def in_words(schema: Mapping[str, Any]) -> str:
    """Describe the values that a schema allows, as in `a number greater than 0 and at most 10`."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    examples = [f"such as {spell(item)}" for item in schema.get("examples", ())]
    words = [_KINDS.get(schema.get("type", ""), "a value"), bounds_in_words(schema), *examples]
    return " ".join(filter(None, words))


_MINUTES = {"s": 1 / 60, "m": 1, "min": 1, "h": 60, "d": 1440}


def _hint(name: str, value: Any, schema: Mapping[str, Any]) -> str:
    """Return the end of a message, which suggests what was meant; empty if there is no suggestion."""
    if "enum" in schema:
        instead = schema.get("instead", {}).get(str(value).replace("_", "-").lower())
        return f": {instead}" if instead else did_you_mean(str(value), schema["enum"], lead="; ", most=1)
    duration = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d)", str(value))
    if duration and name.endswith("_minutes"):
        return f": give minutes, here {float(duration[1]) * _MINUTES[duration[2]]:g}"
    return ""
