"""Predicts the peak memory of a device with a formula; the activations are fitted to measured peaks of the same model.

    bytes       = framework + weights + training state + the larger of what the loss and what the update needs
    loss        = activations + logits + scores + gathered + casts of weights      before there are gradients
    update      = gradients + copies of the optimizer                              after there are activations
    weights     = 4 T / n and f F / n; for the loss 2 T / n more if fp32 weights are multiplied in half precision
    gradients   = 4 T / n, in the format of the weights. They exist beside the activations, too, if a step has several
                  micro-batches, if DDP of the Trainer keeps copies of them, and on a CPU, for which constants were
                  fitted in this way
    state       = 8 T / n             two moments of AdamW for a trained weight; other optimizers: `trainer.Optimizer`
                  12 T                instead, for bf16 weights: masters and moments. The weights and their gradients
                                      take 2 T each. In the update, fp32 gradients take 4 T more
                  4 T / n             instead, with bf16-true. The weights and their gradients take 2 T / n each
                  4 T / n             more on a CPU with load_best_model_at_end, which keeps the best weights
                  4 T / n             more if a step has several micro-batches and weights are bf16, whose gradients are
                                      added up in fp32. The update then needs no more memory for fp32 gradients
    activations = a x rows x tokens x layers x hidden size. If they are recomputed: those of one layer, and 2 bytes for
                  each unit of the inputs of all layers (4 bytes if they are in fp32, as with autocast of fp32 weights).
                  A script with the Trainer has either the logits or the activations of that layer; beside the logits,
                  the last norm keeps 16 bytes for each unit of width
    logits      = of a language model, 4 x tokens x vocabulary for at most 1,024 tokens (6 in half precision), and 4 H
                  for the gradients of its H weights in the output layer if a step has several micro-batches. A script
                  with the Trainer, a model that changes its logits and a pipeline compute all logits: 12 x rows x
                  tokens x vocabulary, or 4 x evaluated rows x tokens x vocabulary if that is more. The 12 bytes were
                  measured with transformers 4.36, 4.46 and 5.23 on a CPU
    gathered    = with fsdp, the weights of two layers and all weights outside layers in the format of the products,
                  and the gradients of one layer and of the weights outside layers

T is the number of trained weights, F that of frozen weights. With fsdp, n devices share weights and state; otherwise n
is 1. A frozen weight takes f = 4 bytes, 2 with adapters if the device multiplies in bf16, and half a byte with qlora.
With qlora, each device also has all quantization constants: 1/32 of the bytes of all 4-bit weights. Autocast keeps no
copy of frozen weights (measured with torch 2.13; it would take 2 bytes per weight). The constant a is the number of
bytes that activations take per token, layer and unit of width: in theory about 34 in half precision (Korthikanti et
al., arXiv 2205.05198, section 4.1; without the attention matrix, which modern kernels do not keep), and twice that in
fp32.

Jobs that ran out of memory also show which batches do not fit (`Footprint`). A job is compared only with jobs that have
the same values of all parameters that affect memory, except the length of rows, the batch and the cluster. So jobs with
other `training_arguments` (such as gradient_checkpointing) are not compared. Among comparable jobs, more rows, longer
rows, and fp32 instead of bf16 need more memory. The memory of a device is what CUDA reports (hardware.py), not the
figure of the data sheet, because two types with "24 GB" may differ.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from paretune.core.noise import Z80
from paretune.estimating.formats import BYTES, Formats
from paretune.estimating.hardware import DeviceShare
from paretune.estimating.trainer import (
    Optimizer,
    is_in_half_by_apex,
    kept_score_bytes,
    optimizer_of,
    runs_in_one_process,
)
from paretune.estimating.workload import PACKED_BYTES, SCALE_BYTES, Setting, frozen_weight_bytes, share_in_layers
from paretune.specification.job import JobSpec
from paretune.specification.metrics import CAUSAL_LM
from paretune.specification.parallelism import SHARDED, ZERO2, BatchPlan

GIB = 2**30

# Bytes of activations per token, layer and unit of width, and bytes of the framework, each with the standard deviation
# of its logarithm. On a GPU, activations are the 34 bytes plus memory that is freed late, and the framework is
# workspaces of the libraries. On a CPU, the framework also includes the process and its libraries. The figures for
# CPUs come from the peaks of twelve jobs with two models (benchmarks/estimate_memory.py, CHOSEN_ON).
_OF_DEVICE = (45.0, 0.3), (0.3 * GIB, 0.6)
_OF_PROCESSOR = (75.0, 0.3), (0.65 * GIB, 0.3)
_NOISE = 0.06  # standard deviation of the logarithm of a peak
# Tokens per row in the longest batches, relative to the mean tokens per row in a data set that is not padded.
_LONGEST_OVER_MEAN = 2.5
_KEPT_OF_A_LAYER = 2 / 34
"""A layer's input as a share of the layer's activations (Korthikanti et al., table 2), in paretune's own training."""
CHUNK_TOKENS = 1024
"""Tokens whose logits paretune's own training computes at once, enough for a GPU to be fast."""
_OF_LAST_NORM = 16 / 45
"""What the norm before the output layer keeps in fp32 and in half precision, as a share of a layer's activations."""
_WITH_TORCH_2 = (4, 28)
"""Version of transformers of March 2023, when torch 2.0 came, whose `zero_grad` frees gradients (`set_to_none`)."""
_TOLERANCE = 1.001  # allows for rounding errors of sizes that were summed in different orders


