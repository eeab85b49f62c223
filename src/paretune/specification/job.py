"""The parameters of one job, and values that follow from them.

Each parameter is declared once, here, for the command line, study files, `mlflow run -P`, the JSON schema, the
reference page and the parameters of MLflow runs. Rules between parameters are in `rules`.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator

from paretune.core.errors import BadInput
from paretune.core.shell import command_line, split_words
from paretune.specification import catalog, launchers, metrics
from paretune.specification.declaration import (
    ANY,
    COMPUTES,
    Effect,
    Parameters,
    Rules,
    affecting,
    experimental_in,
    extra_of,
    parameter,
    spell,
)
from paretune.specification.identity import JobIdentity
from paretune.specification.inputs import (
    BUNDLED_DATASET,
    BUNDLED_MODEL,
    INPUT_FILES,
    OTHER_TASKS,
    DataArguments,
    current_name,
)
from paretune.specification.launchers import AUTO, LOCAL, LauncherTraits, known_launcher
from paretune.specification.parallelism import (
    DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE,
    DEVICE_MAP,
    LARGEST_BATCH_SIZE,
    MICRO_BATCH_TOKENS,
    OF_THE_BATCH,
    TRAINERS_BATCH_SIZE,
    BatchPlan,
    ParallelDegrees,
    scale_learning_rate,
    split_batch,
)
from paretune.specification.program import Program, known_program
from paretune.specification.rules import IN_SECRETS_MANAGER, LAST_RULES, RULES
from paretune.specification.user_code import CodeRequest, CodeSource

ADAPTERS = ("lora", "qlora")  # kinds of fine-tuning that train adapters and freeze the weights
ALL_LINEAR = "all-linear"  # adapters on every linear layer except the head
LONGEST_POOL = 360  # minutes of a warm pool: KeepAlivePeriodInSeconds of CreateTrainingJob (botocore 1.44.5)
MOST_PROFILED_STEPS = 300  # a trace of more steps is too large to view
_FULL_LEARNING_RATE = 5e-5  # default of TrainingArguments (transformers 5.23), which suits full fine-tuning
_ADAPTERS_OVER_FULL = 10.0
"""Learning rate of adapters divided by that of full fine-tuning (Schulman et al., "LoRA Without Regret", Thinking
Machines Lab, 2025)."""
_Part = TypeVar("_Part", DataArguments, "ModelArguments")
_ONE_TRAINING = "a study compares settings of the same training code and environment"


class Lora(Parameters):
    """Low-rank adapters; the names are those of peft's LoraConfig."""

    r: int = parameter(8, "quality seconds memory", ge=1, le=1024, also="rank lora_rank")
    """rank of the adapters"""
    lora_alpha: float = parameter(16.0, "quality", gt=0, also="alpha")
    """adapters are scaled by lora_alpha / r"""
    lora_dropout: float = parameter(0.0, "quality seconds memory", ge=0, le=0.9, also="dropout")
    """dropout of adapters' inputs"""
    target_modules: tuple[str, ...] = parameter((ALL_LINEAR,), "quality seconds memory", also="lora_target_modules")
    """linear layers that get adapters"""
    merge: bool = parameter(True, "launcher")
    """merge the adapters into the weights; false: save adapters and the name of their base"""


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """Which model a training starts from, and what of it is trained: the parameters of a job with these names."""

    model: str
    init: str
    task: str
    max_seq_length: int
    fine_tuning: str
    lora: Lora
    checkpoints_activations: bool

    @property
    def adapts(self) -> bool:
        """Whether adapters are trained, and the other weights are frozen."""
        return self.fine_tuning in ADAPTERS

    @property
    def recomputes(self) -> bool:
        """Whether the backward pass recomputes activations layer by layer instead of keeping them."""
        return self.checkpoints_activations and self.fine_tuning != "head"


