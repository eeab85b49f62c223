"""What a study searches: values and ranges of parameters, and which of their combinations make a job."""

import itertools
import json
import math
import random
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import Any

from paretune.core.errors import collecting, refuse
from paretune.specification.fine_tuning import RESERVED_TRAINING_ARGUMENTS
from paretune.specification.job import JobSpec, launch_faults
from paretune.specification.parameters import COMPUTES, Effect, Value, annotations, spell

FaultPath = tuple[str, ...]
"""Where a fault is: the keys that lead there, such as ("search", "learning_rate")."""
Fault = tuple[FaultPath, str]

_MOST_COMBINATIONS = 2000  # 60 microseconds each (measured 2026-11-20, AMD EPYC)
_DRAWN = 500  # of more combinations than that

# Jobs with the same hash continue from each other's checkpoint: the second of two would cost nearly nothing.
_SAME_RESULT = "it changes nothing that comes out"
_WHY_NOT: Mapping[Effect, str] = {
    "evaluation": "F1 compares jobs only on the same rows: make one study of each",
    "noise": "what differs only in it is noise, which a study measures by itself",
    "launcher": "seconds of one launcher say nothing about another's",
    "stopping": "it limits a job and changes nothing that comes out",
    "ownership": "it belongs to your account and changes nothing that comes out",
}


def _why_not_searched(item: "Field[Any]") -> str:
    """Why no study searches a parameter; empty where a study may."""
    affects = item.metadata["affects"]
    derived = next((why for effect, why in _WHY_NOT.items() if effect in affects), "")
    return item.metadata["not_searched"] or derived or ("" if affects & set(COMPUTES) else _SAME_RESULT)


NOT_SEARCHED = {item.name: why for item in fields(JobSpec) if (why := _why_not_searched(item))}
"""Parameters of a job that no study searches, and why. All that the hash of a job leaves out are among them."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Values to choose from."""

    values: tuple[Value, ...]

    @property
    def corners(self) -> tuple[Value, ...]:
        """What combinations are made of, to find out whether they make jobs: every value."""
        return self.values

    def as_json(self) -> dict[str, Any]:
        """As it stands in a study file."""
        return {"choices": list(self.values)}


@dataclass(frozen=True, kw_only=True)
class Range:
    """All numbers from `low` to `high`, both included; whole ones for whole parameters; `log`: equal by ratio."""

    low: float
    high: float
    log: bool = False

    @property
    def corners(self) -> tuple[Value, ...]:
        """What combinations are made of, to find out whether they make jobs: both ends."""
        return self.low, self.high

    def at(self, share: float) -> float:
        """The number at a share, 0 to 1, of the way from `low` to `high`."""
        value = self.low * (self.high / self.low) ** share if self.log else self.low + (self.high - self.low) * share
        return min(self.high, max(self.low, value))  # powers are rounded

    def as_json(self) -> dict[str, Any]:
        """As it stands in a study file."""
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}


Search = Mapping[str, Choices | Range]


@cache
def parameters() -> dict[str, Any]:
    """Parameter of a job to its field, which holds its range."""
    return {item.name: item for item in fields(JobSpec)}


def kind_of(name: str) -> type:
    """Plain type of a job parameter: str, bool, int, float or dict (JSON)."""
    return plain_kind(annotations(JobSpec)[name])


def plain_kind(annotation: Any) -> type:
    """Plain type of a parameter with this annotation: str, bool, int, float or dict (JSON)."""
    if isinstance(annotation, types.UnionType):
        (annotation,) = [member for member in annotation.__args__ if member is not types.NoneType]
    return annotation if isinstance(annotation, type) else dict


INSIDE = "."
"""Between a parameter that is a mapping and a name in it: training_arguments.weight_decay."""


def parameter_of(name: str) -> str:
    """The parameter of a job that a searched name belongs to: that before the dot, where there is one."""
    return name.partition(INSIDE)[0]


def is_inside(name: str) -> bool:
    """Whether a searched name is one in a mapping of the job, such as training_arguments.weight_decay."""
    prefix, dot, inner = name.partition(INSIDE)
    return bool(dot and inner) and prefix in parameters() and kind_of(prefix) is dict


def is_searchable(name: str) -> bool:
    """Whether a study may search the name: a parameter of a job, or one in a mapping of it."""
    return (name in parameters() or is_inside(name)) and parameter_of(name) not in NOT_SEARCHED


def inside_faults(name: str, values: Iterable[Any]) -> list[str]:
    """What is wrong with a name in a mapping of the job, and with values of it: texts, numbers, true and false."""
    prefix, _, inner = name.partition(INSIDE)
    reserved = RESERVED_TRAINING_ARGUMENTS.get(inner) if prefix == "training_arguments" else None
    found = [f"{prefix} must not set {inner}: {reserved}"] if reserved else []
    for value in values:
        if not isinstance(value, str | int | float):
            found.append(f"{name} must be a text, a number, true or false, got {value!r}: search one value at a time")
        elif isinstance(value, float) and not math.isfinite(value):
            found.append(f"{name} must be a finite number, got {value}")
    return found


