"""Sentences about the model of a finished job: what was observed, what it means, what mends it.

They are printed at the end of the job, are the tag `paretune.verdict` of its run, and are part of its note. A study
prints those of the jobs that it recommends.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance

from paretune.core.commands import options
from paretune.estimating.noise import TELLING_ERRORS, binomial_error
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import JobReport
from paretune.specification.job import ADAPTERS, JobSpec, default_learning_rate

_COUNTING_MODEL = {metrics.WORDS: "the most frequent label of each word"}
"""Task to its baseline, where that is not TF-IDF with logistic regression."""
_TRIVIAL_ANSWERS = {
    metrics.CLASSIFICATION: "always answering the most frequent class",
    metrics.MULTI_LABEL: "always answering the most frequent set of labels",
}
_TIMES_THE_EPOCHS = 3
_TRIVIAL_F1 = 0.99  # F1 of model and baseline from which on no setting can show that it is better
_MOST_TRUNCATED = 0.5  # share of truncated texts from which on a sentence says so: most rows have lost their ends
_FEWEST_POINTS = 4  # points of a loss curve that show whether it has moved: two at its beginning and two at its end
_LEAST_FALL = 0.02
"""Share of the first loss by which it must have fallen to have moved; scatter between single steps is averaged out."""
_ROUNDED_DOWN = 0.9  # share of a scaled learning rate from which on a rate counts as scaled by hand and rounded
_FAR_TOO_HIGH = 30.0
"""Times the default learning rate: a rate above it is the first suspect if nothing was learnt. Not measured."""


def verdicts(
    spec: JobSpec, values: Mapping[str, float], report: JobReport | None = None, loss: Sequence[float] = ()
) -> list[str]:
    """The verdicts on a completed job; none for a script or a project, whose F1 is computed elsewhere.

    `values` are metrics of the job and baselines of its data, `loss` is its training loss, by step.
    """
    if spec.runs_own_training:
        return []
    own = [_too_easy(spec, values), _one_class_only(report), _far_too_high_rate(spec), _truncated_texts(spec, values)]
    own.append(_unmoved_loss(spec, values, loss))
    return [*below_baseline(spec, values, error_of_rows(values)), *filter(None, own)]


def below_baseline(spec: JobSpec, values: Mapping[str, float], error: float = 0.0) -> list[str]:
    """A verdict if the model is no better than a constant answer, or worse than TF-IDF.

    `error` is the standard error of its first measure; a smaller difference to TF-IDF shows nothing.
    """
    task = metrics.TASKS[spec.task]
    measured, counted, trivial = (values.get(name or "") for name in (task.quality, task.baseline, task.trivial))
    if measured is None:
        return []
    if trivial is not None and measured <= trivial:
        comparison = f"no better than {trivial:.4f}, which {_TRIVIAL_ANSWERS[spec.task]} reaches"
        meaning = "the model has learnt nothing"
    elif counted is not None and measured < counted:
        is_shown = abs(measured - counted) >= error
        model = _counting_model(spec)
        comparison = (
            f"{'below' if is_shown else 'no better than'} {counted:.4f}, which {model} reaches on the same rows"
        )
        meaning = "the model has not learnt what single words tell"
        if not is_shown:
            meaning = "whether the model has learnt more than single words tell is not shown"
    else:
        return []
    remedies = []
    if is_full_rate(spec) or _is_far_too_high(spec):
        remedies.append(options(learning_rate=f"{default_learning_rate(spec.fine_tuning):g}"))
    elif is_unscaled(spec, spec.plan()):
        remedies.append(options(learning_rate_scaling="sqrt"))
    if spec.fine_tuning == "head":
        remedies.append(options(fine_tuning="full"))
    remedies.append(options(num_train_epochs=f"{_TIMES_THE_EPOCHS * spec.num_train_epochs:g}"))
    return [f"F1 {measured:.4f} is {comparison}: {meaning}; try {', '.join(remedies)}"]


def error_of_rows(values: Mapping[str, float]) -> float:
    """Standard error of the F1 of so few validation rows; 0 if F1 or rows are not known."""
    rows = int(values.get("validation_rows", 0))
    return binomial_error(values[metrics.F1], rows) if rows > 0 and metrics.F1 in values else 0.0


def _counting_model(spec: JobSpec) -> str:
    return _COUNTING_MODEL.get(spec.task, "TF-IDF with logistic regression")


def _too_easy(spec: JobSpec, values: Mapping[str, float]) -> str:
    task = metrics.TASKS[spec.task]
    measured, baseline = values.get(metrics.F1, 0.0), values.get(task.baseline or "", 0.0)
    if task.quality != metrics.F1 or min(measured, baseline) < _TRIVIAL_F1:
        return ""
    return (
        f"F1 {measured:.4f} and that of {_counting_model(spec)}, {baseline:.4f}, are both {_TRIVIAL_F1:g} or more: "
        "these rows are too easy to tell settings apart; choose by dollars, or look whether the text contains the label"
    )


def _one_class_only(report: JobReport | None) -> str:
    if report is None or len(report.labels) < 2 or not any(map(any, report.confusion_matrix)):
        return ""
    predicted = [
        name for column, name in enumerate(report.labels) if any(row[column] for row in report.confusion_matrix)
    ]
    if len(predicted) > 1:
        return ""
    rows = sum(map(sum, report.confusion_matrix))
    return f"all {rows:,} validation rows are answered {predicted[0]!r}: the model tells no classes apart"


def _far_too_high_rate(spec: JobSpec) -> str:
    if not _is_far_too_high(spec):
        return ""
    rate, usual = spec.plan().learning_rate, default_learning_rate(spec.fine_tuning)
    return (
        f"learning rate {rate:g} is {rate / usual:,.0f} times the usual {usual:g} of fine_tuning={spec.fine_tuning}: "
        f"such a rate destroys what the model knew; try {options(learning_rate=f'{usual:g}')}"
    )


def _truncated_texts(spec: JobSpec, values: Mapping[str, float]) -> str:
    share = values.get(metrics.TRUNCATED_SHARE, 0.0)
    if share < _MOST_TRUNCATED:
        return ""
    return (
        f"{'all' if share == 1 else f'{share:.0%} of the'} training texts are longer than "
        f"max_seq_length={spec.max_seq_length} tokens and were cut there; "
        f"try {options(max_seq_length=2 * spec.max_seq_length)}, if the model takes as many"
    )


def _unmoved_loss(spec: JobSpec, values: Mapping[str, float], loss: Sequence[float]) -> str:
    task = metrics.TASKS[spec.task]
    is_compared = task.quality in values and (task.baseline or "") in values
    if len(loss) < _FEWEST_POINTS or (is_compared and not below_baseline(spec, values)):
        return ""
    count = max(2, len(loss) // 4)
    parts = loss[:count], loss[-count:]
    first, last = map(fmean, parts)
    # A pretrained language model improves by less than the least fall: its loss must fall by more than it scatters.
    scatter = TELLING_ERRORS * math.sqrt(sum(variance(part) for part in parts) / count)
    if last <= (first - scatter if spec.task == metrics.CAUSAL_LM else (1 - _LEAST_FALL) * first):
        return ""
    verb = "did not fall" if last >= first else f"fell by {1 - last / first:.1%} only"
    return f"the training loss {verb}: {first:.4f} at the beginning, {last:.4f} at the end"


def _is_far_too_high(spec: JobSpec) -> bool:
    return spec.plan().learning_rate > _FAR_TOO_HIGH * default_learning_rate(spec.fine_tuning)


def is_unscaled(spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether a large batch is trained with the rate of a small one, and nobody has raised it by hand."""
    size, reference = plan.global_batch_size, spec.reference_batch_size
    usual = default_learning_rate(spec.fine_tuning) * (size / reference) ** 0.5
    return spec.learning_rate_scaling == "none" and size > reference and plan.learning_rate < _ROUNDED_DOWN * usual


def is_full_rate(spec: JobSpec) -> bool:
    """Whether adapters are trained with a rate that is nearer to that of full fine-tuning than to their own."""
    geometric_mean = (default_learning_rate("full") * default_learning_rate(spec.fine_tuning)) ** 0.5
    is_own = spec.runs_own_training
    return spec.fine_tuning in ADAPTERS and not is_own and spec.unscaled_learning_rate < geometric_mean
