"""Predicts the seconds of a job from its counted work, and from constants that are fitted to measurements.

    describe(job) -> Work              what one device does in a step, and at which rates (counting.py)
    seconds(work, constants)           the seconds of each part in `PARTS`
    fit(measurements) -> TimeModel     the constants, as close to their priors as the measurements allow

    job       = start + steps x step + evaluation + upload
    step      = micro-batches x (busy + bubble x busy + waiting + exposed(exchange, pass))
                + update + exposed(exchange, 2/3 busy)
    pass      = (FLOP / arithmetic + bytes / memory) / (chip x model x stack x cluster)
    launches  = kernels x launch
    busy      = (pass^3 + launches^3)^(1/3) on a GPU, close to the longer of the two, because its host runs ahead;
                pass + launches on a CPU
    update    = (bytes of the optimizer / memory + kernels of the optimizer x launch) x the constant `update`
    exchange  = bytes / (link x share) inside a machine or, if that is slower,
                bytes / (min(flow x share, network) x between) between machines; `flow` is a TCP connection's limit
                (without EFA) or the whole bandwidth (with EFA), and each share is a fitted constant
    waiting   = (1 + bubble) x the exchange that arithmetic has to wait for
    exposed   = exchange^2 / (exchange + time to hide in): the part of an exchange that does not overlap with the pass,
                or with the backward pass, which takes two thirds of `busy`

Each constant has a prior (a median and a spread), and all jobs that use a constant of the same name share it. So a
measurement of one cluster also improves the prediction for similar ones, and a constant that was never measured keeps
its wide interval (partial pooling: Gelman and Hill, Data Analysis Using Regression and Multilevel Models, 2007, chapter
12). The fit maximizes the posterior, and intervals come from the posterior's curvature. The priors were tuned on
benchmarks/tables, on the throughputs of Pollux on one to four nodes, and on those of IBM's fms
(benchmarks/estimate_error_cold.py).
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from paretune.core.noise import SECONDS_NOISE_OF_OTHER_DATA, Z80
from paretune.estimating.counting import TCP, Work
from paretune.estimating.phases import PACK_RATE, UPLOAD_RATE, Seconds

# Prior of each constant, by the beginning of its name, the longest one that fits: (median, standard deviation of its
# logarithm).
_PRIORS = {
    "chip": (1.0, 0.19),  # speed of one accelerator in one precision, relative to its data sheet
    "chip:NVIDIA V100 fp16": (1.0, 0.3),  # the two halves of the sources differ by a factor of 1.3
    "chip:NVIDIA A10G bf16": (1.0, 0.3),  # one source; others are up to twice as fast or as slow
    "unmeasured": (
        1.0,
        0.34,
    ),  # a chip with a data sheet, but without a rate: the deviation of `sustained` (hardware.py)
    "unlisted": (1.0, 0.8),  # speed of a GPU without a data sheet here, relative to an A10G
    "local": (1.8, 1.2),  # speed of this machine, relative to a guess from its number of vCPUs
    "chip:NVIDIA A100 bf16": (1.0, 0.1),  # full fine-tuning of language models, by five sources
    "chip:NVIDIA H100 bf16": (1.0, 0.12),
    "decoder": (1.0, 0.08),  # the same as `model` for language models that are trained fully or by qlora
    "model": (1.0, 0.18),  # speed of one model, sequence length and kind of fine-tuning, relative to its counted work
    "stack": (1.0, 0.15),  # speed of the code that trains, relative to the counted work
    "cluster": (0.95, 0.15),  # speed of devices that wait for each other, by instance type, count and strategy
    "processes": (0.8, 0.35),  # speed of several processes on this machine, which share its vCPUs and memory
    "launch": (20e-6, 0.5),  # seconds that a host of one instance family takes to launch a kernel on a GPU
    "launch local": (23e-6, 0.4),  # seconds that starting an operator takes on a CPU
    "update": (2.0, 0.8),  # time of optimizer, gradient norm and copies, relative to the count for the optimizer alone
    "update local": (0.5, 0.1),  # the same on a CPU, whose memory is twice as fast as assumed in hardware.py
    "link": (0.5, 0.45),  # share of the bandwidth that an exchange inside a machine reaches
    "efa": (0.5, 0.45),  # share of the bandwidth that an exchange over a network with EFA reaches
    TCP: (0.4, 0.6),  # rate of an exchange without EFA, relative to one TCP flow's limit; never above the network's
    "between": (1.0, 0.3),  # speed of the network of one cluster and strategy, relative to all others
    "startup": (1.0, 0.6),  # SageMaker: billed seconds before the first step and after the last, relative to the usual
    "packing": (1.0, 0.3),  # time to pack and upload a model folder, relative to that of two public jobs
    "startup local": (1.0, 0.7),  # the same for a process on this machine
}
CALIBRATION: Mapping[str, float] = {
    "language model, adapters": 0.89,
    "language model, full": 1.03,
    "language model, long rows": 1.39,
    "language model, experts": 1.39,
    "language model, 4 bits without bf16": 1.39,
    "one GPU": 0.74,
    "several GPUs": 0.8,
    "several machines": 0.86,
}
"""Spread of the predicted seconds of a step, relative to what the priors' spreads add up to, by `Work.kind`.