def is_whole(name: str, entry: Range) -> bool:
    """Whether a range holds whole numbers only: of a whole parameter; in a mapping, where both ends are whole."""
    if not is_inside(name):
        return kind_of(name) is int
    return all(isinstance(end, int) for end in (entry.low, entry.high))


def make_spec(job: Mapping[str, Any], point: Mapping[str, Any]) -> JobSpec:
    """The job at a point; BadInput where its values contradict each other, or it does not run on its instance type.

    Its model is not registered: a study registers the one that it recommends.
    """
    spec = JobSpec.from_text({name: _typed(value) for name, value in _gathered({**job, **point}).items()})
    refuse(launch_faults(spec))
    return spec if spec.register is None else spec.replace(register=None)


def mapping_in(job: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """A parameter of a job that is a mapping, as one; empty where it is not set, or no JSON object."""
    held = job.get(prefix) or {}
    try:
        held = json.loads(held) if isinstance(held, str) else held
    except json.JSONDecodeError:
        return {}
    return dict(held) if isinstance(held, Mapping) else {}


def _gathered(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with those of names in mappings put into these; job parameters of any other name stay as they are."""
    inside = [name for name in values if is_inside(name)]
    if not inside:
        return dict(values)
    found = {name: value for name, value in values.items() if name not in inside}
    for name in inside:
        prefix, _, inner = name.partition(INSIDE)
        found[prefix] = {**mapping_in(found, prefix), inner: _plain(values[name])}
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it: numpy's numbers are not."""
    return value.item() if hasattr(value, "item") else value


def _typed(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else spell(value)  # numpy's floats spell themselves otherwise


def all_points(search: Search) -> Iterator[dict[str, Value]]:
    """Every combination of choices, the last parameter fastest; of a range its two ends."""
    for values in itertools.product(*(entry.corners for entry in search.values())):
        yield dict(zip(search, values, strict=True))


_Tried = list[tuple[dict[str, Value], list[str]]]
"""Combinations, and what is wrong with each."""


def combination_faults(job: Mapping[str, Any], search: Search) -> list[Fault]:
    """What stands in `job` or is searched and makes a job in no combination; each fault once.

    A value is at fault when nothing it can be combined with makes a job; a single impossible combination is none, for
    the study passes it by at no cost. Tried are all combinations of choices and ends of ranges, or 500 of them drawn
    by a fixed seed where they are more than 2,000.
    """
    tried: _Tried = []
    for point in _combinations(search):
        tried.append((point, []))
        with collecting(tried[-1][1]):
            make_spec(job, point)
    everywhere = set[str].intersection(*(set(faults) for _, faults in tried))
    found: list[Fault] = [(_fault_path(text, job, search), text) for text in tried[0][1] if text in everywhere]
    left = [(point, [text for text in faults if text not in everywhere]) for point, faults in tried]
    while left:
        alone = {
            (name, value): texts
            for name in search
            for value in dict.fromkeys(point[name] for point, _ in left)
            if (texts := _in_all(left, name, value))
        }
        if not alone:
            return found + _together(left, search)
        found += [
            (("search", name), f"{name}={_typed(value)} makes no job: {text}")
            for (name, value), texts in alone.items()
            for text in texts
        ]
        left = [(point, faults) for point, faults in left if not alone.keys() & point.items()]
    return found


def _in_all(tried: _Tried, name: str, value: Value) -> list[str]:
    """Faults of every combination that holds the value."""
    lists = [faults for point, faults in tried if point[name] == value]
    return [text for text in lists[0] if all(text in faults for faults in lists)]


def _together(tried: _Tried, search: Search) -> list[Fault]:
    """Values that make no job with any other, each for another reason."""
    if example := _example(tried):
        return [(("search",), f"no combination of the search makes a job: {example}")]
    return [
        (("search", name), f"{name}={_typed(value)} makes a job with nothing else that is searched: {example}")
        for name in search
        for value in dict.fromkeys(point[name] for point, _ in tried)
        if (example := _example([(point, faults) for point, faults in tried if point[name] == value]))
    ]


def _example(tried: _Tried) -> str:
    """The combination with the fewest faults, and these; empty where it has none."""
    point, faults = min(tried, key=lambda item: len(item[1]))
    spelled = ", ".join(f"{name}={_typed(value)}" for name, value in point.items())
    return f"{spelled}: {'; '.join(faults)}" if faults else ""


def _combinations(search: Search) -> list[dict[str, Value]]:
    corners = [entry.corners for entry in search.values()]
    if math.prod(map(len, corners)) <= _MOST_COMBINATIONS:
        return list(all_points(search))
    draw = random.Random(0)
    longest = max(map(len, corners))
    shuffled = [draw.sample(values, len(values)) for values in corners]
    # Every value at least once, then as chance will have it.
    first = [[values[number % len(values)] for values in shuffled] for number in range(longest)]
    more = [[draw.choice(values) for values in corners] for _ in range(_DRAWN)]
    return [dict(zip(search, values, strict=True)) for values in [*first, *more]]


def _fault_path(text: str, job: Mapping[str, Any], search: Search) -> FaultPath:
    """Where a fault belongs whose text begins with the parameter it is about."""
    name = text.split()[0]
    return ("job", name) if name in job else ("search", name) if name in search else ("job",)
