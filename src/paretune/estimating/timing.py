"""How long a training takes: physics with unknown constants, which are learnt from whatever jobs have run.

    seconds    = start-up + steps x step + evaluation + upload
    step       = accumulation x (latency + rows x FLOP per row / (peak x utilisation)) + update + exposed communication
    update     = 24 bytes x trained weights / memory bandwidth
    exchange   = 2 (n - 1) / n x 4 bytes x trained weights / link, of the n instances over the network and of the n
                 devices of an instance over their own link, one after the other           (ring all-reduce)
    exposed    = exchange^2 / (exchange + backward pass)    what the backward pass of the last micro-batch cannot hide
    start-up   = s (1 + H_n) / 2,  H_n = 1 + 1/2 + ... + 1/n

A job starts when its slowest instance is ready; the expected largest of n exponential waits grows like the harmonic
number H_n, and half of the start-up is taken to be such waiting.

Every constant has a prior in logarithms: a data sheet or a usual value, and how far off that may be. Constants are
shared: utilisation is a product of one for all, one per accelerator and precision, one per model, one per cluster. So a
measurement of one cluster moves the prediction for its neighbours, and what was never measured keeps a wide interval.
The fit is the maximum of the posterior (least squares, priors as further residuals); intervals come from its curvature.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paretune.estimating.noise import SECONDS_NOISE_OF_OTHER_DATA
from paretune.estimating.posterior import Noise, Posterior, interval

# Name of a constant up to the colon: (median, standard deviation of its logarithm).
_PRIORS = {
    "utilisation": (0.3, 0.5),  # share of peak arithmetic; 0.2 to 0.5 is usual in training transformers
    "chip": (1.0, 0.35),  # one accelerator in one precision against its data sheet
    "local": (1.0, 1.5),  # this machine, of which only the number of its processors is known
    "model": (1.0, 0.2),  # one model and sequence length against its operation count
    "cluster": (1.0, 0.03),  # one instance type, count and strategy against the physics
    "latency": (0.012, 0.8),  # seconds to launch the kernels of a micro-batch
    "memory": (0.6, 0.5),  # share of memory bandwidth that the optimiser's update reaches
    "link": (0.5, 0.4),  # share of a link's bandwidth that an all-reduce reaches
    "attention": (3.0, 0.8),  # a FLOP of the attention matrices against one of the weights: softmax, masks, memory
    "evaluation": (1.0, 0.4),  # against a third of the training's seconds per row
    "startup": (240.0, 0.6),  # SageMaker: seconds billed before the first step and after the last
    "startup local": (9.0, 0.7),  # a process on this machine: imports, model, warm-up
}
_NOISE = Noise(value=SECONDS_NOISE_OF_OTHER_DATA, weight=6.0)
_OVERHEAD_NOISE = 0.25  # of start-up and evaluation together, taken from one job
_UPDATE_BYTES = 24.0  # AdamW: gradient, weight and two moments in fp32 read, the last three written; rounded
_UPLOAD_BYTES_PER_S = 50e6  # the model is packed with gzip before it goes to S3


@dataclass(frozen=True, kw_only=True)
class TimingFeatures:
    """One training on one cluster, in the numbers that its time depends on.

    Attributes:
        chip: accelerator and precision; a constant is learnt for each.
        model: model, sequence length, kind of fine-tuning and compiler; likewise.
        cluster: instance type, count and strategy; likewise.
        is_local: its start-up is that of a process, not of an instance.
        devices: devices of one instance that train.
        peak_flops: FLOP/s of one device; `memory_bytes_per_s` is of one device too.
        network_bytes_per_s: between instances; of one instance.
        link_bytes_per_s: between devices of one instance.
        rows: rows of one device and micro-batch.
        accumulation: micro-batches of one optimiser step.
        steps: optimiser steps.
        flops_per_row: forward and backward; `attention_share` of it goes into attention matrices.
        evaluated_flops: of all evaluations together.
        trained_parameters: weights whose gradients travel.
        parameters: weights that are saved at the end.
        exchanges: all-reduces worth of communication in a step: 1 for ddp, 1.5 where weights are gathered too.
    """

    chip: str
    model: str
    cluster: str
    is_local: bool = False
    instances: int
    devices: int
    peak_flops: float
    memory_bytes_per_s: float
    network_bytes_per_s: float
    link_bytes_per_s: float
    rows: float
    accumulation: int
    steps: float
    flops_per_row: float
    evaluated_flops: float
    trained_parameters: float
    parameters: float
    exchanges: float = 1.0
    attention_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a job has shown: its whole billable seconds, or the seconds of a step and the rest apart; or all of it.

    With `step_seconds`, `seconds` teaches only what lies around the steps. `origin` is measured, published or
    simulated.
    """

    setting: TimingFeatures
    seconds: float | None = None
    step_seconds: float | None = None
    origin: str = "measured"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Billable seconds of a job, with an interval that holds 80 % of such jobs.

    `startup_seconds` is what lies around the steps, evaluation included.
    """

    seconds: float
    seconds_low: float
    seconds_high: float
    startup_seconds: float
    step_seconds: float
    steps: int


class TimeModel:
    """The constants as `measurements` have them; their priors where there are none."""

    def __init__(self, measurements: Sequence[Measurement] = ()) -> None:
        used = [item for item in measurements if item.seconds or item.step_seconds]
        names = list(dict.fromkeys(name for item in used for name in _constants(item.setting)))
        target = _Target(used)
        columns = _Columns([item.setting for item in used], {name: index for index, name in enumerate(names)})
        self.posterior = Posterior(
            _PRIORS,
            names,
            noise=_NOISE,
            residuals=lambda theta, noise: target.residuals(columns.parts(theta), noise),
            misfits=lambda theta: target.misfits(columns.parts(theta)),
        )

    def predict(self, settings: Sequence[TimingFeatures]) -> list[Prediction]:
        """Predictions, one per setting."""
        if not settings:
            return []
        wanted = [name for setting in settings for name in _constants(setting)]
        indices, mean, covariance = self.posterior.with_names(wanted)
        columns = _Columns(settings, indices)
        parts = columns.parts(mean)
        deviations = interval(lambda at: np.log(columns.parts(at).total), mean, covariance, self.posterior.noise)
        numbers = np.stack([parts.total, np.exp(deviations), parts.around, parts.step], axis=1).tolist()
        return [
            Prediction(
                seconds=seconds,
                seconds_low=seconds / width,
                seconds_high=seconds * width,
                startup_seconds=around,
                step_seconds=step,
                steps=round(setting.steps),
            )
            for setting, (seconds, width, around, step) in zip(settings, numbers, strict=True)
        ]


def _constants(setting: TimingFeatures) -> list[str]:
    where = "local" if setting.is_local else "network"
    return [
        "utilisation",
        f"{'local' if setting.is_local else 'chip'}:{setting.chip}",
        f"model:{setting.model}",
        f"cluster:{setting.cluster}",
        f"latency:{where}",
        f"memory:{setting.chip}",
        f"link:{where}",
        f"evaluation:{where}",
        "startup local" if setting.is_local else "startup",
        f"attention:{where}",
    ]


@dataclass(frozen=True)
class _Parts:
    """Seconds of N settings."""

    step: np.ndarray
    around: np.ndarray
    total: np.ndarray


class _Columns:
    """N settings as arrays, and the indices of their constants among K."""

    def __init__(self, settings: Sequence[TimingFeatures], names: Mapping[str, int]) -> None:
        def column(name: str) -> np.ndarray:
            return np.array([getattr(setting, name) for setting in settings], dtype=float)

        self._indices = np.array([[names[name] for name in _constants(setting)] for setting in settings])
        self._instances, self._devices = column("instances"), column("devices")
        self._rows, self._accumulation, self._steps = column("rows"), column("accumulation"), column("steps")
        self._ideal_row = column("flops_per_row") / column("peak_flops")  # seconds
        n = self._instances * self._devices
        self._attention = column("attention_share")
        self._ideal_evaluation = column("evaluated_flops") / column("peak_flops") / n
        self._ideal_update = _UPDATE_BYTES * column("trained_parameters") / column("memory_bytes_per_s")
        gradients = 4.0 * column("trained_parameters") * column("exchanges")
        between = 2 * (self._instances - 1) / self._instances * gradients / column("network_bytes_per_s")
        within = 2 * (self._devices - 1) / self._devices * gradients / column("link_bytes_per_s")
        self._ideal_exchange = between + within
        local = np.array([setting.is_local for setting in settings])
        self._upload = np.where(local, 0.0, 4.0 * column("parameters") / _UPLOAD_BYTES_PER_S)
        harmonic = np.array([sum(1 / number for number in range(1, int(count) + 1)) for count in self._instances])
        self._waiting = np.where(local, 1.0, (1 + harmonic) / 2)

    def parts(self, theta: np.ndarray) -> _Parts:
        """Seconds of each setting, given the logarithms of the K constants."""
        found = np.exp(theta[self._indices]).T
        dearer = 1 + (found[9] - 1) * self._attention
        utilisation = found[0] * found[1] * found[2] * found[3] / dearer
        compute = self._rows * self._ideal_row / utilisation
        exchange = self._ideal_exchange / found[6]
        exposed = np.where(exchange > 0, exchange**2 / (exchange + 2 / 3 * compute + 1e-12), 0.0)
        step = self._accumulation * (found[4] + compute) + self._ideal_update / found[5] + exposed
        evaluation = found[7] * self._ideal_evaluation / utilisation
        around = found[8] * self._waiting + evaluation + self._upload
        return _Parts(step=step, around=around, total=around + self._steps * step)


class _Target:
    """What was measured of N settings; NaN where it was not."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        steps = np.array([item.setting.steps for item in measurements])
        self._step = np.array([item.step_seconds or math.nan for item in measurements])
        total = np.array([item.seconds or math.nan for item in measurements])
        self._around = total - steps * self._step
        self._around[~(self._around > 0)] = math.nan
        self._total = np.where(np.isnan(self._step), total, math.nan)

    def residuals(self, parts: _Parts, noise: float) -> np.ndarray:
        """Of steps and totals, and of what lies around the steps, in standard deviations."""
        around = _log_ratio(parts.around, self._around)
        return np.concatenate([self.misfits(parts) / noise, around / _OVERHEAD_NOISE])

    def misfits(self, parts: _Parts) -> np.ndarray:
        """Logarithms of predicted over measured, of steps and totals."""
        return np.concatenate([_log_ratio(parts.step, self._step), _log_ratio(parts.total, self._total)])


def _log_ratio(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Logarithms of predicted over measured, where it was measured."""
    known = ~np.isnan(measured)
    return np.asarray(np.log(predicted[known]) - np.log(measured[known]))
