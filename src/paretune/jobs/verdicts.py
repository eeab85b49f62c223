"""Sentences about the model of a finished job: what was observed, what it means, what mends it.

They are printed at the end of the job, are the tag `paretune.verdict` of its run, and are part of its note. A study
prints those of the jobs that it recommends.
"""

from collections.abc import Mapping

from paretune.core.commands import options
from paretune.estimating.noise import binomial_error
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec, default_learning_rate

_COUNTING_MODEL = {metrics.WORDS: "the most frequent label of each word"}
"""Task to its baseline, where that is not TF-IDF with logistic regression."""
_TRIVIAL_ANSWERS = {
    metrics.CLASSIFICATION: "always answering the most frequent class",
    metrics.MULTI_LABEL: "always answering the most frequent set of labels",
}
_TIMES_THE_EPOCHS = 3
_MOST_TRUNCATED = 0.5  # share of truncated texts from which on a sentence says so: most rows have lost their ends
_ROUNDED_DOWN = 0.9  # share of a scaled learning rate from which on a rate counts as scaled by hand and rounded
_USUAL_RATES = (0.3, 30.0)  # times the default learning rate; one outside is the first suspect if nothing was learnt


def verdicts(spec: JobSpec, values: Mapping[str, float]) -> list[str]:
    """The verdicts on a completed job; none for a script or a project, whose F1 is computed elsewhere.

    `values` are metrics of the job and baselines of its data.
    """
    if spec.runs_own_training:
        return []
    return [*below_baseline(spec, values, error_of_rows(values)), *_truncated_texts(spec, values)]


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
        model = _COUNTING_MODEL.get(spec.task, "TF-IDF with logistic regression")
        comparison = (
            f"{'below' if is_shown else 'no better than'} {counted:.4f}, which {model} reaches on the same rows"
        )
        meaning = "the model has not learnt what single words tell"
        if not is_shown:
            meaning = "whether the model has learnt more than single words tell is not shown"
    else:
        return []
    remedies, usual = [], default_learning_rate(spec.fine_tuning)
    lowest, highest = _USUAL_RATES
    if not lowest * usual <= spec.unscaled_learning_rate <= highest * usual:
        remedies.append(options(learning_rate=f"{usual:g}"))
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


def _truncated_texts(spec: JobSpec, values: Mapping[str, float]) -> list[str]:
    share = values.get(metrics.TRUNCATED_SHARE, 0.0)
    if share < _MOST_TRUNCATED:
        return []
    return [
        f"{'all' if share == 1 else f'{share:.0%} of the'} training texts are longer than "
        f"max_seq_length={spec.max_seq_length} tokens and were cut there; "
        f"try {options(max_seq_length=2 * spec.max_seq_length)}, if the model takes as many"
    ]


def is_unscaled(spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether a large batch is trained with the rate of a small one, and nobody has raised it by hand."""
    size, reference = plan.global_batch_size, spec.reference_batch_size
    usual = default_learning_rate(spec.fine_tuning) * (size / reference) ** 0.5
    return spec.learning_rate_scaling == "none" and size > reference and plan.learning_rate < _ROUNDED_DOWN * usual
