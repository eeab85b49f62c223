"""`estimate --like`: estimates how long a finished training run would have taken on other clusters, and its cost there.

The training run is either recorded in the MLflow store or any SageMaker training job of the user. DescribeTrainingJob
returns the cluster, the seconds and the hyperparameters of a SageMaker job. The same hyperparameter may have one of
several names, because Hugging Face's examples name it differently. If the number of rows is unknown, it is estimated
from the seconds.
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from paretune.commands.estimate import LISTED_CLUSTERS, MAY_BE_LISTS, EstimateRequest
from paretune.commands.estimate.table import EstimateTable
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, LaunchRefused, collecting, refuse
from paretune.core.machine import machine_name, processor_name
from paretune.core.result import value_of
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture, architecture_of
from paretune.estimating.counting import describe
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import DATA_FACTS, Evidence, built_of, is_whole, read
from paretune.estimating.forecast import Forecast
from paretune.estimating.timing import Measurement, fit
from paretune.estimating.workload import setting_of
from paretune.jobs.follow import find_run
from paretune.jobs.workplace import has_store, open_tracking
from paretune.launchers.offers import usual_price
from paretune.presentation.text import duration, usd
from paretune.pricing import PriceList
from paretune.specification.catalog import instances, usual_region
from paretune.specification.declaration import spell, split_list
from paretune.specification.job import JobSpec, parameters_affecting
from paretune.specification.parallelism import DATA_PARALLEL, OF_STRATEGY, OF_THE_BATCH
from paretune.specification.price import Price
from paretune.specification.profile import SETTABLE, read_profile
from paretune.specification.program import TRAINER
from paretune.specification.rules import launch_faults
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun, number_in

_ROWS_ASSUMED = 100_000  # initial guess; the final number is estimated from the seconds
_USUAL_BATCH = "8"  # rows per device, the default of Hugging Face's Trainer
_OF_THE_TRAINING = {
    *parameters_affecting("data", "seconds", "memory"),
    *(*OF_THE_BATCH, "num_train_epochs", "probe_steps"),
} - {*LISTED_CLUSTERS, *OF_STRATEGY, *SETTABLE}
"""Parameters that decide how long a training run takes on a given cluster, except those that a profile may set."""
# Names of hyperparameters in Hugging Face's examples and in AWS's notebooks.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "model": ("model_name_or_path", "model_name", "model_id", "model"),
    "per_device_train_batch_size": ("per_device_train_batch_size", "train_batch_size", "batch_size"),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "num_train_epochs": ("num_train_epochs", "epochs"),
    "max_seq_length": ("max_seq_length", "max_length", "max_seq_len", "block_size"),
    "max_train_samples": ("max_train_samples",),
}


_HUGGING_FACE = re.compile(r"huggingface-pytorch\S*transformers(\d+\.\d+)")
_OF_TRAINER = (
    *("output_dir", "save_strategy", "save_steps", "save_total_limit", "save_only_model", "load_best_model_at_end"),
    *("eval_strategy", "evaluation_strategy", "eval_steps", "max_steps", "optim", "tf32", "gradient_checkpointing"),
)
"""Hyperparameters that are arguments of Hugging Face's Trainer and change its estimate."""
_STARTED = (
    *("sagemaker_distributed_dataparallel_enabled", "sagemaker_torch_distributed_enabled"),
    *("sagemaker_pytorch_ddp_enabled", "sagemaker_mpi_enabled"),
)
"""Hyperparameters with which the SageMaker SDK starts one process per GPU."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A finished training run, which the estimates start from."""

    name: str  # its name for messages, such as "run 1a2b3c4d"
    texts: Mapping[str, str]  # its parameters as texts; max_train_samples is absent if the number of rows is unknown
    seconds: float | None  # seconds per instance that would be billed on demand
    step_seconds: float | None = None
    origin: str = "measured"  # measured, published or simulated
    paid_usd: float | None = None  # on demand; None if unknown
    is_spot: bool = False  # whether it ran on Spot instances
    facts: Mapping[str, float] | None = None
    built: Architecture | None = None
    is_by_paretune: bool = False  # whether paretune's own code trained, not the user's
    on_gpu: bool | None = None  # whether it trained on GPUs of this machine; None if that is not recorded


