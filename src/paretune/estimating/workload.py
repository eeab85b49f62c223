"""The work of a training run: rows, tokens, steps and arithmetic, computed before weights or data are downloaded.

`Setting` describes a job with its work and the device that does it; time and memory are estimated from it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.estimating.formats import BYTES, Formats
from paretune.estimating.hardware import DeviceShare
from paretune.specification import metrics
from paretune.specification.inputs import DataArguments
from paretune.specification.job import JobSpec, ModelArguments
from paretune.specification.parallelism import MICRO_BATCH_TOKENS, BatchPlan
from paretune.specification.program import Program

_EVALUATIONS = 4  # evaluations, evenly spaced, of a job with eval_strategy=steps and without eval_steps
LEAST_EVALUATED_ROWS = 64  # rows of an evaluation batch on one device, unless rows are long or training batches larger
EVALUATED_LOGITS = 2**26
"""Limit on the logits of a language model's evaluation batch on one device (256 MiB in fp32). But by default, an
evaluation batch never has fewer rows than a training batch."""
BUNDLED_ROWS = {"bundled:rotten_tomatoes": (7677, 853, 27.3), "bundled:imdb": (22500, 2500, 128.0)}
"""Training rows, validation rows and mean tokens of the bundled data sets."""

PACKED_BYTES = 4 / 8  # bytes of a weight in nf4
SCALE_BYTES = (8 / 64 + 32 / (64 * 256)) / 8
"""Bytes of quantization constants per weight in nf4 with double quantization, about 0.016: 8 bits for 64 weights, and
32 bits for 256 of these constants (Dettmers et al., arXiv 2305.14314, section 3)."""
_STACKS_EXPERTS = (5, 0)  # version of transformers since which the experts of a layer are one weight
PROBE_STEPS = 40  # steps of a probe, a short job that measures the speed of a cluster: 4 warm up, 36 are measured


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work of one training run, counted over all devices unless stated otherwise."""

    tokens: float  # mean tokens per row
    steps: int  # optimizer steps; the last one of an epoch may have fewer rows
    evaluated_rows: float  # rows of each evaluation
    evaluations: float  # evaluations in the whole run
    tested_rows: float  # rows of other splits that are evaluated at the end
    steps_per_epoch: int
    flops_per_row: float
    """FLOP of the forward and backward pass, including attention, and of the second forward pass below the output layer
    if the backward pass recomputes activations. A causal model attends only to earlier tokens."""
    forward_flops_per_row: float  # FLOP of the forward pass, without adapters
    attention_share: float  # share of attention in the FLOP of the forward pass
    trained_parameters: float  # number of weights that the optimizer changes
    passes: float  # all passes of a row, in forward passes: 3, 4 with recomputation, 1 if only the head is trained
    adapted_widths: float  # sum of inputs and outputs of the linear layers that have adapters
    model: str  # a key: jobs with the same key can be predicted from each other's time and memory
    packed_weights: float  # number of weights in 4 bits
    output_weights: int  # number of weights in a language model's output layer
    recomputes: bool  # whether the backward pass recomputes activations layer by layer
    evaluation_batch: int  # rows of an evaluation batch on one device; 0 without evaluation


