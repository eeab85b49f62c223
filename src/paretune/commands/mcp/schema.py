"""JSON Schema of the parameters that an agent may set, made from their fields, and their values as texts."""

import types
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from paretune.core.errors import refuse
from paretune.specification.parameters import annotations, default_text, spell

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_BOUNDS = {"minimum": "minimum", "maximum": "maximum", "above": "exclusiveMinimum"}


def schema_of(cls: type, names: Collection[str], *, lists: bool = False) -> dict[str, Any]:
    """The schema of an object with these fields of a dataclass of parameters; with `lists`, of lists of values, too."""
    properties = {}
    for item in fields(cls):
        if item.name in names:
            value = _value_schema(annotations(cls)[item.name], item.metadata)
            if lists:
                value = {"anyOf": [value, {"type": "array", "items": value}]}
            properties[item.name] = {"description": item.metadata["help"], **value}
            if default_text(item):
                properties[item.name]["default"] = item.default
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value_schema(annotation: Any, rules: Mapping[str, Any]) -> dict[str, Any]:
    members = annotation.__args__ if isinstance(annotation, types.UnionType) else (annotation,)
    schema: dict[str, Any] = {"type": next((_TYPES[kind] for kind in members if kind in _TYPES), "object")}
    schema |= {key: rules[rule] for rule, key in _BOUNDS.items() if rules[rule] is not None}
    return schema | ({"enum": list(rules["choices"])} if rules["choices"] else {})


def as_texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Values as they would be typed, lists as comma-separated texts; raises BadInput for null and nested lists."""
    texts = {}
    faults = []
    for name, value in parameters.items():
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(entry, (str, int, float, Mapping)) for entry in values):
            faults.append(
                f"{name} must be a text, a number, true, false, an object or a list of these, got {str(value)[:200]}"
            )
        texts[name] = ",".join(map(spell, values))
    refuse(faults)
    return texts
