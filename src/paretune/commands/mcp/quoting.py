"""Turns a request of an agent into a quote: everything is checked as in a dry run, and nothing is launched."""

import hashlib
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from paretune.commands.mcp.quotes import VALID_S, Quote
from paretune.core.clock import Clock
from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import absolute, exists
from paretune.jobs.launch import launch
from paretune.jobs.workplace import Workplaces
from paretune.specification.inputs import PATHS, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.profile import CHARGED, completed
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.rules import StudyTerms

ALLOWED = frozenset(
    (
        *("model", "init", "dataset", "dataset_config_name", "validation_file", "test_file", "text_column"),
        *("label_column", "task", "max_train_samples", "max_eval_samples", "max_seq_length"),
        *("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size"),
        *("learning_rate", "learning_rate_scaling", "reference_batch_size", "warmup_ratio"),
        *("num_train_epochs", "seed", "precision", "fine_tuning", "lora_rank", "lora_alpha", "lora_dropout"),
        *("lora_target_modules", "compiler", "strategy", "hybrid_shard_degree", "tensor_parallel_degree"),
        *("pipeline_parallel_degree", "micro_batches"),
        *("activation_checkpointing", "activation_offloading", "cpu_offload", "instance_type"),
        *("instance_count", "processes_per_instance", "launcher", "recorded_runs", "simulation"),
        *("max_runtime_minutes", "max_silence_minutes", "spot", "max_wait_minutes"),
        *("fallback_instance_types", "capacity_wait_minutes", "volume_gib", "size", "probe_steps"),
        *("profile_steps", "merge", "log_model"),
    )
)
"""Parameters of a job that an agent may set or search."""
OVERRIDES = frozenset(item.name for item in fields(StudyTerms)) - {"storage", "once"}
"""Keys of a study that an agent may set beside its file."""
_OWN_CODE = ("entry_script", "project", "entry_point", "project_parameters", "image_uri", "package_index")
"""Parameters that bring code which paretune has not written."""
_STUDY_FILES = (".yaml", ".yml")
_WHO_PAYS = dict.fromkeys(CHARGED, "the profile of this server says whose its jobs are and who pays")
_NOT_QUOTED = {
    "dry_run": "a quote launches nothing by itself",
    "max_cost_usd": "the quote's worst case is the limit of the job",
    "on_interrupt": "a job that an agent stops is stopped",
    **_WHO_PAYS,
}


