"""paretune: which SageMaker cluster, batch size and learning rate should I pay for?

>>> import paretune
>>> cheap = paretune.JobSpec(launcher="simulated", instance_type="ml.g5.xlarge", num_train_epochs=200)
>>> fast = cheap.replace(instance_type="ml.g5.12xlarge")
>>> jobs = [paretune.launch(spec, quiet=True) for spec in (cheap, fast)]
>>> best = paretune.front(jobs, {"cost_usd": "minimize", "job_seconds": "minimize"})
>>> best.to_frame()["instance_type"].tolist()
['ml.g5.xlarge', 'ml.g5.12xlarge']

Names:
    JobSpec          one training job on one cluster; every parameter of `paretune train` is a field
    log_study        record any Optuna study in MLflow, with a page that shows its Pareto front
    launch           train, measure, price and record a job
    estimate         predict seconds, dollars and memory of jobs before you pay
    study            run a study described in Python; its result has `front`, `best` and `trials_dataframe()`
    run_study        run a study from a study file, or from a dict with the content of such a file
    front            the Pareto front of a recorded study, or of any runs
    prices           what an hour of each instance type costs in a region
    SplitSampler     an Optuna sampler that knows what a job costs, for plain Optuna studies
    Result           base class of all results: `to_frame()` for pandas, `to_dict()` for JSON, a table in a notebook
    ParetuneError    base class of all errors; `paretune.core.errors` shows the tree of errors
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paretune.commands.estimate.estimate import estimate as estimate
    from paretune.commands.prices import prices as prices
    from paretune.core.errors import ParetuneError as ParetuneError
    from paretune.core.result import Result as Result
    from paretune.jobs.launch import launch as launch
    from paretune.specification.job import JobSpec as JobSpec
    from paretune.studies.recorded_front import front as front
    from paretune.studies.recorded_front import log_study as log_study
    from paretune.studies.run import run_study as run_study
    from paretune.studies.run import study as study
    from paretune.studies.sampler.sampler import SplitSampler as SplitSampler

__version__ = "0.6.0"
# These names are imported when first used: importing MLflow takes a second, and a job's process needs none of them.
_MODULES = {
    "JobSpec": "paretune.specification.job",
    "ParetuneError": "paretune.core.errors",
    "Result": "paretune.core.result",
    "SplitSampler": "paretune.studies.sampler.sampler",
    "estimate": "paretune.commands.estimate.estimate",
    "front": "paretune.studies.recorded_front",
    "launch": "paretune.jobs.launch",
    "log_study": "paretune.studies.recorded_front",
    "prices": "paretune.commands.prices",
    "run_study": "paretune.studies.run",
    "study": "paretune.studies.run",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
