"""One row of a design: from its values to a job, with equal steps and with rows counted before the split."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from paretune.core.errors import BadInput, refuse
from paretune.estimating.workload import BUNDLED_ROWS, training_steps
from paretune.specification.inputs import Data
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, annotations, parameter
from paretune.studies.definition.space import make_spec, parameters

_ROUNDING = 1e-9  # of a number of epochs


@dataclass(frozen=True, kw_only=True)
class RowTerms:
    """Parameters of a row that a job does not have; parameters of the job follow from them."""

    dataset_size: int | None = parameter(
        None, "rows before the split; max_train_samples and max_eval_samples follow from it", minimum=2
    )
    validation_share: float = parameter(0.1, "share of dataset_size that F1 is measured on", above=0, maximum=0.5)
    total_steps: int | None = parameter(
        None, "optimiser steps; num_train_epochs follows: steps x global batch / training rows", minimum=1
    )
    round_epochs: bool = parameter(False, "take the nearest whole epochs where total_steps is none, and show it")


ROW_TERMS = frozenset(field.name for field in fields(RowTerms))


@cache
def row_parameters() -> dict[str, Any]:
    """The field of each parameter that a row of a design may set."""
    return {**parameters(), **{field.name: field for field in fields(RowTerms)}}


@cache
def row_types() -> dict[str, Any]:
    """The type of each parameter that a row of a design may set."""
    types = {**annotations(JobSpec), **annotations(RowTerms)}
    return {name: types[name] for name in row_parameters()}


@dataclass(frozen=True, kw_only=True)
class RowJob:
    """The job of a row."""

    spec: JobSpec
    steps: int | None  # optimiser steps that it makes, or None if the number of its training rows is not known
    requested_steps: int | None  # `total_steps` of the row, or None if the row sets epochs

    @property
    def deviation(self) -> float | None:
        """Share by which it makes more steps than requested, or None if the row sets epochs.

        Whole epochs may make more steps, because the last batch of an epoch may be smaller.
        """
        if self.requested_steps is None or self.steps is None:
            return None
        return self.steps / self.requested_steps - 1


def job_of_row(values: Mapping[str, Value]) -> RowJob:
    """The job of these values; raises BadInput with all their faults, such as steps that make no whole epochs."""
    terms = RowTerms(**{name: value for name, value in values.items() if name in ROW_TERMS})  # type: ignore[arg-type]  # they were checked
    job = {name: value for name, value in values.items() if name not in ROW_TERMS}
    refuse(_contradictions(terms, job))
    if terms.dataset_size is not None:
        held_out = max(1, round(terms.dataset_size * terms.validation_share))
        job |= {"max_train_samples": terms.dataset_size - held_out, "max_eval_samples": held_out}
    spec = make_spec(job, {})
    rows = _training_rows(spec)
    if terms.total_steps is not None:
        spec = spec.replace(num_train_epochs=float(_epochs(spec, rows, terms.total_steps, terms.round_epochs)))
    steps = None if rows is None else training_steps(spec, spec.plan(), rows)
    return RowJob(spec=spec, steps=steps, requested_steps=terms.total_steps)


def _contradictions(terms: RowTerms, job: Mapping[str, Value]) -> list[str]:
    faults = []
    if terms.dataset_size is not None:
        for name in ("max_train_samples", "max_eval_samples", "validation_file"):
            if name in job:
                faults.append(f"{name} and dataset_size exclude each other, for the split of dataset_size gives both")
    if terms.total_steps is not None and "num_train_epochs" in job:
        faults.append("num_train_epochs and total_steps exclude each other: leave one of them out")
    return faults


def _training_rows(spec: Data) -> int | None:
    """Rows that a job trains on, or None if they are not known before its data is read."""
    bundled = BUNDLED_ROWS[spec.dataset][0] if spec.dataset in BUNDLED_ROWS else None
    return min((rows for rows in (bundled, spec.max_train_samples) if rows is not None), default=None)


def _epochs(spec: JobSpec, rows: int | None, steps: int, rounds: bool) -> int:
    """The whole number of epochs that makes this many steps; the nearest one if `rounds`.

    Raises:
        BadInput: no whole number does, and `rounds` is false; the message names the nearest ones.
    """
    if rows is None:
        text = f"total_steps needs the number of training rows, and that of {spec.dataset} is not known"
        raise BadInput([f"{text}: set dataset_size, or max_train_samples"])
    plan = spec.plan()
    batch = plan.global_batch_size
    epochs = steps * batch / rows
    near = sorted({max(1, math.floor(epochs)), max(1, math.ceil(epochs))})
    steps_of = {number: training_steps(spec.replace(num_train_epochs=float(number)), plan, rows) for number in near}
    nearest = max(1, round(epochs))
    exact = [number for number in near if steps_of[number] == steps]
    if rounds or exact or abs(epochs - nearest) < _ROUNDING:
        return exact[0] if exact else nearest
    whole = " and ".join(
        f"{number} epoch{'s' if number > 1 else ''} ({total:,} steps)" for number, total in steps_of.items()
    )
    raise BadInput(
        [
            f"total_steps {steps:,} x global batch {batch:,} / {rows:,} training rows must be whole epochs, got "
            f"{epochs:.6g}: the nearest are {whole}; take one of these, or set round_epochs=true"
        ]
    )
