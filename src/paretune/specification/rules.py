"""Rules between the parameters of a job.

A rule in `RULES` is checked if the parameters that it reads are valid, one in `LAST_RULES` only if there is no other
fault. Parameters that can only be checked in an account, such as role and bucket, are checked by the launcher.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.core.errors import BadInput
from paretune.core.secrets import is_secret_name, without_secrets
from paretune.core.tags import tag_faults
from paretune.specification import catalog, launchers, metrics
from paretune.specification.catalog import region_faults
from paretune.specification.declaration import Fault, Rules, affecting, rules_of, spell
from paretune.specification.inputs import BUNDLED, DATA_FILES, INPUT_FILES
from paretune.specification.launchers import LOCAL, LauncherTraits
from paretune.specification.parallelism import DATA_PARALLEL, DEEPSPEED, DEVICE_MAP, OF_THE_BATCH
from paretune.specification.program import PARETUNE

if TYPE_CHECKING:
    from paretune.specification.job import JobSpec

RESERVED_TRAINING_ARGUMENTS = {
    "output_dir": "paretune chooses the folder",
    "report_to": "paretune records the run itself",
    "learning_rate": "use the parameter learning_rate",
    "per_device_train_batch_size": "use the parameter per_device_train_batch_size",
    "gradient_accumulation_steps": "use the parameter gradient_accumulation_steps",
    "num_train_epochs": "use the parameter num_train_epochs",
    "seed": "use the parameter seed",
    "bf16": "use the parameter precision",
    "fp16": "use the parameter precision",
    "hub_token": "parameters are recorded, so they must not contain secrets; set HF_TOKEN in the environment",
    "disable_tqdm": "the launcher draws the progress bar",
    "auto_find_batch_size": "paretune itself reduces the per-device batch, and keeps the global batch size",
    "resume_from_checkpoint": "the next attempt of a job resumes automatically",
}
"""Training arguments that paretune sets itself, often from a parameter, each with the reason or with what to do
instead."""
_OF_THE_STRATEGY = {"fsdp", "fsdp_config", "deepspeed", "ddp_backend", "parallelism_config"}
HIGHEST_LEARNING_RATE = 0.1  # for full fine-tuning: ten times the highest rate in published recipes
_HIGHEST = 10.0  # for any fine-tuning of ours; a user's own script may have rates of any size
LONGEST_REGISTERED_NAME = 57  # characters, since a managed MLflow server appends some to the name
_REGISTERED_NAME = re.compile(rf"(?=.{{1,{LONGEST_REGISTERED_NAME}}}$)[a-zA-Z0-9](-*[a-zA-Z0-9])*")
"""Pattern of ModelPackageGroupName in SageMaker's CreateModelPackageGroup (botocore 1.44.5), which has at most 63
characters."""
_OTHERS = (metrics.MULTI_LABEL, metrics.TOKEN_CLASSIFICATION)  # tasks other than classification and causal-lm
IN_SECRETS_MANAGER = "secret:"  # prefix of a variable's value that is the ARN of a secret
_SECRET_ARN = re.compile(
    rf"{IN_SECRETS_MANAGER}arn:aws[\w-]*:secretsmanager:[\w-]+:\d{{12}}:secret:[\w/+=.@-]{{1,400}}"
)
_RESERVED_VARIABLES = re.compile(
    r"(PARETUNE|SM|AWS|LD|MLFLOW|PIP|MASTER|TRAINING_JOB)_.*|(PYTHON|BASH).*|PATH|HOME|ENV|SHELL|IFS|CURRENT_HOST"
    # of processes, as torchrun, Lightning, Accelerate, MPI, Horovod and SageMaker's libraries name them; not LORA_RANK
    r"|((LOCAL|GROUP|ROLE|NODE|MACHINE|GLOBAL|CROSS)_|(OMPI|PMIX?|MPI|MV2|HOROVOD|SMDATAPARALLEL)_(\w*_)?)?"
    r"(RANK|WORLD_SIZE)"
)
_METRIC_NAME = re.compile(r"[\w\-. :/]{1,250}")  # metric names that MLflow allows
_WITH_A_PROJECT = {
    *("project", "entry_point", "script_words", "ask_script", "training_arguments", "environment", "seed"),
    *("metric", "metric_definitions", "keep_models"),
    *OF_THE_BATCH,
    *("force", "dry_run"),
    *("instance_type", "instance_count", "launcher", "fallback_instance_types", "spot", "simulation"),
}
"""Parameters that apply to a project's command, besides those for limits, money and the account."""


_STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "hybrid_shard_degree": ("fsdp", "smp"),
    "tensor_parallel_degree": ("fsdp", "smp"),
    "pipeline_parallel_degree": ("fsdp",),
    "cpu_offload": ("fsdp",),
}
"""Parameters that are valid only with some strategies."""
_INSTEAD = {
    "smddp": "use ddp, which uses NCCL, on all others",
    "smp": "use fsdp, or another instance_type",
}
"""Strategies that need a library of the launcher, each with what to use without it."""


def _adapts(job: "JobSpec") -> bool:
    return job.fine_tuning in ("lora", "qlora")


def _is_divided(degree: int | None) -> bool:
    return (degree or 1) > 1


def _is_changed(job: "JobSpec", name: str) -> bool:
    return bool(getattr(job, name) != type(job).model_fields[name].default)


_LARGEST_RATE = 10.0  # of AdamW, which takes steps of about this size: anything larger is a typo

_TABLE: Mapping[str, Callable[["JobSpec"], Any]] = {
    "entry_script must be a program, but {entry_script} is a data file: give it as dataset": lambda job: (
        (job.entry_script or "").lower().endswith(DATA_FILES)
    ),
    # `--to script` writes a .txt file for notebooks that do not state the suffix of their language, as those of Colab.
    "entry_script must be a program, but {entry_script} is a notebook: convert it with `jupyter nbconvert --to "
    "python {entry_script}`, and name the script": lambda job: (job.entry_script or "").lower().endswith(".ipynb"),
    "pipeline_parallel_degree and tensor_parallel_degree cannot be combined, got {pipeline_parallel_degree} and "
    "{tensor_parallel_degree}: set one of them to 1": lambda job: (
        _is_divided(job.pipeline_parallel_degree) and _is_divided(job.tensor_parallel_degree)
    ),
    "strategy device_map puts the layers of one model on the GPUs of one instance: set instance_count=1, or set "
    "strategy=fsdp": lambda job: job.strategy == DEVICE_MAP and job.instance_count > 1,
    "strategy=device_map needs fine_tuning=lora or qlora, got {fine_tuning}: only one device works at a time; use "
    "strategy=fsdp": lambda job: job.strategy == DEVICE_MAP and not (_adapts(job) or job.runs_user_code),
    "fine_tuning=qlora needs strategy fsdp, ddp or device_map, got {strategy}: use fsdp, or an entry_script that "
    "shards 4-bit weights itself": lambda job: (
        job.fine_tuning == "qlora"
        and job.strategy not in ("fsdp", "ddp", "smddp", DEVICE_MAP)
        and not job.runs_user_code
    ),
    "precision=bf16-true needs fine_tuning=full, got {fine_tuning}: set precision=bf16": lambda job: (
        job.precision == "bf16-true" and job.fine_tuning != "full" and not job.runs_user_code
    ),
    "training_arguments must not set torch_compile with fine_tuning=qlora: leave it out": lambda job: (
        job.fine_tuning == "qlora" and job.is_compiled and job.entry_script is None
    ),
    "training_arguments must not set torch_compile with strategy={strategy}: use ddp, or leave it out": lambda job: (
        job.is_compiled
        and job.strategy not in ("ddp", "smddp")
        and job.trained_by.is_paretune
        and not job.runs_user_code
    ),
    "training_arguments must not set a strategy (fsdp, fsdp_config, deepspeed, ddp_backend, parallelism_config): use "
    "the parameter strategy": lambda job: not job.runs_user_code and _OF_THE_STRATEGY & {*job.training_arguments},
    "activation_offloading needs training_arguments with gradient_checkpointing=true: set that, too": lambda job: (
        job.activation_offloading and not job.checkpoints_activations and not job.runs_user_code
    ),
    "activation_offloading is for paretune's own training: leave it out": lambda job: (
        job.activation_offloading and job.entry_script is not None
    ),
    "lora needs fine_tuning=lora or qlora, got {fine_tuning}": lambda job: (
        job.lora.model_fields_set and not _adapts(job) and not job.runs_user_code
    ),
    "fine_tuning must be full with init=random, got {fine_tuning}: it freezes weights, and random weights must be "
    "trained; or set init=pretrained": lambda job: job.init == "random" and job.fine_tuning != "full",
    "learning_rate must be at most 10, got {learning_rate}: only a training of your own may need more": lambda job: (
        (job.learning_rate or 0) > _LARGEST_RATE and not job.runs_user_code
    ),
    f"learning_rate must be at most {HIGHEST_LEARNING_RATE} for full fine-tuning, got {{learning_rate}}: use one "
    "such as 5e-5, or set force=learning_rate": lambda job: (
        (job.learning_rate or 0) > HIGHEST_LEARNING_RATE
        and job.fine_tuning == "full"
        and not ("learning_rate" in job.force or job.runs_user_code)
    ),
    f"learning_rate must be at most {_HIGHEST:g}, got {{learning_rate}}: use one such as 5e-4": lambda job: (
        (job.learning_rate or 0) > _HIGHEST
        and (job.fine_tuning != "full" or "learning_rate" in job.force)
        and not job.runs_user_code
    ),
    "text_column and label_column must be different, got {text_column} for both: set text_column to the column with "
    "the texts": lambda job: (
        job.text_column == job.label_column and job.task != metrics.CAUSAL_LM and not job.runs_user_code
    ),
    "validation_file needs a data set of your own, got dataset={dataset}: set dataset, too": lambda job: (
        not job.runs_user_code and job.validation_file and job.dataset.startswith(BUNDLED)
    ),
    "task={task} cannot be trained with pipeline_parallel_degree: leave it out": lambda job: (
        _is_divided(job.pipeline_parallel_degree) and job.task in _OTHERS and job.entry_script is None
    ),
    "training_arguments must not set label_smoothing_factor with task={task}: leave it out": lambda job: (
        job.training_arguments.get("label_smoothing_factor") and job.task in _OTHERS and not job.entry_script
    ),
    "script_words is for a Python script, as entry_script or as entry_point of a project: leave it out": lambda job: (
        job.script_words and job.entry_script is None and not job.entry_point.endswith(".py")
    ),
    "metric_definitions is for project or entry_script: leave it out": lambda job: (
        job.metric_definitions and not job.runs_user_code
    ),
    "metric is for project or entry_script: leave it out": lambda job: job.metric and not job.runs_user_code,
    "sagemaker.training_plan has instances of one type, which are not spot instances: leave out spot and "
    "fallback_instance_types": lambda job: job.sagemaker.training_plan and (job.spot or job.fallback_instance_types),
    "sagemaker.training_plan_usd_per_hour is the price of a sagemaker.training_plan: set that, too": lambda job: (
        job.sagemaker.training_plan_usd_per_hour and not job.sagemaker.training_plan
    ),
    "sagemaker.mp_parameters is for strategy=smp, got strategy={strategy}: leave it out": lambda job: (
        job.sagemaker.mp_parameters and job.strategy != "smp"
    ),
    "sagemaker.input_mode=FastFile is for project or entry_script: paretune's training reads prepared rows, so leave "
    "it out": lambda job: job.sagemaker.input_mode != "File" and not job.runs_user_code,
    "project={project} needs a real job, got launcher=simulated: paretune cannot simulate its command": lambda job: (
        job.is_simulated and job.project is not None
    ),
    "instance_count must be 1 for a project on this machine, got {instance_count}: its command starts its own "
    "processes": lambda job: job.project is not None and not job.has_instances and job.instance_count > 1,
    f"register must be at most {LONGEST_REGISTERED_NAME} letters, digits and hyphens, with no hyphen at either "
    "end, as AWS names Model Package Groups, got {register}: use one such as sentiment-en": lambda job: (
        job.register and not _REGISTERED_NAME.fullmatch(job.register)
    ),
    "register={register} needs a model, but a job with probe_steps saves none: leave it out": lambda job: (
        job.register and job.probe_steps is not None
    ),
    "probe_steps={probe_steps} is for paretune's own training, got entry_script={entry_script}: leave it out, and give "
    "your script fewer steps in training_arguments": lambda job: job.probe_steps and job.entry_script is not None,
    "profile_steps={profile_steps} needs a real job with paretune's training, got launcher={launcher} and "
    "entry_script={entry_script}: leave it out, or call torch.profiler in your script": lambda job: (
        job.profile_steps and (job.is_simulated or job.entry_script is not None)
    ),
    "program={program} is not what trains with project or entry_script: leave it out": lambda job: (
        job.program == PARETUNE and job.runs_user_code
    ),
    "strategy=dp needs a program other than paretune, such as program=trainer: paretune trains with one process per "
    "GPU; use ddp": lambda job: job.strategy == DATA_PARALLEL and job.trained_by.is_paretune,
    "test_rows={test_rows} needs a program other than paretune, such as program=trainer: paretune's training evaluates "
    "the rows of test_file": lambda job: job.test_rows and job.trained_by.is_paretune and not job.runs_user_code,
    "simulation is for launcher=simulated, got launcher={launcher}": lambda job: (
        job.simulation.model_fields_set and not job.is_simulated
    ),
    "strategy {strategy} needs GPU instances of SageMaker: set instance_type, or use ddp": lambda job: (
        job.strategy in ("smddp", "smp", *DEEPSPEED) and not job.has_instances
    ),
}


