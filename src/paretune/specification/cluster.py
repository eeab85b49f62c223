"""Where a job runs: cluster, strategy, account and money, as parameters with their rules.

A base of `JobSpec`, which adds what is trained. What can only be known in an account (quotas, images, permissions) is
checked by the launcher.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Self

from paretune.core.errors import BadInput, collecting
from paretune.core.tags import tag_faults
from paretune.specification import catalog
from paretune.specification.legacy_smp import LEGACY_SMP_EXAMPLE, LegacyModelParallel
from paretune.specification.parallel_degrees import ParallelDegrees
from paretune.specification.parameters import Effect, parameter
from paretune.specification.regions import region_faults
from paretune.specification.simulation import Simulation

STRATEGIES = ("ddp", "fsdp", "smddp", "smp", "deepspeed")
LONGEST_KEEP_ALIVE_MINUTES = 360
"""Of a warm pool. Source: CreateTrainingJob, KeepAlivePeriodInSeconds (botocore 1.44.5)."""
MOST_RANKED_TYPES = 5
"""Instance types among which SageMaker takes one for a job. Source: ResourceConfig, InstancePreferences (botocore
1.44.5)."""
SEARCHED_PLAN = "search"
"""`training_plan` of an estimate that asks AWS which plans it offers."""
_PLAN = re.compile(r"arn:aws[a-z\-]*:sagemaker:([a-z0-9\-]*):[0-9]{12}:training-plan/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}")
"""Source: DescribeTrainingPlan, TrainingPlanName (botocore 1.44.5)."""
_PLAN_EXAMPLE = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/NAME"
_FROM_ANY_CHECKPOINT = ("ddp", "smddp", "fsdp")
_LONGEST_USER = 128  # characters
_TAGS_EXAMPLE = '{"team": "search"}'
_SECRET_NAME = re.compile(r"secret|passw|token|credential|private.?key|api.?key|access.?key", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"hf_\w{20}|(AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_\w{30}|sk-[\w-]{20}|-----BEGIN|//[^/\s:]*:[^/\s@]+@"
)
_STRATEGIES_OF = {
    "hybrid_shard_degree": ("fsdp", "smp"),
    "tensor_parallel_degree": ("fsdp", "smp"),
    "context_parallel_degree": ("smp",),
    "expert_parallel_degree": ("smp",),
    "pipeline_parallel_degree": ("fsdp",),
    "cpu_offload": ("fsdp",),
}
"""Parameters that only these strategies take."""

SIMULATED = "simulated"
"""The launcher that runs nothing."""
ONLY_SIMULATED = ("recorded_runs", "simulation")
"""Parameters that only that one takes."""
OF_A_QUEUE = ("share_identifier", "quota_share_name", "scheduling_priority")
"""Parameters of a job that waits in a queue."""
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,127}|arn:[^:]+:batch:[^:]+:\d+:job-queue/[\w-]+", re.ASCII)
"""CreateJobQueue, jobQueueName, or the queue's ARN (botocore 1.44.5)."""