@dataclass(frozen=True, kw_only=True)
class MemorySetting:
    """The numbers that the memory of one device depends on."""

    model: str  # model, max_seq_length and kind of fine-tuning; each combination has its own activations
    on_processor: bool  # whether there is no GPU, so that the peak is the resident memory of a process
    parameters: float  # number of weights
    trained_parameters: float  # number of weights that the optimizer changes
    half: bool  # whether the device multiplies in bf16 or fp16
    sharers: int  # number of devices that share weights, gradients and moments; 1 if each device has all of them
    units: float  # rows of a micro-batch x tokens x layers that keep activations x hidden size
    logit_bytes: float  # bytes of a language model's logits that exist at once; 0 for other tasks
    score_bytes: float = 0.0  # bytes of attention scores that are kept; 0 with fused attention
    frozen_bytes: float = 4.0  # bytes per weight that is not trained
    kept_bytes: float = 0.0  # bytes per trained weight for the copy of the best weights so far
    state_bytes: float = 16.0  # bytes per trained weight: itself, moments, master, and its gradient if it is kept
    cast_bytes: float = 0.0  # bytes per trained weight of its copy for products, which the update does not need
    update_bytes: float = 0.0  # further bytes per trained weight, during the update only, such as its gradient
    fixed_state_bytes: float = 0.0  # further bytes of the optimizer's state, such as that of embeddings in fp32
    fixed_update_bytes: float = 0.0  # further bytes during the update only that do not depend on the number of weights
    whole_bytes: float = 0.0  # bytes that devices do not share: constants of 4-bit weights
    gathered_bytes: float = 0.0  # bytes of gathered weights and their gradients; none during the update
    undivided_bytes: float = 0.0  # of `state_bytes`, those that each device holds in full, as in stage 2 of ZeRO
    divides_frozen: bool = True  # whether the devices share the weights that are not trained
    offloads_weights: bool = False  # whether weights and state are kept in main memory, not in the GPU's
    usable_gib: float = math.inf  # memory of the device that the job may use
    unsure_gib: float = 0.0  # further memory that a GPU without a data sheet may have


@dataclass(frozen=True, kw_only=True)
class MemoryPrediction:
    """The predicted peak in GiB of one GPU, as PyTorch counts it, or of one process on a CPU, with an 80 % interval."""

    gib: float
    gib_low: float
    gib_high: float
    usable_gib: float  # memory of the device that the job may use
    unsure_gib: float = 0.0  # further memory that a GPU without a data sheet may have

    @property
    def fits(self) -> str:
        """Whether the job fits: `yes`, `no`, or `unsure` if the memory is unknown or lies inside the interval."""
        if self.gib_low > self.usable_gib + self.unsure_gib:
            return "no"
        return "yes" if self.gib_high <= self.usable_gib else "unsure"


