"""The search space of a study: values and ranges of parameters, and their combinations that make a job."""

import itertools
import json
import math
import random
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import Any

from paretune.core.errors import collecting, refuse
from paretune.specification.fine_tuning import RESERVED_TRAINING_ARGUMENTS
from paretune.specification.job import JobSpec, launch_faults
from paretune.specification.parameters import COMPUTES, Effect, Value, annotations, spell

FaultPath = tuple[str, ...]  # the keys that lead to a fault, such as ("search", "learning_rate")
Fault = tuple[FaultPath, str]

_MOST_COMBINATIONS = 2000  # 60 microseconds each (measured 2026-11-20, AMD EPYC)
_DRAWN = 500  # combinations that are drawn if there are more

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
    """Reason why no study searches a parameter; empty if a study may."""
    affects = item.metadata["affects"]
    derived = next((reason for effect, reason in _WHY_NOT.items() if effect in affects), "")
    return item.metadata["not_searched"] or derived or ("" if affects & set(COMPUTES) else _SAME_RESULT)


NOT_SEARCHED = {item.name: reason for item in fields(JobSpec) if (reason := _why_not_searched(item))}
"""Parameters of a job that no study searches, with the reason; includes all that the hash of a job leaves out."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Values to choose from."""

    values: tuple[Value, ...]

    @property
    def corners(self) -> tuple[Value, ...]:
        """Every value: the values that are combined to check whether they make jobs."""
        return self.values

    def as_json(self) -> dict[str, Any]:
        """The entry of a study file."""
        return {"choices": list(self.values)}


@dataclass(frozen=True, kw_only=True)
class Range:
    """All numbers from `low` to `high`, both included; whole numbers for int parameters; `log` for a log scale."""

    low: float
    high: float
    log: bool = False

    @property
    def corners(self) -> tuple[Value, ...]:
        """Both ends: the values that are combined to check whether they make jobs."""
        return self.low, self.high

    def at(self, share: float) -> float:
        """The number at this share, 0 to 1, of the way from `low` to `high`."""
        value = self.low * (self.high / self.low) ** share if self.log else self.low + (self.high - self.low) * share
        return min(self.high, max(self.low, value))  # powers are rounded

    def as_json(self) -> dict[str, Any]:
        """The entry of a study file."""
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}


Search = Mapping[str, Choices | Range]


@cache
def parameters() -> dict[str, Any]:
    """Parameter of a job to its field, which declares its range."""
    return {item.name: item for item in fields(JobSpec)}


def kind_of(name: str) -> type:
    """Plain type of a job parameter: str, bool, int, float or dict (JSON)."""
    return plain_kind(annotations(JobSpec)[name])


def plain_kind(annotation: Any) -> type:
    """Plain type of a parameter with this annotation: str, bool, int, float or dict (JSON)."""
    if isinstance(annotation, types.UnionType):
        (annotation,) = [member for member in annotation.__args__ if member is not types.NoneType]
    return annotation if isinstance(annotation, type) else dict


INSIDE = "."  # separates a parameter that is a mapping from a name in it: training_arguments.weight_decay


def parameter_of(name: str) -> str:
    """The parameter of a job that a searched name belongs to: the part before a dot, if there is one."""
    return name.partition(INSIDE)[0]


def is_inside(name: str) -> bool:
    """Whether a searched name lies in a mapping of the job, such as training_arguments.weight_decay."""
    prefix, dot, inner = name.partition(INSIDE)
    return bool(dot and inner) and prefix in parameters() and kind_of(prefix) is dict


def inside_faults(name: str, values: Iterable[Any]) -> list[str]:
    """Faults of a name in a mapping of the job and of its values: texts, numbers, true and false."""
    prefix, _, inner = name.partition(INSIDE)
    reserved = RESERVED_TRAINING_ARGUMENTS.get(inner) if prefix == "training_arguments" else None
    faults = [f"{prefix} must not set {inner}: {reserved}"] if reserved else []
    for value in values:
        if not isinstance(value, str | int | float):
            faults.append(f"{name} must be a text, a number, true or false, got {value!r}: search one value at a time")
        elif isinstance(value, float) and not math.isfinite(value):
            faults.append(f"{name} must be a finite number, got {value}")
    return faults


def is_whole(name: str, entry: Range) -> bool:
    """Whether a range holds whole numbers only: of an int parameter, or in a mapping with two whole ends."""
    if not is_inside(name):
        return kind_of(name) is int
    return all(isinstance(end, int) for end in (entry.low, entry.high))