def _only_there(job: "JobSpec") -> Iterator[str]:
    for name, strategies in _STRATEGIES.items():
        value = getattr(job, name)
        if (value is True or (value or 0) > 1) and job.strategy not in strategies:
            yield f"{name} needs strategy={' or '.join(strategies)}, got strategy={job.strategy}"
    for name in ("spot", "fallback_instance_types"):
        allowed = job.runs_on.has_spot if name == "spot" else job.runs_on.has_fallbacks
        if getattr(job, name) and not (allowed and job.has_instances):
            kinds = _kinds(has_spot=True)
            yield f"{name} is for instances that support it: set instance_type to one of {kinds}, or leave it out"


def _with_a_project(job: "JobSpec") -> Iterator[str]:
    if job.project is None:
        if _is_changed(job, "entry_point"):
            yield "entry_point needs project: give the folder or git URI of one, or leave it out"
        return
    apply = {*_WITH_A_PROJECT, *affecting(type(job), "stopping", "dollars", "ownership")}
    for name in filter(lambda name: _is_changed(job, name), job.model_fields_set - apply):
        remedy = f"it is for paretune's own training; use training_arguments ({{{name}: ...}})"
        if name == "entry_script":
            remedy = "the job runs the project's command; leave one of them out"
        elif name == "register":
            remedy = "leave it out, and register the model from the artifacts of the project's run"
        yield f"project={job.project} cannot be combined with {name}: {remedy}"