def of_run(job: RecordedRun) -> Reference:
    """Return a recorded run as a reference.

    Raises BadInput if its job has not completed, has no measured seconds or ran on another machine of the user.
    """
    if not job.is_completed:
        raise BadInput(
            [f"like must name a training job that has completed, {job.run_id[:8]} is {job.state or 'not started'}"]
        )
    if job.ran_elsewhere(machine_name()):
        raise BadInput(
            [f"like must name a job of this machine or of SageMaker, {job.run_id[:8]} ran on another machine"]
        )
    spec, measured = job.spec_as_run(), read([job]).times
    # On spot instances, AWS bills fewer seconds than it measures, and the launcher records both.
    of_spot = number_in(job.tags.get(schema.TRAINING_SECONDS, "")) or None
    is_discounted = job.is_spot and job.origin == "measured"
    seconds, step_seconds = (of_spot if is_discounted else job.billable_seconds), None
    if measured:
        seconds, step_seconds = (of_spot if is_whole(job) else None) or measured[0].seconds, measured[0].step_seconds
    if seconds is None and step_seconds is None:
        has = "only the discounted seconds of a spot job" if is_discounted and job.billable_seconds else "none"
        raise BadInput([f"like must name a training job with measured seconds, {job.run_id[:8]} has {has}"])
    texts = {name: text for name, text in spec.given_text().items() if name not in OF_THE_BATCH}
    plan = job.used_plan(spec.plan())
    texts |= {name: str(getattr(plan, name)) for name in OF_THE_BATCH[:2]}
    texts |= {"region": job.region} if spec.runs_on.has_regions and job.region else {}
    if spec.runs_user_code:
        texts = {name: text for name, text in texts.items() if name in {*MAY_BE_LISTS, "region"}}
    kind = "" if job.origin == "measured" else f"{job.origin} "
    return Reference(
        name=f"{kind}run {job.run_id[:8]}" + (f" ({job.name})" if job.name else ""),
        texts=texts | ({"dataset": "its/own"} if spec.runs_user_code else {"dataset": spec.dataset}),
        seconds=seconds,
        step_seconds=step_seconds,
        origin=job.origin,
        paid_usd=None if job.is_spot else job.cost_usd,
        is_spot=job.is_spot,
        facts={name: job.metrics[name] for name in DATA_FACTS if name in job.metrics} or None,
        built=None if spec.runs_user_code else built_of(spec.model, spec.task, job.metrics),
        is_by_paretune=not spec.runs_user_code,
        on_gpu=_is_gpu(job.tags.get(schema.USED_DEVICE, "")),
    )


def _is_gpu(device: str) -> bool | None:
    """Return whether the device with this name is a GPU, or None if it is neither this processor nor a known GPU."""
    if device == processor_name():
        return False
    return True if hardware.named(device) else None


def of_description(name: str, answer: Mapping[str, Any]) -> Reference:
    """Return the training job in a response of DescribeTrainingJob as a reference.

    Raises BadInput if the job has not completed, has no measured seconds, or ran on several instance types.
    """
    resources, status = answer.get("ResourceConfig", {}), answer.get("TrainingJobStatus")
    is_spot = bool(answer.get("EnableManagedSpotTraining"))  # a spot job's billable seconds are fewer than its seconds
    seconds = answer.get("TrainingTimeInSeconds" if is_spot else "BillableTimeInSeconds")
    if status != "Completed":
        raise BadInput([f"like must name a training job that has completed, training job {name} is {status}"])
    if not seconds:
        raise BadInput([f"like must name a training job with measured seconds, training job {name} has none"])
    # SelectedInstanceType is the type that ran if the job allowed several.
    instance_type = resources.get("SelectedInstanceType", resources.get("InstanceType"))
    if instance_type is None:
        raise BadInput([f"training job {name} has instance groups of several types, which cannot be estimated"])
    given = {key: value_of(str(text).strip('"')) for key, text in (answer.get("HyperParameters") or {}).items()}
    texts = {
        parameter: str(found)
        for parameter, names in _NAMES.items()
        if (found := next((given[each] for each in names if given.get(each) is not None), None)) is not None
    }
    halves = [kind for kind in ("fp16", "bf16") if given.get(kind) in (True, "True")]
    program = str(given.get("sagemaker_program", ""))
    adapters = "qlora" if given.get("load_in_4bit") is True else "lora" if "lora_r" in given else ""
    texts |= {
        "instance_type": instance_type,
        "instance_count": str(resources.get("InstanceCount", 1)),
        "dataset": "its/own",
        "precision": halves[0] if halves else "fp32",
        "strategy": "smddp" if given.get("sagemaker_distributed_dataparallel_enabled") is True else "ddp",
    }
    texts |= _program_of(answer, given, texts)
    texts |= {"fine_tuning": adapters} if adapters else {}
    texts |= {"task": "causal-lm"} if adapters or "clm" in program else {}
    texts.setdefault("per_device_train_batch_size", _USUAL_BATCH)
    return Reference(name=f"training job {name}", texts=texts, seconds=float(seconds), is_spot=is_spot)


