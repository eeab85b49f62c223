"""How much work a training is: rows, tokens, steps, arithmetic. Known before any weights or data are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paretune import metrics
from paretune.architecture import Architecture
from paretune.batch_size import BatchPlan
from paretune.spec import JobSpec

EVALUATIONS = 4
"""At least so many evaluations are spread over a training; with more epochs, one after each."""
EMBEDDED_ROWS = {"embedded:rotten_tomatoes": (7677, 853, 27.3), "embedded:imdb": (22500, 2500, 128.0)}
"""Training rows, validation rows and mean tokens of what comes with the packages."""
_LORA_SHARE = 0.015  # rank 8 on all linear layers of a BERT-sized model; smaller for larger ones


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training, without the cluster it runs on.

    Attributes:
        rows: training rows of one epoch.
        tokens: mean tokens of a row.
        epochs: passes over the rows.
        evaluated_rows: rows of one evaluation.
        evaluations: evaluations of a whole training.
        flops_per_row: floating-point operations forward and backward, attention included.
        forward_flops_per_row: those of the forward pass alone.
        parameters: weights.
        trained_parameters: weights that the optimiser changes.
        steps_limit: optimiser steps after which the training ends, if it does before its epochs.
    """

    rows: float
    tokens: float
    epochs: float
    evaluated_rows: float
    evaluations: float
    flops_per_row: float
    forward_flops_per_row: float
    parameters: float
    trained_parameters: float
    steps_limit: int | None = None

    def steps(self, global_batch_size: int) -> int:
        """Optimiser steps; the last one of an epoch may be smaller."""
        whole = math.ceil(math.ceil(self.rows / global_batch_size) * self.epochs)
        return max(1, whole if self.steps_limit is None else min(whole, self.steps_limit))


def workload(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Workload | None:
    """The work of a job; None when its arguments do not say how many rows it trains on.

    Args:
        spec: the job.
        plan: its batch sizes.
        built: the model.
        facts: what is known of the prepared data (train_rows, train_tokens, validation_rows), when it is.
    """
    known = facts or {}
    rows, evaluated, tokens = EMBEDDED_ROWS.get(spec.dataset, (None, None, None))
    if spec.max_train_samples is not None:
        if rows is None or spec.max_train_samples > rows:  # other rows are meant than those of the package
            tokens = None
        rows = spec.max_train_samples
        evaluated = spec.max_eval_samples or math.ceil(spec.max_train_samples / 9)
    tokens = None if tokens is None else min(tokens, spec.max_seq_length)
    found = known.get("train_rows", rows)
    if found is None:
        return None
    if "train_tokens" in known:
        tokens = known["train_tokens"] / known["train_rows"]
    length = tokens if tokens is not None else float(spec.max_seq_length)
    share, trained = _trained(spec.fine_tuning, built)
    limit = spec.probe_steps
    if limit is None and int(spec.training_arguments.get("max_steps", -1)) > 0:
        limit = int(spec.training_arguments["max_steps"])
    return Workload(
        rows=found,
        tokens=length,
        epochs=spec.num_train_epochs,
        evaluated_rows=known.get("validation_rows", evaluated if evaluated is not None else found / 9),
        evaluations=0 if spec.probe_steps else max(EVALUATIONS, spec.num_train_epochs),
        flops_per_row=_flops(built, length, share),
        forward_flops_per_row=_flops(built, length, 1.0) / 3,  # 2 of 6 operations per weight and token
        parameters=built.parameters,
        trained_parameters=trained,
        steps_limit=limit,
    )


def _flops(built: Architecture, tokens: float, trained_share: float) -> float:
    return (
        metrics.training_flops(
            parameters=built.matrices,
            trained_share=trained_share,
            tokens=1,
            layers=built.layers,
            hidden_size=built.hidden_size,
            mean_length=tokens,
        )
        * tokens
    )


def _trained(fine_tuning: str, built: Architecture) -> tuple[float, float]:
    """Share of the matrices that get gradients, and the weights that the optimiser changes."""
    if fine_tuning == "full":
        return 1.0, float(built.parameters)
    if fine_tuning == "head":
        return 0.0, float(built.hidden_size * built.hidden_size)
    return _LORA_SHARE, _LORA_SHARE * built.matrices
