"""What the values of the parameter `strategy` mean: arguments of the Trainer, or a `Division` of the model.

    ddp         every device has the whole model; gradients are averaged                    (PyTorch)
    fsdp        weights, gradients and optimiser state are sharded over the devices; matrices may be divided over
                tensor groups, or layers into the stages of a pipeline                      (PyTorch)
    smddp       as ddp, with SageMaker's collective operations                              (some AWS images)
    deepspeed   optimiser state and gradients are sharded: ZeRO stage 2; with deepspeed_zero3 also the weights, which
                are gathered for the saved model                                            (package deepspeed)
    device_map  one process loads the layers onto all of its devices                        (Hugging Face)

smddp and deepspeed need GPUs and further packages. No training has run with them: smddp was started with a stand-in for
its package, and for deepspeed only the configuration was checked. smp is for training scripts of the user's own.
"""

import importlib
import os
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from paretune.core.errors import BadInput
from paretune.core.packages import can_be_imported
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DEEPSPEED, ZERO3
from paretune.training import device

PROCESS_TIMEOUT_S = 600
"""Timeout of the process group in seconds, NCCL's default: after an instance has ended without closing its connections,
the other processes fail after this time. No process may work alone for longer, as when it writes a file."""
_PACKAGES = {"smddp": "smdistributed", **dict.fromkeys(DEEPSPEED, "deepspeed")}  # modules that the image must have


def begin(spec: JobSpec) -> None:
    """Initialise the strategy's library, and the process group if the Trainer would not make the right one.

    Raises:
        BadInput: the image lacks the library, or the job has a pipeline in fp16, whose stages would each scale the loss
            by themselves.
    """
    strategy = _of(spec)
    if strategy in _PACKAGES and not can_be_imported(_PACKAGES[strategy]):
        rule = f"strategy {strategy} needs package {_PACKAGES[strategy]}, which this image lacks"
        raise BadInput([f"{rule}: set sagemaker.training_image to an image that has it, or use ddp or fsdp"])
    if divides(spec) and spec.degrees.pipeline > 1 and device.choose_precision(spec.precision) == "fp16":
        raise BadInput([f"a pipeline needs precision bf16 or fp32 on {device.device_name()}: set precision=fp32"])
    if strategy == "smddp":
        # The backend is set here: with SM_FRAMEWORK_PARAMS transformers expects variables of SageMaker's MPI launcher.
        # Source: SageMaker Developer Guide, "Adapt your training script to use the SMDDP collective operations".
        os.environ.pop("SM_FRAMEWORK_PARAMS", None)
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")  # registers the backend
        _join("smddp")
    elif divides(spec):
        _join("cpu:gloo,cuda:nccl" if device.has_gpu() else "gloo")  # offloaded weights are exchanged on the CPU


def _join(backend: str) -> None:
    if torch.distributed.is_initialized():
        return
    options: dict[str, Any] = {}
    if "RANK" not in os.environ:  # a group of this process
        options = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]
    if device.has_gpu():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group(backend, timeout=timedelta(seconds=PROCESS_TIMEOUT_S), **options)


def _of(spec: JobSpec) -> str:
    """The strategy of a job; ddp if fsdp or smddp has only one process, unless that one offloads its weights."""
    is_plain = "RANK" not in os.environ and spec.strategy in {"fsdp", "smddp"} and not spec.cpu_offload
    return "ddp" if is_plain else spec.strategy


def divides(spec: JobSpec) -> bool:
    """Whether the processes of the job have a `Division` of the model."""
    return _of(spec) == "fsdp"


def waits_for_others(spec: JobSpec) -> bool:
    """Whether a forward pass needs the other processes."""
    return divides(spec) or spec.strategy in DEEPSPEED


def data_rank(spec: JobSpec) -> int:
    """Rank of this process among those that train on different rows: equal within a tensor group and a pipeline."""
    rank = int(os.environ.get("RANK", "0"))
    return spec.degrees.data_rank(rank) if divides(spec) else rank


def trainer_arguments(spec: JobSpec) -> dict[str, Any]:
    """TrainingArguments that the strategy needs; those of the user replace them."""
    arguments: dict[str, Any] = {"ddp_timeout": PROCESS_TIMEOUT_S}
    if divides(spec):  # the Trainer cannot read names of labels from a stage, and the `Division` saves the optimiser
        arguments |= {"label_names": ["labels"], "save_only_model": True}
    if spec.strategy in DEEPSPEED:
        sizes = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
        gathers = {"stage3_gather_16bit_weights_on_model_save": True} if spec.strategy == ZERO3 else {}
        arguments["deepspeed"] = {
            **dict.fromkeys((*sizes, "gradient_clipping"), "auto"),
            **{precision: {"enabled": "auto"} for precision in ("bf16", "fp16")},
            "zero_optimization": {"stage": 3 if gathers else 2, "overlap_comm": True, **gathers},
        }
    return arguments


def checkpoint_activations(model: Any, spec: JobSpec) -> None:
    """Make each layer of `model` keep only its input, if the job asks for it, and compute the rest again later.

    With `activation_offloading` the inputs are kept in the machine's memory. Results are the same: random numbers are
    drawn again from the same states.
    """
    if not spec.checkpoints_activations:
        return

    def run(layer: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        with save_on_cpu(pin_memory=device.has_gpu()) if spec.activation_offloading else nullcontext():
            return checkpoint(layer, *inputs, use_reentrant=False, **options)

    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):  # those of transformers' GradientCheckpointingLayer
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = run