class SageMaker(Parameters):
    """Image, storage, network and warm pool of SageMaker jobs; most names are those of the SDK's ModelTrainer."""

    training_image: str | None = parameter(None, "seconds memory", also="image image_uri")
    """container image; by default the newest AWS image that supports the GPU"""
    s3_bucket: str | None = parameter(None, also="bucket")
    """bucket for data, models and results; by default sagemaker-REGION-ACCOUNT"""
    input_mode: Literal["File", "FastFile"] = parameter("File", also="training_input_mode")
    """how your own training reads its data: File, downloaded before it starts; FastFile, streamed from S3"""
    volume_size_in_gb: int | None = parameter(None, ge=1, le=16_384, also="volume_gib volume_size")
    """size of each instance's volume; by default chosen from the size of model and data"""
    subnets: tuple[str, ...] = parameter(())
    """subnets of a VPC"""
    security_group_ids: tuple[str, ...] = parameter(())
    """security groups of a VPC"""
    kms_key_id: str | None = parameter(None, also="kms_key volume_kms_key_id")
    """key for volumes, uploads and results"""
    network_isolation: bool = parameter(False, also="enable_network_isolation")
    """no network for the job; pip cannot install anything in it"""
    encrypt_traffic: bool = parameter(False, also="enable_inter_container_traffic_encryption")
    """encrypt the traffic between instances"""
    package_index: str | None = parameter(None)
    """address of a package index for pip in subnets without internet access"""
    keep_alive_minutes: float = parameter(0.0, ge=0, le=LONGEST_POOL, experimental=ANY)
    """keep the instances as a warm pool after the job; the pool is billed"""
    training_plan: str | None = parameter(None, "dollars", experimental=ANY, also="training_plan_arn")
    """ARN of a training plan, whose reserved instances the job uses"""
    training_plan_usd_per_hour: float = parameter(0.0, "dollars", ge=0)
    """what an instance of the training plan costs per hour, for the job's dollars; 0: the plan is paid for anyway"""
    infra_check: bool = parameter(False, experimental=ANY, also="enable_infra_check")
    """let AWS check the health of GPUs and network before the job starts"""
    remote_debug: bool = parameter(False, experimental=ANY, also="enable_remote_debug")
    """let you open a shell in the running containers, with AWS Systems Manager"""
    retry_attempts: int | None = parameter(None, ge=1, le=30, experimental=ANY, also="maximum_retry_attempts")
    """how often AWS itself starts the job again after its own internal errors, within max_runtime_minutes"""
    link_mlflow: bool = parameter(False, experimental=ANY, also="mlflow_config")
    """name the managed MLflow server of MLFLOW_TRACKING_URI in the job, so that AWS's console links them"""
    mp_parameters: dict[str, Any] = parameter({}, "seconds memory", example={"sm_activation_offloading": True})
    """strategy=smp: other parameters of SageMaker's model parallel library"""


class Simulation(Parameters):
    """How a simulated job behaves. By default nothing fails and nothing is random."""

    runs: str | None = parameter(None, also="recorded_runs")
    """CSV table of recorded runs to take results from"""
    seed: int = parameter(0, ge=0, le=2**32 - 1)
    """seed of failures and noise"""
    startup_seconds: float = parameter(120.0, ge=0)
    """billed seconds before the first step"""
    failure_rate: float = parameter(0.0, ge=0, le=1)
    """share of jobs that fail while they run"""
    capacity_error_rate: float = parameter(0.0, ge=0, le=1)
    """share of attempts that get no capacity"""
    seconds_noise: float = parameter(0.0, ge=0, le=1)
    """relative standard deviation of the seconds"""
    f1_noise: float = parameter(0.0, ge=0, le=1)
    """standard deviation of F1"""

    def share(self, *key: object) -> float:
        """Return a uniformly distributed number in [0, 1), always the same for the same seed and key."""
        return share_of("\x1f".join(map(str, (self.seed, *key))))

    def normal(self, deviation: float, *key: object) -> float:
        """Return a normally distributed number with mean 0, always the same for the same seed and key."""
        return deviation * NormalDist().inv_cdf(max(self.share(*key), 1e-12)) if deviation else 0.0


