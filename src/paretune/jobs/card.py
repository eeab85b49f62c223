"""Writes the card of a job from its request: names, parameters, tags, advice for each failure, and how to judge it.

Nothing after the plan reads the request, so all that people or MLflow are shown of it is decided here.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paretune.core.reading import at_home
from paretune.core.shell import options
from paretune.estimating.estimator import Estimate
from paretune.estimating.workload import whole_argument
from paretune.specification import metrics
from paretune.specification.catalog import short_name
from paretune.specification.container import Command, JobInputs, PreparedDataset
from paretune.specification.declaration import experimental_words, spell
from paretune.specification.ending import Cause
from paretune.specification.identity import JobIdentity
from paretune.specification.inputs import BUNDLED, INPUT_FILES, DataArguments
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.launchers import LOCAL
from paretune.specification.parallelism import OF_THE_BATCH, BatchPlan
from paretune.specification.plan import Card, DataSplit, Judge
from paretune.tracking import schema
from paretune.user_code.binding import OF_SCRIPTS

_ALWAYS = ("model", "dataset", "task", "num_train_epochs", "max_seq_length", "seed", "instance_type", "instance_count")
"""Parameters that are recorded even if they have their defaults, because people compare jobs by them."""
_TIMES_THE_EPOCHS = 3  # factor by which a verdict proposes to raise num_train_epochs or max_steps
_USUAL_RATES = (0.3, 30.0)  # a learning rate between these multiples of the default is usual
_IN_NAMES = {"learning_rate": "lr", "per_device_train_batch_size": "batch", "num_train_epochs": "epochs"}
"""Settings of a user's own training in the names of runs, which MLflow's tables cut off after a few words."""
_CONTEXTS = {"train": "training", "validation": "validation", "test": "test"}
"""Splits of prepared rows, and the contexts of their MLflow data sets."""


def opening_card(request: JobSpec) -> Card:
    """Return the card of a job as far as its request alone decides it, without its inputs."""
    clusters = request.clusters()
    code = request.project or ("" if request.entry_script is None else at_home(request.entry_script).name)
    return Card(
        kind=request.kind,
        code=code,
        task=request.task,
        parameters=request.as_text(),
        command_line=request.command(),
        heads={each.instance_type: _head(each, takes_seed=True) for each in clusters},
        unseeded_heads={each.instance_type: _head(each, takes_seed=False) for each in clusters},
        model="" if request.runs_user_code else Path(request.model).name.removeprefix(BUNDLED),
        params=params_of(request),
        tags={schema.SPEC_HASH: request.spec_hash()},
        advice=_advice(request, code),
        judge=_judge(request),
        experimental=experimental_words(request.experimental()),
        register=request.register,
        is_simulated=request.is_simulated,
        is_probe=request.probe_steps is not None,
        is_profiled=request.profile_steps is not None,
    )


def card_of(
    opened: Card,
    request: JobSpec,
    inputs: JobInputs,
    batch: BatchPlan,
    estimate: Estimate | None,
    *,
    texts: Mapping[str, str],
    warnings: tuple[str, ...],
    identity: JobIdentity,
) -> Card:
    """Return the whole card of a job.

    Args:
        opened: the card as far as the request alone decides it.
        request: the job.
        inputs: its prepared rows and model, or the user's code.
        batch: the batch plan of its first attempt.
        estimate: None if it cannot be estimated.
        texts: what a dry run says of it, by heading.
        warnings: sentences for people.
        identity: the identity with the keys of data and code.
    """
    command, dataset = inputs.command, inputs.dataset
    tags = {
        schema.CHOSEN_BATCH: "" if batch == request.plan() else str(batch.per_device_train_batch_size),
        schema.CODE_KEY: identity.code_key or "",
        schema.ESTIMATE_BASIS: "" if estimate is None else estimate.basis,
        schema.DATASET_KEY: "" if dataset is None else dataset.key,
    }
    return replace(
        opened,
        params=params_of(request, command, batch),
        tags={**opened.tags, **{name: text for name, text in tags.items() if text}},
        facts={} if dataset is None else dict(dataset.facts),
        estimates={} if estimate is None else metrics.to_known_digits(estimate.as_metrics()),
        inputs=() if dataset is None else _splits(request.data_arguments, dataset),
        texts=dict(texts),
        warnings=warnings,
        takes_seed=command is None or command.takes_seed,
    )


def _splits(data: DataArguments, prepared: PreparedDataset) -> tuple[DataSplit, ...]:
    files = {"train": None, "validation": data.validation_file, "test": data.test_file}
    return tuple(
        DataSplit(
            source=files[split] or data.dataset,
            context=context,
            digest=prepared.digests[split],
            rows=int(prepared.facts[f"{split}_rows"]),
        )
        for split, context in _CONTEXTS.items()
        if split in prepared.digests
    )


def params_of(request: JobSpec, command: Command | None = None, batch: BatchPlan | None = None) -> dict[str, str]:
    """Return the parameters of a job's run: those given, those in _ALWAYS, and the derived batch and learning rate.

    `batch` is the batch plan of the first attempt, by default the one that the parameters imply.

    A user's own training may have different defaults. Its run therefore has the given parameters, the cluster, a
    project's entry point, and every value that its `command` gets. A seed that the command does not get is left out.
    """
    if request.runs_user_code:
        cluster = {"instance_type": request.instance_type, "instance_count": str(request.instance_count)}
        given = request.given_text()
        if command is not None and not command.takes_seed:
            given.pop("seed", None)
        used = {} if command is None else dict(command.recorded)
        return cluster | ({"entry_point": request.entry_point} if request.project else {}) | given | used
    batch = batch or request.plan()
    texts = request.as_text()
    return (
        {name: texts[name] for name in _ALWAYS}
        | request.given_text()
        | {
            "learning_rate": spell(request.unscaled_learning_rate),
            **{name: str(getattr(batch, name)) for name in OF_THE_BATCH},
            "scaled_learning_rate": repr(batch.learning_rate),
        }
    )


def setting_in_name(plan: BatchPlan) -> str:
    """Return the global batch size and the learning rate as run names show them: `b16 lr1e-4`."""
    digits, _, power = f"{plan.learning_rate:.2e}".partition("e")
    return f"b{plan.global_batch_size} lr{float(digits):g}e{int(power)}"


def cluster_in_name(instance_type: str, count: int) -> str:
    """Return number and type of instances as run names show them: `2 x g5.xlarge`; "" on this machine."""
    return "" if instance_type == LOCAL else f"{f'{count} x ' if count > 1 else ''}{short_name(instance_type)}"


def settings_in_name(request: JobSpec, *, takes_seed: bool = True) -> str:
    """Return the settings given to a user's own training, without its files, as text: `lr=0.1 batch=32 epochs=3`.

    The seed is left out if the training does not get it.
    """
    given = request.model_fields_set - {*INPUT_FILES, *([] if takes_seed else ["seed"])}
    names = [name for name in dict.fromkeys((*_IN_NAMES, *OF_THE_BATCH, *OF_SCRIPTS)) if name in given]
    settings = {_IN_NAMES.get(name, name): getattr(request, name) for name in names} | dict(request.training_arguments)
    return " ".join(f"{name}={spell(value)}" for name, value in settings.items())


def _head(request: JobSpec, *, takes_seed: bool) -> str:
    if request.runs_user_code:
        name = Path(request.entry_script or "").name
        if request.project is not None:
            name = f"{Path(request.project.rstrip('/')).name or request.project} {request.entry_point}"
        words = (name, request.script_words, settings_in_name(request, takes_seed=takes_seed))
        return " ".join(filter(None, words))[:200]
    return f"{setting_in_name(request.plan())} {cluster_in_name(request.instance_type, request.instance_count)}".strip()


def _advice(request: JobSpec, code: str) -> dict[Cause, str]:
    """Return what to do after each cause of a failure, the end of a sentence whose begin is the reason.

    `code` is the name of the user's script or project, if any.
    """
    kinds = {"full": "set fine_tuning to lora, qlora or head, ", "lora": "set fine_tuning to qlora, "}
    memory = f"lower max_seq_length, {kinds.get(request.fine_tuning, '')}or use a larger instance"
    if request.project is not None:
        memory = "use a larger instance, or reduce the memory that the command needs"
    elif request.entry_script is not None:
        smaller = f"reduce the memory that {code} needs, for example with a smaller batch, "
        memory = f"{smaller}or use a larger instance"
    advice = {
        Cause.CAPACITY: f"AWS has no capacity for {' or '.join(request.instance_types())}: set "
        "fallback_instance_types to try others, or another region",
        Cause.OUT_OF_MEMORY: memory,
        Cause.DISK_FULL: request.runs_on.disk_remedy,
        Cause.DIVERGED: "lower learning_rate, warm up (training_arguments), or use precision bf16 or fp32",
        Cause.TIME_LIMIT: "raise max_runtime_minutes, or train for fewer steps or rows",
    }
    return advice | ({Cause.SILENT: "check where it calls sys.exit"} if request.runs_user_code else {})


def _judge(request: JobSpec) -> Judge | None:
    """Return how to judge a model; None for a user's own training, and if its task has no quality."""
    task = metrics.TASKS[request.task]
    if request.runs_user_code or task.quality is None:
        return None
    usual, (lowest, highest) = default_learning_rate(request.fine_tuning), _USUAL_RATES
    is_usual = lowest * usual <= request.unscaled_learning_rate <= highest * usual
    remedies = [] if is_usual else [options(learning_rate=f"{usual:g}")]
    if steps := whole_argument(request.training_arguments, "max_steps"):  # it overrides the epochs
        remedies.append(options(**{"training_arguments.max_steps": _TIMES_THE_EPOCHS * steps}))
    else:
        remedies.append(options(num_train_epochs=f"{_TIMES_THE_EPOCHS * request.num_train_epochs:g}"))
    return Judge(quality=task.quality, baseline=task.baseline, trivial=task.trivial, remedies=tuple(remedies))
