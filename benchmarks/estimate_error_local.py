"""Measure the error of estimates for jobs of this machine.

    python benchmarks/estimate_error_local.py            # about nine minutes; the machine must be idle

Eight ordinary jobs run first. Then ten specifications that were never run are predicted, one after the other, from all
jobs before them, and run. Two trainings on two hyper-threads are each a third as fast: whatever else runs meanwhile is
what this measures.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import arguments
import published

from paretune.core.clock import SystemClock
from paretune.estimating.architecture import well_known
from paretune.estimating.estimator import Estimator
from paretune.estimating.evidence import collect
from paretune.specification.job import JobSpec
from paretune.tracking.store import Tracking

LEARNT_FROM: tuple[dict[str, Any], ...] = (
    {"max_train_samples": 2000},
    {"max_train_samples": 2000, "per_device_train_batch_size": 64},
    {"max_train_samples": 1000, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    {"max_train_samples": 2000, "instance_count": 2},
    {"max_train_samples": 600, "dataset": "bundled:imdb", "max_seq_length": 128},
    {"max_train_samples": 400, "dataset": "bundled:imdb", "max_seq_length": 256},
    {"max_train_samples": 3000, "fine_tuning": "head"},
    {"max_train_samples": 1500, "fine_tuning": "lora"},
)
NEVER_RUN: tuple[dict[str, Any], ...] = (
    {"max_train_samples": 4000, "per_device_train_batch_size": 32},
    {"max_train_samples": 1200, "per_device_train_batch_size": 8},
    {"max_train_samples": 1500, "num_train_epochs": 3},
    {"max_train_samples": 3000, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 4},
    {"max_train_samples": 2500, "instance_count": 2, "per_device_train_batch_size": 32},
    {"max_train_samples": 900, "dataset": "bundled:imdb", "max_seq_length": 128, "per_device_train_batch_size": 32},
    {"max_train_samples": 500, "dataset": "bundled:imdb", "max_seq_length": 192},
    {"max_train_samples": 6000, "fine_tuning": "head", "per_device_train_batch_size": 32},
    {"max_train_samples": 2500, "fine_tuning": "lora", "per_device_train_batch_size": 32},
    {"max_train_samples": 700, "per_device_train_batch_size": 8, "instance_count": 2, "num_train_epochs": 2},
)


def main() -> None:
    """Print one line per job, then the mean error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--learnt", type=int, default=len(LEARNT_FROM), help="jobs that run before the first estimate")
    parser.add_argument("--predicted", type=int, default=len(NEVER_RUN), help="jobs that are predicted")
    parser.add_argument("--max-rows", type=int, default=max(each["max_train_samples"] for each in NEVER_RUN))
    options = arguments.parse(parser, learnt=1, predicted=1, max_rows=50)
    made = published.conditions("paretune", "torch", "transformers", "scipy")
    print(made)
    print(f"{options.predicted} specifications that were never run, from {options.learnt} ordinary jobs")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.pop("MLFLOW_RUN_ID", None)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        for changes in LEARNT_FROM[: options.learnt]:
            run_job(with_at_most(changes, options.max_rows))
        tracking = Tracking({}, SystemClock())
        off, inside = [], 0
        for whole in NEVER_RUN[: options.predicted]:
            changes = with_at_most(whole, options.max_rows)
            spec = JobSpec.read({name: str(value) for name, value in changes.items()})
            built = well_known(spec.model)
            assert built is not None  # the bundled model
            facts = facts_of(changes)
            estimated = Estimator(collect(tracking)).estimate(spec, built, None, facts=facts)
            assert estimated is not None  # max_train_samples is given
            run_job(changes)
            (newest,) = tracking.runs("tags.`paretune.state` = 'Completed'", newest=1)
            measured = newest.metrics["billable_seconds"]
            step = spec.plan().global_batch_size / newest.metrics["throughput_samples_per_second"]
            off.append(abs(estimated.time.seconds / measured - 1))
            inside += estimated.time.seconds_low <= measured <= estimated.time.seconds_high
            text = ", ".join(f"{name}={value}" for name, value in changes.items())
            print(
                f"  {estimated.time.seconds:6.1f} s predicted, {measured:6.1f} s measured ({off[-1]:5.1%}); "
                f"step {estimated.time.step_seconds:.3f}, {step:.3f} s; {text}",
                flush=True,
            )
    claim = [
        f"Measured {made}:",
        f"{options.predicted} specifications that had never run, predicted from {options.learnt} ordinary jobs and",
        f"then measured, were off by {statistics.mean(off):.1%} (mean; {max(off):.1%} the worst), {inside} of",
        f"{len(off)} in their interval.",
    ]
    print(published.block("estimate_error_local", claim))


def with_at_most(changes: Mapping[str, object], rows: int) -> dict[str, object]:
    """The same job on so many rows at most."""
    return {**changes, "max_train_samples": min(int(str(changes["max_train_samples"])), rows)}


def run_job(changes: Mapping[str, object]) -> str:
    """One job; what it printed."""
    words = [word for name, value in changes.items() for word in (f"--{name}", str(value).lower())]
    command = [sys.executable, "-c", "from paretune.cli import run; run()", "train", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr[-2000:]}")
    return done.stdout


def facts_of(changes: Mapping[str, object]) -> dict[str, float]:
    """The facts of the prepared rows, from the dry run."""
    output = run_job({**changes, "dry_run": True, "json": True})
    return dict(json.loads(output[: output.rindex("}") + 1])["data"])


if __name__ == "__main__":
    main()
