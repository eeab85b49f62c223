"""Short jobs on clusters that were never measured.

Some dozens of steps show what a step takes and holds, and what it takes to start. A probe is an ordinary job with
`probe_steps`; its run is evidence like any other.
"""

import math
from collections.abc import Callable, Sequence

from paretune.core.errors import BudgetRefused
from paretune.estimating.estimator import Estimate
from paretune.estimating.workload import PROBE_STEPS
from paretune.pricing.budget import admit
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell

_SHORTEST_MINUTES = 10.0  # of a probe's limit: start-up takes minutes
_PATIENCE = 4.0  # times the predicted duration
_MEASURED_APART = (
    *("instance_type", "instance_count", "strategy", "model", "fine_tuning", "precision", "training_arguments"),
    "max_seq_length",
)


def probes(estimates: Sequence[Estimate]) -> list[Estimate]:
    """One estimate for each cluster and model that was never measured: that of the smallest batch that may fit."""
    chosen: dict[tuple[str, ...], Estimate] = {}
    for item in sorted(estimates, key=lambda item: item.plan.per_device_train_batch_size):
        key = tuple(spell(getattr(item.spec, name)) for name in _MEASURED_APART)
        if item.fits != "no" and not item.measured_here:
            chosen.setdefault(key, item)
    return list(chosen.values())


def probe_of(item: Estimate) -> JobSpec:
    """The job that probes what `item` predicts, with a limit of its own."""
    seconds = item.time.startup_seconds + PROBE_STEPS * item.time.step_seconds
    minutes = max(_SHORTEST_MINUTES, math.ceil(_PATIENCE * seconds / 60))
    return item.spec.replace(
        probe_steps=PROBE_STEPS,
        register=None,
        max_runtime_minutes=float(min(minutes, item.spec.max_runtime_minutes)),
        max_cost_usd=None,
        fallback_instance_types=None,
        keep_alive_minutes=0.0,
        spot=False,
    )


def run_probes(
    chosen: Sequence[Estimate],
    billed_after_limit_s: Callable[[JobSpec], float],
    run: Callable[[JobSpec], float | None],
    say: Callable[[str], None],
) -> int:
    """Run what fits max_cost_usd of the first job, one after the other; how many ran.

    The limit is for all of them together; there need be none for jobs that nobody bills. Each may be billed
    `billed_after_limit_s(spec)` seconds beyond its maximum runtime. `run` gives a job's dollars, None when not known;
    `say` is told what is left out, and why.

    Raises:
        BudgetRefused: probes would be billed and there is no limit, or none of them fits; nothing has run.
    """
    limit_usd = chosen[0].spec.max_cost_usd
    if limit_usd is None and any(item.spec.on_sagemaker for item in chosen):
        raise BudgetRefused("probe=true pays for short jobs: set max_cost_usd to what all of them may cost together")
    spent, done, refusals = 0.0, 0, list[BudgetRefused]()
    for item in chosen:
        spec = probe_of(item)
        left_usd = None if limit_usd is None else max(0.0, limit_usd - spent)
        cluster = f"{spec.instance_count} x {spec.instance_type}"
        try:
            worst_usd = admit(spec.replace(max_cost_usd=left_usd), item.price, billed_after_limit_s(spec))
        except BudgetRefused as error:
            refusals.append(error)
            say(f"no probe of {cluster}: {error}")
            continue
        say(f"probe of {cluster}: {PROBE_STEPS} steps, at most {spec.max_runtime_minutes:g} minutes")
        usd = run(spec)
        spent += (worst_usd or 0.0) if usd is None else usd
        done += 1
    if refusals and not done:
        raise refusals[0]
    return done
