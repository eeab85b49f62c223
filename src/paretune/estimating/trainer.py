"""What a script with Hugging Face's Trainer does in addition to what paretune's own training does.

    score_bytes(setting)          bytes of attention scores that are written to memory, without fused attention
    optimizer_of(setting)         memory, traffic and kernels of the optimizer
    adapter_bytes(setting)        memory traffic of PEFT's adapters
    blocking_bytes(setting)       what torch's DataParallel sends in each micro-batch
    left_behind(setting)          files that a script leaves in its output folder: checkpoints and the model

Sources: the code of transformers, PEFT and PyTorch of the versions that are named here, read 2026-11-30. They decide
what is counted. Constants that were guessed or fitted say so. Its number formats are in `formats`, and the rows that it
evaluates in `workload`.
"""

import re
from dataclasses import dataclass
from typing import Any

from paretune.estimating.formats import BYTES
from paretune.estimating.workload import Schedule, Setting
from paretune.specification.job import ADAPTERS
from paretune.specification.metrics import CAUSAL_LM
from paretune.specification.parallelism import DATA_PARALLEL, SHARDED
from paretune.specification.user_code import MODEL_FOLDER

_FUSED_ENCODERS, _FUSED_DECODERS = (4, 41), (4, 36)
"""Versions of transformers since which models use fused attention: BERT since 2024-05, Llama since 2023-12."""
_TORCH_OPTIMIZER, _FUSED_OPTIMIZER = (4, 29), (5, 0)
"""Versions of transformers whose default for `optim` became adamw_torch, and then adamw_torch_fused."""
_HEAD_WIDTH = 64  # of BERT and similar models
_AUTOCAST_SCORE_BYTES = 11.0
"""Bytes that are kept of a score under autocast, which computes the softmax in fp32: its input (4) and its result (4),
a mask of bytes (1), and the result of the dropout in half precision (2). 66 published peaks of classifiers grow
like this with 128, 256 and 512 tokens. torch 2.13 does not keep the input, so that 7 remain (measured on a CPU)."""
_IN_HALF = ("O2", "O3")  # optimization levels of apex with a model in half precision, whose softmax is, too
_PASSES = 19.5
"""Number of times that a training step reads or writes a matrix of scores if every operation does so. The forward
pass takes 8.25: the product (1), the mask (2), the softmax (2), the dropout (2.25, because its mask is a byte) and the
product with the values (1). The gradients take 11.25."""
_LOOP_BYTES, _FUSED_BYTES = (84.0 + 12.0) / 2, 24.0
"""Bytes that an update moves per weight: if every operation of AdamW writes and reads its intermediate result (with
norm and clipping), and in fused kernels. The figure is halved, because the constant for an update is twice what is
counted: it allows for the norm, the clipping and the copies of a fused optimizer, which are counted here."""
_LOOP_KERNELS = 12 * 15 / 2
"""Kernels of the optimizer in a loop over tensors, for each layer: twelve for each of its 15 tensors."""
_ADAPTER_BYTES = 10.0
"""Bytes of memory traffic per token and unit of the widths of adapted layers, in a pass of PEFT's LoRA under FSDP. The
input of a layer is cast, dropped out and read again (7 bytes), and the result scaled and added (14). The six rows of
Mistral 7B on 8 to 256 H100 of NVIDIA's dgxc-benchmarking agree, but their rates include an evaluation: a guess."""
_SAVE_STEPS = 500  # steps between two checkpoints of the Trainer, by default


