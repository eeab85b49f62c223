"""The work of a training run: rows, tokens, steps and arithmetic, computed before weights or data are downloaded.

`Setting` describes a job with its work and the device that does it; time and memory are estimated from it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.estimating.formats import BYTES, Formats
from paretune.estimating.hardware import DeviceShare
from paretune.specification import metrics
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.specification.parallelism import MICRO_BATCH_TOKENS, BatchPlan

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
        evaluations=0 if spec.probe_steps else _evaluations(spec, steps, per_epoch),
        tested_rows=float(spec.test_rows or 0),
        steps_per_epoch=per_epoch,
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
    """Floating-point operations (FLOP) of one training row."""

    forward: float  # forward pass without adapters, including attention
    once: float  # forward and backward pass with adapters, which is what MFU counts
    again: float  # forward operations that the backward pass repeats
    attention_share: float  # share of `forward` that computes attention matrices


def flops_of_row(spec: JobSpec, built: Architecture, tokens: float) -> Flops:
    """Return the FLOP of a row with this many tokens.

    - Matrix products: 2 per weight and token in the forward pass, the same again for gradients of activations, and the
      same again for gradients of weights, unless these are frozen below adapters.
    - Attention: 4 x width x tokens^2 per layer in the forward pass (Chowdhery et al., arXiv 2204.02311, appendix B), or
      half of that in a causal model, which attends only to earlier tokens; twice as much in the backward pass.
    - If only the head is trained, there is no backward pass below it.
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
    """The size of a job's data."""

    rows: float  # training rows per epoch
    tokens: float  # mean tokens per row
    evaluated_rows: float  # rows of each evaluation


def data_of(spec: JobSpec, facts: Mapping[str, float] | None = None) -> Data | None:
    """Return the size of a job's data, or None if the number of training rows is unknown.

    The number is in `facts`, in the parameters or, for a bundled data set, in BUNDLED_ROWS. Until data are prepared,
    rows are assumed to have `max_seq_length` tokens, or the mean number of tokens of the bundled data set. A language
    model trains on full rows, which are cut from the concatenated texts.
    """
    facts = facts or {}
    rows, validation, tokens = BUNDLED_ROWS.get(spec.dataset, (None, None, None))
    if spec.max_train_samples is not None and (rows is None or spec.max_train_samples > rows):
        validation, tokens = None, None  # more rows than the bundled data set has, so its figures do not apply
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
        tokens=_tokens(spec, facts) / train_rows if "train_tokens" in facts else length,
        evaluated_rows=facts.get("validation_rows", evaluated or train_rows / 9),
    )


def _tokens(spec: JobSpec, facts: Mapping[str, float]) -> float:
    """Return the tokens that are computed in an epoch: on a GPU with their padding, if it was counted."""
    on_gpu = spec.has_instances and spec.instance().has_gpu
    return facts.get("train_padded_tokens", facts["train_tokens"]) if on_gpu else facts["train_tokens"]


def training_rows(spec: JobSpec, facts: Mapping[str, float] | None = None) -> float | None:
    """Return the number of training rows per epoch, or None if it is unknown (see `data_of`)."""
    data = data_of(spec, facts)
    return None if data is None else data.rows


def share_in_layers(tensor: int) -> float:
    """Return the share of a layer's activations that each device of a tensor group keeps."""
    return (10 + 24 / tensor) / 34  # Korthikanti et al., arXiv 2205.05198, section 4.2.1


def recomputes(spec: JobSpec) -> bool:
    """Return whether the backward pass recomputes activations layer by layer instead of keeping them."""
    return spec.checkpoints_activations and spec.fine_tuning != "head"