@dataclass(frozen=True, kw_only=True)
class Quoter:
    """Makes quotes of jobs and studies.

    Args:
        folder: for studies as they were quoted, so that what is launched is what was quoted.
        own_code: whether jobs may bring code of their own.

    Agents name files below the current folder only, and set the parameters in `ALLOWED`.
    """

    folder: Path
    clock: Clock
    own_code: bool = False

    def job(self, parameters: Mapping[str, str]) -> Quote:
        """Return a quote of one job, its bill at its maximum runtime; raises the errors of its launch."""
        refuse(_refused(_NOT_QUOTED, parameters))
        self.check_parameters(parameters)
        refuse(missing_files(parameters))
        spec = completed(JobSpec.from_text(parameters), os.environ)
        self._check_code(spec.changed())
        preview = launch(spec, dry_run=True, quiet=True)
        worst, price = preview.worst_case_usd, Workplaces.of_process().of(spec).launcher.price(spec)
        if worst is None or price is None:
            raise BadInput(
                [f"the price of {spec.instance_type} is not known, so nothing bounds its bill: choose another"]
            )
        usd = _rounded_up(worst)
        return Quote(
            command="main",
            parameters=spec.changed() | {"max_cost_usd": f"{usd:.4f}"},
            identity=spec.spec_hash(),
            worst_case_usd=usd,
            priced_as_of=price.as_of,
            expires=self.clock.now() + VALID_S,
        )

    def study(self, path: str, overrides: Mapping[str, str]) -> Quote:
        """Return a quote of a study: its budget, which its jobs never exceed together.

        Raises:
            BadInput: the study has faults, or no budget; or it is no study file below the current folder.
        """
        refuse(_refused(_WHO_PAYS, overrides))
        refuse(_study_faults(path, overrides))
        file = StudyFile.read(path, overrides)
        refuse(_refused(_WHO_PAYS, [*file.job, *file.search]))
        if file.storage is not None:
            raise BadInput(["storage cannot be set here: the study is stored where this server keeps its studies"])
        if file.budget_usd is None:
            raise BadInput(["a study is quoted by its budget: set budget_usd"])
        self.check_parameters({name: str(value or "") for name, value in file.job.items()})
        for name, entry in file.search.items():
            self.check_parameters({name: ",".join(str(value) for value in entry.corners)})
        text = file.as_yaml()
        identity = hashlib.sha256(text.encode()).hexdigest()
        self.folder.mkdir(parents=True, exist_ok=True)
        copy = self.folder / f"{identity[:24]}.yaml"
        copy.write_text(text)
        return Quote(
            command="study",
            parameters={"study": str(copy), "budget_usd": f"{file.budget_usd:g}"},
            identity=identity,
            worst_case_usd=file.budget_usd,
            priced_as_of="",
            expires=self.clock.now() + VALID_S,
        )

    def confirm(self, quote: Quote) -> None:
        """Check the basis of a quote once more, just before it is launched; raises BadInput if it has changed."""
        if quote.command == "study":
            copy = Path(quote.parameters["study"])
            if not copy.is_file() or hashlib.sha256(copy.read_bytes()).hexdigest() != quote.identity:
                raise BadInput(["the study that was quoted has been changed: ask for another quote"])
            return
        now = self.job({name: text for name, text in quote.parameters.items() if name in self.settable()})
        quoted = (quote.identity, quote.priced_as_of)
        if (now.identity, now.priced_as_of) != quoted or now.worst_case_usd > quote.worst_case_usd:
            raise BadInput(
                [
                    f"the quote no longer holds: {quote.worst_case_usd:.4f} USD at prices of {quote.priced_as_of} are "
                    f"{now.worst_case_usd:.4f} USD at prices of {now.priced_as_of} now: ask for another quote"
                ]
            )

    def settable(self) -> frozenset[str]:
        """Parameters of a job that an agent may set."""
        return ALLOWED | frozenset(_OWN_CODE if self.own_code else ())

    def check_parameters(self, parameters: Mapping[str, str]) -> None:
        """Check that an agent may set these parameters of a job, and read the files that they name.

        Raises:
            BadInput: with all parameters that it may not set, and all paths outside of the current folder.
        """
        self._check_code(parameters)
        names = {item.name for item in fields(JobSpec)} - ALLOWED - set(_OWN_CODE)
        faults = [
            f"{name} cannot be set by an agent: leave it out, or have it set in the server's profile"
            for name, text in parameters.items()
            if name in names and text.strip()
        ]
        for name in PATHS:
            faults += [
                _outside(name, text) for text in parameters.get(name, "").split(",") if _is_outside(text.strip())
            ]
        refuse(faults)

    def _check_code(self, parameters: Mapping[str, str]) -> None:
        if not self.own_code:
            refuse(
                [
                    f"{name} brings code of its own, which this server does not launch: leave it out, or have the "
                    "server started with --own_code"
                    for name in _OWN_CODE
                    if parameters.get(name, "").strip()
                ]
            )


def _study_faults(path: str, overrides: Mapping[str, str]) -> list[str]:
    """Faults of a study's path, which are found before the file is read, so that no message quotes another file."""
    faults = [_outside("study", path)] if _is_outside(path) else []
    if exists(path) and Path(path).suffix not in _STUDY_FILES:
        faults.append(f"study must be the name of a shipped study or a file that ends with {' or '.join(_STUDY_FILES)}")
    if overrides.get("storage", "").strip():
        faults.append("storage cannot be set here: the study is stored where this server keeps its studies")
    return faults


def _is_outside(text: str) -> bool:
    """Whether a text names a path of this machine that is not below the current folder."""
    if "://" in text:
        return text.lower().startswith("file:")
    return not Path(absolute(text)).resolve().is_relative_to(Path.cwd().resolve())


def _outside(name: str, text: str) -> str:
    return f"{name} must lie below the current folder of this server, got {text.strip()[:200]}: copy it there"


def _refused(reasons: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Return a sentence for each requested parameter that may not be set."""
    return [f"{name} cannot be set here: {reason}" for name, reason in reasons.items() if name in names]


def _rounded_up(usd: float) -> float:
    """Round up to a hundredth of a cent, so that the limit does not refuse its own job."""
    return math.ceil(usd * 10_000) / 10_000