_IN_8_BITS = 1 + 4 / 256  # bytes of a moment in bitsandbytes: 8 bits, and an fp32 scale for every 256 of them
_BITSANDBYTES = re.compile(r"(paged_)?(adamw|adamw_bnb|lion|rmsprop_bnb)(_8bit|_32bit)?")
"""Names of optimizers of bitsandbytes, except `adamw` alone, which is none."""
_ADAFACTOR_BYTES = {"fp32": 12.0, "bf16": 20.0}
"""Bytes for each weight of the tensor that Adafactor is updating: the update and, of a tensor in bf16, its gradient and
the weight itself in fp32. Measured with transformers 5.23 on a CPU, 2026-11-30."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The memory of an optimizer, in addition to weights and gradients, in bytes of GPU memory per trained weight.

    The states and copies were measured on a CPU with torch 2.13, transformers 5.23 and bitsandbytes 0.50 on 2026-11-30
    (`foreach=True` stands for the default on GPUs). Only that paged states take no memory is read in the source of
    bitsandbytes: they are in memory that CUDA moves to the host when the GPU is full.
    """

    state: float  # bytes that are kept between steps
    copy: float = 0.0  # bytes during the update only, such as foreach's square roots of all second moments
    embedding_state: float = 0.0  # bytes per weight of the embeddings, in addition to `state`
    of_largest: float = 0.0  # bytes per weight of the largest tensor, during the update only
    traffic: float = 1.0  # bytes that it moves, relative to a fused AdamW
    kernels: float = 41  # kernels of one update


@dataclass(frozen=True, kw_only=True)
class LeftBehind:
    """The files that a job leaves in SageMaker's model folder."""

    model: float  # bytes of the trained model
    checkpoints: float = 0.0  # bytes of checkpoints, with the optimizer's state


def writes_scores(setting: Setting) -> bool:
    """Return whether attention writes its matrices of scores to memory, because the program has no fused attention.

    `attn_implementation`, if given, decides.
    """
    spec = setting.spec
    given = spec.training_arguments.get("attn_implementation")
    if given is not None and not spec.trained_by.is_paretune:
        return bool(given == "eager")
    return spec.trained_by.is_before(*(_FUSED_DECODERS if spec.task == CAUSAL_LM else _FUSED_ENCODERS))


def score_bytes(setting: Setting) -> float:
    """Return the bytes of attention scores that pass through the memory of a device in a micro-batch."""
    each = 2 if setting.formats.is_half else 4
    return _PASSES * _scores(setting) * each if writes_scores(setting) else 0.0


def kept_score_bytes(setting: Setting) -> float:
    """Return the bytes of attention scores that a device keeps for the backward pass."""
    spec = setting.spec
    if not writes_scores(setting) or spec.fine_tuning == "head":
        return 0.0
    layers = 1 if setting.work.recomputes else setting.built.layers
    formats = setting.formats
    each = 5.0 if formats.is_half else 9.0  # the softmax, its dropout, and a mask of bytes
    if formats.autocast and not is_in_half_by_apex(setting):
        each = _AUTOCAST_SCORE_BYTES
    return each * _scores(setting) * layers / setting.built.layers


def is_in_half_by_apex(setting: Setting) -> bool:
    """Return whether apex holds the model, and so its gradients, in half precision."""
    return setting.spec.training_arguments.get("fp16_opt_level") in _IN_HALF


def _scores(setting: Setting) -> float:
    built = setting.built
    return (
        setting.plan.per_device_train_batch_size
        * built.hidden_size
        / _HEAD_WIDTH
        * _length(setting) ** 2
        * (built.layers)
    )


def _length(setting: Setting) -> float:
    return min(float(setting.spec.max_seq_length), setting.work.tokens)