STEP: frozenset[Effect] = frozenset({"seconds", "memory"})
"""What a training step takes and holds: nearly all that changes the one changes the other."""
_DEVICES: frozenset[Effect] = STEP | {"cluster"}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Cluster, strategy, account and money. Every field is optional."""

    strategy: str = parameter(
        "ddp",
        "how one job is spread over devices",
        choices=STRATEGIES,
        affects=STEP,
        group="strategy: how one job is spread over devices",
    )
    hybrid_shard_degree: int | None = parameter(
        None, "fsdp, smp: devices that share one copy of the weights; 0 = all", minimum=0, affects=STEP
    )
    tensor_parallel_degree: int | None = parameter(
        None, "fsdp, smp: devices of one instance that share the matrices of each layer", minimum=1, affects=STEP
    )
    context_parallel_degree: int | None = parameter(
        None, "smp: devices that share one sequence", minimum=1, affects=STEP
    )
    expert_parallel_degree: int | None = parameter(
        None, "smp: devices that share a layer's experts", minimum=1, affects=STEP
    )
    pipeline_parallel_degree: int | None = parameter(
        None, "fsdp: stages of a pipeline, each with its part of the layers", minimum=1, affects=STEP
    )
    micro_batches: int | None = parameter(
        None,
        "pipeline: parts of a per-device batch that are in the stages at once; by default as many as stages",
        minimum=1,
        affects=STEP,
    )
    activation_checkpointing: bool = parameter(
        False, "keep only the input of each layer and compute the rest again in the backward pass", affects=STEP
    )
    activation_offloading: bool = parameter(
        False, "keep checkpointed activations in the machine's memory", affects=STEP
    )
    cpu_offload: bool = parameter(
        False, "fsdp: keep weights, gradients and optimiser state in the machine's memory", affects=STEP
    )
    legacy_smp: Mapping[str, Any] = parameter(
        {},
        "JSON object: settings of version 1 of SageMaker's model parallelism library, for an entry_script; archived",
        affects=STEP,
        not_searched="a study compares settings of one training",
        example=LEGACY_SMP_EXAMPLE,
    )
    instance_type: str = parameter(
        "local",
        "local: processes on this machine; ml.*: SageMaker training instances",
        affects=_DEVICES,
        group="cluster and launcher",
        basic=True,
    )
    instance_facts: Mapping[str, Any] = parameter(
        {},
        "JSON object: type to gpu, gpus, gpu_memory_gib, vcpus, memory_gib, network_gbps, local_storage_gib, for types "
        "that paretune does not know",
        affects={"cluster"},
        not_searched="it describes the hardware",
        example=catalog.FACTS_EXAMPLE,
    )
    instance_count: int = parameter(
        1, "instances; locally, data-parallel processes", minimum=1, maximum=1024, affects=_DEVICES
    )
    processes_per_instance: int | None = parameter(
        None,
        "processes on each SageMaker instance; by default one per accelerator",
        minimum=1,
        maximum=192,
        affects=STEP,
    )
    launcher: str = parameter(
        "auto",
        "where the job runs; auto reads instance_type; simulated: on a virtual clock, nothing is paid",
        choices=("auto", "local", "sagemaker", SIMULATED),
        affects={"launcher"},
    )
    recorded_runs: str | None = parameter(None, "simulated: CSV table of runs to replay", affects={"launcher"})
    simulation: Mapping[str, Any] = parameter(
        {},
        "simulated: JSON object of seed, delays and rates of trouble",
        affects={"launcher"},
        example='{"failure_rate": 0.1, "seed": 7}',
    )
    max_runtime_minutes: float = parameter(
        60.0,
        "the job is stopped after this; every job has a limit",
        above=0,
        maximum=40_320,
        affects={"limit"},
        group="limits, money and capacity",
    )
    max_silence_minutes: float = parameter(
        30.0,
        "a job that tells nothing and uses neither CPU nor GPU for so long is ended; 0 = never",
        minimum=0,
        maximum=40_320,
        affects={"limit"},
    )
    max_cost_usd: float | None = parameter(
        None, "refuse to launch when the worst case costs more", minimum=0, affects={"limit", "account"}, basic=True
    )
    budget: str | None = parameter(
        None,
        "YAML file of budgets beyond one study: dollars a month, for all jobs or by tags; what does not fit is refused",
        affects={"account"},
    )
    local_price_usd_per_hour: float = parameter(
        0.115,
        "notional price of a local instance; the default is that of ml.m5.large",
        minimum=0,
        affects={"bill"},
        not_searched="it is a notion of yours, not a result",
    )
    spot: bool = parameter(
        False,
        "SageMaker: spare capacity; an interrupted job continues from its checkpoint",
        affects={"bill"},
        not_searched="spot changes the bill and no result; `paretune report --spot_share 0.3` prices the runs again",
    )
    max_wait_minutes: float | None = parameter(
        None,
        "spot: running and waiting together; by default max_runtime_minutes + 60",
        above=0,
        maximum=40_320,
        affects={"limit"},
    )
    fallback_instance_types: str | None = parameter(
        None,
        "comma-separated types to take when AWS has no capacity, best first; the global batch size stays",
        affects={"limit"},
        not_searched="search instance_type itself",
    )
    capacity_wait_minutes: float = parameter(
        0.0, "how long to go on asking when no type has capacity", minimum=0, maximum=10_080, affects={"limit"}
    )
    queue: str | None = parameter(
        None,
        "AWS Batch queue for SageMaker training in which the job waits for its turn: name or ARN",
        affects={"account"},
    )
    share_identifier: str | None = parameter(
        None, "queue with fair shares: whose share the job belongs to", affects={"account"}
    )
    quota_share_name: str | None = parameter(
        None, "queue with quota shares: whose share the job belongs to", affects={"account"}
    )
    scheduling_priority: int | None = parameter(
        None,
        "queue: jobs of a share with a higher number come first",
        minimum=0,
        maximum=9999,  # SubmitServiceJob, schedulingPriority (botocore 1.44.5)
        affects={"account"},
    )
    training_plan: str | None = parameter(
        None,
        "SageMaker: ARN of a training plan, whose instances are paid for already; estimate: search = what AWS offers",
        affects={"bill"},
        not_searched="it changes the bill and no result",
    )
    region: str | None = parameter(
        None,
        "AWS region; by default that of the AWS configuration",
        affects={"account", "bill"},
        not_searched="it changes prices and no result; `paretune report` with a region prices the runs again",
        group="SageMaker: account, image, storage and network",
    )
    role: str | None = parameter(None, "execution role of the job: name or ARN", affects={"account"})
    bucket: str | None = parameter(
        None, "S3 bucket for data, models and results; by default sagemaker-REGION-ACCOUNT", affects={"account"}
    )
    image_uri: str | None = parameter(
        None, "training image; by default AWS's newest one that suits the GPU", affects=STEP
    )
    volume_gib: int | None = parameter(
        None,
        "storage volume of an instance, GiB; by default derived from model and data",
        minimum=1,
        maximum=16_384,
        affects={"account"},
    )
    keep_alive_minutes: float = parameter(
        0.0,
        "keep the instances as a warm pool, billed",
        minimum=0,
        maximum=LONGEST_KEEP_ALIVE_MINUTES,
        affects={"account"},
    )
    subnets: str | None = parameter(None, "comma-separated VPC subnets", affects={"account"})
    security_group_ids: str | None = parameter(None, "comma-separated VPC security groups", affects={"account"})
    package_index: str | None = parameter(
        None,
        "where pip of a job finds packages, for subnets without internet: address, or ARN of a CodeArtifact repository",
        affects={"account"},
    )
    kms_key: str | None = parameter(None, "KMS key for volume, uploads and results", affects={"account"})
    tags: Mapping[str, str] = parameter(
        {}, "JSON object: tags of the job, in AWS and for budgets", affects={"account"}, example=_TAGS_EXAMPLE
    )
    user: str | None = parameter(
        None, "whose job it is, for tags and budgets; by default the login name", affects={"account"}
    )
    on_interrupt: str = parameter(
        "stop",
        "SageMaker job on Ctrl-C or SIGTERM: stop it, or leave it running",
        choices=("stop", "detach"),
        affects={"account"},
    )

    @property
    def on_sagemaker(self) -> bool:
        """Whether the job runs in an AWS account."""
        return self.launcher == "sagemaker" or (self.launcher == "auto" and self.instance_type.startswith("ml."))

    @property
    def is_simulated(self) -> bool:
        """Whether nothing really runs."""
        return self.launcher == SIMULATED

    @property
    def has_instances(self) -> bool:
        """Whether the cluster consists of SageMaker's instances, real or simulated ones."""
        return self.on_sagemaker or (self.is_simulated and self.instance_type.startswith("ml."))

    @property
    def processes(self) -> int:
        """Training processes on each instance."""
        if not self.has_instances:
            return 1
        return self.processes_per_instance or max(1, self.instance().accelerator_count)

    @property
    def degrees(self) -> ParallelDegrees:
        """How the devices of the cluster are divided."""
        devices = self.processes * self.instance_count
        per_instance = self.processes if self.has_instances else devices  # locally all are of one machine
        if self.legacy_smp:
            return self.legacy_model_parallel().degrees(devices, per_instance)
        return ParallelDegrees(
            devices=devices,
            per_instance=per_instance,
            tensor=self.tensor_parallel_degree or 1,
            context=self.context_parallel_degree or 1,
            expert=self.expert_parallel_degree or 1,
            pipeline=self.pipeline_parallel_degree or 1,
            hybrid_shard=self.hybrid_shard_degree,
        )

    def legacy_model_parallel(self) -> LegacyModelParallel:
        """The settings of `legacy_smp`.

        Raises:
            BadInput: everything that is wrong with them, at once.
        """
        return LegacyModelParallel.read(self.legacy_smp, own_image=self.image_uri is not None)

    @property
    def devices(self) -> int:
        """Data-parallel devices of the whole cluster: those that train on rows of their own."""
        return self.degrees.data

    def instance(self, instance_type: str | None = None) -> catalog.Instance:
        """What is known of an instance type, by default that of the job.

        Raises:
            BadInput: nothing is.
        """
        return catalog.instance(instance_type or self.instance_type, self.instance_facts)

    def instance_types(self) -> tuple[str, ...]:
        """The type that was asked for, then those to fall back on, each once."""
        return tuple(dict.fromkeys((self.instance_type, *listed(self.fallback_instance_types))))

    @property
    def ranks_instance_types(self) -> bool:
        """Whether one job on demand names all its types, and SageMaker takes the first that it has.

        Otherwise they are tried in turn, a job each: on spot, with a warm pool, which is one of a single type, and with
        strategies of which a later job cannot go on from checkpoints of another number of devices.
        Source: ResourceConfig, InstancePreferences (botocore 1.44.5).
        """
        is_in_turn = self.spot or self.keep_alive_minutes or self.strategy not in _FROM_ANY_CHECKPOINT
        return self.on_sagemaker and len(self.instance_types()) > 1 and not is_in_turn

    def clusters(self) -> tuple[Self, ...]:
        """The job on each of its instance types: as it was asked for, then on those to fall back on."""
        return (self, *(self.on_instance_type(name) for name in self.instance_types()[1:]))

    def on_instance_type(self, instance_type: str) -> Self:
        """The same on another instance type; a training plan is of the type that was asked for, and stays with it."""
        return replace(self, **self._moved_to(instance_type))  # type: ignore[arg-type]  # names of fields

    def _moved_to(self, instance_type: str) -> dict[str, object]:
        """The fields that another instance type changes."""
        is_same = instance_type == self.instance_type
        return {
            "instance_type": instance_type,
            "fallback_instance_types": None,
            "processes_per_instance": self.processes_per_instance if is_same else None,
            "training_plan": self.training_plan if is_same else None,
        }

    def cluster_faults(self) -> list[str]:
        """Everything that contradicts itself or is not known; empty if nothing does."""
        faults = _strategy_faults(self) + _simulation_faults(self) + _tag_faults(self)
        if wrong := catalog.fact_faults(self.instance_facts):
            return faults + wrong
        if not self.has_instances:
            return faults + _local_faults(self) + ([] if faults else self._degree_faults())
        if not self.instance_type.startswith("ml."):
            needed = "launcher sagemaker needs an instance_type such as ml.g5.xlarge"
            return [*faults, f"{needed}, got {self.instance_type!r}"]
        for instance_type in self.instance_types():
            with collecting(faults):
                chip = self.instance(instance_type).accelerator
                if chip.startswith("AWS"):
                    faults.append(f"instance_type {instance_type} has {chip} chips, which paretune cannot use")
        return faults + _sagemaker_faults(self) + ([] if faults else self._degree_faults())

    def _degree_faults(self) -> list[str]:
        """What the devices cannot be divided into; `legacy_smp` has rules of its own, which a job checks."""
        return [] if self.legacy_smp else self.degrees.faults()


