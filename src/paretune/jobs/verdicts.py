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
_ROUNDED_DOWN = 0.9  # share of a scaled learning rate from which on a rate counts as scaled by hand and rounded
_USUAL_RATES = (0.3, 30.0)  # times the default learning rate; one outside is the first suspect if nothing was learnt


def verdicts(spec: JobSpec, values: Mapping[str, float]) -> list[str]:
    """A verdict on a completed job if its model is no better than a constant answer, or worse than TF-IDF.

    `values` are metrics of the job and baselines of its data. A difference to TF-IDF below the standard error of so few
    validation rows shows nothing. A script or a project, whose F1 is computed elsewhere, is not judged.
    """
    if spec.runs_own_training:
        return []
    task = metrics.TASKS[spec.task]
    measured, counted, trivial = (values.get(name or "") for name in (task.quality, task.baseline, task.trivial))
    if measured is None:
        return []
    if trivial is not None and measured <= trivial:
        comparison = f"no better than {trivial:.4f}, which {_TRIVIAL_ANSWERS[spec.task]} reaches"
        meaning = "the model has learnt nothing"
    elif counted is not None and measured < counted:
        rows = int(values.get("validation_rows", 0))
        is_shown = abs(measured - counted) >= (binomial_error(measured, rows) if rows > 0 else 0.0)
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


def is_unscaled(spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether a large batch is trained with the rate of a small one, and nobody has raised it by hand."""
    size, reference = plan.global_batch_size, spec.reference_batch_size
    usual = default_learning_rate(spec.fine_tuning) * (size / reference) ** 0.5
    return spec.learning_rate_scaling == "none" and size > reference and plan.learning_rate < _ROUNDED_DOWN * usual