def describe(setting: Setting) -> MemorySetting:
    """Return the numbers that the memory of one device of a job depends on."""
    spec, plan, built, work = setting.spec, setting.plan, setting.built, setting.work
    share, formats = setting.share, setting.formats
    tokens = min(float(spec.max_seq_length), _LONGEST_OVER_MEAN * work.tokens)
    rows, parts = plan.per_device_train_batch_size, share.degrees.tensor * share.degrees.pipeline
    layers = float(built.layers) if spec.fine_tuning != "head" else 1.0  # a frozen encoder keeps no activations
    evaluated = min(work.evaluation_batch, work.evaluated_rows)
    logits = _logit_bytes(setting, tokens, evaluated)
    if work.recomputes:  # offloaded inputs of layers are in main memory, apart from those that are being copied
        is_offloaded = spec.activation_offloading and not share.on_processor
        kept, of_layer = (min(2.0, layers) if is_offloaded else layers) * _kept_of_a_layer(setting), 1.0
        if not (spec.trained_by.is_paretune or share.on_processor):
            (each, _), _ = _OF_DEVICE
            of_one = each * (1 if formats.is_half else 2) * rows * tokens * built.hidden_size
            of_layer, logits = (_OF_LAST_NORM, logits) if logits > (1 - _OF_LAST_NORM) * of_one else (1.0, 0.0)
        layers = of_layer + kept
    in_layers = share_in_layers(share.degrees.tensor)
    optimizer, (beside, in_update) = optimizer_of(setting), _gradient_bytes(setting)
    casts = BYTES[formats.compute] if formats.weights != formats.compute else 0.0
    return MemorySetting(
        model=work.model,
        on_processor=share.on_processor,
        parameters=built.parameters / parts,
        trained_parameters=work.trained_parameters / parts,
        frozen_bytes=frozen_weight_bytes(work.packed_weights, built, formats),
        kept_bytes=BYTES[formats.updated]
        if share.on_processor and spec.training_arguments.get("load_best_model_at_end")
        else 0.0,
        half=formats.is_half,
        score_bytes=kept_score_bytes(setting),
        state_bytes=_state_bytes(formats, optimizer) + beside + (casts if share.on_processor else 0.0),
        cast_bytes=0.0 if share.on_processor else casts,
        update_bytes=in_update + optimizer.copy,
        fixed_state_bytes=optimizer.embedding_state * built.vocabulary * built.hidden_size / parts,
        fixed_update_bytes=optimizer.of_largest * built.vocabulary * built.hidden_size / parts,
        whole_bytes=SCALE_BYTES * work.packed_weights / parts,
        gathered_bytes=_gathered_bytes(setting) / parts,
        undivided_bytes=BYTES[formats.compute] if spec.strategy in ZERO2 else 0.0,
        divides_frozen=spec.strategy not in ZERO2,
        offloads_weights=spec.cpu_offload and not share.on_processor,
        sharers=share.sharers,
        units=rows * tokens * layers * built.hidden_size * in_layers / share.degrees.pipeline,
        logit_bytes=logits,
        usable_gib=share.usable_gib,
        unsure_gib=share.unsure_gib,
    )


class MemoryModel:
    """Predicts peak memory with the formula. Measured peaks (GiB per device) correct the activations of their model."""

    def __init__(self, peaks: Sequence[tuple[MemorySetting, float]] = ()) -> None:
        groups: dict[tuple[str, bool], list[tuple[MemorySetting, float]]] = {}
        for setting, gib in peaks:
            groups.setdefault((setting.model, setting.on_processor), []).append((setting, gib))
        self._learned = {key: _learn(group) for key, group in groups.items()}

    def predict(self, setting: MemorySetting) -> MemoryPrediction:
        """Predict the peak memory of one device."""
        (_, prior), (_, of_framework) = _constants(setting)
        shift, deviation = self._learned.get((setting.model, setting.on_processor), (0.0, prior))
        total, activations, framework = _bytes(setting, shift)
        width = math.hypot(deviation * activations / total, of_framework * framework / total, _NOISE)
        gib, factor = total / GIB, math.exp(Z80 * width)
        return MemoryPrediction(
            gib=gib,
            gib_low=gib / factor,
            gib_high=gib * factor,
            usable_gib=setting.usable_gib,
            unsure_gib=setting.unsure_gib,
        )


def _logit_bytes(setting: Setting, tokens: float, evaluated: float) -> float:
    """Return the bytes of the logits of a language model on one device; DataParallel gathers those of all devices.

    A Trainer with use_liger_kernel computes the loss without them. paretune's own training computes few at once.
    """
    spec, rows, each = setting.spec, setting.plan.per_device_train_batch_size, 12.0
    is_own = spec.trained_by.is_paretune
    if spec.task != CAUSAL_LM or (not is_own and spec.training_arguments.get("use_liger_kernel")):
        return 0.0
    is_divided = spec.degrees.tensor * spec.degrees.pipeline > 1
    if is_own and not (is_divided or setting.built.changes_logits):
        chunk = min(CHUNK_TOKENS, max(rows, evaluated) * tokens)
        has_gradients = spec.fine_tuning in ("full", "head") and setting.plan.gradient_accumulation_steps > 1
        gradients = 4.0 * setting.work.output_weights if has_gradients else 0.0
        return (6.0 if setting.formats.is_half else 4.0) * chunk * setting.built.vocabulary + gradients
    if runs_in_one_process(setting):
        each += 4.0 * spec.processes
    return max(each * rows, 4 * evaluated) * tokens * setting.built.vocabulary