One rule gives all factors (`calibration` in benchmarks/estimate_error_cold.py), from the sources that constants were
chosen on: the mean square of a source's deviations counts once, however many rates the source has, the mean of all
sources counts as much as four more, and few sources make the interval wider, as in a t distribution. A kind without any
source has half as much again. A factor applies to what is still unknown, so measurements make it matter less."""
_NOISE_WEIGHT = 6.0  # the prior noise counts as much as this many measurements
_NOISE_OF_OTHER_STEPS = 0.06
"""Further noise of a job whose step differs from that of each measured job, for example in its batch. A guess, with
which the intervals of local jobs contain as many of them as they should."""
_NOISE_OF_LOCAL = 1.6  # noise on this machine, which runs other programs as well, relative to that on SageMaker
_NOISE_AROUND = 0.25  # noise of startup and evaluation together, as measured in one job
_T_DEGREES = 4.0  # degrees of freedom, usual for robust fits (Lange et al., J. Am. Stat. Assoc. 84, 1989)
_AROUND_STEPS = ("startup", "packing")  # beginnings of the names of constants that no step depends on
_SLOPE = 1e-4  # step of a central difference; small, because the logarithms of constants vary by about 1


PARTS = ("compute", "memory", "launches", "exchange", "evaluation", "start", "upload")
"""The parts of a job's seconds: matrix products; memory traffic, including the optimizer's; what kernel launches add to
these two; what exchanges and waiting for other devices add; evaluations; everything before the first step; and
everything after the last step."""
_OF_A_STEP = PARTS[:4]


def seconds(work: Work, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seconds of each part in `PARTS`, given the constants by role.

    The first four parts are per step, the others for the whole job.
    """
    c = constants
    speed = c["chip"] * c["model"] * c["stack"] * c["cluster"]
    rate = np.minimum(work.flow * c["network"], work.network) * c["between"]

    def sent(link: Any, network: Any) -> Any:
        return np.maximum(link / (work.link * c["link"]), network / rate)

    computing, traffic = work.flops / (work.arithmetic * speed), work.moved / (work.memory * speed)
    whole, launching = computing + traffic, work.kernels * c["launch"]
    busy = np.where(work.is_ahead, (whole**3 + launching**3) ** (1 / 3), whole + launching)
    waiting = work.bubble * busy + (1 + work.bubble) * sent(work.blocking_link, work.blocking_network)
    waiting = waiting + _exposed(sent(work.micro_link, work.micro_network), busy)
    return {
        "compute": work.accumulation * computing,
        "memory": work.accumulation * traffic + c["update"] * work.updated / work.memory,
        "launches": work.accumulation * (busy - whole) + c["update"] * work.update_kernels * c["launch"],
        "exchange": work.accumulation * waiting + _exposed(sent(work.step_link, work.step_network), 2 / 3 * busy),
        "evaluation": work.evaluated_flops / (work.arithmetic * speed),
        "start": c["startup"] * work.before,
        "upload": c["startup"] * work.after + upload_seconds(work, c["packing"]),
    }


def upload_seconds(work: Work, packing: Any = 1.0) -> Any:
    """Return the seconds to pack and upload what a job leaves behind; `packing` is relative to PACK_RATE."""
    return work.saved / UPLOAD_RATE + packing * work.packed / PACK_RATE


