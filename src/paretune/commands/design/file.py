"""A design file: factors and their levels, from which a table of jobs is made, as one frozen, checked value.

name: scaling over devices
job: {dataset: bundled:imdb}
factors:
  clusters: [{instance_type: ml.g5.xlarge, instance_count: 1}, {instance_type: ml.g5.12xlarge, instance_count: 1}]
  dataset_size: [5000, 20000]
design: full
budget_usd: 20
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from paretune.commands.command import help_lines
from paretune.commands.design.rows import ROW_TERMS, RowJob, RowTerms, job_of_row, row_parameters, row_types
from paretune.core.errors import BadInput, collecting
from paretune.pricing.prices import read_file
from paretune.specification.parameters import COMPUTES, Effect, Value, parameter, spell
from paretune.storage.address import redacted
from paretune.storage.yaml import write_yaml
from paretune.studies.definition.file_model import Rule, check, term_faults, value_faults
from paretune.studies.definition.objectives import OBJECTIVES, nearest, objective_faults, runs_own_training
from paretune.studies.definition.rules import is_billed
from paretune.studies.definition.space import Fault, FaultPath, kind_of

FULL, FRACTIONAL, D_OPTIMAL, I_OPTIMAL, TABLE = KINDS = ("full", "fractional", "d-optimal", "i-optimal", "table")
MOST_COMBINATIONS = 2000
"""Combinations of levels at most: each one is checked, and an optimal design looks at all of them for every row."""
_MOST_FAULTS = 20  # faults of rows that are listed; the others are counted

Level = Mapping[str, Value]  # parameter to value; a level may set several parameters together
Point = Mapping[str, Level]  # factor to level


@dataclass(frozen=True, kw_only=True)
class DesignTerms:
    """The keys of a design with one value. None: not set."""

    runs: int | None = parameter(
        None, "rows of an optimal design, at most so many of a fractional one; replicates multiply them", minimum=2
    )
    model: str | None = parameter(None, "formula that an optimal design is for; by default the main effects")
    centre_points: int = parameter(0, "rows added at the middle of all factors, which must be numbers", minimum=0)
    replicates: int = parameter(1, "times that each row is run, each with another seed", minimum=1, maximum=100)
    randomise: bool = parameter(True, "run the rows in an order drawn by seed, and not in that of the table")
    seed: int = parameter(42, "seed of the design; that of the training stands in job", minimum=0, maximum=2**32 - 1)
    responses: str | None = parameter(
        None, "metrics of a training of your own, with commas between them: columns of the table beside the usual ones"
    )
    prices: str | None = parameter(None, "CSV of prices, in place of PARETUNE_PRICES")
    budget_usd: float | None = parameter(
        None, "dollars that all jobs of the design may cost together; required where jobs are billed", above=0
    )
    n_parallel: int = parameter(1, "jobs at a time", minimum=1, maximum=1000)
    storage: str | None = parameter(
        None, "sqlite:///FILE or postgresql://...; by default a file in PARETUNE_HOME", choices=()
    )
    dry_run: bool = parameter(False, "show the table, what it can tell and what it costs, and launch nothing")


TYPED = ("prices", "budget_usd", "n_parallel", "storage", "dry_run")
"""Keys of a design that can be typed; a typed `model` or `seed` is the job's."""


