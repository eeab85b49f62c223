"""The command `estimate`: seconds, dollars and memory of jobs before they are paid for."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from paretune.commands.command import Command, imported_later, read_with_profile
from paretune.core.errors import BadInput, collecting, refuse
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_STRATEGY
from paretune.specification.parameters import Parameters, parameter, spell, split_list
from paretune.specification.regions import region_faults
from paretune.specification.rules import launch_faults

DIVISIONS = tuple(name for name in OF_STRATEGY if name != "strategy")
"""Parameters that say how the devices of a job share its model."""
# Parameters of which several can be compared. Elsewhere a comma belongs to the value.
MAY_BE_LISTS = (
    *("instance_type", "instance_count", "strategy"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size"),
    *("model", "fine_tuning", "precision", "max_seq_length", "max_train_samples", "num_train_epochs"),
    *DIVISIONS,
)
MOST_ROWS = 1000


class EstimateOptions(Parameters):
    """The options of the command; others are parameters of a job."""

    probe: bool = parameter(False, "run a short job on every cluster that was never measured, within max_cost_usd")
    listed_by: ClassVar[str] = "estimate"


@dataclass(frozen=True, kw_only=True)
class EstimateRequest:
    """The jobs to be estimated, in the order of what was typed, and whether unmeasured clusters are probed."""

    specs: tuple[JobSpec, ...]
    probe: bool

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "EstimateRequest":
        """From what was typed; `instance_type=ml.g5.xlarge,ml.p4d.24xlarge` makes two rows. Raises BadInput."""
        faults, probe = list[str](), False
        with collecting(faults):
            probe = EstimateOptions.read({"probe": texts.get("probe", "")}).probe
        single = {name: text for name, text in texts.items() if name != "probe"}
        lists = {name: split_list(single[name]) for name in MAY_BE_LISTS if "," in single.get(name, "")}
        faults += [
            f"{name} must have a value between all commas, got {single[name]!r}"
            for name in lists
            if not all(part.strip() for part in single[name].split(","))
        ]
        return cls._combined([single], lists, probe=probe, faults=faults)

    @classmethod
    def of(cls, specs: Sequence[JobSpec], choices: Mapping[str, Sequence[object]], *, probe: bool) -> "EstimateRequest":
        """Every specification with every combination of `choices`, which win over it; raises BadInput once a fault."""
        wrong = [name for name in choices if name not in JobSpec.model_fields]
        faults = [f"unknown parameter {name}: choices are parameters of a job" for name in wrong]
        faults += [] if specs else ["there must be at least one job to estimate"]
        faults += [f"{name} must have at least one value" for name, values in choices.items() if not values]
        lists = {name: tuple(map(spell, values)) for name, values in choices.items() if name not in wrong and values}
        return cls._combined([spec.changed() for spec in specs], lists, probe=probe, faults=faults)

    @classmethod
    def _combined(
        cls, jobs: Sequence[Mapping[str, str]], lists: Mapping[str, Sequence[str]], *, probe: bool, faults: list[str]
    ) -> "EstimateRequest":
        """The request of these jobs, each with every combination of the lists; `faults` are reported with its own."""
        lists = {name: tuple(dict.fromkeys(values)) for name, values in lists.items()}
        count = len(jobs) * math.prod(map(len, lists.values()))
        if count > MOST_ROWS:
            faults.append(f"the table would have {count} rows, at most {MOST_ROWS} are made: shorten the lists")
            jobs, lists = jobs[:1], {name: values[:1] for name, values in lists.items()}
        specs = []
        for single, values in itertools.product(jobs, list(itertools.product(*lists.values()))):
            with collecting(faults):
                specs.append(JobSpec.read({**single, **dict(zip(lists, values, strict=True))}))
                faults += _faults_of(specs[-1])
        if probe and any(spec.dry_run for spec in specs):
            faults.append("probe=true launches jobs and dry_run=true forbids it: leave one out")
        if faults:
            raise BadInput(list(dict.fromkeys(faults)))
        if any(spec.runs_own_training for spec in specs):
            _refuse_mixed(specs, probe=probe)
        return cls(specs=tuple(specs), probe=probe)


def _faults_of(spec: JobSpec) -> list[str]:
    return launch_faults(spec) + region_faults(spec.region)


def _refuse_mixed(specs: Sequence[JobSpec], *, probe: bool) -> None:
    """Raise BadInput where trainings of the user's own are to be compared with paretune's, or probed."""
    faults = []
    if not all(spec.runs_own_training for spec in specs):
        faults.append("a table holds trainings of your own (project, entry_script) or paretune's: estimate them apart")
    if probe:
        faults.append("probe=true is for paretune's own training: run one job of yours, which tells as much")
    refuse(faults)


COMMAND = Command(
    read=partial(read_with_profile, EstimateRequest.from_text),
    run=imported_later("paretune.commands.estimate.estimate:run_estimate"),
    options=EstimateOptions,
    takes_jobs=True,
)