_MP_PARAMETERS = (
    *("sm_activation_offloading", "activation_loading_horizon", "fsdp_cache_flush_warnings", "allow_empty_shards"),
    *("context_parallel_degree", "expert_parallel_degree"),
)
"""Parameters of SMP v2 that paretune has no own parameter for (class SMP of SageMaker SDK 3.20, read 2026-11-30)."""


def _mp_parameters(job: "JobSpec") -> Iterator[str]:
    for name in filter(lambda name: name not in _MP_PARAMETERS, job.sagemaker.mp_parameters):
        text = f"sagemaker.mp_parameters has {name}, but must have only {', '.join(_MP_PARAMETERS)}"
        yield f"{text}: use parameters such as tensor_parallel_degree"


def _shell_script(job: "JobSpec") -> Iterator[str]:
    script = Path(job.entry_script or "")
    if script.suffix.lower() in (".sh", ".bash"):
        yield (
            f"entry_script must be a Python script, but {script} is a shell script: give its folder as "
            f"project={script.parent}, and entry_point={script.name}"
        )


def _finite_arguments(job: "JobSpec") -> Iterator[Fault]:
    for name, value in job.training_arguments.items():
        if not _is_finite(value):
            text = f"training_arguments.{name} must be finite, got {value}: JSON has no NaN and no infinity"
            yield Fault(("training_arguments", name), text)


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return all(map(_is_finite, value.values() if isinstance(value, Mapping) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _reserved_arguments(job: "JobSpec") -> Iterator[Fault]:
    free = ("output_dir",) if job.is_only_described else ()
    names = () if job.project else [name for name in job.training_arguments if name not in free]
    for name in filter(RESERVED_TRAINING_ARGUMENTS.get, names):
        text = f"training_arguments must not set {name}: {RESERVED_TRAINING_ARGUMENTS[name]}"
        yield Fault(("training_arguments", name), text)


def _web_addresses(job: "JobSpec") -> Iterator[str]:
    for name in () if job.runs_user_code else INPUT_FILES:  # a user's own script may read web addresses
        address = getattr(job, name) or ""
        if address.lower().startswith(("http://", "https://")):
            hub_id = re.match(r"https://huggingface\.co/(?:datasets/)?([\w.-]+(?:/[\w.-]+)?)/?$", address)
            kinds, way = "a hub id, a path or s3://...", "download it with `curl -LO`, and name the file"
            if name.endswith("_file"):  # validation_file and test_file cannot be hub ids
                kinds, way = "a path or s3://...", "download a file of it, and name that file" if hub_id else way
            elif hub_id:
                way = f"write {name}={hub_id[1]}"
            yield f"{name} must be {kinds}, got {without_secrets(address)}: {way}"


_KEY_LIKE = re.compile(r"[\w.+/=:~-]+")  # characters of keys; a pad_token such as `<|endoftext|>` does not match
_REFERENCE = re.compile(r"\$\{|^\$\w+$")  # to a value of OmegaConf, or to a variable of the environment


def looks_secret(name: str, value: str) -> bool:
    """Return whether a value looks like a well-known kind of key, or is long and has the name of a secret.

    Long means at least 12 characters, and no space.
    """
    return without_secrets(value) != value or (is_secret_name(name) and re.fullmatch(r"\S{12,}", value) is not None)


def _texts_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each string in nested mappings and lists, with the dotted name of the mapping entry that has it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _texts_in(item, f"{name}.{inner}" if name else str(inner))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_in(item, name)


def _secrets(job: "JobSpec") -> Iterator[Fault | str]:
    index = job.sagemaker.package_index or ""
    if looks_secret("package_index", index) or re.search("//[^/]*@", index):
        yield "sagemaker.package_index must not contain a user or password: everybody who sees the job can read it"
    elif not re.match(r"$|https?://\S+$", index):
        yield f"sagemaker.package_index must be an address (https://...), got {index!r}"
    for name in job.model_fields_set - {"tags", "environment"}:
        value = getattr(job, name)
        if isinstance(value, str | Mapping) and without_secrets(text := spell(value)) != text:
            yield f"{name} must not contain a password or key, but it looks like one: parameters are recorded"
    for name, value in _texts_in(job.training_arguments):
        last = name.rpartition(".")[2]  # of task.env or data.key, which are no files
        # A token of a service has only characters of keys. A password may have any, but a $ may refer to a value.
        may_be_one = _KEY_LIKE.fullmatch(value) or not ("token" in last.lower() or _REFERENCE.search(value))
        if may_be_one and looks_secret(last, value):
            text = f"training_arguments must not contain secrets, but {name} looks like one: parameters are recorded; "
            variable = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
            way = f"store it in AWS Secrets Manager, and give its ARN: --environment.{variable} secret:ARN"
            yield Fault(("training_arguments", name), f"{text}{way}")
    for name, value in job.tags.items():
        if looks_secret(name, value):
            text = f"tags must not contain secrets, but the value of {name!r} looks like one"
            yield Fault(("tags", name), f"{text}: everybody who sees the job can read it")
    yield from tag_faults(job.tags)


def _environment(job: "JobSpec") -> Iterator[Fault | str]:
    for name, value in job.environment.items():
        if not re.fullmatch(r"[A-Za-z_]\w{0,511}", name, re.ASCII):
            fault = "must have a name of letters, digits and _ that does not begin with a digit"
        elif _RESERVED_VARIABLES.fullmatch(name):
            fault = "is reserved for AWS, Python, the shell or paretune: leave it out"
        elif _SECRET_ARN.fullmatch(value):
            continue
        elif value.startswith(IN_SECRETS_MANAGER):
            fault = f"must be {IN_SECRETS_MANAGER}ARN of AWS Secrets Manager, got {value}"
        elif looks_secret(name, value):
            fault = f"looks like a secret, and values are recorded: use {IN_SECRETS_MANAGER}ARN of AWS Secrets Manager"
        else:
            continue
        yield Fault(("environment", name), f"environment.{name} {fault}")


def _metric_definitions(job: "JobSpec") -> Iterator[str]:
    rule = 'metric_definitions must be a list such as [{"Name": "f1", "Regex": "f1: ([0-9.]+)"}]'
    for number, item in enumerate(job.metric_definitions, 1):
        if fault := _definition_fault(item):
            yield f"{rule}: entry {number} {fault}"


def _definition_fault(item: Mapping[str, str]) -> str:
    if set(item) != {"Name", "Regex"}:
        return f"must have Name and Regex, got {str(item)[:80]}"
    if not _METRIC_NAME.fullmatch(item["Name"]):
        return f"must have a Name of letters, digits, spaces and _-.:/, as MLflow requires, got {item['Name'][:80]!r}"
    try:
        groups = re.compile(item["Regex"]).groups
    except (re.error, RecursionError, OverflowError) as error:
        return f"has a Regex that Python cannot read ({error}): {item['Regex'][:80]}"
    return "" if groups else f"has a Regex without parentheses around the number: {item['Regex'][:80]}"


def _instance_type(job: "JobSpec") -> Iterator[str]:
    kind, launcher, owner = job.instance_type, job.runs_on, catalog.owner(job.instance_type)
    if not launcher.has_instances and owner.has_instances:
        yield f"launcher {launcher.name} runs on {launcher.title}, got instance_type={kind}: leave one out"
    elif (not launcher.has_instances or launcher.is_simulated) and not owner.has_instances and kind != LOCAL:
        hint = catalog.similar_types(kind, catalog.instances())
        yield f"instance_type must be local or one of {_kinds(has_spot=False)}, got {kind!r}{hint}"
    elif launcher.has_instances and not launcher.is_simulated and owner != launcher:
        yield f"launcher {launcher.name} needs an instance_type {_example(launcher)}, got {kind!r}"
    elif job.has_instances:
        for name in job.instance_types():
            yield from _type_faults(job, name)
        yield from region_faults(job.region)


def _type_faults(job: "JobSpec", name: str) -> Iterator[str]:
    try:
        instance = job.instance(name)
    except BadInput as error:
        yield from error.faults
        return
    if instance.launcher != catalog.owner(job.instance_type).name:
        yield f"fallback_instance_types must be types of the same launcher as {job.instance_type}, got {name}"
    if instance.accelerator_count and not instance.has_gpu:
        rule = f"instance_type {name} has {instance.accelerator} chips, which paretune cannot use"
        yield rule if instance.accelerator.startswith("AWS") else f"{rule}: GPUs are named NVIDIA ..."


def _kinds(*, has_spot: bool) -> str:
    """Describe the instance types of all launchers, or only of launchers that have spot instances."""
    prefixed = [item for item in launchers.known().values() if item.instance_prefix and item.has_spot >= has_spot]
    return " or ".join(f"{item.title}'s ({item.instance_prefix}*)" for item in prefixed)


def _example(launcher: LauncherTraits) -> str:
    types = [item for item in catalog.instances().values() if item.launcher == launcher.name]
    first = next((item for item in types if item.accelerator_count == 1), types[0] if types else None)
    return f"of the table {launcher.instance_table}" if first is None else f"such as {first.instance_type}"


def _plan(job: "JobSpec") -> Iterator[str]:
    """Yield faults if a degree of parallelism does not divide its devices, or if the devices cannot share the batch."""
    if faults := job.degrees.faults():
        yield from faults
        return
    try:
        job.plan()
    except BadInput as error:
        yield from error.faults
        return
    for name in job.instance_types()[1:]:
        try:
            job.on_instance_type(name)
        except BadInput as error:
            yield from (f"fallback_instance_types: on {name} {text}" for text in error.faults)


RULES: Rules = (
    *rules_of(_TABLE),
    *(
        _only_there,
        _with_a_project,
        _mp_parameters,
        _shell_script,
        _reserved_arguments,
        _finite_arguments,
        _web_addresses,
        _secrets,
        _environment,
        _metric_definitions,
    ),
    _instance_type,
)
LAST_RULES: Rules = (_plan,)


def description_faults(job: "JobSpec") -> list[str]:
    """Return why a job is only a description of what another program has trained, so that it cannot be launched."""
    faults = []
    if job.is_only_described:
        text = f"program={job.program} only describes a training, for `paretune estimate` and `paretune import`"
        faults.append(f"{text}: leave it out to run paretune's own training, or give your script as entry_script")
    if job.strategy == DATA_PARALLEL:
        faults.append("strategy=dp is only for `paretune estimate` and `paretune import`: use ddp")
    return faults


def launch_faults(job: "JobSpec") -> list[str]:
    """Return the reasons why a job with a valid specification cannot be run, estimated or simulated; empty if it can.

    These are not rules of the specification, because jobs that are already recorded may break them. Other programs
    may use other libraries, so a job that is only described has none of these faults.
    """
    faults = list[str]()
    if job.is_only_described:
        return faults
    if job.strategy in ("smp", *DEEPSPEED) and not job.runs_user_code:
        library = "torch.sagemaker" if job.strategy == "smp" else "DeepSpeed"
        return [
            f"strategy={job.strategy} needs a training script of your own that uses {library}: give an entry_script, "
            "or use strategy=fsdp, which shards weights, gradients and optimizer state"
        ]
    for name in job.instance_types() if job.has_instances else ():
        instance = job.instance(name)
        able = catalog.owner(name).special_strategies.get(job.strategy, ())
        if job.strategy in _INSTEAD and not {name, instance.family} & {*able}:
            needed = f"one of {', '.join(able)}" if able else "another launcher"
            faults.append(f"strategy {job.strategy} needs {needed}, got {name}: {_INSTEAD[job.strategy]}")
        elif job.strategy in DEEPSPEED and not instance.has_gpu:
            faults.append(f"strategy {job.strategy} needs GPUs, and {name} has none: use fsdp or ddp")
    return faults