def _exposed(exchange: Any, hidden_by: Any) -> Any:
    """Return the seconds of an exchange that do not overlap with `hidden_by` seconds of arithmetic."""
    return exchange**2 / (exchange + hidden_by + 1e-12)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Measured seconds of a job: all billable seconds (`seconds`), the seconds of one step, or both.

    If both are given, `seconds` serves only to compute the time outside the steps: start, evaluation and upload.
    """

    work: Work
    seconds: float | None = None
    step_seconds: float | None = None
    origin: str = "measured"  # measured, published or simulated


@dataclass(frozen=True, kw_only=True)
class Prediction(Seconds):
    """Predicted billable seconds of a job. For a user's own script or project, the fields below keep their defaults."""

    startup_seconds: float = 0.0  # seconds outside the steps, including evaluation
    step_seconds: float = 0.0
    steps: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part in `PARTS`, which add up to `seconds`."""
    startup_factor: float = 1.0  # startup time of such jobs, as measured so far, relative to that of public jobs
    upload_seconds: float = 0.0  # time to pack and upload what the job leaves behind


class TimeModel:
    """Predicts seconds from fitted constants, the covariance of their logarithms, and the noise of a measurement."""

    def __init__(
        self,
        names: Sequence[str],
        mean: np.ndarray,
        covariance: np.ndarray,
        noise: float,
        measured: Collection[Work] = (),
    ) -> None:
        self._names, self._mean, self._covariance, self._noise = list(names), mean, covariance, noise
        self._steps = {_step_of(work) for work in measured}

    def predict(self, works: Sequence[Work]) -> list[Prediction]:
        """Return one prediction per job. Constants that were never measured have their prior."""
        if not works:
            return []
        known = len(self._names)
        fresh = [name for name in _names(works) if name not in self._names]
        medians, deviations = _prior(fresh)
        mean, names = np.concatenate([self._mean, medians]), [*self._names, *fresh]
        covariance = np.diag(np.concatenate([np.zeros(known), deviations**2]))
        covariance[:known, :known] = self._covariance
        parts_at, all_ = _parts(works, names), _stacked(works)
        slopes = _gradient(lambda theta: np.log(_observables(all_, parts_at(theta))[..., _TOTAL, :]), mean)
        is_repeat = np.array([not self._steps or _step_of(work) in self._steps for work in works])
        noise = np.hypot(self._noise, np.where(is_repeat, 0.0, _NOISE_OF_OTHER_STEPS))
        noise = noise * np.where(all_.is_local, _NOISE_OF_LOCAL, 1.0)
        variance = _variance(_calibrated(works, names, slopes, covariance), covariance)
        widths = np.exp(Z80 * np.sqrt(variance + noise**2))
        parts = parts_at(mean)
        step, around, total = _observables(all_, parts).tolist()
        startup = np.exp([mean[names.index(work.constants["startup"])] for work in works]).tolist()
        return [
            Prediction(
                seconds=total[at],
                seconds_low=total[at] / width,
                seconds_high=total[at] * width,
                startup_seconds=around[at],
                step_seconds=step[at],
                steps=round(work.steps),
                parts={name: float(parts[name][at]) * (work.steps if name in _OF_A_STEP else 1) for name in PARTS},
                startup_factor=startup[at],
                upload_seconds=upload_seconds(work),
            )
            for at, (work, width) in enumerate(zip(works, widths.tolist(), strict=True))
        ]


def _variance(slopes: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("nk,kl,nl->n", slopes, covariance, slopes))


def _calibrated(works: Sequence[Work], names: Sequence[str], slopes: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the slopes of each job's seconds, with those for the constants of a step made smaller by calibration.

    Without measurements, their share of the variance is multiplied by the square of the factor. In general, calibration
    changes the precision by the same amount, so that each measurement narrows the interval.
    """
    is_of_step = np.array([not name.startswith(_AROUND_STEPS) for name in names])
    of_step = slopes * is_of_step
    factors = np.array([CALIBRATION.get(work.kind, 1.0) for work in works]) ** 2
    left, whole = _variance(of_step, covariance), of_step**2 @ _prior(names)[1] ** 2
    shares = whole * factors / (whole * factors + (1 - factors) * left + 1e-12)  # of `left` that remains
    return np.where(is_of_step, slopes * np.sqrt(shares)[:, None], slopes)


