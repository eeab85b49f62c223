"""The duration of a training: physics with unknown constants, which are learnt from the jobs that have run.

    seconds    = start-up + steps x step + evaluation + upload
    step       = accumulation x ((1 + bubble) x (longer(pass, launches) + blocking) + exposed(exchange, pass))
                 + update + exposed(exchange, 2/3 longer(pass, launches)) + loop
    pass       = (rows x (FLOP / (peak x utilisation) + moved / memory) + read / memory)
                 / (chip x model x stack x several x cluster)
    launches   = kernels x launch x host
    longer     = (pass^3 + launches^3)^(1/3) on a GPU, whose host runs ahead; their sum on a processor
    moved      = bytes of activations that are written and read between the matrix products
    read       = bytes of weights that are cast, read, or unpacked from 4 bits in every micro-batch
    update     = (bytes of the optimiser / memory + its kernels x launch x host) x factor
    memory     = bandwidth of the data sheet x stream
    bubble     = (stages - 1) / micro-batches of a pipeline: time in which a stage waits for the others, against that in
                 which it works (Narayanan et al., arXiv 2104.04473, section 2.2)
    loop       = seconds of the Trainer's own Python in a step, of a processor only: a GPU computes meanwhile
    blocking   = activations that devices of one model send each other, as an exchange that nothing hides
    exchange   = the slower of links and network, volumes as below: one in every micro-batch, one in every step
    exposed    = exchange^2 / (exchange + pass)      what cannot hide behind the pass, or behind its backward two thirds
    start-up   = s x phases x (1 + 0.2 x log n) of n instances: a job starts when its slowest instance is ready
                 + compiling, once in every process, where there is a compiler
    phases     = usual seconds of data, image, container start and upload, see `phases`

Every constant has a prior in logarithms: a data sheet or a usual value, and how far off that may be. Constants are
shared: a pass has one factor for each accelerator and precision, model, and cluster. So a measurement of one cluster
moves the prediction for its neighbours, and what was never measured keeps a wide interval (partial pooling: Gelman and
Hill, Data Analysis Using Regression and Multilevel Models, 2007, chapter 12). Clusters of several devices share a
factor, for what the physics leaves out, and each deviates from it by its own; so does each cluster's network. Code of
others has a factor, too, and an optimiser of its own. The fit is the maximum of the posterior (least squares, priors as
further residuals; published runs as in a t distribution, so that an odd one does not move all others); intervals come
from its curvature. Priors were chosen on benchmarks/tables, on Pollux on one to four nodes and on IBM's fms
(benchmarks/estimate_error_cold.py).

An all-gather or a reduce-scatter of B bytes over a ring of n devices sends (n - 1) / n x B through every link, an
all-reduce twice that (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009). With P weights, T of them trained,
and g bytes of a gathered weight or a sharded gradient, 2 in half precision and else 4:

    ddp, smddp   once a step: all-reduce of 4 T
    deepspeed    (ZeRO 2) in every micro-batch: reduce-scatter of g T; once a step: all-gather of g T
    fsdp, smp    in every micro-batch: all-gather of g P, frozen weights too, for the forward pass and again for the
                 backward pass, and reduce-scatter of 4 T; where copies of the shards remain, all-reduce of 4 T
                 between the copies
    zero 3       the same without copies, with a reduce-scatter of g T

Where t devices share the matrices of every layer, and s stages its layers, each has 1 / (t s) of P and T, and t such
rings share the connection of an instance. They also send each other activations, A bytes for one layer, for which the
next product has to wait:

    tensor       in every layer two all-reduces of A forward and two backward (Shoeybi et al., arXiv 1909.08053, section
                 3), and two more where the forward pass is made again
    pipeline     between neighbouring stages A forward and A backward; its shards are gathered once, and kept from the
                 forward to the backward pass
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from paretune.estimating.noise import SECONDS_NOISE_OF_OTHER_DATA, Z80
from paretune.estimating.phases import UPLOAD_RATE, Seconds, overhead_s, usual
from paretune.specification.parallelism import SHARDED, ZERO3, ParallelDegrees

# Name of a constant up to the colon: (median, standard deviation of its logarithm).
_PRIORS = {
    "utilisation": (0.5, 0.1),  # share of peak arithmetic that matrix products reach
    "chip": (1.0, 0.19),  # one accelerator in one precision against its data sheet
    "local": (1.8, 1.2),  # this machine, of which only the number of its processors is known
    "unlisted": (1.0, 0.8),  # a GPU without a data sheet here, against an A10G
    "model": (1.0, 0.18),  # one model and sequence length against its operation count
    "several": (0.95, 0.15),  # several devices against the physics: they wait for each other
    "processes": (0.8, 0.35),  # several processes of this machine: they share its processors and its memory
    "cluster": (1.0, 0.12),  # one instance type, count and strategy of several devices against the others
    "stream": (0.75, 0.15),  # share of memory bandwidth that a GPU reaches between the products
    "launch": (20e-6, 0.3),  # seconds; a host starts a kernel on a GPU
    "host": (1.0, 0.4),  # the hosts of one family of instances against the others
    "launch local": (23e-6, 0.4),  # seconds; an operator on a processor
    "update": (2.0, 0.8),  # optimiser, gradient norm and copies against the count of the optimiser alone
    "update local": (0.5, 0.1),  # a processor's memory is twice as fast as it is guessed here
    "loop": (0.002, 1.0),  # seconds; 0.0065 in steps of width 32 on a busy machine, beside 0.002 for each layer
    "link": (0.5, 0.45),  # share of its bandwidth that an exchange inside a machine, or by EFA, reaches
    "tcp": (0.35, 0.6),  # share of the most that one TCP flow carries, which an exchange reaches, up to the network
    "between": (1.0, 0.3),  # the network of one instance type and count against the others
    "stack": (1.0, 0.15),  # whose code trains, against the counts here
    "startup": (1.0, 0.6),  # SageMaker: seconds billed before the first step and after the last against `overhead_s`
    "startup local": (9.0, 0.7),  # a process on this machine: imports, model, warm-up
    "compiling": (60.0, 0.8),  # seconds, on an instance; a guess between the first and later ones here
    "compiling local": (40.0, 0.8),  # here, where kernels that were compiled before are kept
}
_ATTENTION = 1.3  # a FLOP of the attention matrices against one of the weights: softmax, masks, memory
_GROWTH = 0.2  # of start-up with the logarithm of instances: a job starts when its slowest instance is ready
_NOISE_WEIGHT = 6.0  # measurements that the noise before any measurement counts like
_STEP = 1e-4  # of a central difference; logarithms of constants vary over about 1
_NOISE_OF_LOCAL = 1.6  # times as large on this machine, which does other things as well
_T_DEGREES = 4.0  # of freedom: usual for robust fits (Lange et al., J. Am. Stat. Assoc. 84, 1989)
_OVERHEAD_NOISE = 0.25  # of start-up and evaluation together, taken from one job
_BYTES_OF_A_WEIGHT = 4.0  # as it is saved


class Volume(NamedTuple):
    """Bytes through one link between devices of an instance, and through the network connection of one instance."""

    link: float = 0.0
    network: float = 0.0


class Exchange(NamedTuple):
    """Volumes of one optimiser step: of each of its micro-batches, and once at its end.

    `blocking` is in every micro-batch, too. Arithmetic waits for it and overlaps with the others.
    """

    micro_batch: Volume = Volume()
    step: Volume = Volume()
    blocking: Volume = Volume()


@dataclass(frozen=True, kw_only=True)
class TimingFeatures:
    """One training on one cluster, in the numbers that its time depends on."""

    chip: str  # accelerator and precision; each has a constant of its own
    unlisted_gpu: str = ""  # name of a GPU whose figures are a guess
    model: str  # model, sequence length, kind of fine-tuning and compiler; likewise
    cluster: str  # instance type, count and strategy; likewise
    stack: str = "own"  # whose code trains; likewise
    kind: str = "any"  # kind of instance, by which public jobs tell the usual seconds of the phases around the training
    is_local: bool = False  # whether its start-up is that of a process, not of an instance
    is_compiled: bool = False  # whether it compiles its model before the first step
    instances: int
    devices: int  # devices of one instance that train
    peak_flops: float  # FLOP/s of one device; `memory_bytes_per_s` is of one device too
    memory_bytes_per_s: float
    network_bytes_per_s: float  # between instances; of one instance
    flow_bytes_per_s: float = 0.0  # most of one TCP flow, where instances exchange in few flows; 0 with EFA
    link_bytes_per_s: float  # between devices of one instance; `link` is its kind: nvlink, pcie or gloo
    link: str = "gloo"
    rows: float  # rows of one device and micro-batch
    accumulation: int  # micro-batches of one optimiser step
    steps: float  # optimiser steps
    flops_per_row: float  # forward and backward; `attention_share` of it is for attention matrices
    moved_per_row: float = 0.0  # bytes of activations, forward and backward
    read: float = 0.0  # bytes of weights that a device moves in a micro-batch
    kernels: float = 0.0  # launched in a micro-batch, one after the other
    host: str = ""  # family of instances; a GPU's kernels are launched by its host while earlier ones compute
    bubble: float = 0.0  # of a pipeline, time in which a device waits for other stages over that in which it works
    evaluated_flops: float  # of all evaluations together
    updated: float  # bytes that one device moves to update its weights in a step, in so many kernels
    update_kernels: float = 0.0
    optimiser: str = "adamw"  # each has a constant of its own
    parameters: float  # weights that are saved at the end
    exchange: Exchange = field(default_factory=Exchange)  # bytes that devices send each other
    attention_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Measured seconds of a job: all billable seconds, those of a step, or both.

    With `step_seconds`, `seconds` is used only for the time around the steps.
    """

    setting: TimingFeatures
    seconds: float | None = None
    step_seconds: float | None = None
    origin: str = "measured"  # or published, simulated


