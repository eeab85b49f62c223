"""One parameter: read from what was typed, written back, kept in its range."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting, parameter, parse, range_faults, spell


@dataclass
class Example:
    """One field of each kind."""

    number: int = parameter(3, "a number", minimum=1, maximum=10)
    rate: float = parameter(0.5, "a rate", above=0, maximum=1)
    color: str = parameter("red", "a colour", choices=("red", "green", "blue"))
    flag: bool = parameter(False, "a flag")
    more: Mapping[str, Any] = parameter({}, "an object")
    limit: int | None = parameter(None, "a limit", minimum=1)


FIELDS = {item.name: item for item in fields(Example)}


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("7", int, 7),
        (" 7 ", int, 7),
        ("1e3", int, 1000),
        ("8.0", int, 8),
        ("-2", int, -2),
        ("3e-5", float, 3e-5),
        (".5", float, 0.5),
        ("True", bool, True),
        ("no", bool, False),
        ("1", bool, True),
        (" text ", str, " text "),
        ("all", str, "all"),
        ("all", int | None, None),
        ("NONE", int | None, None),
        ("5", int | None, 5),
        ("none", str | None, "none"),
        ('{"a": [1, {"b": null}]}', Mapping[str, Any], {"a": [1, {"b": None}]}),
    ],
)
def test_what_was_typed_becomes_the_value_that_is_meant(text: str, annotation: Any, value: object) -> None:
    assert parse("name", text, annotation) == value


@pytest.mark.parametrize(
    ("text", "annotation", "rule"),
    [
        ("seven", int, "name must be a whole number, got 'seven'"),
        ("7.5", int, "name must be a whole number, got '7.5'"),
        ("inf", int, "name must be a whole number, got 'inf'"),
        ("nan", int, "name must be a whole number, got 'nan'"),
        ("1,5", float, "name must be a number, got '1,5'"),
        ("maybe", bool, "name must be true or false, got 'maybe'"),
        ("{'a': 1}", Mapping[str, Any], "name must be a JSON object such as"),
        ("[1, 2]", Mapping[str, Any], "name must be a JSON object such as"),
    ],
)
def test_what_means_nothing_is_refused_in_a_whole_sentence(text: str, annotation: Any, rule: str) -> None:
    with pytest.raises(ValueError, match="name must be") as caught:
        parse("name", text, annotation)

    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (5e-5, "5e-05"),
        ("a b", "a b"),
        ({}, ""),
        ({"b": 1, "a": 2}, '{"a": 2, "b": 1}'),
    ],
)
def test_a_value_is_written_as_it_would_be_typed(value: object, text: str) -> None:
    assert spell(value) == text


@pytest.mark.parametrize("value", [5, 0.1, 1e-300, 123456.789, True, "text", {"a": {"b": [1, 2]}}])
def test_what_is_written_is_read_back(value: Any) -> None:
    kind = Mapping[str, Any] if isinstance(value, dict) else type(value)

    assert parse("name", spell(value), kind) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("number", 1), ("number", 10), ("rate", 1.0), ("rate", 1e-9), ("color", "blue"), ("limit", None), ("limit", 1)],
)
def test_the_ends_of_a_range_are_in_it(name: str, value: object) -> None:
    assert range_faults(FIELDS[name], value) == []


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("number", 0, "number must be at least 1 and at most 10, got 0"),
        ("number", 11, "number must be at least 1 and at most 10, got 11"),
        ("rate", 0.0, "rate must be greater than 0 and at most 1, got 0.0"),
        ("rate", float("nan"), "rate must be a finite number, got nan"),
        ("rate", float("inf"), "rate must be a finite number, got inf"),
        ("color", "bleu", "color must be one of red, green, blue, got 'bleu'; did you mean blue?"),
        ("color", "", "color must be one of red, green, blue, got ''"),
        ("limit", 0, "limit must be at least 1, got 0"),
        pytest.param(
            "limit", 16**5_000, "limit must be at most 1e+15, whatever its sign, got a larger number", id="hex"
        ),
        pytest.param(
            "number", 16**5_000, "number must be at least 1 and at most 10, got a far larger number", id="max"
        ),
        ("limit", -(10**16), "limit must be at most 1e+15, whatever its sign, got a larger number"),
        ("color", "b" * 5_000, f"color must have at most 4,096 characters, got 5,000: '{'b' * 40}'..."),
    ],
)
def test_what_is_out_of_range_is_one_fault_with_the_rule_and_the_value(name: str, value: object, fault: str) -> None:
    assert range_faults(FIELDS[name], value) == [fault]


def test_two_objects_do_not_share_their_default() -> None:
    assert Example().more is not Example().more


@pytest.mark.parametrize(
    ("name", "hashed", "moves_quality", "moves_a_step"),
    [
        ("learning_rate", True, True, False),
        ("fine_tuning", True, True, True),
        ("max_seq_length", True, True, True),
        ("max_train_samples", True, True, False),
        ("strategy", True, False, True),
        ("instance_type", True, False, True),
        ("seed", True, False, False),
        ("max_cost_usd", False, False, False),
        ("role", False, False, False),
        ("spot", False, False, False),
    ],
)
def test_what_a_parameter_affects_follows_from_its_declaration(
    name: str, hashed: bool, moves_quality: bool, moves_a_step: bool
) -> None:
    assert (name in affecting(JobSpec, *COMPUTES)) is hashed
    assert (name in affecting(JobSpec, "quality")) is moves_quality
    assert (name in affecting(JobSpec, "seconds", "memory")) is moves_a_step
