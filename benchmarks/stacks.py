"""Adds to the work of a device what other training scripts do and paretune's own training does not.

    work = stacks.keeping_scores(work, spec, built)     # attention that writes its matrices to memory
    work = stacks.updating_in_a_loop(work, built)       # an optimizer that updates one weight after another
    work = stacks.packing_checkpoints(work, built)      # checkpoints in the folder of the model, which is packed
    work = stacks.evaluating_more(work, share)          # further evaluations

paretune predicts its own training. Some published rates come from similar scripts, and some from scripts that do this
additional work.
"""

from dataclasses import replace

from paretune.estimating.architecture import Architecture
from paretune.estimating.counting import Work
from paretune.estimating.phases import UPLOAD_RATE
from paretune.specification.job import JobSpec

_HEAD_WIDTH = 64  # of BERT and similar models
_PASSES = 19.5
"""Number of times that a training step reads or writes a matrix of scores if every operation does so. The forward
pass takes 8.25: the product (1), the mask (2), the softmax (2), the dropout (2.25, because its mask is a byte) and the
product with the values (1). The gradients take 11.25."""
_LOOP_BYTES, _FUSED_BYTES, _LOOP_KERNELS = (84.0 + 12.0) / 2, 24.0, 12 * 15 / 2
"""Bytes that an update moves per weight, in a loop over tensors (with norm and clipping; every intermediate result is
written and read) and in fused kernels; and the kernels of a loop per layer, twelve for each of its 15 tensors. The
figures of a loop are halved, because the constant for an update is twice what is counted: it allows for the norm, the
clipping and the copies of a fused optimizer, which are counted here."""
_SAVE_STEPS = 500  # steps between two checkpoints of the Trainer, by default
_CHECKPOINT_BYTES, _MODEL_BYTES = 12.0, 4.0  # per weight, with its two moments and without
_PACKED_BYTES_PER_S = 9.3e6
"""Rate at which SageMaker packs and uploads the folder of a model. Two public jobs (T0249 and T0374, DistilBERT on
ml.p3.2xlarge) took 371 and 379 s to upload 3.48 GB: the model and four checkpoints, because they had 2,105 steps. gzip
alone packs such files at 14 to 21 MB/s (measured on 2026-11-28, zlib level 6, one thread of an Intel Xeon with
amx_bf16)."""


def keeping_scores(work: Work, spec: JobSpec, built: Architecture) -> Work:
    """Return the work with the memory traffic that attention had without fused kernels.

    PyTorch has had such kernels since 2.0 (2023-03), and transformers has used them in BERT since 4.41 (2024-05).
    """
    rows, tokens = spec.plan().per_device_train_batch_size, float(spec.max_seq_length)
    scores = rows * built.hidden_size / _HEAD_WIDTH * tokens**2 * built.layers
    return replace(work, moved=work.moved + _PASSES * scores * (4 if spec.precision == "fp32" else 2))


def updating_in_a_loop(work: Work, built: Architecture) -> Work:
    """Return the work with the optimizer that the Trainer and most scripts used before 2023."""
    return replace(work, updated=work.updated * _LOOP_BYTES / _FUSED_BYTES, update_kernels=_LOOP_KERNELS * built.layers)


def packing_checkpoints(work: Work, built: Architecture) -> Work:
    """Return the work of a training run that writes the Trainer's checkpoints into the folder of the model.

    SageMaker packs that folder into model.tar.gz and uploads it while the instances are still billed.
    """
    packed = (work.steps // _SAVE_STEPS * _CHECKPOINT_BYTES + _MODEL_BYTES) * built.parameters
    return replace(work, saved=packed * UPLOAD_RATE / _PACKED_BYTES_PER_S)  # `saved` is uploaded at UPLOAD_RATE


def evaluating_more(work: Work, share: float) -> Work:
    """Return the work with further evaluations; `share` is their size relative to those that are counted already."""
    return replace(work, evaluated_flops=work.evaluated_flops * (1 + share))