@dataclass(frozen=True, kw_only=True)
class Prediction(Seconds):
    """Billable seconds of a job; those of steps are 0 for a training of the user's own."""

    startup_seconds: float = 0.0  # the time around the steps, evaluation included
    step_seconds: float = 0.0
    steps: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each of `PARTS`, which sum to those of the job; empty for a training of the user's own."""
    startup_factor: float = 1.0  # start-up of such jobs, as measured so far, against the usual one of public jobs
    uploaded_bytes: float = 0.0  # of the model


class TimeModel:
    """Predicts seconds with constants fitted to `measurements`; constants without a measurement have their prior.

    The noise of a measurement settles together with the constants; one that is fixed by a single measurement absorbs
    its deviation (MacKay, Neural Computation 4, 1992: the effective number of parameters).
    """

    def __init__(self, measurements: Sequence[Measurement] = ()) -> None:
        used = [item for item in measurements if item.seconds or item.step_seconds]
        names = dict.fromkeys(name for item in used for name in _constants(item.setting).values() if name)
        self._indices = {name: index for index, name in enumerate(names)}
        self._mean, deviations = _prior(names)
        self._covariance, self._noise = np.diag(deviations**2), SECONDS_NOISE_OF_OTHER_DATA
        if not names:
            return
        from scipy.optimize import least_squares  # takes a third of a second, which a launch without evidence saves

        medians, seconds = self._mean, _seconds([item.setting for item in used], self._indices)
        kind, index, measured, scatter, is_foreign = map(np.array, zip(*_observed(used), strict=True))
        is_around = kind == _AROUND

        def misfits(theta: np.ndarray) -> np.ndarray:
            return np.asarray((np.log(seconds(theta)[kind, index]) - np.log(measured)) / scatter)

        def residuals(theta: np.ndarray) -> np.ndarray:
            scaled = misfits(theta) / np.where(is_around, 1.0, self._noise)
            return np.concatenate([np.where(is_foreign, _robust(scaled), scaled), (theta - medians) / deviations])

        for _ in range(3):
            self._mean = least_squares(residuals, self._mean, x_scale=deviations).x
            slopes = _gradient(residuals, self._mean)
            self._covariance = np.linalg.inv(slopes.T @ slopes)
            fitted = len(names) - float(np.sum(np.diag(self._covariance) / deviations**2))
            left = misfits(self._mean)[~is_around]
            squares = _NOISE_WEIGHT * SECONDS_NOISE_OF_OTHER_DATA**2 + float(left @ left)
            self._noise = math.sqrt(squares / (_NOISE_WEIGHT + max(0.0, len(left) - fitted)))

    def predict(self, settings: Sequence[TimingFeatures]) -> list[Prediction]:
        """One prediction per setting."""
        if not settings:
            return []
        names = dict.fromkeys(name for setting in settings for name in _constants(setting).values() if name)
        fresh = [name for name in names if name not in self._indices]
        medians, deviations = _prior(fresh)
        mean = np.concatenate([self._mean, medians])
        covariance = np.diag(np.concatenate([np.zeros_like(self._mean), deviations**2]))
        covariance[: len(self._mean), : len(self._mean)] = self._covariance
        seconds = _seconds(settings, {name: index for index, name in enumerate([*self._indices, *fresh])})
        slopes = _gradient(lambda at: np.log(seconds(at)[_TOTAL]), mean)
        noise = self._noise * np.array([_noisier(setting) for setting in settings])
        deviations = Z80 * np.sqrt(np.einsum("nk,kl,nl->n", slopes, covariance, slopes) + noise**2)
        return [
            Prediction(
                seconds=total,
                seconds_low=total / width,
                seconds_high=total * width,
                startup_seconds=around,
                step_seconds=step,
                steps=round(setting.steps),
                parts=dict(zip(PARTS, parts, strict=True)),
                startup_factor=startup,
                uploaded_bytes=_BYTES_OF_A_WEIGHT * setting.parameters,
            )
            for setting, width, (step, around, total, startup, *parts) in zip(
                settings, np.exp(deviations).tolist(), seconds(mean).T.tolist(), strict=True
            )
        ]