class JobSpec(Parameters):
    """One training run on one cluster. None means "off" or "chosen by paretune".

    An invalid specification raises BadInput with all faults at once. `last_rules` are checked only if there are no
    other faults.
    """

    model: str = parameter(
        BUNDLED_MODEL,
        "data quality seconds memory",
        group="model",
        basic=True,
        also="model_name_or_path model_name model_id",
    )
    """Hugging Face model id or folder; by default a MiniLM that comes as a Python package"""
    init: Literal["pretrained", "random"] = parameter("pretrained", "data quality")
    """initial weights; random: use only the model's configuration and tokenizer"""

    dataset: str = parameter(
        BUNDLED_DATASET,
        "data evaluation quality",
        group="data",
        basic=True,
        also="data dataset_name train_file",
    )
    """hub id (nyu-mll/glue:sst2), folder or file (CSV, TSV, JSON, JSONL, Parquet, TXT), s3://..., or bundled:imdb"""
    validation_file: str | None = parameter(None, "data evaluation quality")
    """file with validation rows; by default the validation split of the data set, or 10 % of the training rows"""
    test_file: str | None = parameter(None, "data evaluation")
    """file with test rows, evaluated at the end"""
    text_column: str = parameter("text", "data evaluation quality", basic=True)
    """column with the text; causal-lm: conversations in the columns messages, or prompt and completion, come first"""
    label_column: str = parameter("label", "data evaluation quality", basic=True)
    """column with the class; multi-label: a column of lists or of texts such as a|b, or several 0/1 columns, named as
    a,b; token-classification: one label per word"""
    task: Literal["classification", "multi-label", "token-classification", "causal-lm"] = parameter(
        metrics.CLASSIFICATION, "data evaluation quality seconds memory", instead=OTHER_TASKS
    )
    """what the model learns"""
    missing_rows: Literal["refuse", "drop"] = parameter("refuse", "data evaluation quality")
    """rows without text or label, or with too many fields: refuse the whole data set, or drop and count these rows"""
    max_train_samples: int | None = parameter(None, "data quality", ge=1, none="all", basic=True)
    """number of training rows, drawn with a fixed seed; all = every row"""
    max_eval_samples: int | None = parameter(None, "data evaluation quality", ge=1, none="all")
    """rows per evaluated split; by default a ninth of max_train_samples"""
    max_seq_length: int = parameter(128, "data quality seconds memory", ge=4, also="max_length")
    """tokens per row; longer texts are cut and counted"""

    per_device_train_batch_size: int | None = parameter(
        None,
        "seconds memory batch",
        ge=1,
        le=LARGEST_BATCH_SIZE,
        group="batch size, learning rate and epochs",
        also="bs batch_size train_batch_size",
    )
    """rows per device and micro-batch; by default 16, or the most that fit in memory according to the estimate: the
    job then accumulates gradients, and its global batch size stays"""
    gradient_accumulation_steps: int | None = parameter(None, "quality batch", ge=1, le=LARGEST_BATCH_SIZE)
    """micro-batches per optimizer step (1)"""
    global_batch_size: int | None = parameter(None, "quality batch", ge=1, le=LARGEST_BATCH_SIZE, basic=True)
    """rows per optimizer step on all devices; per-device batch and accumulation follow from it"""
    learning_rate: float | None = parameter(None, "quality batch", gt=0, basic=True, also="lr")
    """peak learning rate (5e-5, with adapters 5e-4)"""
    learning_rate_scaling: Literal["none", "sqrt", "linear"] = parameter("none", "quality batch")
    """how learning_rate, the rate for a global batch of 16 rows, scales with the global batch size"""
    num_train_epochs: float = parameter(1.0, "quality", gt=0, le=10_000, basic=True, also="epochs")
    """passes over the training rows"""
    seed: int = parameter(42, "noise", ge=0, le=2**32 - 1, also="seed_everything")
    """seed of initialization, order and dropout"""

    precision: Literal["auto", "fp32", "bf16", "fp16", "bf16-true"] = parameter(
        "auto", "quality seconds memory", group="how it is trained", also="dtype bf16 fp16 fp32"
    )
    """auto: bf16 if the device has it, else fp16 on tensor cores, else fp32; bf16-true: bf16 weights and optimizer"""
    fine_tuning: Literal["full", "head", "lora", "qlora"] = parameter("full", "quality seconds memory")
    """full: all weights; head: only the head; lora: low-rank adapters; qlora: adapters on 4-bit weights"""
    lora: Lora = parameter(Lora(), "quality seconds memory", example={"r": 8})
    """for lora and qlora: fields of peft's LoraConfig, and merge"""
    training_arguments: dict[str, Any] = parameter(
        {},
        "quality seconds memory",
        example={"weight_decay": 0.01},
        also="warmup_ratio warmup_steps weight_decay optim compiler activation_checkpointing torch_compile",
    )
    """other Hugging Face TrainingArguments, such as warmup_ratio; or the arguments of your own script or project"""

    entry_script: str | None = parameter(
        None, "quality seconds memory", not_searched=_ONE_TRAINING, group="your own training", also="script"
    )
    """your own training script, run instead of paretune's training"""
    script_words: str = parameter("", "quality seconds memory", not_searched=_ONE_TRAINING, example="fit data/train")
    """words that your script reads by their places, such as a subcommand: those that you type after the script"""
    ask_script: bool = parameter(False, "launcher")
    """run your script once with --help if its text does not show all options; at most 60 s, without network"""
    project: str | None = parameter(None, "quality seconds memory", not_searched=_ONE_TRAINING)
    """MLflow project, or folder with scripts, run instead of paretune's training: a folder or a git URI"""
    entry_point: str = parameter("main", "quality seconds memory", not_searched=_ONE_TRAINING)
    """entry point of the project, or a script in it such as train.py"""
    metric: tuple[str, ...] = parameter((), "launcher", example=["quokka"])
    """names of metrics that your training prints, comma-separated, if neither its text nor their words show them"""
    metric_definitions: tuple[dict[str, str], ...] = parameter(
        (), "launcher", example=[{"Name": "f1", "Regex": "f1: ([0-9.]+)"}]
    )
    """JSON list of Name and Regex, as in SageMaker, that reads metrics from the lines that your training prints"""
    keep_models: bool = parameter(True, "launcher")
    """copy the model files that your training saves into its run, up to 200 MiB together"""
    environment: dict[str, str] = parameter(
        {},
        "quality seconds memory",
        example={"NCCL_DEBUG": "INFO"},
        not_searched=_ONE_TRAINING,
        also="env envs environment_variables",
    )
    """environment variables: a value, or secret:ARN of AWS Secrets Manager, which the job reads"""

    program: Annotated[str | None, AfterValidator(known_program)] = parameter(
        None,
        "seconds memory",
        not_searched=_ONE_TRAINING,
        group="the program that trains, for estimates and imported runs",
        example="trainer-4.x",
    )
    """paretune; trainer: Hugging Face's Trainer of transformers 5; trainer-4.46: of another version; trainer-4.x: of
    2021 to 2023. By default, read from your script, else paretune. Its save_steps, save_total_limit, output_dir,
    optim, tf32 and others are training_arguments"""
    test_rows: int | None = parameter(None, "seconds", not_searched=_ONE_TRAINING, ge=1)
    """rows of a test split that a script evaluates after its training, for estimates"""

    strategy: Literal["ddp", "fsdp", "smddp", "smp", "deepspeed", "deepspeed_zero3", "device_map", "dp"] = parameter(
        "ddp",
        "seconds memory",
        group="strategy: how one job is spread over devices",
        experimental="smp smddp fsdp deepspeed deepspeed_zero3 device_map",
    )
    """how devices share the work; smp and deepspeed work only with your own scripts; dp, one process for all GPUs of
    an instance (torch's DataParallel), only in estimates and imported runs"""
    tensor_parallel_degree: int | None = parameter(None, "seconds memory", ge=1, experimental=ANY)
    """fsdp, smp: number of devices in one instance that split each layer's matrices"""
    pipeline_parallel_degree: int | None = parameter(None, "seconds memory", ge=1, experimental=ANY)
    """fsdp: number of pipeline stages, each with a part of the layers"""
    hybrid_shard_degree: int | None = parameter(None, "seconds memory", ge=0)
    """fsdp, smp: number of devices that share one copy of the weights; 0 = all"""
    cpu_offload: bool = parameter(False, "seconds memory")
    """fsdp: keep weights, gradients and optimizer state in main memory"""
    activation_offloading: bool = parameter(False, "seconds memory", experimental=ANY)
    """with gradient_checkpointing: keep the inputs of layers in main memory until the backward pass"""

    instance_type: str = parameter(
        LOCAL,
        "seconds memory cluster",
        group="cluster and launcher",
        basic=True,
        also="gpu gpus gpu_type accelerators instance",
    )
    """local: processes on this machine; ml.*: SageMaker training instances (experimental)"""
    instance_count: int = parameter(1, "seconds memory cluster", ge=1, le=1024, also="nodes num_nodes instances")
    """number of instances; on this machine, number of processes"""
    launcher: Annotated[str, AfterValidator(known_launcher)] = parameter(
        AUTO, "launcher", choices=(AUTO, *launchers.names())
    )
    """auto: chosen by instance_type; simulated: nothing runs and nothing is billed"""
    fallback_instance_types: tuple[str, ...] = parameter(
        (), "stopping", not_searched="search instance_type itself", experimental=ANY
    )
    """comma-separated types to use if AWS has no capacity, best first; the global batch size does not change"""
    spot: bool = parameter(False, "dollars", not_searched="it changes the bill but no result")
    """SageMaker: use spare capacity at a discount; an interrupted job continues from its checkpoint"""
    simulation: Simulation = parameter(Simulation(), "launcher", example={"failure_rate": 0.1, "seed": 7})
    """launcher=simulated: seed, delays and failure rates; runs: a CSV table of recorded runs to replay"""

    max_runtime_minutes: float = parameter(
        60.0,
        "stopping",
        gt=0,
        le=40_320,
        basic=True,
        group="limits and money",
        also="timeout max_runtime max_run max_time",
    )
    """stop the job after this many minutes; every job has a limit"""
    max_cost_usd: float | None = parameter(None, "stopping ownership", ge=0, basic=True)
    """do not launch a job whose worst case costs more"""
    budget: str | None = parameter(None, "ownership")
    """YAML file with monthly budgets, for all jobs or by tags; jobs that do not fit are refused"""
    tags: dict[str, str] = parameter({}, "ownership", example={"team": "search"})
    """tags, for AWS and for budgets; the tags user and team identify the owner"""

    region: str | None = parameter(
        None,
        "dollars ownership",
        not_searched="it changes prices but no result; `paretune report` with a region prices the runs again",
        group="SageMaker",
    )
    """AWS region; by default the region of the AWS configuration"""
    role: str | None = parameter(None, "ownership", basic=True)
    """execution role of the job: its name or ARN"""
    sagemaker: SageMaker = parameter(SageMaker(), "ownership", example={"s3_bucket": "my-models"})
    """image, storage, network and warm pool; most names are those of ModelTrainer in the SageMaker SDK"""

    probe_steps: int | None = parameter(
        None,
        "quality",
        ge=10,
        not_searched="a probe measures no F1",
        group="run: what is measured and recorded",
    )
    """measure only time and memory: train this many optimizer steps, without evaluation"""
    profile_steps: int | None = parameter(None, "launcher", ge=1, le=MOST_PROFILED_STEPS)
    """profile this many steps: trace.json.gz, profile.md"""
    register: str | None = parameter(  # type: ignore[assignment]  # hidden in the base to quiet pydantic
        None, "launcher", not_searched="it changes no result; a study registers the model that it recommends"
    )
    """name in MLflow's model registry; the model becomes a new version under this name, with the alias candidate"""
    force: tuple[Literal["again", "limit", "learning_rate"], ...] = parameter((), "launcher")
    """launch despite a refusal; again: the same job is running; limit: the job seems too long; learning_rate: its rate
    seems too high"""
    dry_run: bool = parameter(False, "launcher", basic=True)
    """check everything and print the job and its worst-case dollars, but do not launch it"""

    rules: ClassVar[Rules] = RULES
    last_rules: ClassVar[Rules] = LAST_RULES

    @classmethod
    def _typed(cls, values: Mapping[Any, Any]) -> dict[str, Any]:
        typed = super()._typed(values)
        return typed | {name: current_name(typed[name]) for name in INPUT_FILES if isinstance(typed.get(name), str)}

    @property
    def runs_on(self) -> LauncherTraits:
        """The traits of the job's launcher."""
        return launchers.chosen(self.launcher, self.instance_type)

    def experimental(self) -> tuple[str, ...]:
        """Return the experimental settings of the job, as `name` or `name=value`."""
        launcher = (f"launcher={self.runs_on.name}",) if self.runs_on.is_experimental else ()
        return (*launcher, *experimental_in(self))

    @property
    def is_simulated(self) -> bool:
        """Whether the job is only simulated."""
        return self.runs_on.is_simulated

    @property
    def has_instances(self) -> bool:
        """Whether the job runs on instance types from a table, real or simulated, rather than on this machine."""
        return launchers.uses_instances(self.launcher, self.instance_type)

    @property
    def runs_user_code(self) -> bool:
        """Whether the job runs the user's own script or project instead of paretune's training."""
        return self.entry_script is not None or self.project is not None

    @property
    def kind(self) -> Literal["ours", "script", "project"]:
        """Tells whose training the job runs: paretune's own, a script of the user, or an MLflow project."""
        return "project" if self.project is not None else "script" if self.entry_script is not None else "ours"

    @property
    def trained_by(self) -> Program:
        """The program that trains, as far as the parameters say; paretune's own training if they do not."""
        return Program.read(self.program)

    @property
    def is_only_described(self) -> bool:
        """Whether the job describes the training of another program, without its script: it cannot be launched."""
        return not (self.trained_by.is_paretune or self.runs_user_code)

    @property
    def reads_secrets(self) -> bool:
        """Whether a variable of the job is read from AWS Secrets Manager."""
        return any(value.startswith(IN_SECRETS_MANAGER) for value in self.environment.values())

    @property
    def is_compiled(self) -> bool:
        """Whether the model is compiled with torch.compile."""
        return any(self.training_arguments.get(f"torch_compile{part}") for part in ("", "_backend", "_mode"))

    @property
    def checkpoints_activations(self) -> bool:
        """Whether the backward pass recomputes activations to save memory."""
        return bool(self.training_arguments.get("gradient_checkpointing"))

    @property
    def data_arguments(self) -> DataArguments:
        """The parameters that say which rows the training reads, and how."""
        return self._part(DataArguments)

    @property
    def model_arguments(self) -> ModelArguments:
        """The parameters that say which model is trained, and how much of it."""
        return self._part(ModelArguments)

    @property
    def identity(self) -> JobIdentity:
        """The job's identity, as far as it is known before its rows and code have been read."""
        return JobIdentity(computation=self.spec_hash(), given=self.given())

    @property
    def code_source(self) -> CodeSource:
        """The place of the user's own script or project."""
        return CodeSource(
            entry_script=self.entry_script,
            project=self.project,
            entry_point=self.entry_point,
            words=tuple(split_words(self.script_words)),
            may_ask=self.ask_script,
        )

    @property
    def code_request(self) -> CodeRequest:
        """The values that the user's own script or project may get."""
        return CodeRequest(
            source=self.code_source,
            given={name: getattr(self, name) for name in self.model_fields_set},
            options=self.training_arguments,
            files={name: str(getattr(self, name) or "") for name in INPUT_FILES},
            batch=self.plan(),
            fallbacks={name: self._shared_by(name) for name in self.instance_types()[1:]},
            num_train_epochs=self.num_train_epochs,
            seed=self.seed,
            scales_rate=self.learning_rate_scaling != "none",
            metric=self.metric,
            metric_definitions=self.metric_definitions,
            keeps_models=self.keep_models,
            has_instances=self.has_instances,
            files_travel=self.runs_on.files_travel,
            has_image=self.sagemaker.training_image is not None,
        )

    def _shared_by(self, instance_type: str) -> BatchPlan | None:
        """Return the plan with the same global batch on a fallback type; None if its devices cannot share the batch."""
        try:
            return self.with_its_batch().on_instance_type(instance_type).plan()
        except BadInput:
            return None

    def _part(self, kind: type[_Part]) -> _Part:
        return kind(**{each.name: getattr(self, each.name) for each in fields(kind)})

    @property
    def prefers_chats(self) -> bool:
        """Whether columns of conversations come before text_column: for a language model, if it was not given."""
        return self.task == metrics.CAUSAL_LM and "text_column" not in self.model_fields_set

    def instance(self, instance_type: str | None = None) -> catalog.Instance:
        """Return the hardware of an instance type, by default the job's own. Raises BadInput if it is unknown."""
        return catalog.instance(instance_type or self.instance_type)

    @property
    def processes(self) -> int:
        """Number of training processes on each instance: one per accelerator, and at least one."""
        return max(1, self.instance().accelerator_count) if self.has_instances else 1

    @property
    def processes_here(self) -> int:
        """Number of processes of a script on each machine: one per device, but one in all with strategy device_map."""
        if self.strategy == DEVICE_MAP:
            return 1
        return self.processes if self.has_instances else self.instance_count

    @property
    def degrees(self) -> ParallelDegrees:
        """How the devices of the whole cluster share the model and the rows."""
        devices = self.processes * self.instance_count
        return ParallelDegrees(
            devices=devices,
            per_instance=self.processes if self.has_instances else devices,  # local processes share one machine
            tensor=self.tensor_parallel_degree or 1,
            pipeline=devices if self.strategy == DEVICE_MAP else self.pipeline_parallel_degree or 1,
            hybrid_shard=self.hybrid_shard_degree,
            strategy=self.strategy,
            cpu_offload=self.cpu_offload,
        )

    @property
    def unscaled_learning_rate(self) -> float:
        """The learning rate at the reference batch size: the given one, or the default of `fine_tuning`."""
        return self.learning_rate or default_learning_rate(self.fine_tuning)

    def plan(self) -> BatchPlan:
        """Return the batch sizes and the learning rate that the parameters imply.

        - Without `global_batch_size`, the per-device batch is 16, or 8 for Hugging Face's Trainer, and there is 1
          accumulation step, unless these are set.
        - With `global_batch_size` and either the per-device batch or the accumulation steps, the other one follows.
        - With `global_batch_size` alone, a device computes its share of a step at once if the share has at most
          MICRO_BATCH_TOKENS tokens or at most 16 rows, and otherwise in micro-batches of at most that size. A user's
          own script gets the largest divisor of the share that is at most 16 as its per-device batch.

        If `leaves_batch_open`, a job may compute the same step in smaller micro-batches: see `Offer.batch`.
        """
        return self._plan

    @property
    def leaves_batch_open(self) -> bool:
        """Whether paretune chooses the rows of a micro-batch, so that the job fits in memory.

        It does if neither they nor the accumulation steps are given. Other programs, recorded runs and pipelines have
        their own micro-batches.
        """
        has_own = self.runs_user_code or not self.trained_by.is_paretune or self.simulation.runs is not None
        is_given = self.per_device_train_batch_size is not None or self.gradient_accumulation_steps is not None
        return not (has_own or is_given or self.degrees.pipeline > 1)

    @cached_property
    def _plan(self) -> BatchPlan:
        usual = DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE if self.trained_by.is_paretune else TRAINERS_BATCH_SIZE
        given = self.per_device_train_batch_size, self.gradient_accumulation_steps
        (batch, steps), total, devices = (given[0] or usual, given[1] or 1), self.global_batch_size, self.degrees.data
        if total is not None:
            most = max(DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE, MICRO_BATCH_TOKENS // self.max_seq_length)
            batch, steps = split_batch(total, devices, *given, most=most, is_script=self.runs_user_code)
        total = total or batch * steps * devices
        return BatchPlan(
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=steps,
            devices=devices,
            learning_rate=scale_learning_rate(self.unscaled_learning_rate, self.learning_rate_scaling, total),
            global_batch_size=total,
        )

    def instance_types(self) -> tuple[str, ...]:
        """Return the instance type and its fallbacks, without duplicates."""
        return tuple(dict.fromkeys((self.instance_type, *self.fallback_instance_types)))

    def clusters(self) -> tuple[Self, ...]:
        """Return this job, and the same job on each fallback type."""
        return (self, *(self.on_instance_type(name) for name in self.instance_types()[1:]))

    def on_instance_type(self, instance_type: str) -> Self:
        """Return the same training run on the same number of instances of another type.

        The global batch size stays the same, and so does the per-device batch if the new devices can use it. For a
        user's own script, the batch changes only with the number of devices, and the per-device batch is set only if
        it or the accumulation was given, because a script may not accumulate gradients. A training of the user's own
        without a given batch chooses it itself, on the new type, too.

        Raises BadInput if the job is invalid on that type: for example, if its devices cannot share the global batch
        evenly.
        """
        changes = {"instance_type": instance_type, "fallback_instance_types": None}
        if self.project is not None or (self.entry_script is not None and not self.gives(*OF_THE_BATCH)):
            return self.replace(**changes)
        plan = self.plan()
        moved = self.replace(**changes, global_batch_size=None, gradient_accumulation_steps=None)
        if self.entry_script is not None and moved.degrees.data == self.degrees.data:
            return self.replace(**changes)
        batch, total = plan.per_device_train_batch_size, plan.global_batch_size
        fits = total % (batch * moved.degrees.data) == 0
        may_set = self.entry_script is None or not self.model_fields_set.isdisjoint(OF_THE_BATCH[:2])
        return moved.replace(global_batch_size=total, per_device_train_batch_size=batch if fits and may_set else None)

    def gives(self, *names: str) -> bool:
        """Return whether the user gave any of these parameters, even with the value of its default."""
        return not self.model_fields_set.isdisjoint(names)

    def with_its_batch(self) -> Self:
        """Return the job with its global batch size as a given parameter, which other instance types keep."""
        return self if self.gives(*OF_THE_BATCH) else self.replace(global_batch_size=self.plan().global_batch_size)

    def spec_hash(self, *, but: Collection[str] = ()) -> str:
        """Return 12 hexadecimal digits, equal for jobs that compute the same thing apart from parameters in `but`."""
        defaults = type(self).model_fields
        names = [name for name in affecting(type(self), *COMPUTES) if getattr(self, name) != defaults[name].default]
        values = {name: self._spelled(name) for name in names}
        values["learning_rate"] = spell(self.unscaled_learning_rate)
        values = {name: text for name, text in values.items() if name not in but}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]

    def key_of(self, *effects: Effect, but: str = "") -> tuple[str, ...]:
        """Return the values, as strings, of the parameters with one of `effects`, except the parameter `but`.

        Two jobs with the same key agree on all these parameters. The key leaves out parameters of the batch plan and
        the cluster, because different values of them may mean the same plan or cluster: compare these directly.
        """
        names = affecting(type(self), *effects, without=("batch", "cluster"))
        return tuple(self._spelled(name) for name in names if name != but)

    def _spelled(self, name: str) -> str:
        """Return a value as a string. Entries of `lora` that equal their defaults are left out, even if given."""
        value = getattr(self, name)
        return spell(value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, Parameters) else value)

    def command(self) -> str:
        """Return the command line that repeats this job."""
        return command_line("train", self.given_text())


class JobValues(JobSpec):
    """Values of some job parameters, such as those that all jobs of a study share, checked only one by one."""

    rules: ClassVar[Rules] = ()
    last_rules: ClassVar[Rules] = ()


def default_learning_rate(fine_tuning: str) -> float:
    """Return the default learning rate at the reference batch size for a kind of fine-tuning."""
    return _ADAPTERS_OVER_FULL * _FULL_LEARNING_RATE if fine_tuning in ADAPTERS else _FULL_LEARNING_RATE


def share_of(text: str) -> float:
    """Return a uniformly distributed number in [0, 1), always the same for the same string."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2**56


DEFAULTS = {name: spell(field.default) for name, field in JobSpec.model_fields.items()}
"""The default of each parameter of a job, as a user would spell it."""


def parameters_affecting(*effects: Effect, without: tuple[Effect, ...] = ()) -> tuple[str, ...]:
    """Return the names of the parameters of a job that have one of `effects` and none of `without`."""
    return affecting(JobSpec, *effects, without=without)


def other_names(parameter: str) -> tuple[str, ...]:
    """Return the names that other programs use for a parameter of a job; empty for any other name."""
    return tuple(extra_of(JobSpec, parameter, "also")) if parameter in DEFAULTS else ()
