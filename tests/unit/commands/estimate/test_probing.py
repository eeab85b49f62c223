"""Short jobs on clusters that were never measured: which, and within what they may cost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from paretune.commands.estimate.probing import PROBE_STEPS, probe_of, probes, run_probes
from paretune.core.errors import BudgetRefused
from paretune.estimating.architecture import well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec

PRICE = Price(usd_per_hour=6.0, region="us-east-1", as_of="2026-11-20", source="test")  # ten minutes are 1 USD


def estimate(price: Price | None = PRICE, measured_here: int = 0, **changes: Any) -> Estimate:
    spec = JobSpec(**{"model": "distilbert-base-uncased", "instance_type": "ml.g5.xlarge", **changes})
    built = well_known(spec.model)
    assert built is not None
    estimated = Estimator(Evidence()).estimate(spec, built, price)
    assert estimated is not None
    fast = replace(estimated.time, startup_seconds=100.0, step_seconds=0.1)
    return replace(estimated, measured_here=measured_here, time=fast)


class Jobs:
    """What was run, what was said, and the dollars of each job."""

    def __init__(self, *usd: float | None) -> None:
        self.ran: list[JobSpec] = []
        self.said: list[str] = []
        self._usd = list(usd)

    def run(self, chosen: Sequence[Estimate], limit: float | None) -> int:
        limited = [replace(item, spec=item.spec.replace(max_cost_usd=limit)) for item in chosen]
        return run_probes(limited, lambda _: 0.0, self._run, self.said.append)

    def _run(self, spec: JobSpec) -> float | None:
        self.ran.append(spec)
        return self._usd[len(self.ran) - 1]


def test_each_unmeasured_cluster_is_probed_once_with_the_smallest_batch() -> None:
    table = [estimate(per_device_train_batch_size=batch, instance_count=count) for batch in (32, 8) for count in (1, 2)]
    chosen = probes(table)

    assert [(item.plan.per_device_train_batch_size, item.spec.instance_count) for item in chosen] == [(8, 1), (8, 2)]


def test_what_was_measured_or_does_not_fit_is_not_probed() -> None:
    full = {"per_device_train_batch_size": 8192, "max_seq_length": 512, "dataset": "a/b", "max_train_samples": 9000}

    assert probes([estimate(measured_here=1), estimate(**full)]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"max_seq_length": 64},
        {"fine_tuning": "head"},
        {"precision": "fp32"},
        {"training_arguments.torch_compile": True},
    ],
)
def test_what_a_measurement_would_say_nothing_about_is_probed_too(changes: dict[str, Any]) -> None:
    assert len(probes([estimate(), estimate(**changes)])) == 2


def test_a_probe_is_short_on_demand_and_limited() -> None:
    item = estimate(
        spot=True,
        max_cost_usd=5.0,
        fallback_instance_types="ml.g5.2xlarge",
        num_train_epochs=9.0,
    )
    spec = probe_of(item)

    assert (spec.probe_steps, spec.spot, spec.max_cost_usd) == (PROBE_STEPS, False, None)
    assert spec.fallback_instance_types == ()
    assert spec.max_runtime_minutes == 10  # four times 104 seconds is less


def test_a_slow_probe_gets_four_times_what_is_predicted_but_no_more_than_the_job() -> None:
    slow = replace(estimate().time, startup_seconds=300.0, step_seconds=7.5)

    assert probe_of(replace(estimate(), time=slow)).max_runtime_minutes == 40  # 4 x (300 + 40 x 7.5) s
    assert probe_of(replace(estimate(max_runtime_minutes=15.0), time=slow)).max_runtime_minutes == 15


def test_probes_run_one_after_the_other_until_the_next_worst_case_does_not_fit() -> None:
    jobs = Jobs(0.5, 0.5, 0.5)

    assert jobs.run([estimate(), estimate(precision="fp32"), estimate(precision="fp16")], 1.9) == 2
    assert [spec.precision for spec in jobs.ran] == ["auto", "fp32"]  # 0.5 + 0.5 + 1 > 1.9
    assert jobs.said[-1].startswith("no probe of 1 x ml.g5.xlarge: worst case 1 USD")


def test_a_probe_of_unknown_dollars_is_booked_at_its_worst_case_and_one_that_cost_nothing_at_nothing() -> None:
    unknown, free = Jobs(None, None), Jobs(0.0, 0.0)
    two = [estimate(), estimate(precision="fp32")]

    assert unknown.run(two, 1.9) == 1
    assert free.run(two, 1.9) == 2


def test_a_cluster_that_is_too_dear_is_left_out_and_the_others_are_probed() -> None:
    jobs = Jobs(0.1)

    assert jobs.run([estimate(instance_count=4), estimate()], 1.5) == 1
    assert [spec.instance_count for spec in jobs.ran] == [1]


def test_when_not_even_the_cheapest_fits_nothing_runs() -> None:
    jobs = Jobs()

    with pytest.raises(BudgetRefused, match=r"worst case .* must be at most max_cost_usd, 0\.5"):
        jobs.run([estimate(instance_count=4), estimate()], 0.5)
    assert jobs.ran == []


def test_a_cluster_of_unknown_price_is_not_probed() -> None:
    jobs = Jobs(0.1)

    assert jobs.run([estimate(), estimate(price=None, instance_type="ml.p4d.24xlarge")], 100.0) == 1
    assert "price of ml.p4d.24xlarge is not known" in jobs.said[-1]


def test_only_jobs_that_are_billed_need_a_limit() -> None:
    assert Jobs(None).run([estimate(instance_type="local")], None) == 1
    assert Jobs(None).run([estimate(launcher="simulated")], None) == 1
    jobs = Jobs()

    with pytest.raises(BudgetRefused, match="set max_cost_usd"):
        jobs.run([estimate(instance_type="local"), estimate()], None)
    assert jobs.ran == []
