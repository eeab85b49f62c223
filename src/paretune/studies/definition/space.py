"""The search space of a study: values and ranges of parameters, and the combinations that are valid jobs."""

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paretune.core.errors import BadInput, collecting, refuse
from paretune.specification.declaration import (
    COMPUTES,
    Fault,
    Value,
    effects_of,
    extra_of,
    spell,
    unknown,
    untyped,
)
from paretune.specification.job import JobSpec, JobValues, parameters_affecting
from paretune.specification.rules import launch_faults

_MOST_COMBINATIONS = 2000  # up to this many, all are checked, in 0.25 ms each (measured 2026-11-25, AMD EPYC)
_DRAWN = 500  # if there are more, this many are drawn at random and checked
_RETRIED = 20  # a value that was drawn only in invalid combinations is also tried in up to this many valid ones
INSIDE = "."  # separates a parameter that is a mapping from a key in it, as in training_arguments.weight_decay


def why_not_searched(name: str) -> str:
    """Return the reason why a study cannot search this parameter, or an empty string if it can."""
    effects = {*effects_of(JobSpec, name)}
    if reason := extra_of(JobSpec, name, "not_searched"):
        return str(reason)
    if "evaluation" in effects:
        return "quality is comparable only on the same validation rows, so use one study per value"
    if "noise" in effects:
        return "it only changes random noise, which the study measures with repeats"
    if not effects & {*COMPUTES}:
        return "it does not change the result"
    # A study runs only one of two jobs with the same hash. `JobSpec.spec_hash` reads whole mappings, so for a key in a
    # mapping, the effects of the mapping count.
    is_hashed = name.partition(INSIDE)[0] in parameters_affecting(*COMPUTES)
    return "" if is_hashed else "jobs that differ only in it count as the same job, so use one study per value"


_FEWEST_NUMBERS = 4
_AT_AN_END = 0.02  # share of a range that counts as its end


def _like(number: float, other: float) -> float:
    """Return a number with three digits, whole if the other one is whole."""
    return round(number) if isinstance(other, int) else float(f"{number:.3g}")


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Values to choose from."""

    values: tuple[Value, ...]

    @property
    def corners(self) -> tuple[Value, ...]:
        """All values; `combination_faults` tries their combinations."""
        return self.values

    def as_json(self) -> dict[str, Any]:
        """Return the entry as JSON for a study file."""
        return {"choices": list(self.values)}

    @property
    def in_words(self) -> str:
        """The values, as a message lists them."""
        return ", ".join(map(spell, self.values))

    def beyond(self, value: Value) -> "Choices | None":
        """Return the numbers with one more beyond a value, at their last ratio; None unless it is the first or last.

        Three numbers or fewer count as chosen on purpose, and there is no positive number below a whole one.
        """
        numbers = sorted(each for each in self.values if isinstance(each, int | float) and not isinstance(each, bool))
        if not _FEWEST_NUMBERS <= len(numbers) == len(self.values) or numbers[0] <= 0:
            return None
        if value == numbers[-1]:
            return Choices(values=(*numbers, _like(numbers[-1] * numbers[-1] / numbers[-2], numbers[-1])))
        below = _like(numbers[0] * numbers[0] / numbers[1], numbers[0])
        return Choices(values=(below, *numbers)) if value == numbers[0] and 0 < below < numbers[0] else None


@dataclass(frozen=True, kw_only=True)
class Range:
    """The numbers from `low` to `high`, both included, or only whole ones (see `is_whole`). `log` sets a log scale."""

    low: float
    high: float
    log: bool = False

    @property
    def corners(self) -> tuple[Value, ...]:
        """Both ends; `combination_faults` tries their combinations."""
        return self.low, self.high

    def at(self, share: float) -> float:
        """Return the number at `share` (0 to 1) of the way from `low` to `high`, on the scale that `log` sets."""
        value = self.low * (self.high / self.low) ** share if self.log else self.low + (self.high - self.low) * share
        return min(self.high, max(self.low, value))  # a rounded power may lie just outside

    def beyond(self, value: Value) -> "Range | None":
        """Return the range with half of it added beyond the end at which a value lies; None if it lies inside."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        low, high = (
            (self.low * self.low / self.at(0.5), self.high * self.high / self.at(0.5))
            if self.log
            else (2 * self.low - self.at(0.5), 2 * self.high - self.at(0.5))
        )
        if value >= self.at(1 - _AT_AN_END):
            return replace(self, high=_like(high, self.high))
        below = _like(low, self.low)
        return replace(self, low=below) if value <= self.at(_AT_AN_END) and 0 < below < self.low else None

    def as_json(self) -> dict[str, Any]:
        """Return the entry as JSON for a study file."""
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}

    @property
    def in_words(self) -> str:
        """The ends, as a message states them."""
        return f"{spell(self.low)} to {spell(self.high)}{' (log scale)' * self.log}"