def make_spec(job: Mapping[str, Any], point: Mapping[str, Any]) -> JobSpec:
    """The job at a point, whose model is not registered; raises BadInput if the job is not possible."""
    spec = JobSpec.from_text({name: _typed(value) for name, value in _gathered({**job, **point}).items()})
    refuse(launch_faults(spec))
    return spec if spec.register is None else spec.replace(register=None)


def mapping_in(job: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """A mapping parameter of a job as a dictionary; empty if it is not set or no JSON object."""
    value = job.get(prefix) or {}
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _gathered(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the job, with values of names inside mappings put into these."""
    inside = [name for name in values if is_inside(name)]
    if not inside:
        return dict(values)
    gathered = {name: value for name, value in values.items() if name not in inside}
    for name in inside:
        prefix, _, inner = name.partition(INSIDE)
        value = values[name]
        plain = value.item() if hasattr(value, "item") else value  # JSON takes no numbers of numpy
        gathered[prefix] = {**mapping_in(gathered, prefix), inner: plain}
    return gathered


def _typed(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else spell(value)  # numpy's floats have another repr


def all_points(search: Search) -> Iterator[dict[str, Value]]:
    """Every combination of choices and ends of ranges, the last parameter varying fastest."""
    for values in itertools.product(*(entry.corners for entry in search.values())):
        yield dict(zip(search, values, strict=True))


_Tried = list[tuple[dict[str, Value], list[str]]]  # combinations, each with its faults


def combination_faults(job: Mapping[str, Any], search: Search) -> list[Fault]:
    """Faults of values, in `job` or searched, that make a job in no combination; each fault once.

    A single impossible combination is no fault: the study skips it at no cost. All combinations of choices and ends of
    ranges are tried, or 500 of them, drawn with a fixed seed, if there are more than 2,000.
    """
    tried: _Tried = []
    for point in combinations(search):
        tried.append((point, []))
        with collecting(tried[-1][1]):
            make_spec(job, point)
    everywhere = _in_all([faults for _, faults in tried])
    result: list[Fault] = [(_fault_path(text, job, search), text) for text in everywhere]
    left = [(point, [text for text in faults if text not in everywhere]) for point, faults in tried]
    while left:
        alone = {
            (name, value): texts
            for name in search
            for value in dict.fromkeys(point[name] for point, _ in left)
            if (texts := _in_all([faults for point, faults in left if point[name] == value]))
        }
        if not alone:
            return result + _joint_faults(left, search)
        result += [
            (("search", name), f"{name}={_typed(value)} makes no job: {text}")
            for (name, value), texts in alone.items()
            for text in texts
        ]
        left = [(point, faults) for point, faults in left if not alone.keys() & point.items()]
    return result


def _in_all(lists: Sequence[list[str]]) -> list[str]:
    return [text for text in lists[0] if all(text in faults for faults in lists)]


def _joint_faults(tried: _Tried, search: Search) -> list[Fault]:
    """Faults of values that make no job with any other value, for various reasons."""
    if example := _example(tried):
        return [(("search",), f"no combination of the search makes a job: {example}")]
    return [
        (("search", name), f"{name}={_typed(value)} makes a job with nothing else that is searched: {example}")
        for name in search
        for value in dict.fromkeys(point[name] for point, _ in tried)
        if (example := _example([(point, faults) for point, faults in tried if point[name] == value]))
    ]


def _example(tried: _Tried) -> str:
    """The combination with the fewest faults, with these; empty if it has none."""
    point, faults = min(tried, key=lambda item: len(item[1]))
    spelled = ", ".join(f"{name}={_typed(value)}" for name, value in point.items())
    return f"{spelled}: {'; '.join(faults)}" if faults else ""


def combinations(search: Search) -> list[dict[str, Value]]:
    """All combinations of choices and ends of ranges, or a part with each value if there are many."""
    corners = [entry.corners for entry in search.values()]
    if math.prod(map(len, corners)) <= _MOST_COMBINATIONS:
        return list(all_points(search))
    draw = random.Random(0)
    longest = max(map(len, corners))
    shuffled = [draw.sample(values, len(values)) for values in corners]
    # Every value at least once, then at random.
    first = [[values[number % len(values)] for values in shuffled] for number in range(longest)]
    more = [[draw.choice(values) for values in corners] for _ in range(_DRAWN)]
    return [dict(zip(search, values, strict=True)) for values in [*first, *more]]


def _fault_path(text: str, job: Mapping[str, Any], search: Search) -> FaultPath:
    """The part that a fault belongs to, whose text begins with a parameter."""
    name = text.split()[0]
    return ("job", name) if name in job else ("search", name) if name in search else ("job",)
