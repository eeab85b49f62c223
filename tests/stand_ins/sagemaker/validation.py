"""Requests against the API model that botocore ships, refused in the words of AWS."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any


class Refusal(Exception):
    """An answer with an error code.

    Args:
        code: such as `ValidationException`.
        status: HTTP status.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Invalid(Refusal):
    """A request that breaks a rule."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


@cache
def _model(service: str = "sagemaker") -> Any:
    import botocore.session

    return botocore.session.get_session().get_service_model(service)


def check(operation: str, request: dict[str, Any], service: str = "sagemaker") -> None:
    """Raise `Invalid` with all faults of a request."""
    faults = list(_faults(_model(service).operation_model(operation).input_shape, request, ""))
    if faults:
        count = f"{len(faults)} validation error{'s' if len(faults) > 1 else ''} detected"
        raise Invalid(f"{count}: {'; '.join(faults)}")


def instance_types() -> list[str]:
    """Every type a training job may ask for."""
    shape = _model().operation_model("CreateTrainingJob").input_shape
    return list(shape.members["ResourceConfig"].members["InstanceType"].enum)


def _faults(shape: Any, value: Any, place: str) -> Iterator[str]:
    look = {
        "structure": _structure,
        "list": _list,
        "map": _map,
        "string": _string,
        "integer": _number,
        "long": _number,
        "boolean": _boolean,
    }.get(shape.type_name)
    if look is not None:
        yield from look(shape, value, place)


def _structure(shape: Any, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _fault(value, place, "be a structure")
        return
    for name in shape.required_members:
        if value.get(name) is None:
            yield _fault(None, _below(place, name), "not be null")
    for name, member in shape.members.items():
        if value.get(name) is not None:
            yield from _faults(member, value[name], _below(place, name))


def _list(shape: Any, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield _fault(value, place, "be a list")
        return
    yield from _bounds(shape, len(value), value, place, "length")
    for number, item in enumerate(value, start=1):
        yield from _faults(shape.member, item, f"{place}.{number}.member")


def _map(shape: Any, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _fault(value, place, "be a map")
        return
    yield from _bounds(shape, len(value), value, place, "length")
    for key, item in value.items():
        yield from _faults(shape.key, key, f"{place}.key")
        yield from _faults(shape.value, item, f"{place}.{key}.member")


def _string(shape: Any, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, str):
        yield _fault(value, place, "be a string")
        return
    yield from _bounds(shape, len(value), value, place, "length")
    if shape.enum and value not in shape.enum:
        yield _fault(value, place, f"satisfy enum value set: [{', '.join(shape.enum)}]")
    pattern = shape.metadata.get("pattern")
    if pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
        yield _fault(value, place, f"satisfy regular expression pattern: {pattern}")


def _number(shape: Any, value: Any, place: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield _fault(value, place, "be an integer")
        return
    yield from _bounds(shape, value, value, place, "value")


def _boolean(shape: Any, value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield _fault(value, place, "be a boolean")


def _bounds(shape: Any, size: int, value: Any, place: str, what: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield _fault(value, place, f"have {what} greater than or equal to {least}")
    if most is not None and size > most:
        yield _fault(value, place, f"have {what} less than or equal to {most}")


def _below(place: str, name: str) -> str:
    name = name[0].lower() + name[1:]
    return f"{place}.{name}" if place else name


def _fault(value: Any, place: str, rule: str) -> str:
    output = "" if value is None else f" '{value if isinstance(value, str) else json.dumps(value)}'"
    at = "null" if value is None else ""
    return f"Value{output}{' ' + at if at else ''} at '{place}' failed to satisfy constraint: Member must {rule}"
