"""The command `estimate`: how long, how much and whether it fits, before anything is paid for."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from paretune.cli.output import estimate_table
from paretune.cli.output.terminal import ProgressPrinter
from paretune.cli.requests.estimate_request import EstimateRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, JobFailed
from paretune.estimating.estimates import Estimate, Estimator, architecture_of
from paretune.estimating.evidence import collect
from paretune.estimating.hardware import machine_name
from paretune.estimating.workload import BUNDLED_ROWS
from paretune.jobs.launch import launch
from paretune.jobs.preparation import load_cached_inputs
from paretune.jobs.probing import probes, require_limit, run_probes
from paretune.jobs.workplace import Workplaces
from paretune.pricing.prices import PriceList, price_remarks, usual_price
from paretune.spec.cluster import Cluster
from paretune.spec.job import BUNDLED, JobSpec
from paretune.spec.parameters import COMPUTES, affecting
from paretune.spec.regions import usual_region
from paretune.tracking import RunStatus, Tracking, schema

# What decides which rows a job gets, and how they are prepared.
_OF_THE_DATA = affecting(JobSpec, "data")
# What a preparation for this machine had in common with one for a cluster.
_OF_ANY_MACHINE = {*affecting(JobSpec, "data", "quality", "seconds", "memory", without=("batch",))} - {
    *affecting(Cluster, *COMPUTES)
}


def run(asked: EstimateRequest) -> int:
    """Print the table, record it, and probe what was never measured if asked to."""
    workplaces = Workplaces.of_process()
    environment, home = workplaces.environment, workplaces.home
    prices = PriceList.read(environment)
    region = usual_region(asked.specs[0].region, environment)
    built = {
        spec.model: architecture_of(spec.model, spec.task, environment)
        for spec in {spec.model: spec for spec in asked.specs}.values()
    }
    facts = _facts(asked.specs, home)
    _refuse_unknown_data(asked, facts)
    tracking = Tracking(environment, SystemClock())

    def table() -> list[Estimate]:
        estimator = Estimator(collect(tracking, simulated=asked.specs[0].is_simulated, machine=machine_name()))
        found = [
            estimator.estimate(spec, built[spec.model], usual_price(spec, prices, environment), facts=known)
            for spec, known in zip(asked.specs, facts, strict=True)
        ]
        return [item for item in found if item is not None]

    estimates = table()
    if asked.probe:
        chosen = probes(estimates)
        limit = require_limit(chosen) if chosen else None
        own = workplaces.without_opened_run()
        if run_probes(chosen, limit, lambda spec: _run_job(spec, own), _say):
            estimates = table()
    _print(estimates, region)
    _record(estimates, tracking)
    return 0


def _facts_of(spec: JobSpec, home: Path) -> Mapping[str, float] | None:
    """What an earlier preparation has found out about the rows, be it for this cluster or for this machine."""
    here, data = (
        JobSpec.from_text({name: text for name, text in spec.as_text().items() if name in names})
        for names in (_OF_ANY_MACHINE, _OF_THE_DATA)
    )
    known = load_cached_inputs(spec, home) or load_cached_inputs(here, home) or load_cached_inputs(data, home)
    return known.dataset.facts if known is not None and known.dataset is not None else None


def _facts(specs: Sequence[JobSpec], home: Path) -> list[Mapping[str, float] | None]:
    """For each job what is known of its rows; jobs that prepare alike are looked up once."""
    found: dict[str, Mapping[str, float] | None] = {}
    names = [json.dumps([text for name, text in spec.as_text().items() if name in _OF_THE_DATA]) for spec in specs]
    for name, spec in zip(names, specs, strict=True):
        if found.get(name) is None:
            found[name] = _facts_of(spec, home)
    return [found[name] for name in names]


def _refuse_unknown_data(asked: EstimateRequest, facts: list[Mapping[str, float] | None]) -> None:
    unknown = {
        spec.dataset
        for spec, known in zip(asked.specs, facts, strict=True)
        if known is None
        and spec.dataset not in BUNDLED_ROWS
        and (spec.max_train_samples is None or spec.dataset.startswith(BUNDLED))
    }
    if unknown:
        raise BadInput(
            [
                f"dataset must be {' or '.join(BUNDLED_ROWS)} where it begins with {BUNDLED}, got {name}"
                if name.startswith(BUNDLED)
                else f"dataset {name}: nobody knows its rows yet: give max_train_samples (and max_seq_length), or "
                f"prepare it once with `mlflow run . -P dataset={name} -P dry_run=true`"
                for name in sorted(unknown)
            ]
        )


def _run_job(spec: JobSpec, workplaces: Workplaces) -> float | None:
    """One probe, as a job with a run of its own; its dollars. One that fails has shown something, too."""
    progress = ProgressPrinter()
    with workplaces.interruption.listening():
        try:
            outcome = launch(spec, workplaces.of(spec), progress)
        except JobFailed as error:
            _say(f"the probe has failed: {error}")
            return None
        finally:
            progress.close()
    return outcome.metrics.get("cost_usd")


def _print(estimates: list[Estimate], region: str) -> None:
    today = datetime.now(UTC).date()
    print(estimate_table.as_text(estimates))
    print("\nestimated, none of these has run; * = on the predicted Pareto front of seconds and dollars")
    if any(item.spec.has_instances for item in estimates):
        print(f"prices of {region}, SageMaker Training, on demand; data and model are counted, storage is not")
    remarks = [
        remark
        for item in {item.spec.instance_type: item for item in estimates}.values()
        if item.spec.has_instances
        for remark in price_remarks(item.price, item.spec.instance_type, region, today)
    ]
    if any(item.spec.spot for item in estimates):
        remarks.append(
            "spot: dollars and seconds are those of a job on demand; AWS bills less, and interruptions make it longer"
        )
    if any(not item.measured_here for item in estimates):
        remarks.append(
            "rows whose basis is not this cluster have wide intervals: probe=true (with max_cost_usd) measures them "
            "with short jobs"
        )
    for remark in remarks:
        print(remark)


def _record(estimates: list[Estimate], tracking: Tracking) -> None:
    run = tracking.begin("estimate")
    run.set_tags({schema.KIND: "estimate", schema.ORIGIN: "estimated"})
    run.log_text(estimate_table.as_csv(estimates), "estimate.csv")
    figure = estimate_table.figure(estimates)
    if figure is not None:
        run.log_figure(figure, "estimate.png")
    run.end(RunStatus.FINISHED)
    print(f"\n  {tracking.open_command(run.run_id)}")


def _say(text: str) -> None:
    print(text, flush=True)