def workload(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Workload | None:
    """Count the work of a job, or return None if the number of its training rows is unknown.

    `facts` has known facts of the prepared data: train_rows, train_tokens, train_padded_tokens, validation_rows. Raises
    BadInput for wrong values in training_arguments.
    """
    on_gpu = spec.has_instances and spec.instance().has_gpu
    data = data_of(spec.data_arguments, facts, counts_padding=on_gpu)
    if data is None:
        return None
    model, arguments, is_probe = spec.model_arguments, spec.training_arguments, spec.probe_steps is not None
    steps = spec.probe_steps or training_steps(arguments, spec.num_train_epochs, plan, data.rows)
    flops = flops_of_row(model, built, data.tokens)
    per_epoch = math.ceil(data.rows / plan.global_batch_size)
    return Workload(
        tokens=data.tokens,
        steps=steps,
        evaluated_rows=data.evaluated_rows,
        evaluations=0 if is_probe else _evaluations(arguments, spec.trained_by, steps, per_epoch),
        tested_rows=float(spec.test_rows or 0),
        steps_per_epoch=per_epoch,
        flops_per_row=flops.once + flops.again,
        forward_flops_per_row=flops.forward,
        attention_share=flops.attention_share,
        trained_parameters=trained_weights(model, built),
        passes=1.0 if spec.fine_tuning == "head" else 4.0 if model.recomputes else 3.0,
        adapted_widths=built.adapted_widths if model.adapts else 0,
        model=f"{spec.model} {spec.max_seq_length} {spec.fine_tuning}",
        packed_weights=quantized_weights(model, spec.trained_by, built),
        output_weights=output_weights(spec.task, built),
        recomputes=model.recomputes,
        evaluation_batch=0 if is_probe else evaluation_batch(model, arguments, plan, built.vocabulary),
    )


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations (FLOP) of one training row."""

    forward: float  # forward pass without adapters, including attention
    once: float  # forward and backward pass with adapters, which is what MFU counts
    again: float  # forward operations that the backward pass repeats
    attention_share: float  # share of `forward` that computes attention matrices


def flops_of_row(model: ModelArguments, built: Architecture, tokens: float) -> Flops:
    """Return the FLOP of a row with this many tokens.

    - Matrix products: 2 per weight and token in the forward pass, the same again for gradients of activations, and the
      same again for gradients of weights, unless these are frozen below adapters.
    - Attention: 4 x width x tokens^2 per layer in the forward pass (Chowdhery et al., arXiv 2204.02311, appendix B), or
      half of that in a causal model, which attends only to earlier tokens; twice as much in the backward pass.
    - If only the head is trained, there is no backward pass below it.
    """
    widths = built.adapted_widths if model.adapts else 0
    attention = tokens * 4 * built.layers * built.hidden_size * tokens / (2 if model.task == metrics.CAUSAL_LM else 1)
    products, of_output = tokens * 2 * built.matrices, tokens * 2 * output_weights(model.task, built)
    forward, adapters = products + attention, tokens * 2 * model.lora.r * widths
    backward = products * (1 if widths else 2) + 2 * attention + 2 * adapters
    if model.fine_tuning == "head":
        backward = of_output
    return Flops(
        forward=forward,
        once=forward + adapters + backward,
        again=forward - of_output + adapters if model.recomputes else 0.0,
        attention_share=attention / forward,
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """The size of a job's data."""

    rows: float  # training rows per epoch
    tokens: float  # mean tokens per row
    evaluated_rows: float  # rows of each evaluation


def data_of(
    data: DataArguments, facts: Mapping[str, float] | None = None, *, counts_padding: bool = False
) -> Data | None:
    """Return the size of a job's data, or None if the number of training rows is unknown.

    The number is in `facts`, in the parameters or, for a bundled data set, in BUNDLED_ROWS. Until data are prepared,
    rows are assumed to have `max_seq_length` tokens, or the mean number of tokens of the bundled data set. A language
    model trains on full rows, which are cut from the concatenated texts. With `counts_padding`, as on a GPU, padding
    counts as tokens if it is among the facts.
    """
    facts = facts or {}
    rows, validation, tokens = BUNDLED_ROWS.get(data.dataset, (None, None, None))
    if data.max_train_samples is not None and (rows is None or data.max_train_samples > rows):
        validation, tokens = None, None  # more rows than the bundled data set has, so its figures do not apply
    given, length = data.max_train_samples or rows, min(tokens or math.inf, float(data.max_seq_length))
    evaluated = None if given is None else _evaluated(data, given, validation)
    if given and evaluated and tokens and data.task == metrics.CAUSAL_LM:
        joined = tokens / data.max_seq_length
        given, evaluated, length = math.ceil(given * joined), evaluated * joined, float(data.max_seq_length)
    train_rows = facts.get("train_rows", given)
    if not train_rows:
        return None
    counted = facts.get("train_padded_tokens") if counts_padding else None
    return Data(
        rows=train_rows,
        tokens=(counted or facts["train_tokens"]) / train_rows if "train_tokens" in facts else length,
        evaluated_rows=facts.get("validation_rows", evaluated or train_rows / 9),
    )


def training_rows(data: DataArguments, facts: Mapping[str, float] | None = None) -> float | None:
    """Return the number of training rows per epoch, or None if it is unknown (see `data_of`)."""
    size = data_of(data, facts)
    return None if size is None else size.rows


def share_in_layers(tensor: int) -> float:
    """Return the share of a layer's activations that each device of a tensor group keeps."""
    return (10 + 24 / tensor) / 34  # Korthikanti et al., arXiv 2205.05198, section 4.2.1


def evaluation_batch(model: ModelArguments, arguments: Mapping[str, Any], plan: BatchPlan, vocabulary: int) -> int:
    """Return the rows of an evaluation batch on one device: per_device_eval_batch_size, or a default.

    The default is LEAST_EVALUATED_ROWS, or fewer if rows are long or a language model would compute more logits (rows x
    tokens x vocabulary) than EVALUATED_LOGITS, but not fewer rows than a training batch.
    """
    limit = min(LEAST_EVALUATED_ROWS, MICRO_BATCH_TOKENS // model.max_seq_length)
    if model.task == metrics.CAUSAL_LM:
        limit = min(limit, EVALUATED_LOGITS // (model.max_seq_length * vocabulary))
    return whole_argument(arguments, "per_device_eval_batch_size") or max(plan.per_device_train_batch_size, limit)


def training_steps(arguments: Mapping[str, Any], epochs: float, plan: BatchPlan, rows: float) -> int:
    """Return the number of optimizer steps on `rows` rows. max_steps overrides the epochs, as in the Trainer."""
    whole = math.ceil(math.ceil(rows / plan.global_batch_size) * epochs)
    return whole_argument(arguments, "max_steps") or max(1, whole)


def warmup_steps(steps: int) -> int:
    """Return the number of slow first steps, which are not timed: a tenth of all steps, but at least 1 and at most 10.

    In these steps, memory is allocated and kernels are chosen.
    """
    return min(10, max(1, steps // 10))


def _evaluated(data: DataArguments, rows: float, validation: float | None) -> float:
    """Return the rows of one evaluation before the data are prepared.

    `validation` is the number of validation rows, if known. If it is unknown, or if max_train_samples is set, the
    default is a ninth of the training rows.
    """
    if data.max_eval_samples is not None:
        return min(data.max_eval_samples, validation or data.max_eval_samples)
    return rows / 9 if data.max_train_samples is not None or validation is None else validation


@dataclass(frozen=True)
class Schedule:
    """When a job evaluates, saves or logs: at the end of each epoch, every `every` steps, or never."""

    strategy: str  # no, steps, epoch, or best
    every: float  # number of steps; a value below 1 is a share of all steps

    def is_due(self, step: int, steps: int, steps_per_epoch: int) -> bool:
        """Return whether the job evaluates, saves or logs after `step` of `steps` steps."""
        if self.strategy == "steps":
            return self.every > 0 and step % self._interval(steps) == 0
        return self.strategy == "epoch" and (step % steps_per_epoch == 0 or step == steps)

    def evaluations(self, steps: int, steps_per_epoch: int) -> int:
        """Return the number of evaluations: those that are due, and one after the last step if none is due there."""
        return self.times(steps, steps_per_epoch) + (not self.is_due(steps, steps, steps_per_epoch))

    def times(self, steps: int, steps_per_epoch: int) -> int:
        """Return how often the job evaluates, saves or logs in this many steps."""
        due = {"steps": steps // self._interval(steps), "epoch": math.ceil(steps / steps_per_epoch)}
        return due.get(self.strategy, 0)

    def _interval(self, steps: int) -> int:
        return int(self.every if self.every >= 1 else max(1, math.ceil(steps * self.every)))


def _evaluations(arguments: Mapping[str, Any], program: Program, steps: int, steps_per_epoch: int) -> int:
    """Return the number of evaluations of a job.

    A script with the Trainer evaluates when its arguments say so, and once more after the training, as in the examples
    of Hugging Face and AWS.
    """
    schedule = evaluation_schedule(arguments, steps, is_paretune=program.is_paretune)
    if program.is_paretune:
        return schedule.evaluations(steps, steps_per_epoch)
    return schedule.times(steps, steps_per_epoch) + 1


def evaluation_schedule(arguments: Mapping[str, Any], steps: int, *, is_paretune: bool = True) -> Schedule:
    """Return when a job with this many steps evaluates. Raises BadInput for a wrong eval_strategy or eval_steps."""
    usual = None if is_paretune else arguments.get("evaluation_strategy")  # the Trainer's name before 4.41
    strategy = str(arguments.get("eval_strategy", usual or ("steps" if "eval_steps" in arguments else "no")))
    if strategy not in {"no", "steps", "epoch"}:
        raise BadInput([f"training_arguments: eval_strategy must be no, steps or epoch, got {strategy!r}"])
    every = arguments.get("eval_steps")
    if not (isinstance(every, float) and 0 < every < 1):
        every = whole_argument(arguments, "eval_steps") or math.ceil(steps / _EVALUATIONS)
    return Schedule(strategy, every)


def whole_argument(arguments: Mapping[str, Any], name: str) -> int | None:
    """Return a count in the training arguments, rounded down, or None if it is absent or not positive.

    Raises BadInput if it cannot be converted to a whole number.
    """
    value = arguments.get(name, -1)
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError, OverflowError):
        raise BadInput([f"training_arguments: {name} must be a whole number, got {value!r}"]) from None


def output_weights(task: str, built: Architecture) -> int:
    """Return the number of weights in a language model's output layer; 0 for other tasks."""
    return built.vocabulary * built.hidden_size if task == metrics.CAUSAL_LM else 0


def frozen_weight_bytes(packed: float, built: Architecture, formats: Formats) -> float:
    """Return the mean number of bytes of a frozen weight in a model that has `packed` weights in 4 bits."""
    share = packed / built.parameters
    return PACKED_BYTES * share + BYTES[formats.frozen] * (1 - share)


def gathered_bytes(packed: float, built: Architecture, formats: Formats) -> float:
    """Return the bytes of all weights as they are gathered from shards: in the format of products, or in 4 bits."""
    return PACKED_BYTES * packed + BYTES[formats.compute] * (built.parameters - packed)


def quantized_weights(model: ModelArguments, program: Program, built: Architecture) -> float:
    """Return the number of 4-bit weights: with qlora, all matrices except the output layer, otherwise 0.

    bitsandbytes packs linear layers. Since transformers 5, the experts of a layer are one stacked weight, which stays
    in 16 bits.
    """
    if model.fine_tuning != "qlora":
        return 0.0
    stacked = 0 if program.is_before(*_STACKS_EXPERTS) else built.experts
    return float(built.matrices + built.idle_experts - stacked - output_weights(model.task, built))


def trained_weights(model: ModelArguments, built: Architecture) -> float:
    """Return the number of weights that the optimizer changes, including the head of a classifier with adapters."""
    of_words, head = output_weights(model.task, built), float(built.hidden_size**2)
    if model.adapts:
        return model.lora.r * built.adapted_widths + (0.0 if of_words else head)
    return float(of_words or head) if model.fine_tuning == "head" else float(built.parameters)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A job with its batch plan, model and work, one of its devices, and the number formats of the model there."""

    spec: JobSpec
    plan: BatchPlan
    built: Architecture
    work: Workload
    share: DeviceShare
    formats: Formats


def setting_of(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Setting | None:
    """Describe a job, given known facts of its data. Returns None if the number of training rows is unknown."""
    work = workload(spec, plan, built, facts)
    if work is None:
        return None
    share = DeviceShare(spec)
    return Setting(spec=spec, plan=plan, built=built, work=work, share=share, formats=share.formats(built))
