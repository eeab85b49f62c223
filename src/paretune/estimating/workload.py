"""The work of a training: rows, tokens, steps, arithmetic. Known before any weights or data are there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.estimating.formats import BYTES, Formats
from paretune.specification import metrics
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.specification.parallelism import MICRO_BATCH_TOKENS, BatchPlan

_EVALUATIONS = 4  # of a training with eval_strategy=steps, spread over it, unless eval_steps is given
LEAST_EVALUATED_ROWS = 64  # rows of an evaluation batch on one device, fewer if they are long; at least those trained
EVALUATED_LOGITS = 2**26
"""Logits of a language model's evaluation batch on one device, 256 MiB in fp32; more only if a training batch has."""
BUNDLED_ROWS = {"bundled:rotten_tomatoes": (7677, 853, 27.3), "bundled:imdb": (22500, 2500, 128.0)}
"""Training rows, validation rows and mean tokens of the bundled data sets."""

PACKED_BYTES = 4 / 8  # of a weight in nf4
SCALE_BYTES = (8 / 64 + 32 / (64 * 256)) / 8
"""Bytes of the constants of a weight in nf4 with double quantization, 0.016: 8 bits for 64 weights, and 32 for 256 such
constants (Dettmers et al., arXiv 2305.14314, section 3)."""
PROBE_STEPS = 40  # steps of a short job that measures the speed of a cluster: ten of them warm up, thirty are measured


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work of one training, independent of its cluster."""

    tokens: float  # mean tokens of a row
    steps: int  # optimizer steps; the last one of an epoch may be smaller
    evaluated_rows: float
    evaluations: float  # evaluations of a whole training, of `evaluated_rows` each
    flops_per_row: float
    """Floating-point operations forward and backward, attention included, and the forward pass below the output layer
    again if the backward pass recomputes it. A causal model attends to earlier tokens only."""
    forward_flops_per_row: float
    attention_share: float  # share of these operations for attention matrices
    trained_parameters: float  # weights that the optimizer changes
    passes: float  # forward and backward passes, in forward passes: 3, 4 with recomputation, 1 if frozen
    adapted_widths: float  # inputs plus outputs of the linear layers that have adapters, summed
    model: str  # equal for jobs whose time and memory can be predicted from each other
    packed_weights: float  # weights in 4 bits
    output_weights: int  # weights of a language model's output layer
    recomputes: bool  # whether the backward pass recomputes activations layer by layer
    evaluation_batch: int  # rows of an evaluation on one device; 0 if there is none


def workload(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Workload | None:
    """Count the work of a job; None if the number of its training rows is unknown.

    `facts` are known facts of the prepared data: train_rows, train_tokens, validation_rows. Raises BadInput for values
    in training_arguments that the Trainer does not take.
    """
    data = data_of(spec, facts)
    if data is None:
        return None
    train_rows, length = data.rows, data.tokens
    widths = built.adapted_widths if spec.fine_tuning in ADAPTERS else 0
    steps = spec.probe_steps or training_steps(spec, plan, train_rows)
    flops = flops_of_row(spec, built, length)
    per_epoch = math.ceil(train_rows / plan.global_batch_size)
    return Workload(
        tokens=length,
        steps=steps,
        evaluated_rows=data.evaluated_rows,
        evaluations=0 if spec.probe_steps else evaluation_schedule(spec, steps).evaluations(steps, per_epoch),
        flops_per_row=flops.once + flops.again,
        forward_flops_per_row=flops.forward,
        attention_share=flops.attention_share,
        trained_parameters=trained_weights(spec, built),
        passes=1.0 if spec.fine_tuning == "head" else 4.0 if recomputes(spec) else 3.0,
        adapted_widths=widths,
        model=f"{spec.model} {spec.max_seq_length} {spec.fine_tuning}",
        packed_weights=quantized_weights(spec, built),
        output_weights=output_weights(spec, built),
        recomputes=recomputes(spec),
        evaluation_batch=0 if spec.probe_steps else evaluation_batch(spec, plan, built.vocabulary),
    )


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations of a training row."""

    forward: float  # of the model without adapters, attention included
    once: float  # forward and backward with adapters: what MFU counts
    again: float  # what the backward pass recomputes
    attention_share: float  # share of `forward` for attention matrices


