"""Peak memory of a device by a formula whose constants are learnt from measured peaks.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paretune.estimating.posterior import Noise, Posterior, interval

GIB = 2**30
CUDA_CONTEXT_GIB = 0.9  # GiB of a device that CUDA, NCCL and fragmentation take; by experience, not measured here

_PRIORS = {
    "activations": (45.0, 0.3),  # bytes; beside the 34, copies and what is freed late
    "framework": (0.3 * GIB, 0.6),  # workspaces of the libraries
    # On a processor, from the peaks of twelve jobs of two models (benchmarks/estimate_memory.py, CHOSEN_ON): the same,
    # and the process with its libraries.
    "resident": (75.0, 0.3),
    "process": (0.65 * GIB, 0.3),
}
_LOGITS_OF_PROCESSOR = 3.0  # times the bytes of a logit on a processor, chosen on the same jobs
_NOISE = Noise(value=0.06, weight=4.0)


@dataclass(frozen=True, kw_only=True)
class MemorySetting:
    """The numbers that the memory of one device depends on."""

    model: str  # model and kind of fine-tuning; each has a constant of its own
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


@dataclass(frozen=True, kw_only=True)
class MemoryPrediction:
    """Peak of one device in GiB, as PyTorch counts it, with an interval that holds 80 % of such jobs."""

    gib: float
    gib_low: float
    gib_high: float


class MemoryModel:
    """Predicts peaks with constants fitted to measured peaks: settings with the peak memory of one device, GiB."""

    def __init__(self, peaks: Sequence[tuple[MemorySetting, float]] = ()) -> None:
        settings = [setting for setting, _ in peaks]
        names = list(dict.fromkeys(name for setting in settings for name in _constants(setting)))
        columns = _Columns(settings, {name: index for index, name in enumerate(names)})
        measured = np.log([gib for _, gib in peaks])

        def misfits(theta: np.ndarray) -> np.ndarray:
            return columns.log_gib(theta) - measured

        self._posterior = Posterior(
            _PRIORS, names, noise=_NOISE, residuals=lambda theta, noise: misfits(theta) / noise, misfits=misfits
        )

    def predict(self, settings: Sequence[MemorySetting]) -> list[MemoryPrediction]:
        """Return one prediction per setting."""
        if not settings:
            return []
        names = [name for setting in settings for name in _constants(setting)]
        indices, mean, covariance = self._posterior.with_names(names)
        columns = _Columns(settings, indices)
        gib = np.exp(columns.log_gib(mean))
        widths = np.exp(interval(columns.log_gib, mean, covariance, self._posterior.noise))
        return [
            MemoryPrediction(gib=float(middle), gib_low=float(middle / width), gib_high=float(middle * width))
            for middle, width in zip(gib, widths, strict=True)
        ]


def _constants(setting: MemorySetting) -> list[str]:
    kinds = ("resident", "process") if setting.on_processor else ("activations", "framework")
    return [f"{kinds[0]}:{setting.model}", kinds[1]]


class _Columns:
    """N settings as arrays, with the indices of their constants."""

    def __init__(self, settings: Sequence[MemorySetting], indices: Mapping[str, int]) -> None:
        def column(name: str) -> np.ndarray:
            return np.array([getattr(setting, name) for setting in settings], dtype=float)

        self._indices = np.array([[indices[name] for name in _constants(setting)] for setting in settings])
        half, trained = column("half"), column("trained_parameters")
        weights = (4 + 2 * half) * trained + column("frozen_bytes") * (column("parameters") - trained)
        state = 12 * trained / column("state_sharers")
        held = weights / column("weight_sharers") + state
        self._fixed = np.where(column("offloads_weights") > 0, 0.0, held)
        self._fixed += 12 * np.where(column("on_processor") > 0, _LOGITS_OF_PROCESSOR, 1.0) * column("logits")
        self._units = column("units") * (2 - half)

    def log_gib(self, theta: np.ndarray) -> np.ndarray:
        """Return the logarithms of GiB for these logarithms of the constants."""
        activations, framework = np.exp(theta[self._indices]).T
        return np.asarray(np.log((framework + self._fixed + activations * self._units) / GIB))
