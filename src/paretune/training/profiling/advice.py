"""Parameters to change in a job, each with the figure of its profile that suggests it.

The limits say from which figure on an advice is worth trying; they were chosen, not fitted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from paretune.core.commands import options
from paretune.specification.batch_size import Batch
from paretune.specification.job import JobSpec
from paretune.training.profiling.trace import CASTS, PRODUCTS, StepTime

WAITING_FOR_DATA = 5.0
"""Per cent of the step spent waiting for data from which on worker processes may pay."""
IDLE = 20.0
SMALL_OPERATOR_US = 50.0
"""Mean microseconds of an operator below which the code around it takes a similar time."""
COMMUNICATING = 15.0
UPDATING = 20.0
CASTING = 10.0
MULTIPLYING = 30.0


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Parameters to try, as a user types them, with the measured figure and the reason why they change it."""

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
    """The settings of a job that advice depends on.

    Attributes:
        batch: rows per device and micro-batch, as the job ran; `accumulation` micro-batches per step.
        precision: the number format of the training.
        has_bf16: whether the device multiplies bf16 natively.
        processes: processes of the whole job.
    """

    spec: JobSpec
    batch: int
    accumulation: int
    precision: str
    has_bf16: bool
    processes: int


def advice_of(time: StepTime, job: Circumstances) -> list[Advice]:
    """Parameters to try, the largest expected gain first; empty if no figure exceeds its limit."""
    percent = time.percent()
    ranked: list[tuple[float, Advice]] = []

    def add(gain: float, figure: str, reason: str, parameters: Mapping[str, str]) -> None:
        ranked.append((gain, Advice(figure=figure, reason=reason, parameters=parameters)))

    if (share := percent["data"]) >= WAITING_FOR_DATA:
        workers = int(job.spec.training_arguments.get("dataloader_num_workers", 0))
        arguments = {**job.spec.training_arguments, "dataloader_num_workers": 2 * workers or 2}
        reason = f"more processes make batches beside the training, now {workers}"
        add(share, f"data {share:g} % of the step", reason, {"training_arguments": json.dumps(arguments)})
    share = time.kind_percent(PRODUCTS)
    if job.precision == "fp32" and job.has_bf16 and share >= MULTIPLYING:
        figure = f"matrix products in fp32 {share:.1f} % of the step"
        add(share, figure, "this device multiplies bf16 faster", {"precision": "bf16"})
    share = time.kind_percent(CASTS)
    if job.precision != "fp32" and share >= CASTING:
        reason = f"weights are cast to {job.precision} for every micro-batch, whatever its rows"
        add(share, f"casts and copies {share:.1f} % of the step", reason, _larger_batch(job))
    calls = sum(operator.calls for operator in time.operators)
    if (share := percent["idle"]) >= IDLE and calls:
        mean_us = sum(operator.self_ns for operator in time.operators) / calls / 1000
        figure = f"idle {share:g} % of the step, {calls / time.steps:,.0f} operators per step of {mean_us:,.0f} us each"
        add(share, figure, "more rows per operator", _larger_batch(job))
        if mean_us < SMALL_OPERATOR_US and job.spec.compiler == "none" and job.spec.strategy in {"ddp", "smddp"}:
            reason = "compiled, small operators become fewer larger ones; compiling takes minutes, so for long jobs"
            add(share / 2, figure, reason, {"compiler": "inductor"})
    more_accumulation = {"gradient_accumulation_steps": str(2 * job.accumulation)} | _doubled_global_batch(job.spec)
    if (share := percent["communication"]) >= COMMUNICATING and job.processes > 1:
        figure = f"communication that no compute hides {share:g} % of the step"
        if job.spec.strategy == "fsdp" and job.spec.data_parallel_devices == job.processes:  # only rows are divided
            reason = "where a device holds the whole model, only gradients are exchanged, once per step"
            add(share, figure, reason, {"strategy": "ddp"})
        add(share / 2, figure, "fewer exchanges per row; the global batch size doubles", more_accumulation)
    if (share := percent["optimiser"]) >= UPDATING:
        reason = "fewer updates per row; the global batch size doubles"
        add(share, f"optimiser {share:g} % of the step", reason, more_accumulation)
    return [advice for _, advice in sorted(ranked, key=lambda entry: -entry[0])]


def _larger_batch(job: Circumstances) -> dict[str, str]:
    """Twice the rows per micro-batch, with the same global batch size if fewer micro-batches are possible."""
    doubled = {"per_device_train_batch_size": str(2 * job.batch)}
    if job.accumulation % 2 == 0:
        return doubled | {"gradient_accumulation_steps": str(job.accumulation // 2)}
    return doubled | _doubled_global_batch(job.spec)


def _doubled_global_batch(spec: Batch) -> dict[str, str]:
    """Twice the global batch size if one is set, because it contradicts the other sizes."""
    return {} if spec.global_batch_size is None else {"global_batch_size": str(2 * spec.global_batch_size)}