def flops_of_row(spec: JobSpec, built: Architecture, tokens: float) -> Flops:
    """Return the operations of a row of so many tokens: 2 a weight and token forward, and as many for each gradient.

    A layer's attention has 4 x width x tokens^2, half of it in a causal model, which attends to earlier tokens only
    (Chowdhery et al., arXiv 2204.02311, appendix B, for the whole matrix). Gradients of activations need as much as the
    forward pass, those of weights, too; of attention, twice as much. Below a head that is trained alone there are none.
    """
    widths = built.adapted_widths if spec.fine_tuning in ADAPTERS else 0
    attention = tokens * 4 * built.layers * built.hidden_size * tokens / (2 if spec.task == metrics.CAUSAL_LM else 1)
    products, of_output = tokens * 2 * built.matrices, tokens * 2 * output_weights(spec, built)
    forward, adapters = products + attention, tokens * 2 * spec.lora.r * widths
    backward = products * (1 if widths else 2) + 2 * attention + 2 * adapters
    if spec.fine_tuning == "head":
        backward = of_output
    return Flops(
        forward=forward,
        once=forward + adapters + backward,
        again=forward - of_output + adapters if recomputes(spec) else 0.0,
        attention_share=attention / forward,
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """The rows of a training, in numbers."""

    rows: float  # of an epoch
    tokens: float  # mean tokens of a row
    evaluated_rows: float  # of each evaluation


def data_of(spec: JobSpec, facts: Mapping[str, float] | None = None) -> Data | None:
    """Return the rows of a job, or None if neither its parameters nor `facts` of the prepared data have their number.

    Rows of data that are not prepared are `max_seq_length` long, those of the package as long as its texts. A language
    model trains on whole rows of all texts joined.
    """
    facts = facts or {}
    rows, validation, tokens = BUNDLED_ROWS.get(spec.dataset, (None, None, None))
    if spec.max_train_samples is not None and (rows is None or spec.max_train_samples > rows):
        validation, tokens = None, None  # not the rows of the package
    given, length = spec.max_train_samples or rows, min(tokens or math.inf, float(spec.max_seq_length))
    evaluated = None if given is None else _evaluated(spec, given, validation)
    if given and evaluated and tokens and spec.task == metrics.CAUSAL_LM:
        joined = tokens / spec.max_seq_length
        given, evaluated, length = math.ceil(given * joined), evaluated * joined, float(spec.max_seq_length)
    train_rows = facts.get("train_rows", given)
    if not train_rows:
        return None
    return Data(
        rows=train_rows,
        tokens=facts["train_tokens"] / train_rows if "train_tokens" in facts else length,
        evaluated_rows=facts.get("validation_rows", evaluated or train_rows / 9),
    )


def training_rows(spec: JobSpec, facts: Mapping[str, float] | None = None) -> float | None:
    """Return the training rows of an epoch, or None if neither the parameters nor `facts` of the data have them."""
    data = data_of(spec, facts)
    return None if data is None else data.rows


def share_in_layers(tensor: int) -> float:
    """Return the share of the activations inside layers that one device of a tensor group keeps."""
    return (10 + 24 / tensor) / 34  # Korthikanti et al., arXiv 2205.05198, section 4.2.1


def recomputes(spec: JobSpec) -> bool:
    """Return whether the backward pass recomputes activations layer by layer instead of keeping them."""
    return spec.checkpoints_activations and spec.fine_tuning != "head"


def evaluation_batch(spec: JobSpec, plan: BatchPlan, vocabulary: int) -> int:
    """Return the rows of an evaluation batch on one device, at least those of a training batch.

    Logits of a language model are rows x tokens x vocabulary, so its batches are limited by them.
    """
    limit = min(LEAST_EVALUATED_ROWS, MICRO_BATCH_TOKENS // spec.max_seq_length)
    if spec.task == metrics.CAUSAL_LM:
        limit = min(limit, EVALUATED_LOGITS // (spec.max_seq_length * vocabulary))
    return _whole_argument(spec, "per_device_eval_batch_size") or max(plan.per_device_train_batch_size, limit)


def training_steps(spec: JobSpec, plan: BatchPlan, rows: float) -> int:
    """Return the optimizer steps of a whole training on `rows` rows; max_steps overrides epochs, as in the Trainer."""
    whole = math.ceil(math.ceil(rows / plan.global_batch_size) * spec.num_train_epochs)
    return _whole_argument(spec, "max_steps") or max(1, whole)


def warmup_steps(steps: int) -> int:
    """Return the number of warm-up steps, in which memory is allocated and kernels chosen: a tenth, at most ten."""
    return min(10, max(1, steps // 10))


def _evaluated(spec: JobSpec, rows: float, validation: float | None) -> float:
    """Return the rows of one evaluation before data are prepared: by default a ninth of the training rows."""
    if spec.max_eval_samples is not None:
        return min(spec.max_eval_samples, validation or spec.max_eval_samples)
    return rows / 9 if spec.max_train_samples is not None or validation is None else validation


@dataclass(frozen=True)
class Schedule:
    """When a training evaluates, or saves: at the end of each epoch, every so many steps, or never."""

    strategy: str  # no, steps, epoch, or best
    every: float  # steps; below 1 a share of all of them

    def is_due(self, step: int, steps: int, steps_per_epoch: int) -> bool:
        """Return whether it is due after `step` of `steps` steps."""
        if self.strategy == "steps":
            return self.every > 0 and step % self._interval(steps) == 0
        return self.strategy == "epoch" and (step % steps_per_epoch == 0 or step == steps)

    def evaluations(self, steps: int, steps_per_epoch: int) -> int:
        """Return the number of evaluations of a training: those that are due, and that of the returned model."""
        due = {"steps": steps // self._interval(steps), "epoch": math.ceil(steps / steps_per_epoch)}
        return due.get(self.strategy, 0) + (not self.is_due(steps, steps, steps_per_epoch))

    def _interval(self, steps: int) -> int:
        return int(self.every if self.every >= 1 else max(1, math.ceil(steps * self.every)))


def evaluation_schedule(spec: JobSpec, steps: int) -> Schedule:
    """Return when a training of so many steps evaluates; raises BadInput for another strategy than the Trainer's."""
    given = spec.training_arguments
    strategy = str(given.get("eval_strategy", "steps" if "eval_steps" in given else "no"))
    if strategy not in {"no", "steps", "epoch"}:
        raise BadInput([f"training_arguments: eval_strategy must be no, steps or epoch, got {strategy!r}"])
    every = given.get("eval_steps")
    if not (isinstance(every, float) and 0 < every < 1):
        every = _whole_argument(spec, "eval_steps") or math.ceil(steps / _EVALUATIONS)
    return Schedule(strategy, every)


def _whole_argument(spec: JobSpec, name: str) -> int | None:
    """Return a count among the training arguments, or None if absent or off. Raises BadInput for fractions."""
    value = spec.training_arguments.get(name, -1)
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError, OverflowError):
        raise BadInput([f"training_arguments: {name} must be a whole number, got {value!r}"]) from None


def output_weights(spec: JobSpec, built: Architecture) -> int:
    """Return the weights of a language model's output layer; 0 for other tasks."""
    return built.vocabulary * built.hidden_size if spec.task == metrics.CAUSAL_LM else 0


def frozen_weight_bytes(packed: float, built: Architecture, formats: Formats) -> float:
    """Return the mean bytes of a frozen weight, of a model with so many weights packed in 4 bits."""
    share = packed / built.parameters
    return PACKED_BYTES * share + BYTES[formats.frozen] * (1 - share)


def gathered_bytes(packed: float, built: Architecture, formats: Formats) -> float:
    """Return the bytes of all weights as shards are gathered: in the format of products, or packed in 4 bits."""
    return PACKED_BYTES * packed + BYTES[formats.compute] * (built.parameters - packed)


def quantized_weights(spec: JobSpec, built: Architecture) -> float:
    """Count the 4-bit weights: with qlora, all matrices except the output layer."""
    return float(built.matrices - output_weights(spec, built)) if spec.fine_tuning == "qlora" else 0.0


def trained_weights(spec: JobSpec, built: Architecture) -> float:
    """Count the weights that the optimizer changes; with adapters, a classification head is among them."""
    of_words, head = output_weights(spec, built), float(built.hidden_size**2)
    if spec.fine_tuning in ADAPTERS:
        return spec.lora.r * built.adapted_widths + (0.0 if of_words else head)
    return float(of_words or head) if spec.fine_tuning == "head" else float(built.parameters)