@dataclass(frozen=True, kw_only=True)
class DesignDraft(DesignTerms):
    """All parts of a design, unchecked. If the design is a table, `table` is its file and `rows` are its rows."""

    name: str
    job: Mapping[str, Value] = field(default_factory=dict)
    factors: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    design: str = FULL
    table: str | None = None
    rows: Sequence[Point] = ()
    exclude: Sequence[Level] = ()

    @property
    def own_responses(self) -> tuple[str, ...]:
        """Metrics of a training of the user's own that the table shows."""
        return tuple(name.strip() for name in (self.responses or "").split(",") if name.strip())

    @property
    def members(self) -> list[tuple[str, str]]:
        """Each factor with each parameter that its levels set."""
        pairs = ((factor, name) for factor, levels in self.factors.items() for level in levels for name in level)
        return list(dict.fromkeys(pairs))

    def combinations(self) -> int:
        """The number of rows to choose from, before any is excluded."""
        return len(self.rows) if self.design == TABLE else math.prod(map(len, self.factors.values()))

    def candidates(self) -> list[Point]:
        """Rows to choose from, or those of the table, without the excluded ones; the last factor varies fastest."""
        rows: Iterable[Point] = self.rows
        if self.design != TABLE:
            rows = (
                dict(zip(self.factors, levels, strict=True)) for levels in itertools.product(*self.factors.values())
            )
        return [point for point in rows if not any(rule.items() <= flat(point).items() for rule in self.exclude)]

    def job_at(self, point: Point) -> RowJob:
        """The job of a row; BadInput with all its faults."""
        return job_of_row({**self.job, **flat(point)})


