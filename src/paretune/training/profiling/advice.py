"""What to change in a job, by the figures of its profile: each advice with its figure and the parameter to set.

The limits say from where on an advice is worth a job to try it; they were chosen, not fitted.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paretune.core.commands import options
from paretune.specification.batch_size import Batch
from paretune.specification.fine_tuning import FineTuning
from paretune.specification.job import JobSpec
from paretune.training.profiling.trace import CASTS, PRODUCTS, StepTime

WAITING_FOR_DATA = 5.0
"""Per cent of the step in data from which on workers may pay."""
IDLE = 20.0
SMALL_OPERATOR_US = 50.0
"""Mean microseconds in an operator below which what surrounds it takes a similar time."""
COMMUNICATING = 15.0
UPDATING = 20.0
CASTING = 10.0
MULTIPLYING = 30.0


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A parameter to try, and why.

    Attributes:
        figure: what was measured, in words.
        reason: why the parameter changes it.
        parameters: name to text, as they are typed.
    """

    figure: str
    reason: str
    parameters: Mapping[str, str]

    @property
    def typed(self) -> str:
        """The parameters as they are added to a command."""
        return options(**self.parameters)

    def sentence(self) -> str:
        """Figure, reason and parameters."""
        return f"{self.figure}: {self.reason}: {self.typed}"


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What an advice depends on beside the times.

    Attributes:
        batch: rows per device and micro-batch, as the job ran; `accumulation` micro-batches per step.
        precision: that it trained in.
        has_bf16: whether the device multiplies bf16 natively.
        processes: of the whole job.
    """

    spec: JobSpec
    batch: int
    accumulation: int
    precision: str
    has_bf16: bool
    processes: int


def advice_of(time: StepTime, job: Circumstances) -> list[Advice]:
    """What to try, what promises most first; empty where no figure asks for anything."""
    percent = time.percent()
    found = [*_of_data(percent, job), *_of_products(time, job), *_of_casts(time, job), *_of_idleness(time, job)]
    found += [*_of_communication(percent, job), *_of_updates(percent, job)]
    return [advice for _, advice in sorted(found, key=lambda entry: -entry[0])]


def _of_data(percent: Mapping[str, float], job: Circumstances) -> Iterator[tuple[float, Advice]]:
    if percent["data"] < WAITING_FOR_DATA:
        return
    workers = int(job.spec.training_arguments.get("dataloader_num_workers", 0))
    yield (
        percent["data"],
        Advice(
            figure=f"data {percent['data']:g} % of the step",
            reason=f"more processes make batches beside the training, now {workers}",
            parameters={"training_arguments": _arguments(job.spec, dataloader_num_workers=2 * workers or 2)},
        ),
    )


def _of_products(time: StepTime, job: Circumstances) -> Iterator[tuple[float, Advice]]:
    share = time.kind_percent(PRODUCTS)
    if job.precision == "fp32" and job.has_bf16 and share >= MULTIPLYING:
        yield (
            share,
            Advice(
                figure=f"matrix products in fp32 {share:.1f} % of the step",
                reason="this device multiplies bf16 faster",
                parameters={"precision": "bf16"},
            ),
        )


def _of_casts(time: StepTime, job: Circumstances) -> Iterator[tuple[float, Advice]]:
    share = time.kind_percent(CASTS)
    if job.precision != "fp32" and share >= CASTING:
        yield (
            share,
            Advice(
                figure=f"casts and copies {share:.1f} % of the step",
                reason=f"weights are cast to {job.precision} for every micro-batch, whatever its rows",
                parameters=_larger_batch(job),
            ),
        )


def _of_idleness(time: StepTime, job: Circumstances) -> Iterator[tuple[float, Advice]]:
    idle = time.percent()["idle"]
    calls = sum(operator.calls for operator in time.operators)
    if idle < IDLE or not calls:
        return
    each_us = sum(operator.self_ns for operator in time.operators) / calls / 1000
    figure = f"idle {idle:g} % of the step, {calls / time.steps:,.0f} operators per step of {each_us:,.0f} us each"
    yield idle, Advice(figure=figure, reason="more rows per operator", parameters=_larger_batch(job))
    may_compile = job.spec.compiler == "none" and job.spec.strategy in {"ddp", "smddp"}
    if each_us < SMALL_OPERATOR_US and may_compile:
        reason = "compiled, small operators become fewer larger ones; compiling takes minutes, so for long jobs"
        yield idle / 2, Advice(figure=figure, reason=reason, parameters={"compiler": "inductor"})


def _of_communication(percent: Mapping[str, float], job: Circumstances) -> Iterator[tuple[float, Advice]]:
    share = percent["communication"]
    if share < COMMUNICATING or job.processes < 2:
        return
    figure = f"communication that no compute hides {share:g} % of the step"
    if job.spec.strategy == "fsdp" and job.spec.data_parallel_devices == job.processes:  # rows alone are divided
        yield (
            share,
            Advice(
                figure=figure,
                reason="where a device holds the whole model, only gradients are exchanged, once per step",
                parameters={"strategy": "ddp"},
            ),
        )
    more = {"gradient_accumulation_steps": str(2 * job.accumulation)}
    yield (
        share / 2,
        Advice(
            figure=figure,
            reason="fewer exchanges per row; the global batch size doubles",
            parameters=more | _no_global_batch(job.spec),
        ),
    )


def _of_updates(percent: Mapping[str, float], job: Circumstances) -> Iterator[tuple[float, Advice]]:
    if percent["optimiser"] < UPDATING:
        return
    yield (
        percent["optimiser"],
        Advice(
            figure=f"optimiser {percent['optimiser']:g} % of the step",
            reason="fewer updates per row; the global batch size doubles",
            parameters={"gradient_accumulation_steps": str(2 * job.accumulation)} | _no_global_batch(job.spec),
        ),
    )


def _larger_batch(job: Circumstances) -> dict[str, str]:
    """Twice the rows per micro-batch, with the same global batch size where micro-batches can be saved."""
    doubled = {"per_device_train_batch_size": str(2 * job.batch)}
    if job.accumulation % 2 == 0:
        return doubled | {"gradient_accumulation_steps": str(job.accumulation // 2)}
    return doubled | _no_global_batch(job.spec)


def _no_global_batch(spec: Batch) -> dict[str, str]:
    """An empty global batch size where one is set, so that it follows from the others."""
    return {} if spec.global_batch_size is None else {"global_batch_size": ""}


def _arguments(spec: FineTuning, **more: object) -> str:
    return json.dumps({**spec.training_arguments, **more})