Search = Mapping[str, Choices | Range]
Point = Mapping[str, Value]  # searched parameter to its value


def json_type(name: str) -> str:
    """Return the JSON type of a parameter, such as string, integer or object; empty if it accepts any type."""
    return str(JobSpec.schema_at(name.split(INSIDE, 1)).get("type", ""))


def is_inside(name: str) -> bool:
    """Return whether a searched name is a key in a mapping of the job, such as training_arguments.weight_decay."""
    prefix, dot, inner = name.partition(INSIDE)
    return bool(dot and inner) and prefix in JobSpec.model_fields and json_type(prefix) == "object"


def is_whole(name: str, entry: Range) -> bool:
    """Return whether a range has only whole numbers.

    It does if the parameter is an int, or if the parameter accepts any type and both ends of the range are ints.
    """
    return json_type(name) == "integer" or (
        not json_type(name) and all(isinstance(end, int) for end in (entry.low, entry.high))
    )


def read_value(name: str, raw: Any) -> Value:
    """Return one value of a searched parameter. Raises BadInput if no job could have it."""
    outer, _, inner = name.partition(INSIDE)
    value: Any = getattr(JobValues.read({name: untyped(raw) if not json_type(name) else raw}), outer)
    if inner:
        value = value.get(inner) if isinstance(value, Mapping) else getattr(value, inner)
    if not isinstance(value, str | int | float):
        raise BadInput([f"{name} must be text, a number, true or false, got {spell(value) or 'nothing'!r}"])
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput([f"{name} must be a finite number, got {value}"])
    return value


def read_entry(name: str, raw: Any) -> Choices | Range:
    """Return one entry of `search`. Raises BadInput with the faults of the first check that fails."""
    if isinstance(raw, Choices | Range):
        return raw
    prefix, _, inner = name.partition(INSIDE)
    if prefix not in JobSpec.model_fields or (inner and not is_inside(name)):
        raise BadInput([unknown(JobSpec, name)])
    if reason := why_not_searched(name):
        raise BadInput([f"{name} cannot be searched: {reason}; set it in job, or leave it out"])
    keys = raw.keys() if isinstance(raw, Mapping) else set[str]()
    is_range = {"low", "high"} <= keys <= {"low", "high", "log"} and json_type(name) in ("number", "integer", "")
    if not is_range and not (keys == {"choices"} and isinstance(raw["choices"], list | tuple) and raw["choices"]):
        must = "{choices: [1, 2]} or, for numbers, {low: 1, high: 2} or {low: 1, high: 2, log: true}"
        advice = "To fix a single value, put it under job"
        raise BadInput([f"{name} in search must look like {must}, got {spell(raw)}. {advice}"])
    return _range(name, raw) if is_range else _choices(name, raw["choices"])


