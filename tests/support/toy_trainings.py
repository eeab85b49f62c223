"""Toy jobs for tests of the sampler: formulas replace training runs and their bills."""

import math
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import Trial

import paretune

ROWS, START_S = 100_000, 120.0
SPEED = {"ml.g4dn.xlarge": 60.0, "ml.g5.xlarge": 180.0}
USD_PER_S = {"ml.g4dn.xlarge": 0.736 / 3600, "ml.g5.xlarge": 1.408 / 3600}
SPACE = {
    "instance_type": CategoricalDistribution(list(SPEED)),
    "per_device_train_batch_size": CategoricalDistribution([8, 16, 32, 64]),
    "learning_rate": FloatDistribution(1e-5, 1e-3, log=True),
}


def job(**more: Any) -> paretune.JobSpec:
    return paretune.JobSpec(launcher="simulated", max_train_samples=ROWS, **more)


def f1_of(batch: float, rate: float) -> float:
    return 0.9 - 0.01 * math.log2(rate / 5e-5) ** 2 - 0.003 * math.log2(batch / 8)


def outcome(trial: Trial) -> tuple[float, float] | None:
    """Return the dollars and F1 of a job; None for a probe.

    Each step takes a fifth longer on several instances.
    """
    params, kind = trial.params, trial.params["instance_type"]
    batch, count = params["per_device_train_batch_size"], params.get("instance_count", 1)
    step_s = (0.05 + batch / SPEED[kind]) * (1.2 if count > 1 else 1.0)
    seconds = START_S + step_s * (params["probe_steps"] or ROWS / (batch * count))
    for name, value in {"seconds": seconds, "startup_seconds": START_S, "step_seconds": step_s}.items():
        trial.set_user_attr(name, value)
    f1 = f1_of(batch * count, params["learning_rate"])
    return None if params["probe_steps"] else (seconds * USD_PER_S[kind] * count, f1)
