"""paretune's sampler in a study of plain Optuna: the front of dollars and F1 over type, batch and rate.

    python examples/optunahub/package/samplers/split/example.py

Formulas replace training and billing. A trial with `probe_steps` above 0 is a probe: it trains only that many steps,
measures seconds but no F1, and ends as pruned.
"""

import math

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

import paretune

job = paretune.JobSpec(launcher="simulated", max_train_samples=100_000)
space = {
    "instance_type": CategoricalDistribution(["ml.g4dn.xlarge", "ml.g5.xlarge"]),
    "per_device_train_batch_size": CategoricalDistribution([8, 16, 32, 64]),
    "learning_rate": FloatDistribution(1e-5, 1e-3, log=True),
}
rows_per_second = {"ml.g4dn.xlarge": 60, "ml.g5.xlarge": 180}
usd_per_hour = {"ml.g4dn.xlarge": 0.736, "ml.g5.xlarge": 1.408}

sampler = paretune.SplitSampler(job, space)
study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
while not sampler.is_done(study):
    trial = study.ask(sampler.space)
    cluster, batch, rate, probe_steps = (trial.params[name] for name in sampler.space)
    step_s = 0.05 + batch / rows_per_second[cluster]
    seconds = 120 + step_s * (probe_steps or 100_000 / batch)
    for name, value in {"seconds": seconds, "startup_seconds": 120, "step_seconds": step_s}.items():
        trial.set_user_attr(name, value)
    if probe_steps:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        f1 = 0.9 - 0.01 * math.log2(rate / 5e-5) ** 2 - 0.003 * math.log2(batch / 8)
        study.tell(trial, [seconds * usd_per_hour[cluster] / 3600, f1])

for best in study.best_trials:
    print(best.number, [round(value, 4) for value in best.values], best.params)