def _state_bytes(formats: Formats, optimizer: Optimizer) -> float:
    """Return the bytes per trained weight between steps: weight, moments and, if it has one, its master."""
    master = BYTES[formats.updated] if formats.has_masters else 0.0
    return BYTES[formats.weights] + optimizer.state + master


def _gradient_bytes(setting: Setting) -> tuple[float, float]:
    """Return the bytes per trained weight of gradients that exist beside all activations, and of further ones.

    The further ones exist after the backward pass only, when there are no activations. Gradients are freed after a
    step, so none exist when the first micro-batch of the next one has computed its loss, unless the program has a torch
    before 2.0, which keeps them and sets them to 0. paretune's own training adds up those of bf16 weights in fp32, and
    converts them for masters. By default, DDP keeps copies of all gradients (`gradient_as_bucket_view`); in paretune's
    own training it does not.
    """
    spec, share, formats = setting.spec, setting.share, setting.formats
    each, is_own = BYTES[formats.weights], spec.trained_by.is_paretune
    is_summed = setting.plan.gradient_accumulation_steps > 1 or share.degrees.pipeline > 1
    in_fp32 = is_own and formats.weights == "bf16" and setting.plan.gradient_accumulation_steps > 1
    masters = 4.0 if formats.has_masters and not in_fp32 else 0.0
    if share.on_processor:
        return each + (4.0 if in_fp32 else 0.0), masters
    copies = each if not is_own and spec.strategy == "ddp" and share.instances * share.devices > 1 else 0.0
    if in_fp32:
        return 4.0, each
    if is_summed or not spec.trained_by.is_before(*_WITH_TORCH_2):
        return (copies + each, masters) if is_summed else (copies, each + masters)
    stays = 2.0 if is_in_half_by_apex(setting) else each
    return copies + stays, each - stays + masters


def _kept_of_a_layer(setting: Setting) -> float:
    """Return the input of a layer as a share of the layer's activations. Recomputation keeps only these inputs.

    In the Trainer, they are in fp32 under autocast if embeddings are, and in 4-bit training, for which PEFT converts
    all other weights to fp32. The rates of growth of published peaks (IBM's fms-acceleration) agree: 2 bytes for each
    unit with lora in bf16, and 4 with qlora.
    """
    spec, formats = setting.spec, setting.formats
    if setting.share.on_processor or spec.trained_by.is_paretune:
        return _KEPT_OF_A_LAYER
    embeddings = formats.weights if spec.fine_tuning == "full" else formats.frozen
    is_in_fp32 = embeddings == "fp32" or spec.fine_tuning == "qlora"
    is_gathered = spec.strategy in SHARDED and setting.share.sharers > 1  # in the format of the products
    (activations, _), _ = _OF_DEVICE
    if not formats.is_half:
        return 4.0 / (2 * activations)
    return (4.0 if formats.autocast and is_in_fp32 and not is_gathered else 2.0) / activations


def _gathered_bytes(setting: Setting) -> float:
    """Return the bytes of gathered weights, and of their gradients, that a device holds beside its share.

    The weights of the current layer and the next one are gathered. Weights outside layers, and their gradients, stay
    gathered from the forward pass to the end of the backward pass. Gradients of a layer are summed in fp32.
    """
    spec, built, packed = setting.spec, setting.built, setting.work.packed_weights
    if spec.strategy not in SHARDED or (setting.share.sharers == 1 and not spec.cpu_offload):
        return 0.0
    of_layers, each = built.matrices + built.idle_experts - setting.work.output_weights, BYTES[setting.formats.compute]
    layer, rest = of_layers / built.layers, built.parameters - of_layers
    gathered = 2 * (PACKED_BYTES * packed + each * (of_layers - packed)) / built.layers + rest * each
    gradients = layer * (each + 4.0) + rest * each if spec.fine_tuning == "full" else 0.0
    return gathered + gradients