def _program_of(answer: Mapping[str, Any], given: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the program, its strategy and its arguments, as far as the description shows them.

    AWS's images for Hugging Face name the version of transformers. With SDKs before version 3, which name the script,
    a job without a distribution runs one process, and the Trainer then uses DataParallel.
    """
    image = _HUGGING_FACE.search((answer.get("AlgorithmSpecification") or {}).get("TrainingImage", ""))
    if image is None:
        return {}
    found = {"program": f"{TRAINER}-{image[1]}"}
    found |= {f"training_arguments.{name}": spell(given[name]) for name in _OF_TRAINER if given.get(name) is not None}
    is_alone = "sagemaker_program" in given and not any(given.get(name) in (True, "true", "True") for name in _STARTED)
    if is_alone and instances()[texts["instance_type"]].accelerator_count > 1:
        found["strategy"] = DATA_PARALLEL
    return found


def find(name: str, environment: Mapping[str, str], region: str | None) -> Reference:
    """Return the run with this id or name as a reference, or else the SageMaker training job with this name.

    Raises BadInput if there is neither.
    """
    faults, run = list[str](), None
    with collecting(faults):
        run = find_run(open_tracking(environment, SystemClock()), name) if has_store(environment) else None
    if run is not None:
        return of_run(run)
    try:
        from paretune.launchers.sagemaker.account import Account  # imports boto3, which may be missing
        from paretune.launchers.sagemaker.aws_errors import refused_to
        from paretune.launchers.sagemaker.jobs import described

        account = Account(region, environment)
        with refused_to("describe a training job (sagemaker:DescribeTrainingJob)"):
            answer = described(account, name)
    except (BadInput, LaunchRefused) as error:
        raise BadInput([*faults, f"training job {name} could not be looked up on SageMaker: {error}"]) from error
    if not answer:
        raise BadInput([*faults, f"{account.region} has no SageMaker training job {name}"])
    found = of_description(name, answer)
    return replace(found, texts={**found.texts, "region": account.region})


def compare(request: EstimateRequest) -> EstimateTable:
    """Return estimates of the training run `request.like` on its own cluster and then on the requested clusters.

    If no cluster is requested, these are the machines that the run fits on: of the instance types with the same
    accelerators, only the cheapest. Raises BadInput if the run cannot be found, does not show what an estimate needs,
    cannot run on a requested cluster, or if the request changes a run of paretune's own training.
    """
    environment, typed = dict(os.environ), request.texts
    usual = typed.get("region") or read_profile(environment).get("region")
    reference = find(request.like, environment, usual)
    known = {*reference.texts, *typed} if not reference.is_by_paretune else {"model", "max_seq_length"}
    if unknown := [name for name in ("model", "max_seq_length") if name not in known]:
        raise BadInput([f"{reference.name} does not show its {' and '.join(unknown)}: add each as an option"])
    region = usual_region(typed.get("region") or reference.texts.get("region") or usual, environment)
    prices = PriceList.read(environment)
    is_counted = (reference.facts or {}).get("train_rows")
    assumes_rows = not (is_counted or "max_train_samples" in {**reference.texts, **typed})
    texts = {**reference.texts, **({"max_train_samples": str(_ROWS_ASSUMED)} if assumes_rows else {})}
    # How other clusters divide the model is listed, too; the recorded run keeps its own strategy.
    listed = {*LISTED_CLUSTERS, *(OF_STRATEGY if reference.is_by_paretune else ())}
    clusters = {name: split_list(text) for name, text in typed.items() if name in listed and split_list(text)}
    texts |= {name: text for name, text in typed.items() if name not in clusters}
    built = reference.built if "model" not in typed else None
    ran = JobSpec.read(texts)
    if reference.is_by_paretune:
        refuse(_changes(ran, reference))
    specs = [ran, *_others(ran, texts, reference, clusters, list(prices.of_region(region)))]
    in_region = {**environment, "AWS_REGION": region}  # for jobs that name no region, such as a local reference's
    priced = [(spec, usual_price(spec, prices, in_region)) for spec in specs]
    store = Forecast(open_tracking(environment, SystemClock()) if has_store(environment) else None)
    evidence = store.evidence if reference.is_by_paretune else Evidence()
    estimates = _estimates(priced, reference, built, evidence, environment, assumes_rows=assumes_rows)
    if (took := reference.seconds) is not None:
        measured = replace(estimates[0].time, seconds=took, seconds_low=took, seconds_high=took)
        estimates[0] = replace(estimates[0], time=measured, basis=reference.origin)
    if not clusters:
        estimates = [estimates[0], *_cheapest_of_each(estimates[1:])]
    remarks = [*_sentences(estimates, reference)]
    remarks += [] if clusters else [f"types whose price in {region} is not known are left out"]
    pairs = [(item.spec, item) for item in estimates]
    return EstimateTable(jobs=pairs, region=region, remarks=remarks, like=reference.name)


def _changes(ran: JobSpec, reference: Reference) -> list[str]:
    """Return a fault for each parameter that was typed with another value than the run has recorded.

    A number of rows, or a folder with the model, may be typed if the run does not show rows or sizes.
    """
    recorded = JobSpec.read(reference.texts)
    changed = {name for name in _OF_THE_TRAINING if getattr(ran, name) != getattr(recorded, name)}
    changed -= {*OF_THE_BATCH} if ran.plan() == recorded.plan() else set()
    changed -= {"model"} if reference.built is None else set()
    changed -= {"precision"} if _precision(ran) == _precision(recorded) else set()
    if recorded.max_train_samples is None and not (reference.facts or {}).get("train_rows"):
        changed -= {"max_train_samples"}
    return [
        f"{name} must be that of {reference.name}, whose seconds are compared, got {spell(getattr(ran, name))}: leave "
        "it out, or estimate without like"
        for name in sorted(changed)
    ]


def _precision(spec: JobSpec) -> str:
    """Return the precision in which a job computes."""
    accelerator = hardware.accelerator_of(spec.instance()) if spec.has_instances else None
    return hardware.resolved_precision(spec.precision, accelerator)


def _cheapest_of_each(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return the estimates with a price that may fit in memory; of types with the same accelerators, the cheapest."""
    fitting = [item for item in estimates if item.fits != "no" and item.cost_usd is not None]
    cheapest: dict[tuple[str, int, int], Estimate] = {}
    for item in sorted(fitting, key=lambda item: item.cost_usd or 0.0):
        instance = item.spec.instance()
        cheapest.setdefault((instance.accelerator, instance.accelerator_count, item.plan.devices), item)
    return list(cheapest.values())


def _others(
    ran: JobSpec,
    texts: Mapping[str, str],
    reference: Reference,
    clusters: Mapping[str, Sequence[str]],
    priced: Sequence[str],
) -> Iterator[JobSpec]:
    """Yield a job with the same training for each requested cluster, except the cluster on which the training ran.

    By default, each step has the same number of rows. If no cluster was requested, the clusters are single machines of
    all types with a known price: types with GPUs if the training ran on GPUs, else types without. Raises BadInput if a
    requested cluster is impossible.
    """
    common, batch = dict(texts), str(ran.plan().global_batch_size)
    if all(texts.get(name) == reference.texts.get(name) for name in OF_THE_BATCH):  # none was typed
        common = {name: text for name, text in texts.items() if name not in OF_THE_BATCH}
        common["global_batch_size"] = batch
    kinds = {name: item.has_gpu for name, item in instances().items()}
    is_on_gpu = kinds[ran.instance_type] if ran.has_instances else reference.on_gpu
    if is_on_gpu is None:
        is_on_gpu = hardware.local_gpu() is not None
    alike = [name for name in priced if kinds.get(name) is is_on_gpu]
    lists = clusters or {"instance_type": alike, "instance_count": ["1"]}
    count = "1" if "instance_type" in lists else str(ran.instance_count)
    lists = {"instance_type": [ran.instance_type], "instance_count": [count], **lists}
    faults: list[str] = []
    for values in itertools.product(*lists.values()):
        try:
            spec = JobSpec.read(common | dict(zip(lists, values, strict=True)))
            precision = hardware.precision_faults(spec.precision, spec.instance()) if spec.has_instances else []
            refuse([*launch_faults(spec), *precision])
        except BadInput as error:
            faults += error.faults
            continue
        if any(getattr(spec, name) != getattr(ran, name) for name in (*LISTED_CLUSTERS, *OF_STRATEGY)):
            yield spec
    refuse(list(dict.fromkeys(faults)) if clusters else [])


def _estimates(
    priced: Sequence[tuple[JobSpec, Price | None]],
    reference: Reference,
    built: Architecture | None,
    evidence: Evidence,
    environment: Mapping[str, str],
    *,
    assumes_rows: bool,
) -> list[Estimate]:
    """Return estimates of the jobs, based on the measured seconds of the first job and on the other evidence.

    If the jobs only assume a number of rows, those seconds determine it.
    """
    ran = priced[0][0]
    stack = None if reference.is_by_paretune else reference.name
    if reference.origin == "published" and ran.trained_by.is_paretune:
        stack = "published"
    built = built or architecture_of(ran.model, ran.task, environment)
    facts = reference.facts
    specs = [spec for spec, _ in priced]
    if reference.seconds and assumes_rows:
        rows = _rows_of(reference.seconds, ran, built)
        specs = [spec.replace(max_train_samples=rows) for spec in specs]
    setting = setting_of(specs[0], specs[0].plan(), built, facts)
    if setting is None:
        raise BadInput([f"{reference.name} does not show its rows: give max_train_samples"])
    work = describe(setting, stack=stack)
    measured = Measurement(
        work=work, seconds=reference.seconds, step_seconds=reference.step_seconds, origin=reference.origin
    )
    times = [item for item in evidence.times if item != measured]
    estimator = Estimator(replace(evidence, times=[*times, measured]))
    made = [
        estimator.estimate(spec, built, price, facts=facts, stack=stack)
        for spec, (_, price) in zip(specs, priced, strict=True)
    ]
    return [item for item in made if item is not None]


def _rows_of(seconds: float, spec: JobSpec, built: Architecture) -> int:
    """Return how many rows per epoch usually make a job this long; at least the rows of one batch."""
    setting = setting_of(spec, spec.plan(), built)
    assert setting is not None
    (usual,) = fit().predict([describe(setting)])
    share = max(0.1 * seconds, seconds - usual.startup_seconds) / (usual.seconds - usual.startup_seconds)
    return max(spec.plan().global_batch_size, round(share * (spec.max_train_samples or _ROWS_ASSUMED)))


def _sentences(estimates: Sequence[Estimate], reference: Reference) -> Iterator[str]:
    """Yield sentences that say what the training run took, and how much the cheapest cluster would have saved.

    If its seconds are unknown, as after a retry, they say what an uninterrupted run would take.
    """
    ran, took_s, is_measured = estimates[0], estimates[0].time.seconds, reference.seconds is not None
    paid_usd = (reference.paid_usd if is_measured else None) or ran.cost_usd
    priced = [item for item in estimates[1:] if item.fits != "no" and item.cost_usd is not None]
    verb = "would have cost" if reference.is_spot and is_measured else "cost"
    cost = f" and {verb} {usd(paid_usd)}{' on demand' if reference.is_spot else ''}" if paid_usd else ""
    yield f"it {'took' if is_measured else 'would take about'} {duration(took_s)} on {_cluster(ran)}{cost}"
    if paid_usd is None or not priced:
        return
    cheapest = min(priced, key=lambda item: item.cost_usd or 0.0)
    saved = paid_usd - (cheapest.cost_usd or 0.0)
    if saved <= 0:
        yield "none of these clusters would have cost less"
    else:
        later = cheapest.time.seconds - took_s
        time = f"{duration(abs(later))} {'more' if later > 0 else 'less'}"
        yield f"on {_cluster(cheapest)} it would have cost {usd(saved)} less and taken {time} ({_between(cheapest)})"


def _cluster(item: Estimate) -> str:
    return f"{item.spec.instance_count} x {item.spec.instance_type}"


def _between(item: Estimate) -> str:
    low, high = item.time.seconds_low, item.time.seconds_high
    dollars = f"{usd(item.usd(low) or 0.0)} to {usd(item.usd(high) or 0.0)}"
    doubts = item.price.doubts(date.today()) if item.price else []
    return ", ".join(
        [
            f"{dollars} and {duration(low)} to {duration(high)} in 80 % of such jobs",
            *(f"at a price {doubt}" for doubt in doubts),
        ]
    )
