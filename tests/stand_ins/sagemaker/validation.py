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
    """What breaks a length, a bound, a choice or a pattern; a boto client has checked types and required members."""
    if shape.type_name == "structure":
        for name in value:
            below = f"{name[0].lower()}{name[1:]}"
            yield from _faults(shape.members[name], value[name], f"{place}.{below}" if place else below)
        return
    size, what = (value, "value") if isinstance(value, int) else (len(value), "length")
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield _fault(value, place, f"have {what} greater than or equal to {least}")
    if most is not None and size > most:
        yield _fault(value, place, f"have {what} less than or equal to {most}")
    if shape.type_name == "list":
        for number, item in enumerate(value, start=1):
            yield from _faults(shape.member, item, f"{place}.{number}.member")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _faults(shape.value, item, f"{place}.{key}.member")
    elif shape.type_name == "string":
        if shape.enum and value not in shape.enum:
            yield _fault(value, place, f"satisfy enum value set: [{', '.join(shape.enum)}]")
        pattern = shape.metadata.get("pattern")
        if pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
            yield _fault(value, place, f"satisfy regular expression pattern: {pattern}")


def _fault(value: Any, place: str, rule: str) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"Value '{shown}' at '{place}' failed to satisfy constraint: Member must {rule}"