def _constants(setting: MemorySetting) -> tuple[tuple[float, float], tuple[float, float]]:
    return _OF_PROCESSOR if setting.on_processor else _OF_DEVICE


def _bytes(setting: MemorySetting, shift: float) -> tuple[float, float, float]:
    """Return the bytes at the peak: in total, of activations, and of the framework.

    `shift` is added to the logarithm of activations. If the peak is during the update, activations are 0.
    """
    (activations, _), (framework, _) = _constants(setting)
    activations *= math.exp(shift) * setting.units * (1 if setting.half else 2)
    trained = setting.trained_parameters
    each = setting.state_bytes + setting.kept_bytes  # bytes of a trained weight
    frozen = setting.frozen_bytes * (setting.parameters - trained)
    in_full = setting.undivided_bytes * trained + (0.0 if setting.divides_frozen else frozen)
    held = each * trained + frozen + setting.fixed_state_bytes
    held = in_full + (held - in_full) / setting.sharers
    held = setting.whole_bytes + (0.0 if setting.offloads_weights else held)
    casts = setting.cast_bytes * trained / setting.sharers
    passed = activations + setting.logit_bytes + setting.score_bytes + setting.gathered_bytes + casts
    updated = (setting.update_bytes * trained + setting.fixed_update_bytes) / setting.sharers
    if setting.offloads_weights:
        updated = 0.0  # the update is in main memory, too
    if updated > passed:
        return updated + framework + held, 0.0, framework
    return passed + framework + held, activations, framework


def _learn(peaks: Sequence[tuple[MemorySetting, float]]) -> tuple[float, float]:
    """Fit `shift` (see `_bytes`) to the measured peaks of one model, with a normal prior, by Gauss-Newton.

    Returns the mean and the standard deviation of `shift`.
    """
    (_, prior), _ = _constants(peaks[0][0])
    shift, precision = 0.0, 1 / prior**2
    for _ in range(4):
        slope, precision = -shift / prior**2, 1 / prior**2
        for setting, gib in peaks:
            total, activations, _ = _bytes(setting, shift)
            share = activations / total
            slope += share * math.log(gib * GIB / total) / _NOISE**2
            precision += share**2 / _NOISE**2
        shift += slope / precision
    return shift, precision**-0.5


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Holds the memory of a device, and the figures that decide whether a job needs more of it than another job.

    All figures are per device.
    """

    alike: tuple[object, ...]  # other parameters that affect memory; jobs are compared only if they agree on these
    rows: int  # per-device batch
    dataset: str
    max_seq_length: int
    units_per_row: float  # proportional to the activations of a row; NaN, which equals nothing, if unknown
    half: bool  # whether the device multiplies in bf16 or fp16
    sharers: int  # number of devices that share weights and training state; 1 if each device has all of them
    usable_gib: float  # memory that a job may use; processes without a GPU share a machine's memory evenly
    run_id: str = field(default="", compare=False)  # the run that ran out of memory; empty for a job that has not run

    @classmethod
    def of(
        cls,
        spec: JobSpec,
        plan: BatchPlan,
        memory: MemorySetting | None = None,
        share: DeviceShare | None = None,
    ) -> "Footprint":
        """Return the footprint of a job. `memory` and `share` can be given if its model and data are known."""
        share = share or DeviceShare(spec)
        return cls(
            alike=(share.on_processor, *spec.key_of("memory", but="max_seq_length")),
            rows=plan.per_device_train_batch_size,
            dataset=spec.dataset,
            max_seq_length=spec.max_seq_length,
            units_per_row=math.nan if memory is None else memory.units / plan.per_device_train_batch_size,
            half=share.computes_in != "fp32",
            sharers=share.sharers,
            usable_gib=share.usable_gib,
        )

    def why_full(self, full: Iterable["Footprint"]) -> "Footprint | None":
        """Return a job in `full` that shows that this one does not fit, or None.

        Such a job ran out of memory, although it needed no more memory than this one and its devices had no less.
        """
        return next((other for other in full if self._is_no_easier_than(other)), None)

    def _is_no_easier_than(self, other: "Footprint") -> bool:
        return (
            self.alike == other.alike
            and self.rows >= other.rows
            and self.max_seq_length >= other.max_seq_length
            and (self.dataset == other.dataset or self.units_per_row * _TOLERANCE >= other.units_per_row)
            and self.half <= other.half
            and self.sharers <= other.sharers
            and self.usable_gib <= other.usable_gib * _TOLERANCE
        )