@dataclass(frozen=True, kw_only=True)
class DesignFile(DesignDraft):
    """A checked design. The fields are those of `DesignDraft`.

    Raises:
        BadInput: a part is out of range or parts contradict each other; with all faults at once.
    """

    def __post_init__(self) -> None:
        if faults := design_faults(self):
            raise BadInput([text for _, text in faults])

    def as_text(self) -> dict[str, str]:
        """Every key that is set, as text for MLflow: mappings and lists as JSON, `storage` without a password."""
        return {
            name: spell(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
            for name, value in self._keys().items()
        }

    def as_yaml(self) -> str:
        """The text of a design file with the same content, `storage` without a password."""
        return write_yaml(self._keys())

    def _keys(self) -> dict[str, Any]:
        factors = {
            name: [level[name] if set(level) == {name} else dict(level) for level in levels]
            for name, levels in self.factors.items()
        }
        keys: dict[str, Any] = {
            "name": self.name,
            "job": dict(self.job),
            "factors": {} if self.table else factors,
            "design": {TABLE: self.table} if self.table else self.design,
            "exclude": [dict(rule) for rule in self.exclude],
            **{item.name: getattr(self, item.name) for item in fields(DesignTerms)},
            "storage": None if self.storage is None else redacted(self.storage),
        }
        return {name: value for name, value in keys.items() if value is not None and value not in ({}, [])}


def flat(point: Point) -> dict[str, Value]:
    """Parameter to value of a point."""
    return {name: value for level in point.values() for name, value in level.items()}


def labels(levels: Sequence[Level]) -> list[str]:
    """A short text for each level of a factor: its value, or `2 x ml.g5.xlarge` and what else distinguishes it."""
    if all(len(level) == 1 for level in levels):
        return [spell(value) for level in levels for value in level.values()]
    texts = [_cluster(level) for level in levels]
    for name in dict.fromkeys(name for level in levels for name in level):
        if len(set(texts)) == len(levels):
            break
        if name not in ("instance_type", "instance_count"):
            texts = [f"{text}, {spell(level.get(name))}".strip(", ") for text, level in zip(texts, levels, strict=True)]
    return texts


def _cluster(level: Level) -> str:
    count, instance_type = spell(level.get("instance_count")), spell(level.get("instance_type"))
    if instance_type:
        return f"{count or 1} x {instance_type}"
    return f"{count} instance{'s' if count != '1' else ''}" if count else ""


def is_number(levels: Sequence[Level]) -> bool:
    """Whether the levels of a factor are numbers."""
    return all(
        len(level) == 1 and isinstance(value, int | float) and not isinstance(value, bool)
        for level in levels
        for value in level.values()
    )


def middle(levels: Sequence[Level]) -> Level:
    """The middle of a factor whose levels are numbers, rounded if its parameter is a whole number."""
    values = [float(value) for level in levels for value in level.values()]
    (member,) = levels[0]
    value = (min(values) + max(values)) / 2
    return {member: round(value) if member in ROW_TERMS or kind_of(member) is int else value}


def spell_level(level: Level) -> str:
    """A level as it would be typed."""
    return ", ".join(f"{name}={spell(value)}" for name, value in level.items())


def design_help() -> dict[str, str]:
    """One line of help for each key of a design that can be typed, and for each parameter of a row only."""
    lines = help_lines(DesignTerms)
    return {name: lines[name] for name in TYPED} | help_lines(RowTerms)


def design_faults(draft: DesignDraft, broken: Iterable[FaultPath] = ()) -> list[Fault]:
    """All faults of a design; rules that depend on a part that is already `broken` are not applied."""
    return check(draft, _part_faults, _RULES, broken)


def _part_faults(draft: DesignDraft) -> Iterator[Fault]:
    """Faults of single parts, whatever the others are."""
    yield from term_faults(draft, DesignTerms)
    if draft.design not in KINDS:
        text = f"design must be one of {', '.join(KINDS[:-1])}, or {{{TABLE}: FILE.csv}}, got {draft.design!r}"
        yield ("design",), f"{text}; {nearest(draft.design, KINDS)}"
    if draft.prices is not None:
        faults: list[str] = []
        with collecting(faults):
            read_file(draft.prices, is_users=True)
        yield from ((("prices",), f"prices: {text}") for text in faults)
    is_own = runs_own_training(draft.job)
    for name in draft.own_responses:
        faults = [] if name in OBJECTIVES else objective_faults(name, "maximize", is_own=is_own)
        yield from ((("responses",), text.replace("objective", "response", 1)) for text in faults)
    for name, value in draft.job.items():
        yield from ((("job", name), text) for text in value_faults(row_parameters()[name], row_types()[name], value))
    if draft.job.get("register") is not None:
        yield ("job", "register"), "register cannot be in job: a design recommends no model to register; leave it out"
    if draft.job.get("probe_steps") is not None:
        yield ("job", "probe_steps"), "probe_steps cannot be in job: a job that is cut off has no F1; leave it out"
    for name, levels in draft.factors.items():
        yield from ((("factors", name), text) for text in _factor_faults(name, levels))


def _factor_faults(factor: str, levels: Sequence[Level]) -> list[str]:
    if not re.fullmatch(r"[A-Za-z_]\w*", factor):
        return [f"a factor must be named by letters, digits and _, as formulas need it, got {factor!r}"]
    if len(levels) < 2:
        return [f"{factor} must have at least two levels, got {len(levels)}: add one, or move it to job"]
    faults = []
    is_group = any(len(level) > 1 for level in levels)
    for name in dict.fromkeys(name for level in levels for name in level):
        field = row_parameters()[name]
        if not _may_vary(name, is_group=is_group):
            faults.append(f"{name} cannot be a factor: it changes nothing that a job measures; set it in job")
            continue
        lacking = [number for number, level in enumerate(levels, start=1) if name not in level]
        if lacking:
            faults.append(f"{factor}: level {lacking[0]} has no {name}, which another one has: give it to all, or none")
        values = dict.fromkeys(level[name] for level in levels if name in level)
        faults += [text for value in values for text in value_faults(field, row_types()[name], value)]
    doubles = {spell_level(level) for level in levels if sum(level == other for other in levels) > 1}
    return faults + [f"{factor}: {text} is among the levels twice: take one out" for text in sorted(doubles)]


def _may_vary(name: str, *, is_group: bool) -> bool:
    """Whether a parameter may be a factor; a limit may only be in a group of parameters that vary together."""
    if name in ROW_TERMS or name == "probe_steps":
        return name not in ("validation_share", "round_epochs", "probe_steps")
    effects: set[Effect] = {*COMPUTES, "stopping"} if is_group else set(COMPUTES)
    return bool(row_parameters()[name].metadata["affects"] & effects)


def _member_faults(draft: DesignDraft) -> Iterator[Fault]:
    """Each parameter is set in one place."""
    for factor, name in draft.members:
        owner = next(other for other, member in draft.members if member == name)
        if name in draft.job:
            yield ("factors", factor), f"{name} is in job and in factors: take it out of one of them"
        elif owner != factor:
            yield ("factors", factor), f"{name} is in {owner} and in {factor}: take it out of one of them"


def _missing_factors(draft: DesignDraft) -> Iterator[Fault]:
    if not draft.factors:
        yield ("factors",), "factors is missing: add factors: {instance_count: [1, 2, 4]}"


def _missing_budget(draft: DesignDraft) -> Iterator[Fault]:
    types = [level.get("instance_type") for levels in draft.factors.values() for level in levels]
    launcher = spell(draft.job.get("launcher")) or None
    if draft.budget_usd is None and is_billed(launcher, [*types, draft.job.get("instance_type")]):
        text = "budget_usd is missing: jobs on SageMaker are billed, so their design needs a limit in dollars; add "
        yield ("budget_usd",), f"{text}budget_usd: 20"


def _exclude_faults(draft: DesignDraft) -> Iterator[Fault]:
    names = list(dict.fromkeys(name for _, name in draft.members))
    for number, rule in enumerate(draft.exclude, start=1):
        for name in rule.keys() - set(names):
            text = f"exclude: rule {number} names {name}, which no factor has: there are {', '.join(names)}"
            yield ("exclude",), text


def _runs_faults(draft: DesignDraft) -> Iterator[Fault]:
    is_optimal = draft.design in (D_OPTIMAL, I_OPTIMAL)
    if is_optimal and draft.runs is None:
        yield ("runs",), f"runs is missing: a design {draft.design} needs the number of its rows; add runs: 15"
    if draft.design in (FULL, TABLE) and draft.runs is not None:
        yield ("runs",), f"runs is for optimal and fractional designs, and design {draft.design} has all its rows"
    terms = 1 + sum(len(levels) - 1 for levels in draft.factors.values())
    if is_optimal and draft.model is None and draft.runs is not None and draft.runs < terms:
        rule = f"runs must be at least {terms}, the terms of the main effects"
        yield ("runs",), f"{rule} (1 and one less than the levels of each factor), got {draft.runs}"


def _centre_faults(draft: DesignDraft) -> Iterator[Fault]:
    if draft.centre_points and (texts := [name for name, levels in draft.factors.items() if not is_number(levels)]):
        yield ("centre_points",), f"centre_points needs factors that are numbers, and {', '.join(texts)} has no middle"


def _row_faults(draft: DesignDraft) -> Iterator[Fault]:
    """Faults of rows, each once, with the first row that has it."""
    if not draft.factors:
        return
    if (size := draft.combinations()) > MOST_COMBINATIONS:
        text = f"factors make {size:,} combinations, at most {MOST_COMBINATIONS:,} are tried: take levels out"
        yield ("factors",), text
        return
    candidates = draft.candidates()
    if not candidates:
        yield ("exclude",), f"exclude leaves none of the {size} combinations: take a rule out"
        return
    points_of: dict[str, list[Point]] = {}
    for point in candidates:
        faults: list[str] = []
        with collecting(faults):
            draft.job_at(point)
        for text in faults:
            points_of.setdefault(text, []).append(point)
    for text, points in itertools.islice(points_of.items(), _MOST_FAULTS):
        name = text.split()[0]
        if len(points) == len(candidates):
            yield ("job", name) if name in draft.job else ("factors",), text
            continue
        more = f" and {len(points) - 1} more" if len(points) > 1 else ""
        yield ("factors",), f"{spell_level(flat(points[0]))}{more}: {text}; exclude takes such rows out"
    if len(points_of) > _MOST_FAULTS:
        yield ("factors",), f"and {len(points_of) - _MOST_FAULTS} more"


_RULES: tuple[Rule[DesignDraft], ...] = (
    Rule(_member_faults),
    Rule(_missing_factors, needs=("factors", "design")),
    Rule(_missing_budget, needs=("budget_usd",)),
    Rule(_exclude_faults),
    Rule(_runs_faults, needs=("runs", "design", "factors")),
    Rule(_centre_faults),
    Rule(_row_faults, needs=("factors", "job", "exclude", "design")),
)