def spreading_defaults() -> dict[str, Any]:
    """Parameters of the group `strategy` with their defaults: what a job on one device has no use for."""
    names = [item.name for item in fields(Cluster)]
    group = fields(Cluster)[names.index("strategy") : names.index("instance_type")]
    return {item.name: {} if item.default is MISSING else item.default for item in group}


def looks_secret(name: str, value: str) -> bool:
    """Whether a value is a well-known kind of key, or long and called a secret."""
    return bool(_SECRET_VALUE.search(value) or (_SECRET_NAME.search(name) and re.fullmatch(r"\S{12,}", value)))


def listed(text: str | None) -> tuple[str, ...]:
    """The entries of a comma-separated parameter."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _local_faults(cluster: Cluster) -> list[str]:
    faults = []
    if cluster.launcher == "local" and cluster.instance_type.startswith("ml."):
        faults.append(f"launcher local runs on this machine, got instance_type={cluster.instance_type}: leave one out")
    elif cluster.instance_type != "local":
        hint = catalog.meant_type(cluster.instance_type, catalog.instances())
        faults.append(f"instance_type must be local or one of SageMaker's (ml.*), got {cluster.instance_type!r}{hint}")
    if cluster.strategy in {"smddp", "smp", "deepspeed"}:
        faults.append(f"strategy {cluster.strategy} needs GPU instances of SageMaker: set instance_type, or use ddp")
    if cluster.processes_per_instance is not None:
        faults.append("processes_per_instance is for SageMaker: locally an instance is one process")
    if cluster.spot:
        faults.append("spot is for SageMaker: set instance_type to one of its types (ml.*)")
    if cluster.fallback_instance_types is not None:
        faults.append("fallback_instance_types is for SageMaker: set instance_type too, or leave it out")
    if cluster.queue is not None:
        faults.append("queue is for SageMaker: set instance_type to one of its types (ml.*), or leave it out")
    return faults + _plan_faults(cluster)


def _sagemaker_faults(cluster: Cluster) -> list[str]:
    faults = []
    if cluster.max_wait_minutes is not None and not cluster.spot:
        faults.append("max_wait_minutes is for spot jobs: set spot=true, or leave it out")
    if cluster.max_wait_minutes is not None and cluster.max_wait_minutes < cluster.max_runtime_minutes:
        least = f"max_runtime_minutes ({cluster.max_runtime_minutes:g})"
        faults.append(f"max_wait_minutes must be at least {least}, got {cluster.max_wait_minutes:g}")
    faults += region_faults(cluster.region)
    if bool(listed(cluster.subnets)) != bool(listed(cluster.security_group_ids)):
        faults.append("subnets and security_group_ids go together: give both, or neither")
    if cluster.spot and cluster.keep_alive_minutes:
        faults.append("keep_alive_minutes and spot exclude each other: AWS keeps no warm pool of spot instances")
    faults += _index_faults(cluster.package_index) + _volume_faults(cluster) + _queue_faults(cluster)
    faults += _ranking_faults(cluster) + _plan_faults(cluster)
    return faults


def _tag_faults(cluster: Cluster) -> list[str]:
    """Tags that AWS does not take, that paretune sets itself, or that nobody should read."""
    texts = {name: value for name, value in cluster.tags.items() if isinstance(value, str)}
    faults = [
        f"tags must hold no secret, and {name!r} looks like one: everybody who sees the job can read them"
        for name, value in texts.items()
        if looks_secret(name, value)
    ]
    if wrong := {name: value for name, value in cluster.tags.items() if name not in texts}:
        faults.append(f"tags must map names to texts, such as {_TAGS_EXAMPLE}, got {wrong}")
    faults += tag_faults(texts)
    if cluster.user is not None and len(cluster.user) > _LONGEST_USER:
        faults.append(f"user must be at most {_LONGEST_USER} characters, got {len(cluster.user)}: shorten it")
    return faults


def _queue_faults(cluster: Cluster) -> list[str]:
    """What does not go with a queue, or needs one."""
    if cluster.queue is None:
        given = [name for name in OF_A_QUEUE if getattr(cluster, name) is not None]
        return [f"{name} is for jobs that wait in a queue: set queue too, or leave it out" for name in given]
    faults = []
    if not _QUEUE_NAME.fullmatch(cluster.queue):
        faults.append(f"queue must be the name or the ARN of an AWS Batch job queue, got {cluster.queue!r}")
    if cluster.is_simulated:
        faults.append("queue is for jobs that AWS Batch starts, and a simulated one waits nowhere: leave it out")
    if cluster.share_identifier is not None and cluster.quota_share_name is not None:
        faults.append("share_identifier and quota_share_name exclude each other: a queue has one kind of shares")
    if cluster.keep_alive_minutes:
        faults.append(
            "keep_alive_minutes and queue exclude each other: kept instances are held back from all who wait in the "
            "queue; leave one of them out"
        )
    if cluster.training_plan is not None:
        faults.append(
            "training_plan and queue exclude each other: whether a job is on its plan is asked when it is created, "
            "and AWS Batch creates it later; leave one of them out"
        )
    if listed(cluster.fallback_instance_types) and not cluster.spot:
        faults.append(
            "fallback_instance_types and queue exclude each other without spot: AWS Batch waits for the capacity of "
            "instance_type; leave one of them out"
        )
    return faults


def _ranking_faults(cluster: Cluster) -> list[str]:
    """What SageMaker does not take of a job that names several instance types."""
    types = cluster.instance_types()
    if not cluster.ranks_instance_types:
        return []
    faults = []
    if len(types) > MOST_RANKED_TYPES:
        faults.append(
            f"fallback_instance_types must be at most {MOST_RANKED_TYPES - 1} on demand, where SageMaker chooses among "
            f"{MOST_RANKED_TYPES} types of a job, got {len(types) - 1}: leave some out, or set spot=true, with which "
            "they are tried in turn"
        )
    known = [catalog.instances().get(name) for name in types if name not in cluster.instance_facts]
    if cluster.kms_key and len({item.has_local_storage for item in known if item is not None}) > 1:
        faults.append(
            "kms_key goes with fallback_instance_types that all have disks of their own, or all none, for AWS takes no "
            f"key for such disks and one request is of all types, got {', '.join(types)}: leave some out"
        )
    return faults


def _plan_faults(cluster: Cluster) -> list[str]:
    """Why no training plan can be used, whatever AWS says of it."""
    plan = cluster.training_plan
    if plan is None:
        return []
    if not cluster.on_sagemaker:
        where = f"launcher={cluster.launcher}" if cluster.is_simulated else f"instance_type={cluster.instance_type}"
        return [f"training_plan is for jobs on SageMaker, got {where}: leave it out, or set instance_type to its type"]
    faults = []
    found = _PLAN.fullmatch(plan)
    if found is None and plan != SEARCHED_PLAN:
        faults.append(f"training_plan must be the ARN of one, such as {_PLAN_EXAMPLE}, got {plan!r}")
    if found is not None and cluster.region not in (None, found[1]):
        faults.append(f"training_plan lies in {found[1]}, got region={cluster.region}: set region={found[1]}")
    if cluster.spot:
        faults.append("training_plan and spot exclude each other: its instances are reserved, and paid for already")
    if cluster.keep_alive_minutes:
        faults.append("training_plan goes without keep_alive_minutes: its instances are kept for the whole plan anyway")
    return faults


def _index_faults(index: str | None) -> list[str]:
    if index is None:
        return []
    if looks_secret("package_index", index) or re.search("//[^/]*@", index):
        return ["package_index must hold no user and password: everybody who sees the job can read it"]
    if re.match(r"https?://\S+$|arn:[^:]+:codeartifact:[^:]+:\d+:repository/[^/]+/\S+$", index):
        return []
    rule = "package_index must be an address (https://...) or the ARN of a CodeArtifact repository"
    return [f"{rule} (arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/NAME), got {index!r}"]


def _volume_faults(cluster: Cluster) -> list[str]:
    """Disks that cannot be enlarged. Source: ProcessingClusterConfig and ResourceConfig, VolumeSizeInGB (botocore)."""
    found = []
    for name in cluster.instance_types():
        try:
            own = cluster.instance(name).local_storage_gib
        except BadInput:  # is said already
            continue
        if 0 < own < (cluster.volume_gib or 0):
            rule = f"volume_gib must be at most {own} for {name}, which has disks of its own and no"
            found.append(f"{rule} other volume, got {cluster.volume_gib}: leave it out, or take a larger instance_type")
    return found


def _simulation_faults(cluster: Cluster) -> list[str]:
    """What is wrong with the settings of the simulated launcher, or with giving them to another one."""
    if not cluster.is_simulated:
        given = [name for name in ONLY_SIMULATED if getattr(cluster, name)]
        return [f"{name} is for launcher=simulated, got launcher={cluster.launcher}" for name in given]
    faults: list[str] = []
    with collecting(faults):
        Simulation.read(cluster.simulation)
    return faults


def _strategy_faults(cluster: Cluster) -> list[str]:
    """Parameters that the strategy does not take, or that go with one another."""
    given: dict[tuple[str, ...], list[str]] = {}
    for name, strategies in _STRATEGIES_OF.items():
        value = getattr(cluster, name)
        divides = value if not name.endswith("_parallel_degree") else (value or 1) > 1
        if divides and cluster.strategy not in strategies:
            given.setdefault(strategies, []).append(name)
    faults = [
        f"{', '.join(names)} go{'es' if len(names) == 1 else ''} with strategy={' or '.join(strategies)}, got "
        f"strategy={cluster.strategy}"
        for strategies, names in given.items()
    ]
    tensor, stages = cluster.tensor_parallel_degree or 1, cluster.pipeline_parallel_degree or 1
    if cluster.micro_batches and stages == 1:
        faults.append("micro_batches are those of a pipeline: set pipeline_parallel_degree above 1, or leave it out")
    if cluster.strategy != "smp" and cluster.activation_offloading and not cluster.activation_checkpointing:
        faults.append("activation_offloading keeps checkpointed activations: set activation_checkpointing=true too")
    if stages > 1 and tensor > 1:
        faults.append(
            f"pipeline_parallel_degree and tensor_parallel_degree exclude each other, got {stages} and {tensor}: set "
            "one of them to 1"
        )
    return faults


SMDDP_INSTANCE_TYPES = ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
"""AWS, "Supported frameworks, regions and instance types" of SMDDP; older ones (p3) have no current image."""
SMP_FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en")
"""AWS, "Supported instance types" of SMP v2."""


def unsupported(cluster: Cluster) -> list[str]:
    """Why the strategy, or the number of processes, does not go with the instance types; empty if it does."""
    found = []
    for instance_type in cluster.instance_types():
        instance = cluster.instance(instance_type)
        if cluster.strategy == "smddp" and instance_type not in SMDDP_INSTANCE_TYPES:
            needed = f"strategy smddp needs {' or '.join(SMDDP_INSTANCE_TYPES)}"
            found.append(f"{needed}, got {instance_type}: use ddp, which uses NCCL, on all others")
        elif cluster.strategy == "smp" and instance.family not in SMP_FAMILIES:
            needed = f"strategy smp needs an instance of {', '.join(SMP_FAMILIES)}"
            found.append(f"{needed}, got {instance_type}: use fsdp, or another instance_type")
        elif cluster.strategy == "deepspeed" and not instance.has_gpu:
            found.append(f"strategy deepspeed needs GPUs, and {instance_type} has none: use fsdp or ddp")
        asked, most = cluster.processes_per_instance, instance.accelerator_count
        if asked and 0 < most < asked:
            rule = f"processes_per_instance must be at most {most}, one per GPU of {instance_type}"
            found.append(f"{rule}, got {asked}: lower it, or leave it out")
    return found
