"""How much work a training is: rows, tokens, steps, arithmetic. Known before any weights or data are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.estimating.traced_step import NF4_BYTES
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.fine_tuning import ADAPTERS
from paretune.specification.job import JobSpec

# smp replaces embedding tables by its own; deepspeed trains flat copies, from which no table could be restored.
_WITH_OWN_TABLES = frozenset({"ddp", "fsdp", "smddp"})
EVALUATIONS = 4
"""At least so many evaluations are spread over a training; with more epochs, one after each."""
LEAST_EVALUATED_ROWS = 64
"""Of a batch of an evaluation on one device; as many as of a training batch where that has more."""
BUNDLED_ROWS = {"bundled:rotten_tomatoes": (7677, 853, 27.3), "bundled:imdb": (22500, 2500, 128.0)}
"""Training rows, validation rows and mean tokens of what comes with the packages."""
LORA_SHARE = 0.015
"""Of all weights, those of adapters: rank 8 on all linear layers of a BERT-sized model; smaller for larger ones."""
_RANK_OF_SHARE = 8

_HALF_BASES = frozenset({"ddp", "smddp", "fsdp"})

# Adapters' own small products and sums, against the passes without them. Hu et al. (arXiv 2106.09685, section 4.2)
# train a quarter faster with them than without, where operations alone give a half; here they are no faster
# (studies/README.md).
_OF_ADAPTERS = 1.3
PROBE_STEPS = 40
"""Steps of a short job that measures the speed of a cluster: ten of them warm up, thirty are measured."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training, without the cluster it runs on.

    Attributes:
        tokens: mean tokens of a row.
        evaluations: evaluations of a whole training, of `evaluated_rows` each.
        flops_per_row: floating-point operations forward and backward, attention included, and the forward pass again
            where the backward pass recomputes it; with adapters as many as take as long.
        attention_share: share of these operations that goes into attention matrices.
        trained_parameters: weights that the optimiser changes.
        steps: optimiser steps; the last one of an epoch may be smaller.
    """

    tokens: float
    steps: int
    evaluated_rows: float
    evaluations: float
    flops_per_row: float
    forward_flops_per_row: float
    attention_share: float
    trained_parameters: float


def workload(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Workload | None:
    """The work of a job; None when its arguments do not say how many rows it trains on.

    `facts` are what is known of the prepared data: train_rows, train_tokens, validation_rows.

    Raises:
        BadInput: training_arguments set max_steps, eval_steps or eval_strategy to what the Trainer does not take.
    """
    known = facts or {}
    rows, validation, tokens = BUNDLED_ROWS.get(spec.dataset, (None, None, None))
    if spec.max_train_samples is not None and (rows is None or spec.max_train_samples > rows):
        validation, tokens = None, None  # other rows are meant than those of the package
    tokens = None if tokens is None else min(tokens, spec.max_seq_length)
    found = training_rows(spec, known)
    if not found:
        return None
    if "train_tokens" in known:
        tokens = known["train_tokens"] / found
    length = tokens if tokens is not None else float(spec.max_seq_length)
    share, trained = _trained(spec, built)
    steps = spec.probe_steps or training_steps(spec, plan, found)
    forward = _flops(built, length, 1.0) / 3  # 2 of 6 operations per weight and token
    whole = forward if spec.fine_tuning == "head" else _flops(built, length, share)
    whole *= _OF_ADAPTERS if spec.fine_tuning in ADAPTERS else 1.0
    attention = 4 * built.layers * built.hidden_size * length  # of a forward pass, per token; beside 2 x weights
    return Workload(
        tokens=length,
        steps=steps,
        evaluated_rows=known.get("validation_rows", _evaluated(spec, found, validation)),
        evaluations=_evaluations(spec, steps, math.ceil(found / plan.global_batch_size)),
        flops_per_row=whole + (forward if recomputes(spec) else 0.0),
        forward_flops_per_row=forward,
        attention_share=attention / (attention + 2 * built.matrices),
        trained_parameters=trained,
    )


def training_rows(spec: JobSpec, facts: Mapping[str, float] | None = None) -> float | None:
    """Rows that a job trains on in an epoch; None where neither its arguments nor `facts` of its data say so."""
    asked = spec.max_train_samples
    return (facts or {}).get("train_rows", BUNDLED_ROWS.get(spec.dataset, (None,))[0] if asked is None else asked)


def recomputes(spec: JobSpec) -> bool:
    """Whether the backward pass makes activations again, layer by layer, in place of keeping them."""
    asked = spec.activation_checkpointing or bool(spec.training_arguments.get("gradient_checkpointing"))
    return asked and spec.fine_tuning != "head"


def optimizer_skips_zero_gradients(options: Mapping[str, Any]) -> bool:
    """Whether the optimiser chosen by these TrainingArguments leaves weights unchanged whose gradient is always zero.

    AdamW without weight decay does, and it is the default. Others may scale a step by a norm over the whole table
    (Adafactor), and `optim_args` may hold another weight decay.
    """
    is_adamw = str(options.get("optim", "adamw_torch_fused")).startswith("adamw_torch")
    return is_adamw and not options.get("optim_args") and not float(options.get("weight_decay", 0.0))


def trains_used_rows(spec: JobSpec) -> bool:
    """Whether embedding rows of tokens that the data do not contain may be left out of the training."""
    is_whole = spec.degrees.tensor * spec.degrees.pipeline == 1  # else a process may have a part of the table
    return spec.strategy in _WITH_OWN_TABLES and is_whole and optimizer_skips_zero_gradients(spec.training_arguments)


def training_steps(spec: JobSpec, plan: BatchPlan, rows: float) -> int:
    """Optimiser steps of a whole training on `rows` rows: max_steps whatever the epochs are, as the Trainer makes them.

    Raises:
        BadInput: training_arguments set max_steps to what the Trainer does not take.
    """
    whole = math.ceil(math.ceil(rows / plan.global_batch_size) * spec.num_train_epochs)
    return _whole_argument(spec, "max_steps") or max(1, whole)


def warmup_steps(steps: int) -> int:
    """Of that many optimiser steps, those in which memory is allocated and kernels are chosen: a tenth, at most ten."""
    return min(10, max(1, steps // 10))


def profile_faults(spec: JobSpec, rows: float | None) -> list[str]:
    """That a job on `rows` training rows has too few steps for its profile; empty where its steps are not known."""
    if spec.profile_steps is None:
        return []
    try:
        known = training_steps(spec, spec.plan(), rows) if rows else _whole_argument(spec, "max_steps")
    except BadInput as error:
        return list(error.faults)
    steps = spec.probe_steps or known
    if steps is None or spec.profile_steps <= steps - warmup_steps(steps):
        return []
    warm = warmup_steps(steps)
    few = "the job has 1 optimiser step, which warms up: train longer, or leave profile_steps out"
    return [
        f"profile_steps must be at most {steps - warm} here, got {spec.profile_steps}: the job has {steps} optimiser "
        f"steps, of which {warm} warm{'s' if warm == 1 else ''} up; lower it, or train longer"
        if steps > warm
        else few
    ]


def _evaluated(spec: JobSpec, rows: float, validation: float | None) -> float:
    """Rows of one evaluation, where the data are not prepared yet: a ninth of the training rows, if not said else."""
    if spec.max_eval_samples is not None:
        return min(spec.max_eval_samples, validation or spec.max_eval_samples)
    return rows / 9 if spec.max_train_samples is not None or validation is None else validation


def _evaluations(spec: JobSpec, steps: int, steps_per_epoch: int) -> float:
    """Evaluations of the whole training: at least the one of the model that is returned, none of a probe."""
    if spec.probe_steps:
        return 0
    is_short = spec.num_train_epochs < EVALUATIONS or _whole_argument(spec, "max_steps") is not None
    strategy = spec.training_arguments.get("eval_strategy", "steps" if is_short else "epoch")
    if strategy == "no":
        return 1
    if strategy == "epoch":
        return math.ceil(steps / steps_per_epoch)
    if strategy != "steps":
        raise BadInput([f"training_arguments: eval_strategy must be no, steps or epoch, got {strategy!r}"])
    every = spec.training_arguments.get("eval_steps")
    if isinstance(every, float) and 0 < every < 1:  # a share of all steps
        return math.ceil(1 / every)
    return max(1, math.ceil(steps / (_whole_argument(spec, "eval_steps") or math.ceil(steps / EVALUATIONS))))


def _whole_argument(spec: JobSpec, name: str) -> int | None:
    """A count among the training arguments; None when it is absent or off.

    Raises:
        BadInput: it is not a whole number.
    """
    value = spec.training_arguments.get(name, -1)
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError, OverflowError):
        raise BadInput([f"training_arguments: {name} must be a whole number, got {value!r}"]) from None


def _flops(built: Architecture, tokens: float, trained_share: float) -> float:
    return tokens * metrics.training_flops(
        parameters=built.matrices,
        trained_share=trained_share,
        layers=built.layers,
        hidden_size=built.hidden_size,
        mean_length=tokens,
    )


def adapter_share(spec: JobSpec) -> float:
    """Weights of adapters in weights of the whole model: a pair of matrices has as many as its rank is high."""
    return LORA_SHARE * spec.lora_rank / _RANK_OF_SHARE


def keeps_frozen_weights_in_half(spec: JobSpec, precision: str) -> bool:
    """Whether the weights beside adapters that are neither trained nor quantised are loaded in bf16.

    Norms, adapters and trained heads stay fp32. `precision` is the one the job computes in: fp16 has too small a range
    for weights, and smp and deepspeed keep weights of one format.
    """
    return spec.fine_tuning in ADAPTERS and precision == "bf16" and spec.strategy in _HALF_BASES


def frozen_weight_bytes(spec: JobSpec, built: Architecture, precision: str) -> float:
    """Mean bytes of a weight of the model that is not trained; `precision` is fp32, bf16 or fp16."""
    each = 2.0 if keeps_frozen_weights_in_half(spec, precision) else 4.0
    output = built.vocabulary * built.hidden_size if spec.task == "causal-lm" else 0  # is not quantised
    packed = (built.matrices - output) / built.parameters if spec.fine_tuning == "qlora" else 0.0
    return NF4_BYTES * packed + each * (1 - packed)


def _trained(spec: JobSpec, built: Architecture) -> tuple[float, float]:
    """Share of the matrices that get gradients, and the weights that the optimiser changes.

    With `head` nothing goes back through the encoder, which is frozen: the forward pass is all that counts. What it
    takes to turn 4-bit weights into numbers is not counted.
    """
    if spec.fine_tuning in ADAPTERS:
        return adapter_share(spec), adapter_share(spec) * built.matrices
    if spec.fine_tuning == "head":
        return 0.0, float(built.hidden_size**2)
    return 1.0, float(built.parameters)