def evaluation_batch(spec: JobSpec, plan: BatchPlan, vocabulary: int) -> int:
    """Return the rows of an evaluation batch on one device: per_device_eval_batch_size, or a default.

    The default is LEAST_EVALUATED_ROWS, or fewer if rows are long or a language model would compute more logits (rows x
    tokens x vocabulary) than EVALUATED_LOGITS, but not fewer rows than a training batch.
    """
    limit = min(LEAST_EVALUATED_ROWS, MICRO_BATCH_TOKENS // spec.max_seq_length)
    if spec.task == metrics.CAUSAL_LM:
        limit = min(limit, EVALUATED_LOGITS // (spec.max_seq_length * vocabulary))
    return whole_argument(spec, "per_device_eval_batch_size") or max(plan.per_device_train_batch_size, limit)


def training_steps(spec: JobSpec, plan: BatchPlan, rows: float) -> int:
    """Return the number of optimizer steps on `rows` rows. max_steps overrides the epochs, as in the Trainer."""
    whole = math.ceil(math.ceil(rows / plan.global_batch_size) * spec.num_train_epochs)
    return whole_argument(spec, "max_steps") or max(1, whole)


def warmup_steps(steps: int) -> int:
    """Return the number of slow first steps, which are not timed: a tenth of all steps, but at least 1 and at most 10.

    In these steps, memory is allocated and kernels are chosen.
    """
    return min(10, max(1, steps // 10))


def _evaluated(spec: JobSpec, rows: float, validation: float | None) -> float:
    """Return the rows of one evaluation before the data are prepared.

    `validation` is the number of validation rows, if known. If it is unknown, or if max_train_samples is set, the
    default is a ninth of the training rows.
    """
    if spec.max_eval_samples is not None:
        return min(spec.max_eval_samples, validation or spec.max_eval_samples)
    return rows / 9 if spec.max_train_samples is not None or validation is None else validation


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


def _evaluations(spec: JobSpec, steps: int, steps_per_epoch: int) -> int:
    """Return the number of evaluations of a job.

    A script with the Trainer evaluates when its arguments say so, and once more after the training, as in the examples
    of Hugging Face and AWS.
    """
    schedule = evaluation_schedule(spec, steps)
    if spec.trained_by.is_paretune:
        return schedule.evaluations(steps, steps_per_epoch)
    return schedule.times(steps, steps_per_epoch) + 1


def evaluation_schedule(spec: JobSpec, steps: int) -> Schedule:
    """Return when a job with this many steps evaluates. Raises BadInput for a wrong eval_strategy or eval_steps."""
    given = spec.training_arguments
    usual = given.get("evaluation_strategy") if not spec.trained_by.is_paretune else None  # its name before 4.41
    strategy = str(given.get("eval_strategy", usual or ("steps" if "eval_steps" in given else "no")))
    if strategy not in {"no", "steps", "epoch"}:
        raise BadInput([f"training_arguments: eval_strategy must be no, steps or epoch, got {strategy!r}"])
    every = given.get("eval_steps")
    if not (isinstance(every, float) and 0 < every < 1):
        every = whole_argument(spec, "eval_steps") or math.ceil(steps / _EVALUATIONS)
    return Schedule(strategy, every)


def whole_argument(spec: JobSpec, name: str) -> int | None:
    """Return a count in the training arguments, rounded down, or None if it is absent or not positive.

    Raises BadInput if it cannot be converted to a whole number.
    """
    value = spec.training_arguments.get(name, -1)
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError, OverflowError):
        raise BadInput([f"training_arguments: {name} must be a whole number, got {value!r}"]) from None


def output_weights(spec: JobSpec, built: Architecture) -> int:
    """Return the number of weights in a language model's output layer; 0 for other tasks."""
    return built.vocabulary * built.hidden_size if spec.task == metrics.CAUSAL_LM else 0


def frozen_weight_bytes(packed: float, built: Architecture, formats: Formats) -> float:
    """Return the mean number of bytes of a frozen weight in a model that has `packed` weights in 4 bits."""
    share = packed / built.parameters
    return PACKED_BYTES * share + BYTES[formats.frozen] * (1 - share)


def gathered_bytes(packed: float, built: Architecture, formats: Formats) -> float:
    """Return the bytes of all weights as they are gathered from shards: in the format of products, or in 4 bits."""
    return PACKED_BYTES * packed + BYTES[formats.compute] * (built.parameters - packed)


def quantized_weights(spec: JobSpec, built: Architecture) -> float:
    """Return the number of 4-bit weights: with qlora, all matrices except the output layer, otherwise 0.

    bitsandbytes packs linear layers. Since transformers 5, the experts of a layer are one stacked weight, which stays
    in 16 bits.
    """
    if spec.fine_tuning != "qlora":
        return 0.0
    stacked = 0 if spec.trained_by.is_before(*_STACKS_EXPERTS) else built.experts
    return float(built.matrices + built.idle_experts - stacked - output_weights(spec, built))


def trained_weights(spec: JobSpec, built: Architecture) -> float:
    """Return the number of weights that the optimizer changes, including the head of a classifier with adapters."""
    of_words, head = output_weights(spec, built), float(built.hidden_size**2)
    if spec.fine_tuning in ADAPTERS:
        return spec.lora.r * built.adapted_widths + (0.0 if of_words else head)
    return float(of_words or head) if spec.fine_tuning == "head" else float(built.parameters)


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
