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
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

from paretune.commands.design.rows import RowJob, RowTerms, job_of_row, row_kinds, row_parameters
from paretune.core.errors import BadInput, collecting
from paretune.pricing.prices import read_file
from paretune.specification.parameters import COMPUTES, Value, help_lines, parameter, spell
from paretune.storage.address import shown
from paretune.storage.yaml import write_yaml
from paretune.studies.definition.objectives import OBJECTIVES, nearest, objective_faults, runs_own_training
from paretune.studies.definition.rules import is_billed, term_faults, value_faults
from paretune.studies.definition.space import Fault, FaultPath, kind_of

FULL, FRACTIONAL, D_OPTIMAL, I_OPTIMAL, TABLE = KINDS = ("full", "fractional", "d-optimal", "i-optimal", "table")
MOST_COMBINATIONS = 2000
"""Of levels: each is checked, and an optimal design looks at all of them for every row."""
_MOST_FAULTS = 20  # of rows that are listed; the rest is counted

Level = Mapping[str, Value]
"""Parameters of a row to their values; several of one level travel together."""
Point = Mapping[str, Level]
"""Factor to level."""


@dataclass(frozen=True, kw_only=True)
class DesignTerms:
    """What of a design is one value each. None: nothing is set."""

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
"""Terms that can be typed; `model` and `seed` are then the job's."""


@dataclass(frozen=True, kw_only=True)
class DesignDraft(DesignTerms):
    """All parts of a design, not checked yet; `table` is the file and `rows` its rows, of a design that is read."""

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

    def combinations(self) -> int:
        """The number of rows to choose from, before any is excluded."""
        return len(self.rows) if self.design == TABLE else math.prod(map(len, self.factors.values()))

    def candidates(self) -> list[Point]:
        """Rows to choose from, the last factor fastest, or those of the table; excluded ones are left out."""
        if self.design == TABLE:
            every: Iterable[Point] = self.rows
        else:
            every = (
                dict(zip(self.factors, levels, strict=True)) for levels in itertools.product(*self.factors.values())
            )
        return [point for point in every if not any(rule.items() <= flat(point).items() for rule in self.exclude)]

    def job_at(self, point: Point) -> RowJob:
        """The job of a row.

        Raises:
            BadInput: everything that is wrong with it.
        """
        return job_of_row({**self.job, **flat(point)})