def _prior(names: Collection[str]) -> tuple[np.ndarray, np.ndarray]:
    """Medians of the logarithms of constants, and their deviations."""
    pairs = [_PRIORS[name.partition(":")[0]] for name in names]
    medians, deviations = np.array(pairs, dtype=float).reshape(-1, 2).T
    return np.log(medians), deviations


def _gradient(function: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """The derivatives of M values of `function` by K logarithms, by central differences."""
    steps = np.eye(len(at)) * _STEP
    return np.stack([(function(at + step) - function(at - step)) / (2 * _STEP) for step in steps], axis=1)


def _constants(setting: TimingFeatures) -> dict[str, str]:
    """The constant for each role in the time of a job, or an empty text if the job has none for it."""
    is_alone = setting.instances * setting.devices == 1
    kind = "unlisted" if setting.unlisted_gpu else "chip" if setting.host or not setting.is_local else "local"
    return {
        "utilisation": "utilisation",
        "chip": f"{kind}:{setting.chip}",
        "model": f"model:{setting.model}",
        "several": "" if is_alone else "processes" if setting.is_local else "several",
        "cluster": "" if is_alone else f"cluster:{setting.cluster}",
        "stream": "stream" if setting.host else "",
        "launch": "launch" if setting.host else "launch local",
        "host": f"host:{setting.host}" if setting.host else "",
        "update": f"update:{setting.stack} {setting.optimiser}" if setting.host else "update local",
        "loop": "loop" if setting.is_local else "",
        "link": f"link:{setting.link}",
        "stack": f"stack:{setting.stack}",
        "network": "" if setting.instances == 1 else "tcp" if setting.flow_bytes_per_s else "link:efa",
        "between": "" if setting.instances == 1 else f"between:{setting.cluster}",
        "startup": "startup local" if setting.is_local else "startup",
        "compiling": "" if not setting.is_compiled else "compiling local" if setting.is_local else "compiling",
    }


_STEP_SECONDS, _AROUND, _TOTAL = range(3)
PARTS = ("compute", "memory", "launches", "exchange", "evaluation", "start", "upload")
"""What the seconds of a job go to: matrix products; traffic of memory, the optimiser's included; what launches and the
loop of the training add to both; what exchanges and waiting for other devices add; evaluations; everything before the
first step; and the upload of what the job leaves."""


def _observed(measurements: Sequence[Measurement]) -> Iterator[tuple[int, int, float, float, bool]]:
    """Yield what was measured, index of the setting, seconds, their scatter, and whether an odd run moves it little.

    The scatter is a multiple of the noise of a job on SageMaker, but that of the time around steps is what it is.
    """
    for index, item in enumerate(measurements):
        noisier, is_foreign = _noisier(item.setting), item.origin == "published"
        if not item.step_seconds:
            yield _TOTAL, index, item.seconds or math.nan, noisier, is_foreign
            continue
        yield _STEP_SECONDS, index, item.step_seconds, noisier, is_foreign
        if (around := (item.seconds or 0.0) - item.setting.steps * item.step_seconds) > 0:
            yield _AROUND, index, around, _OVERHEAD_NOISE, False


def _noisier(setting: TimingFeatures) -> float:
    return _NOISE_OF_LOCAL if setting.is_local else 1.0


def _robust(residuals: np.ndarray) -> np.ndarray:
    """Residuals whose squares grow as in a t distribution: an odd run of others does not move all constants."""
    return np.asarray(np.sign(residuals) * np.sqrt(_T_DEGREES * np.log1p(residuals**2 / _T_DEGREES)))


def _seconds(settings: Sequence[TimingFeatures], indices: Mapping[str, int]) -> Callable[[np.ndarray], np.ndarray]:
    """The function from logarithms of K constants, which have these indices, to 11 x N numbers of N settings.

    These are the seconds of a step, around the steps, and in all, the factor of start-up, and the seconds of `PARTS`.
    """

    @cache
    def column(name: str) -> np.ndarray:
        return np.array([getattr(setting, name) for setting in settings], dtype=float)

    roles = [_constants(setting) for setting in settings]
    places = np.array([[indices.get(name, len(indices)) for name in each.values()] for each in roles], dtype=int).T
    is_local, is_compiled = (column(name) > 0 for name in ("is_local", "is_compiled"))
    is_ahead = np.array([bool(setting.host) for setting in settings])
    # Seconds at the figures of data sheets.
    dearer = 1 + (_ATTENTION - 1) * column("attention_share")
    memory, instances, peak = column("memory_bytes_per_s"), column("instances"), column("peak_flops")
    products, moved = column("flops_per_row") / peak * dearer, column("moved_per_row") / memory
    whole_evaluation = column("evaluated_flops") / peak / (instances * column("devices")) * dearer
    read, updated = column("read") / memory, column("updated") / memory
    # 3 x N each: of a micro-batch, of a step, and of what the arithmetic of a micro-batch waits for
    link, network = np.array([item.exchange for item in settings]).T
    link, limit, flow = link / column("link_bytes_per_s"), column("network_bytes_per_s"), column("flow_bytes_per_s")
    upload = np.where(is_local, 0.0, _BYTES_OF_A_WEIGHT / UPLOAD_RATE * column("parameters"))
    overhead = np.array([1.0 if item.is_local else overhead_s(item.kind) for item in settings])
    overhead *= 1 + _GROWTH * np.log(instances)
    ending = np.array([0.0 if item.is_local else usual("uploading", item.kind).seconds for item in settings])

    def seconds(theta: np.ndarray) -> np.ndarray:
        constant = dict(zip(roles[0], np.exp(np.append(theta, 0.0)[places]), strict=True))
        speed = math.prod(constant[name] for name in ("chip", "model", "stack", "several", "cluster"))
        launch = constant["launch"] * constant["host"]
        computing = column("rows") * products / (constant["utilisation"] * speed)
        traffic = (column("rows") * moved + read) / (constant["stream"] * speed)
        whole = computing + traffic
        rate = np.where(flow > 0, np.minimum(flow * constant["network"], limit), limit * constant["network"])
        exchange = np.maximum(link / constant["link"], network / (rate * constant["between"]))
        launching = column("kernels") * launch
        busy = np.where(is_ahead, _longer(whole, launching), whole + launching)
        waiting = column("bubble") * busy + (1 + column("bubble")) * exchange[2] + _exposed(exchange[0], whole)
        in_memory, in_kernels = updated / constant["stream"], column("update_kernels") * launch
        times = column("accumulation")
        of_step = {
            "compute": times * computing,
            "memory": times * traffic + constant["update"] * in_memory,
            "launches": times * (busy - whole) + constant["update"] * in_kernels + is_local * constant["loop"],
            "exchange": times * waiting + _exposed(exchange[1], 2 / 3 * busy),
        }
        step = sum(of_step.values())
        compiling = np.where(is_compiled, constant["compiling"], 0.0)
        evaluation = whole_evaluation / (constant["utilisation"] * speed)
        around = constant["startup"] * overhead + compiling + evaluation + upload
        end = constant["startup"] * ending + upload
        parts = [
            *(column("steps") * seconds for seconds in of_step.values()),
            evaluation,
            around - evaluation - end,
            end,
        ]
        return np.stack([step, around, around + column("steps") * step, constant["startup"], *parts])

    return seconds


def _longer(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The longer of two times that overlap; where they are alike, a little more."""
    return np.asarray((first**3 + second**3) ** (1 / 3))


def _exposed(exchange: np.ndarray, hidden_by: np.ndarray) -> np.ndarray:
    """The seconds of an exchange that do not hide behind this many seconds of arithmetic."""
    return np.asarray(exchange**2 / (exchange + hidden_by + 1e-12))


def exchange_of(
    strategy: str,
    degrees: ParallelDegrees,
    *,
    half: bool,
    trained: float,
    parameters: float,
    layers: int = 0,
    activations: float = 0.0,
    recomputes: bool = False,
) -> Exchange:
    """The exchange of devices with these parallel degrees.

    `half` is whether weights are multiplied in bf16 or fp16; `trained` and `parameters` are numbers of weights,
    `activations` of what one layer passes to the next in a micro-batch: rows x tokens x hidden size.
    """
    tensor, stages, each = degrees.tensor, degrees.pipeline, degrees.per_instance
    of_stage = degrees.devices // stages
    instances, devices = math.ceil(of_stage / each), max(1, min(each, of_stage) // tensor)
    short = 2.0 if half else 4.0
    trained, parameters = trained / (tensor * stages), parameters / (tensor * stages)
    everywhere = _ring(instances * devices, devices)
    link, network = np.eye(2)
    micro_batch = step = np.zeros(2)
    if strategy == "deepspeed":
        micro_batch = step = short * trained * everywhere
    elif strategy not in SHARDED:
        step = 8.0 * trained * everywhere
    else:
        gathers = 1 if stages > 1 else 2  # a pipeline keeps what it has gathered for the backward pass
        scattered = (short if strategy == ZERO3 else 4.0) * trained
        micro_batch = (gathers * short * parameters + scattered) * _ring(degrees.sharers, devices)
        copies = instances * devices // degrees.sharers
        if copies > 1:
            # Of shards between instances, even where some copies are in one.
            micro_batch = micro_batch + 8.0 * trained * (copies - 1) / copies * devices / degrees.sharers * network
    sent = short * activations
    times = (6 if recomputes else 4) * layers / stages
    blocking = times * 2 * (tensor - 1) / tensor * sent * link
    if stages > 1:
        # A stage in the middle sends activations on and gradients back.
        blocking = blocking + 2 * sent * (each * network if of_stage >= each else link)
    # `tensor` rings at a time, each over its own links, all over one network connection.
    rings = link + tensor * network
    return Exchange(*(Volume(*volume.tolist()) for volume in (micro_batch * rings, step * rings, blocking)))


def _ring(members: int, devices: int) -> np.ndarray:
    """The shares of a byte in an all-gather over `members` devices, on as few instances as hold them."""
    within, across = min(members, devices), math.ceil(members / devices)
    return np.array([(within - 1) / within, (across - 1) / across])
