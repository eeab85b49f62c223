"""The command `estimate`: predicts seconds, dollars and memory of jobs before you pay for them.

This module selects the jobs; `estimate.py` makes the table.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from paretune.commands.command import Command, read_with_profile
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.result import Result
from paretune.estimating.workload import PROBE_STEPS
from paretune.specification.catalog import instances, region_faults, unknown_type
from paretune.specification.declaration import Parameters, parameter, spell, split_list
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec, parameters_affecting
from paretune.specification.launchers import LOCAL
from paretune.specification.parallelism import DIVISIONS, OF_THE_BATCH
from paretune.specification.rules import launch_faults

# Parameters that take a comma-separated list of values to compare. In other parameters, a comma is part of the value.
MAY_BE_LISTS = (
    *("instance_type", "instance_count", "strategy", *OF_THE_BATCH),
    *("model", "program", "fine_tuning", "precision", "max_seq_length", "max_train_samples", "num_train_epochs"),
    *DIVISIONS,
)
PROBE_MINUTES = 30.0  # time limit of a probe: 40 steps of a job that takes 15 s per step, and its start
LISTED_CLUSTERS = MAY_BE_LISTS[:3]  # those of these parameters that choose the cluster and the strategy on it
OF_THE_DATA = parameters_affecting("data")  # parameters that decide which rows a job gets, and how they are prepared


class EstimateOptions(Parameters):
    """The command's own option. The other options are parameters of a job."""

    like: str = parameter("")
    """estimate a finished training run on other clusters: a run in the store, or one of your SageMaker training jobs"""
    probe: str = parameter("")
    """first pay for a job of 40 steps on this instance type (about 0.2 USD on ml.g5.xlarge, at most 30 minutes unless
    max_runtime_minutes is given), then print the table with what it measured; by default of types with the same GPU"""
    row_tokens: float | None = parameter(None, ge=1)
    """mean number of tokens of a row, with max_train_samples; by default, rows are counted in a local file, known from
    prepared data, or assumed to have max_seq_length tokens"""