@dataclass(frozen=True, kw_only=True)
class DesignFile(DesignDraft):
    """A checked design. Fields as in `DesignDraft`.

    Raises:
        BadInput: with all faults at once, when a part is out of range or parts contradict each other.
    """

    def __post_init__(self) -> None:
        if faults := design_faults(self):
            raise BadInput([text for _, text in faults])

    def as_text(self) -> dict[str, str]:
        """Every key that is set, as text to record; mappings and lists as JSON, `storage` without a password."""
        return {
            name: spell(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
            for name, value in self._keys().items()
        }

    def as_yaml(self) -> str:
        """A design file that says the same, `storage` without a password."""
        return write_yaml(self._keys())

    def _keys(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "name": self.name,
            "job": dict(self.job),
            "factors": {} if self.table else {name: _listed(name, levels) for name, levels in self.factors.items()},
            "design": {TABLE: self.table} if self.table else self.design,
            "exclude": [dict(rule) for rule in self.exclude],
            **{item.name: getattr(self, item.name) for item in fields(DesignTerms)},
            "storage": None if self.storage is None else shown(self.storage),
        }
        return {name: value for name, value in keys.items() if value is not None and value not in ({}, [])}


def _listed(name: str, levels: Sequence[Level]) -> list[Any]:
    return [level[name] if set(level) == {name} else dict(level) for level in levels]


def flat(point: Point) -> dict[str, Value]:
    """Parameter to value of a point."""
    return {name: value for level in point.values() for name, value in level.items()}


def labels(levels: Sequence[Level]) -> list[str]:
    """A short text for each level of a factor: its value, or `2 x ml.g5.xlarge` and what else distinguishes it."""
    if all(len(level) == 1 for level in levels):
        return [spell(value) for level in levels for value in level.values()]
    short = [_cluster(level) for level in levels]
    for name in dict.fromkeys(name for level in levels for name in level):
        if len(set(short)) == len(levels):
            break
        if name not in ("instance_type", "instance_count"):
            short = [f"{text}, {spell(level.get(name))}".strip(", ") for text, level in zip(short, levels, strict=True)]
    return short


def _cluster(level: Level) -> str:
    count, kind = spell(level.get("instance_count")), spell(level.get("instance_type"))
    if kind:
        return f"{count or 1} x {kind}"
    return f"{count} instance{'s' if count != '1' else ''}" if count else ""


def is_number(levels: Sequence[Level]) -> bool:
    """Whether the levels of a factor are numbers."""
    return all(
        len(level) == 1 and isinstance(value, int | float) and not isinstance(value, bool)
        for level in levels
        for value in level.values()
    )


def design_help() -> dict[str, str]:
    """Name of every key of a design that can be typed, and of what its rows may say, to one line of help."""
    lines = help_lines(DesignTerms)
    return {name: lines[name] for name in TYPED} | help_lines(RowTerms)


def design_faults(draft: DesignDraft, broken: Iterable[FaultPath] = ()) -> list[Fault]:
    """Everything that is wrong with a design; what depends on a part that is `broken` already is passed over."""
    known = set(broken)
    alone = [fault for fault in _own_faults(draft) if fault[0] not in known]
    return [*alone, *_faults_between(draft, known | {fault_path for fault_path, _ in alone})]


def _own_faults(draft: DesignDraft) -> Iterator[Fault]:
    """What is wrong with one part, whatever the others are."""
    yield from term_faults(draft, DesignTerms)
    if draft.design not in KINDS:
        text = f"design must be one of {', '.join(KINDS[:-1])}, or {{{TABLE}: FILE.csv}}, got {draft.design!r}"
        yield ("design",), f"{text}; {nearest(draft.design, KINDS)}"
    if draft.prices is not None:
        faults: list[str] = []
        with collecting(faults):
            read_file(draft.prices, own=True)
        yield from ((("prices",), f"prices: {text}") for text in faults)
    is_own = runs_own_training(draft.job)
    for name in draft.own_responses:
        faults = [] if name in OBJECTIVES else objective_faults(name, "maximize", is_own=is_own)
        yield from ((("responses",), text.replace("objective", "response", 1)) for text in faults)
    for name, value in draft.job.items():
        yield from ((("job", name), text) for text in value_faults(row_parameters()[name], row_kinds()[name], value))
    if draft.job.get("register") is not None:
        yield ("job", "register"), "register cannot be in job: a design recommends no model to register; leave it out"
    if draft.job.get("probe_steps") is not None:
        yield ("job", "probe_steps"), "probe_steps cannot be in job: a job that is cut off has no F1; leave it out"
    for name, levels in draft.factors.items():
        yield from ((("factors", name), text) for text in _factor_faults(name, levels))


def _factor_faults(name: str, levels: Sequence[Level]) -> list[str]:
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return [f"a factor must be named by letters, digits and _, as formulas need it, got {name!r}"]
    if len(levels) < 2:
        return [f"{name} must have at least two levels, got {len(levels)}: add one, or move it to job"]
    found = []
    for member in dict.fromkeys(member for level in levels for member in level):
        item = row_parameters()[member]
        if not _may_vary(member, travels=any(len(level) > 1 for level in levels)):
            found.append(f"{member} cannot be a factor: it changes nothing that a job measures; set it in job")
            continue
        lacking = [number for number, level in enumerate(levels, start=1) if member not in level]
        if lacking:
            found.append(f"{name}: level {lacking[0]} has no {member}, which another one has: give it to all, or none")
        values = dict.fromkeys(level[member] for level in levels if member in level)
        found += [text for value in values for text in value_faults(item, row_kinds()[member], value)]
    doubles = {spell_level(level) for level in levels if sum(level == other for other in levels) > 1}
    return found + [f"{name}: {text} is among the levels twice: take one out" for text in sorted(doubles)]


def _may_vary(member: str, *, travels: bool) -> bool:
    """Whether a parameter may be a factor, or a limit that travels with one."""
    if member in ("validation_share", "round_epochs", "probe_steps"):
        return False
    affects = row_parameters()[member].metadata["affects"]
    return member not in _of_jobs() or bool(affects & {*COMPUTES, *(("limit",) if travels else ())})


def _of_jobs() -> Set[str]:
    return row_parameters().keys() - {item.name for item in fields(RowTerms)}


def spell_level(level: Level) -> str:
    """A level as it would be typed."""
    return ", ".join(f"{name}={spell(value)}" for name, value in level.items())


def _faults_between(draft: DesignDraft, broken: Set[FaultPath]) -> Iterator[Fault]:
    """What parts that are right on their own have against each other."""
    first = {path[0] for path in broken}
    members = [(name, member) for name, levels in draft.factors.items() for member in _members(levels)]
    for name, member in members:
        owners = [other for other, one in members if one == member]
        if member in draft.job:
            yield ("factors", name), f"{member} is in job and in factors: take it out of one of them"
        elif owners[0] != name:
            yield ("factors", name), f"{member} is in {owners[0]} and in {name}: take it out of one of them"
    if not draft.factors and not {"factors", "design"} & first:
        yield ("factors",), "factors is missing: add factors: {instance_count: [1, 2, 4]}"
    if draft.budget_usd is None and "budget_usd" not in first:
        types = [level.get("instance_type") for levels in draft.factors.values() for level in levels]
        if is_billed(draft.job.get("launcher"), [*types, draft.job.get("instance_type")]):  # type: ignore[arg-type]
            text = "budget_usd is missing: jobs on SageMaker are billed, so their design needs a limit in dollars; add "
            yield ("budget_usd",), f"{text}budget_usd: 20"
    for number, rule in enumerate(draft.exclude, start=1):
        for name in rule.keys() - {member for _, member in members}:
            yield (
                ("exclude",),
                f"exclude: rule {number} names {name}, which no factor has: {_has([m for _, m in members])}",
            )
    if not {"runs", "design", "factors"} & first:
        yield from _size_faults(draft)
    if draft.centre_points and (texts := [name for name, levels in draft.factors.items() if not is_number(levels)]):
        yield ("centre_points",), f"centre_points needs factors that are numbers, and {', '.join(texts)} has no middle"
    if draft.factors and not {"factors", "job", "exclude", "design"} & first:
        yield from _row_faults(draft)


def _members(levels: Sequence[Level]) -> list[str]:
    return list(dict.fromkeys(member for level in levels for member in level))


def _has(names: Sequence[str]) -> str:
    return f"there are {', '.join(dict.fromkeys(names))}"


def _size_faults(draft: DesignDraft) -> Iterator[Fault]:
    """What is wrong with the number of rows."""
    is_optimal = draft.design in (D_OPTIMAL, I_OPTIMAL)
    if is_optimal and draft.runs is None:
        yield ("runs",), f"runs is missing: a design {draft.design} needs the number of its rows; add runs: 15"
    if draft.design in (FULL, TABLE) and draft.runs is not None:
        yield ("runs",), f"runs is for optimal and fractional designs, and design {draft.design} has all its rows"
    terms = 1 + sum(len(levels) - 1 for levels in draft.factors.values())
    if is_optimal and draft.model is None and draft.runs is not None and draft.runs < terms:
        rule = f"runs must be at least {terms}, the terms of the main effects"
        yield ("runs",), f"{rule} (1 and one less than the levels of each factor), got {draft.runs}"


def _row_faults(draft: DesignDraft) -> Iterator[Fault]:
    """What is wrong with rows, each fault once with the first row that has it."""
    if (size := draft.combinations()) > MOST_COMBINATIONS:
        yield (
            ("factors",),
            f"factors make {size:,} combinations, at most {MOST_COMBINATIONS:,} are tried: take levels out",
        )
        return
    candidates = draft.candidates()
    if not candidates:
        yield ("exclude",), f"exclude leaves none of the {size} combinations: take a rule out"
        return
    found: dict[str, list[Point]] = {}
    for point in candidates:
        faults: list[str] = []
        with collecting(faults):
            draft.job_at(point)
        for text in faults:
            found.setdefault(text, []).append(point)
    for text, points in itertools.islice(found.items(), _MOST_FAULTS):
        where, name = "", text.split()[0]
        if len(points) < len(candidates):
            more = f" and {len(points) - 1} more" if len(points) > 1 else ""
            where = f"{spell_level(flat(points[0]))}{more}: "
        hint = "" if not where else "; exclude takes such rows out"
        yield ("job", name) if name in draft.job and not where else ("factors",), f"{where}{text}{hint}"
    if len(found) > _MOST_FAULTS:
        yield ("factors",), f"and {len(found) - _MOST_FAULTS} more"


def middle(levels: Sequence[Level]) -> Level:
    """The middle of a factor whose levels are numbers, rounded where its parameter is a whole number."""
    values = [float(value) for level in levels for value in level.values()]
    (member,) = levels[0]
    at = (min(values) + max(values)) / 2
    is_whole = member not in _of_jobs() or kind_of(member) is int
    return {member: round(at) if is_whole else at}