def _choices(name: str, choices: Sequence[Any]) -> Choices:
    faults, values = list[str](), list[Value]()
    for item in choices:
        with collecting(faults):
            values.append(read_value(name, item))
    doubles = sorted({spell(value) for value in values if values.count(value) > 1})
    refuse(faults + [f"{name}: {text} is listed twice in choices: remove one" for text in doubles])
    return Choices(values=tuple(values))


def _range(name: str, raw: Mapping[str, Any]) -> Range:
    log, faults, ends = str(raw.get("log", "false")).lower(), list[str](), list[Any]()
    for key in ("low", "high"):
        with collecting(faults):
            ends.append(read_value(name, raw[key]))
    faults += [f"{name}: log must be true or false, got {log!r}"] * (log not in ("true", "false"))
    refuse(faults + [f"{name}: {end!r} is not a number" for end in ends if isinstance(end, str | bool)])
    low, high = ends
    if low >= high or (log == "true" and low <= 0):
        rule = "low must be less than high (and above 0 with log: true)"
        raise BadInput([f"{name}: {rule}, got {low} and {high}; to fix a single value, put it under job"])
    return Range(low=low, high=high, log=log == "true")


def make_spec(job: Mapping[str, Any], point: Mapping[str, Any]) -> JobSpec:
    """Return the job at a point, without `register`, because trials do not register their models.

    Raises BadInput if the job is invalid.
    """
    spec = JobSpec.read({**job, **point, "register": None})
    refuse(launch_faults(spec))
    return spec


def all_points(search: Search) -> Iterator[dict[str, Value]]:
    """Yield every combination of choices and ends of ranges; the last parameter varies fastest."""
    for values in itertools.product(*(entry.corners for entry in search.values())):
        yield dict(zip(search, values, strict=True))


def _faults_at(job: Mapping[str, Any], point: Point) -> list[str]:
    faults = list[str]()
    with collecting(faults):
        make_spec(job, point)
    return faults


def combination_faults(job: Mapping[str, Any], search: Search) -> list[Fault]:
    """Return the faults that all combinations share, and one for each value whose combinations all share a fault.

    An invalid combination of valid values is not a fault: the study skips it at no cost. But if no combination is
    valid, that is a fault. For a range, only the two ends are tried. If there are more than `_MOST_COMBINATIONS`
    combinations, only `_DRAWN` random ones are tried.
    """
    corners, draw = {name: entry.corners for name, entry in search.items()}, random.Random(0)
    points: Iterable[dict[str, Value]] = all_points(search)
    drawn = ""
    if math.prod(map(len, corners.values())) > _MOST_COMBINATIONS:
        points = ({name: draw.choice(values) for name, values in corners.items()} for _ in range(_DRAWN))
        drawn = f" of {_DRAWN} that were drawn at random"
    tried = [(point, _faults_at(job, point)) for point in points]
    result, everywhere = list[Fault](), _in_all([faults for _, faults in tried])
    for text in everywhere:
        name = text.split()[0].split("=")[0].rstrip(":")  # each fault text begins with a parameter name
        result.append(Fault(("search" if name in search else "job", name), text))
    valid = [point for point, faults in tried if not faults][:_RETRIED]
    for name in search:
        for value in dict.fromkeys(point[name] for point, _ in tried):
            texts = _in_all([faults for point, faults in tried if point[name] == value])
            text = "; ".join(text for text in texts if text not in everywhere)
            if text and all(_faults_at(job, {**point, name: value}) for point in valid):
                text = f"{name}={spell(value)} is invalid in every combination{drawn}: {text}"
                result.append(Fault(("search", name), text))
    if not result and (fewest := min((faults for _, faults in tried), key=len)):
        result.append(
            Fault(("search",), f"no combination of values in search is a valid job{drawn}: {'; '.join(fewest)}")
        )
    return result


def _in_all(lists: Sequence[list[str]]) -> list[str]:
    return [text for text in lists[0] if all(text in faults for faults in lists)]