def optimizer_of(setting: Setting) -> Optimizer:
    """Return the optimizer of a job: that of `optim`, or the default of the Trainer's version.

    paretune's own training has a fused AdamW. An optimizer that is not listed here counts as torch's AdamW in a loop.
    """
    spec, each = setting.spec, BYTES[setting.formats.updated]
    usual = "adamw_torch_fused"
    if spec.trained_by.is_before(*_FUSED_OPTIMIZER):
        usual = "adamw_hf" if spec.trained_by.is_before(*_TORCH_OPTIMIZER) else "adamw_torch"
    name = str(spec.training_arguments.get("optim", usual)) if not spec.trained_by.is_paretune else usual
    moved, loop = _LOOP_BYTES / _FUSED_BYTES, _LOOP_KERNELS * setting.built.layers
    if name in ("adamw_torch", "adagrad", "rmsprop"):  # foreach on GPUs
        moments, copies = {"adamw_torch": (2, 1), "adagrad": (1, 2), "rmsprop": (1, 1)}[name]
        return Optimizer(state=moments * each, copy=copies * each, traffic=moved)
    if name == "adamw_hf":
        return Optimizer(state=2 * each, traffic=moved, kernels=loop)
    if name == "adafactor":
        return Optimizer(state=0.0, of_largest=_ADAFACTOR_BYTES[setting.formats.updated], traffic=moved)
    if name == "sgd":
        return Optimizer(state=0.0, traffic=moved)
    of_bitsandbytes = _BITSANDBYTES.fullmatch(name)
    if of_bitsandbytes is None:
        return Optimizer(state=2 * each, traffic=1.0 if "fused" in name else moved)
    paged, kind, bits = of_bitsandbytes.groups()
    moments = 2 if kind.startswith("adamw") else 1
    traffic = 1.0 if kind.startswith("adamw") or paged else moved
    if paged:
        return Optimizer(state=0.0, traffic=traffic)
    if bits != "_8bit":
        return Optimizer(state=4.0 * moments, traffic=traffic)
    embeddings = moments * (4.0 - _IN_8_BITS) if spec.fine_tuning == "full" else 0.0
    return Optimizer(state=moments * _IN_8_BITS, embedding_state=embeddings, traffic=traffic)


def adapter_bytes(setting: Setting) -> float:
    """Return the memory traffic of PEFT's adapters in a micro-batch under FSDP, which paretune's own do not cause."""
    spec, work = setting.spec, setting.work
    if spec.trained_by.is_paretune or spec.fine_tuning not in ADAPTERS or spec.strategy not in SHARDED:
        return 0.0
    return _ADAPTER_BYTES * work.passes * setting.plan.per_device_train_batch_size * work.tokens * work.adapted_widths


def runs_in_one_process(setting: Setting) -> bool:
    """Return whether one process computes on several GPUs, with torch's DataParallel."""
    return setting.spec.strategy == DATA_PARALLEL and setting.spec.processes > 1


def blocking_bytes(setting: Setting) -> float:
    """Return the bytes that DataParallel sends to each GPU in a micro-batch, while arithmetic waits.

    The weights go from the first GPU to all others, and the gradients back.
    """
    if not runs_in_one_process(setting):
        return 0.0
    each = BYTES[setting.formats.weights]
    return each * (setting.built.parameters + setting.work.trained_parameters)


def launch_factor(setting: Setting) -> float:
    """Return how many times as many kernels the process launches for DataParallel.

    Its threads launch those of the forward pass in turn. Autograd has a thread for each GPU.
    """
    return 1 + (setting.spec.processes - 1) / 3 if runs_in_one_process(setting) else 1.0


def left_behind(setting: Setting) -> LeftBehind:
    """Return the files that a job uploads at its end.

    A Trainer that writes its checkpoints into SageMaker's model folder leaves all of them there, unless it has a
    save_total_limit. With another output_dir, only the model is uploaded.
    """
    spec, built, formats = setting.spec, setting.built, setting.formats
    if spec.trained_by.is_paretune:
        return LeftBehind(model=BYTES[formats.saved] * built.parameters)
    trained, given = setting.work.trained_parameters, spec.training_arguments
    adapts = spec.fine_tuning in ADAPTERS  # only the adapters are saved
    weights = BYTES[formats.weights] * (trained if adapts else built.parameters)
    if not str(given.get("output_dir", MODEL_FOLDER)).startswith(MODEL_FOLDER):
        return LeftBehind(model=weights)
    state = 0.0 if given.get("save_only_model") else 2 * BYTES[formats.updated] * trained
    return LeftBehind(model=weights, checkpoints=_checkpoints(setting) * (weights + state))


def _checkpoints(setting: Setting) -> int:
    """Return the number of checkpoints that are left at the end of a job."""
    given, steps = setting.spec.training_arguments, setting.work.steps
    strategy = str(given.get("save_strategy", "steps"))
    schedule = Schedule(strategy, float(given.get("save_steps") or _SAVE_STEPS))
    written = schedule.times(steps, setting.work.steps_per_epoch)
    limit: Any = given.get("save_total_limit")
    return written if limit is None else min(written, int(limit) + bool(given.get("load_best_model_at_end")))