@dataclass(frozen=True, kw_only=True)
class EstimateRequest:
    """The jobs to estimate, in the order in which they were typed."""

    specs: tuple[JobSpec, ...]
    like: str = ""  # a finished run or SageMaker job; if set, `specs` is empty and `texts` has the other options
    texts: Mapping[str, str] = field(default_factory=dict)  # with `probe`, all options that were typed
    row_tokens: float | None = None  # mean tokens of a row, if typed
    probe: JobSpec | None = None  # a short job that is paid for before the table is made; None without one

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "EstimateRequest":
        """Return the request that the options describe; `instance_type=a,b` requests two jobs. Raises BadInput."""
        single = {name: text for name, text in texts.items() if name not in EstimateOptions.model_fields}
        if row_tokens := texts.get("row_tokens", "").strip():
            tokens = EstimateOptions.read({"row_tokens": row_tokens}).row_tokens
            rest = {name: text for name, text in texts.items() if name != "row_tokens"}
            request = cls.from_text(rest)
            refuse(["row_tokens and like cannot be combined: leave one of them out"] if request.like else [])
            missing = all(spec.max_train_samples is None for spec in request.specs)
            refuse(["row_tokens needs max_train_samples, the number of rows: give it, too"] if missing else [])
            return replace(
                request, row_tokens=tokens, texts=request.texts and {**request.texts, "row_tokens": row_tokens}
            )
        if probe := texts.get("probe", "").strip():
            return cls._with_probe(probe, texts.get("like", ""), single)
        if like := texts.get("like", "").strip():
            return cls(specs=(), like=like, texts=single)
        lists = {name: split_list(single[name]) for name in MAY_BE_LISTS if "," in single.get(name, "")}
        faults = [
            f"{name} must have a value before and after each comma, got {single[name]!r}"
            for name in lists
            if not all(part.strip() for part in single[name].split(","))
        ]
        return cls.of([single], lists, faults)

    @classmethod
    def _with_probe(cls, probe: str, like: str, texts: Mapping[str, str]) -> "EstimateRequest":
        """Return the request for a table, and for the probe of its first job on one instance of the type `probe`."""
        refuse(["probe and like cannot be combined: leave one of them out"] if like else [])
        if "," in probe:
            remedy = "keep one, and name the other types of the table with --instance_type"
            raise BadInput([f"probe must be one instance type, got {probe!r}: {remedy}"])
        refuse([] if probe in {LOCAL, *instances()} else [unknown_type(probe, instances(), "probe")])
        types = [name for name in split_list(texts.get("instance_type", "")) if name != probe]
        listed = ",".join([probe, *(types if "instance_type" in texts else _with_same_gpu(probe))])
        request = cls.from_text({**texts, "instance_type": listed})
        first = request.specs[0]
        minutes = first.max_runtime_minutes if "max_runtime_minutes" in texts else PROBE_MINUTES
        changes = {"instance_count": None, "fallback_instance_types": None, "register": None, "profile_steps": None}
        steps: dict[str, Any] = {"probe_steps": PROBE_STEPS}
        if first.runs_user_code:
            steps = {"training_arguments": {**first.training_arguments, "max_steps": PROBE_STEPS}}
        job = first.replace(**changes, **steps, max_runtime_minutes=minutes)
        refuse(launch_faults(job))
        return replace(request, probe=job, texts={"probe": probe, **texts})

    @classmethod
    def of(
        cls, jobs: Sequence[Mapping[str, str]], choices: Mapping[str, Sequence[object]], faults: Sequence[str] = ()
    ) -> "EstimateRequest":
        """Return one request: each of `jobs` with every combination of `choices`, which override its parameters.

        Raises BadInput with all faults of the parameters; only if there are none, files are checked, and then the data.
        """
        faults = [*faults, *([] if jobs else ["there must be at least one job to estimate"])]
        faults += [f"{name} must have at least one value" for name, values in choices.items() if not values]
        lists = {name: tuple(dict.fromkeys(map(spell, values))) for name, values in choices.items() if values}
        specs = []
        for single, values in itertools.product(jobs, list(itertools.product(*lists.values()))):
            with collecting(faults):
                specs.append(JobSpec.read({**single, **dict(zip(lists, values, strict=True))}))
                faults += [*launch_faults(specs[-1]), *region_faults(specs[-1].region)]
        refuse(list(dict.fromkeys(faults)))
        are_own = [spec.runs_user_code for spec in specs]
        if any(are_own) and not all(are_own):
            own = "your own training code (project, entry_script)"
            faults.append(f"one table cannot mix {own} with paretune's: estimate them separately")
        faults += [fault for spec in specs for fault in missing_files(spec.as_text())]
        of_data = {tuple(spec.as_text()[name] for name in OF_THE_DATA): spec for spec in specs}
        if not faults:
            ours = [spec.data_arguments for spec in of_data.values() if not spec.runs_user_code]
            faults += [fault for data in ours for fault in data_faults(data)]
        refuse(list(dict.fromkeys(faults)))
        return cls(specs=tuple(specs))


def _with_same_gpu(name: str) -> list[str]:
    """Return the smallest other types with the same GPU as this instance type, one for each number of GPUs."""
    own = instances().get(name)
    if own is None or not own.has_gpu:
        return []
    types = [
        each for each in instances().values() if (each.launcher, each.accelerator) == (own.launcher, own.accelerator)
    ]
    smallest = {each.accelerator_count: each for each in sorted(types, key=lambda each: -each.vcpus)}
    smallest.pop(own.accelerator_count, None)
    return [smallest[count].instance_type for count in sorted(smallest)]


def _run(request: EstimateRequest) -> Result:
    if request.probe is not None:
        from paretune.commands.estimate.probe import run_probe

        return run_probe(request)
    from paretune.commands.estimate.estimate import run_estimate

    return run_estimate(request)


ESTIMATE = Command(
    read=partial(read_with_profile, EstimateRequest.from_text),
    run=_run,
    options=EstimateOptions,
    takes_jobs=True,
)
