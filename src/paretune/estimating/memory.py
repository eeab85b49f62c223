"""Peak memory of a device by a formula; the activations of a model are learnt from its measured peaks.

    bytes       = framework + weights + training state + activations
    weights     = 4 T / w,  2 T / w more if fp32 weights are multiplied in half precision,  and f F / w
    state       = 12 T / g            gradient and two moments of AdamW, of T trained weights
    activations = a x rows x tokens x layers x hidden size  +  12 x rows x tokens x vocabulary (causal-lm only, of the
                  larger of a training and an evaluation batch)

F weights are frozen: f = 4 bytes; 2 beside adapters if the device multiplies in half precision; half a byte and
constants with qlora. Autocast keeps no copy of frozen ones (torch 2.13: measured, 0 of 2 bytes). w and g are the
devices that share the weights, and gradients with moments: n for fsdp, 1 and n for deepspeed (ZeRO 2), else 1. About 34
bytes a token, layer and unit of width in half precision, without the attention matrix, which modern kernels do not keep
(Korthikanti et al., arXiv 2205.05198, section 4.1); twice that in fp32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paretune.estimating.noise import Z80

GIB = 2**30
CUDA_CONTEXT_GIB = 0.9  # GiB of a device that CUDA, NCCL and fragmentation take; by experience, not measured here

# Bytes of activations a unit, and of the framework, each with the standard deviation of its logarithm. On a device:
# beside the 34 copies and what is freed late; workspaces of the libraries. On a processor: the same and the process
# with its libraries, from the peaks of twelve jobs of two models (benchmarks/estimate_memory.py, CHOSEN_ON).
_OF_DEVICE = (45.0, 0.3), (0.3 * GIB, 0.6)
_OF_PROCESSOR = (75.0, 0.3), (0.65 * GIB, 0.3)
_LOGITS_OF_PROCESSOR = 3.0  # times the bytes of a logit on a processor, chosen on the same jobs
_NOISE = 0.06  # standard deviation of the logarithm of a peak


@dataclass(frozen=True, kw_only=True)
class MemorySetting:
    """The numbers that the memory of one device depends on."""

    model: str  # model and kind of fine-tuning; each has activations of its own
    on_processor: bool  # whether the peak is the resident memory of a process
    parameters: float  # weights; the optimiser changes `trained_parameters` of them
    trained_parameters: float
    half: bool  # whether fp32 weights are multiplied in bf16 or fp16
    weight_sharers: int  # devices that share the weights; `state_sharers` share gradients and moments
    state_sharers: int
    units: float  # rows of a micro-batch x tokens x layers that keep activations x hidden size
    logits: float  # rows x tokens x vocabulary; 0 for classification
    frozen_bytes: float = 4.0  # bytes of a weight that is not trained
    offloads_weights: bool = False  # whether weights and state are in the memory of the machine
    usable_gib: float = math.inf  # memory of the device that the job may use


@dataclass(frozen=True, kw_only=True)
class MemoryPrediction:
    """Peak of one device in GiB, as PyTorch counts it, with an interval that holds 80 % of such jobs."""

    gib: float
    gib_low: float
    gib_high: float
    usable_gib: float  # memory of the device that the job may use


class MemoryModel:
    """Predicts peaks by formula; measured peaks (GiB of one device) move the activations of their own model."""

    def __init__(self, peaks: Sequence[tuple[MemorySetting, float]] = ()) -> None:
        groups: dict[tuple[str, bool], list[tuple[MemorySetting, float]]] = {}
        for setting, gib in peaks:
            groups.setdefault((setting.model, setting.on_processor), []).append((setting, gib))
        self._learnt = {key: _learn(group) for key, group in groups.items()}

    def predict(self, setting: MemorySetting) -> MemoryPrediction:
        """The peak of one device."""
        (_, prior), (_, of_framework) = _constants(setting)
        shift, deviation = self._learnt.get((setting.model, setting.on_processor), (0.0, prior))
        total, activations, framework = _bytes(setting, shift)
        width = math.hypot(deviation * activations / total, of_framework * framework / total, _NOISE)
        gib, factor = total / GIB, math.exp(Z80 * width)
        return MemoryPrediction(gib=gib, gib_low=gib / factor, gib_high=gib * factor, usable_gib=setting.usable_gib)


def _constants(setting: MemorySetting) -> tuple[tuple[float, float], tuple[float, float]]:
    return _OF_PROCESSOR if setting.on_processor else _OF_DEVICE


def _bytes(setting: MemorySetting, shift: float) -> tuple[float, float, float]:
    """The bytes of all, of activations and of the framework; `shift` is of the logarithm of the activations."""
    (activations, _), (framework, _) = _constants(setting)
    activations *= math.exp(shift) * setting.units * (1 if setting.half else 2)
    trained = setting.trained_parameters
    weights = (6 if setting.half else 4) * trained + setting.frozen_bytes * (setting.parameters - trained)
    held = weights / setting.weight_sharers + 12 * trained / setting.state_sharers
    logits = 12 * (_LOGITS_OF_PROCESSOR if setting.on_processor else 1.0) * setting.logits
    return activations + framework + logits + (0.0 if setting.offloads_weights else held), activations, framework


def _learn(peaks: Sequence[tuple[MemorySetting, float]]) -> tuple[float, float]:
    """The mean and deviation of `shift` after the peaks of one model: a normal prior, Gauss-Newton."""
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