def fit(measurements: Sequence[Measurement] = ()) -> TimeModel:
    """Fit the constants to these measurements. Without any, all constants have their priors.

    The noise is fitted as well. A constant that depends on a single measurement absorbs the deviation of that
    measurement, so the noise is computed with the effective number of parameters (MacKay, Neural Computation 4, 1992).
    The errors of published runs are assumed to follow a t distribution, so that an outlier has little influence.
    """
    used = [item for item in measurements if item.seconds or item.step_seconds]
    works = [item.work for item in used]
    names, noise = _names(works), SECONDS_NOISE_OF_OTHER_DATA
    medians, deviations = _prior(names)
    mean, covariance = medians, np.diag(deviations**2)
    if not names:
        return TimeModel(names, mean, covariance, noise)
    from scipy.optimize import least_squares  # takes a third of a second

    parts, all_ = _parts(works, names), _stacked(works)
    kind, index, measured, scatter, is_foreign = map(np.array, zip(*_observed(used), strict=True))
    is_around = kind == _AROUND

    def misfits(theta: np.ndarray) -> np.ndarray:
        predicted = _observables(all_, parts(theta))[..., kind, index]
        return np.asarray((np.log(predicted) - np.log(measured)) / scatter)

    def residuals(theta: np.ndarray) -> np.ndarray:
        scaled = misfits(theta) / np.where(is_around, 1.0, noise)
        robust = np.sign(scaled) * np.sqrt(_T_DEGREES * np.log1p(scaled**2 / _T_DEGREES))
        return np.concatenate([np.where(is_foreign, robust, scaled), (theta - medians) / deviations], axis=-1)

    for _ in range(3):
        found = least_squares(residuals, mean, partial(_gradient, residuals), method="lm", ftol=1e-6)
        mean, covariance = found.x, np.linalg.inv(found.jac.T @ found.jac)  # covariance is the inverse curvature
        fitted = len(names) - float(np.sum(np.diag(covariance) / deviations**2))
        left = misfits(mean)[~is_around]
        squares = _NOISE_WEIGHT * SECONDS_NOISE_OF_OTHER_DATA**2 + float(left @ left)
        noise = math.sqrt(squares / (_NOISE_WEIGHT + max(0.0, len(left) - fitted)))
    return TimeModel(names, mean, covariance, noise, works)


def _step_of(work: Work) -> tuple[str, str, int, float]:
    """Return what a step of a job computes, and where."""
    return work.cluster, work.constants["model"], work.accumulation, round(work.flops)


_STEP, _AROUND, _TOTAL = range(3)


def _observed(measurements: Sequence[Measurement]) -> Iterator[tuple[int, int, float, float, bool]]:
    """Yield each measured time: kind, index of the job, seconds, scatter, and whether an outlier may be discounted.

    The scatter is relative to the noise of a job on SageMaker; for the time around steps it is absolute.
    """
    for index, item in enumerate(measurements):
        noisier, is_foreign = _NOISE_OF_LOCAL if item.work.is_local else 1.0, item.origin == "published"
        if not item.step_seconds:
            yield _TOTAL, index, item.seconds or math.nan, noisier, is_foreign
            continue
        yield _STEP, index, item.step_seconds, noisier, is_foreign
        if (around := (item.seconds or 0.0) - item.work.steps * item.step_seconds) > 0:
            yield _AROUND, index, around, _NOISE_AROUND, False


def _observables(work: Work, parts: Mapping[str, Any]) -> np.ndarray:
    """Return an array (..., 3, N) for N jobs: seconds per step, around the steps, and in total."""
    step = sum(parts[name] for name in _OF_A_STEP)
    around = sum(parts[name] for name in PARTS if name not in _OF_A_STEP)
    return np.stack([step, around, around + work.steps * step], axis=-2)


def _parts(works: Sequence[Work], names: Sequence[str]) -> Callable[[np.ndarray], dict[str, Any]]:
    """Return a function that computes the parts (..., N) of N jobs from logarithms (..., K) of the named constants."""
    places = {name: index for index, name in enumerate(names)}
    roles, stacked = works[0].constants, _stacked(works)
    at = {role: np.array([places.get(work.constants[role], len(names)) for work in works]) for role in roles}

    def parts(theta: np.ndarray) -> dict[str, Any]:
        values = np.exp(np.append(theta, np.zeros((*theta.shape[:-1], 1)), axis=-1))
        return seconds(stacked, {role: values[..., indices] for role, indices in at.items()})

    return parts


def _stacked(works: Sequence[Work]) -> Work:
    columns: dict[str, Any] = {
        each.name: np.array([getattr(work, each.name) for work in works]) for each in fields(Work)
    }
    return Work(**columns)


def _names(works: Sequence[Work]) -> list[str]:
    return list(dict.fromkeys(name for work in works for name in work.constants.values() if name))


def _prior(names: Collection[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior of the logarithm of each constant: its median and its standard deviation."""
    pairs = [_PRIORS[max(filter(name.startswith, _PRIORS), key=len)] for name in names]
    medians, deviations = np.array(pairs, dtype=float).reshape(-1, 2).T
    return np.log(medians), deviations


def _gradient(function: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """Return the derivatives (M, K) of M values of `function` with respect to K arguments, from central differences.

    `function` maps an array (..., K) to an array (..., M), so one call computes all differences.
    """
    steps = np.eye(len(at)) * _SLOPE
    above, below = function(at + np.stack([steps, -steps]))
    return np.asarray((above - below).T / (2 * _SLOPE))
