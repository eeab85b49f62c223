"""The points that `method: split` chooses among, each taken apart: what F1 depends on, and what seconds depend on."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_whole

LEVELS = 9
"""Values that a range is cut into."""
MOST_CANDIDATES = 3000


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One point: searched parameter to value."""

    point: Mapping[str, Value]
    spec: JobSpec
    plan: BatchPlan


def step_of(spec: JobSpec, plan: BatchPlan) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """What the seconds of one row depend on: kinds, log2 instances, log2 per-device batch.

    Accumulation is left out, the work of a row is the same.
    """
    kinds = (spec.instance_type, *spec.key_of("seconds"))
    return kinds, (math.log2(spec.instance_count), math.log2(plan.per_device_train_batch_size))


def candidates(file: StudyFile) -> list[Candidate]:
    """All points of the space that make a job; ranges are cut into LEVELS values; a seeded share of a huge space."""
    values = {name: _values(name, entry) for name, entry in file.search.items()}
    count = math.prod(len(column) for column in values.values())
    indices: Sequence[int] = range(count)
    if count > MOST_CANDIDATES:
        indices = sorted(random.Random(file.seed).sample(indices, MOST_CANDIDATES))
    found = file.jobs_at(_point(values, index) for index in indices)
    return [Candidate(point=point, spec=spec, plan=spec.plan()) for point, spec in found]


def _point(values: Mapping[str, list[Value]], index: int) -> dict[str, Value]:
    """The point number `index`, the last parameter fastest."""
    digits = np.unravel_index(index, [len(column) for column in values.values()])
    return {name: column[digit] for (name, column), digit in zip(values.items(), digits, strict=True)}


def _values(name: str, entry: Choices | Range) -> list[Value]:
    if isinstance(entry, Choices):
        return list(entry.values)
    numbers = [*(entry.at(index / (LEVELS - 1)) for index in range(LEVELS - 1)), entry.high]
    return list(dict.fromkeys(map(round, numbers)) if is_whole(name, entry) else numbers)
