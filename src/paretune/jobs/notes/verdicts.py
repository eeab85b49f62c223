"""What is to be said of the model that a finished job returns: the one home of these sentences.

A verdict says what was seen, what it means, and the options that mend it. They are said at the end of the job, are the
tag `paretune.verdict` of its run, and stand in its note; a study says those of what it recommends.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paretune.core.commands import options
from paretune.jobs.notes.rates import is_far_too_high, is_full_rate, is_unscaled
from paretune.specification import metrics
from paretune.specification.container import JobReport
from paretune.specification.fine_tuning import default_learning_rate
from paretune.specification.inputs import Data
from paretune.specification.job import JobSpec

_NAMES = {metrics.F1: "F1", metrics.RMSE: "RMSE"}
_ALWAYS = {
    metrics.CLASSIFICATION: "always answering the most frequent class",
    metrics.MULTI_LABEL: "always answering the most frequent set of labels",
    metrics.REGRESSION: "always answering the mean of the training rows",
    metrics.CAUSAL_LM: "",
}
_TIMES_THE_EPOCHS = 3
_MOST_TRUNCATED = 0.5
"""Share of texts from which on their cut ends are worth a sentence: more than half of the rows have lost theirs."""
_FEWEST_POINTS = 4
"""Points of a loss curve that show whether it has moved: two at its beginning and two at its end."""
_LEAST_FALL = 0.02
"""Share of the first loss by which it must have fallen to have moved; scatter between single steps is averaged out."""


def verdicts(
    spec: JobSpec, found: Mapping[str, float], report: JobReport | None = None, loss: Sequence[float] = ()
) -> list[str]:
    """What there is to say of a job that has ended well; nothing of a script or a project, whose F1 is its own.

    `found` are its metrics, `loss` is the curve of its training loss, by step.
    """
    if spec.runs_own_training:
        return []
    said = [*below_baseline(spec, found), *one_class_only(report), *far_rate(spec)]
    return [*said, *truncated_texts(spec, found), *unmoved_loss(spec, found, loss)]


def below_baseline(spec: JobSpec, found: Mapping[str, float]) -> list[str]:
    """That a model is no better than always giving the most usual answer, or worse than words alone."""
    task = metrics.TASKS[spec.task]
    measured, words = found.get(task.quality), found.get(task.baseline or "")
    trivial = found.get(task.trivial or "")
    if measured is None:
        return []
    form = ".5g" if spec.task == metrics.REGRESSION else ".4f"
    sign = 1.0 if task.direction == "maximize" else -1.0
    if trivial is not None and sign * measured <= sign * trivial:
        than = f"no better than {trivial:{form}}, which {_ALWAYS[spec.task]} reaches"
        means = "the model has learnt nothing"
    elif words is not None and sign * measured < sign * words:
        side = "below" if sign > 0 else "above"
        model = "ridge" if spec.task == metrics.REGRESSION else "logistic"
        than = f"{side} {words:{form}}, which TF-IDF with {model} regression reaches on the same rows"
        means = "the model has not learnt what single words tell"
    else:
        return []
    return [f"{_NAMES.get(task.quality, task.quality)} {measured:{form}} is {than}: {means}; {', '.join(_mends(spec))}"]


def _mends(spec: JobSpec) -> list[str]:
    mends = []
    if is_full_rate(spec) or is_far_too_high(spec):
        mends.append(options(learning_rate=f"{default_learning_rate(spec.fine_tuning):g}"))
    elif is_unscaled(spec, spec.plan()):
        mends.append(options(learning_rate_scaling="sqrt"))
    if spec.fine_tuning == "head":
        mends.append(options(fine_tuning="full"))
    return [*mends, options(num_train_epochs=f"{_TIMES_THE_EPOCHS * spec.num_train_epochs:g}")]


def one_class_only(report: JobReport | None) -> list[str]:
    """That every validation row was answered alike."""
    if report is None or len(report.labels) < 2 or not any(map(any, report.confusion_matrix)):
        return []
    answered = [name for at, name in enumerate(report.labels) if any(row[at] for row in report.confusion_matrix)]
    if len(answered) > 1:
        return []
    rows = sum(map(sum, report.confusion_matrix))
    return [f"all {rows:,} validation rows are answered {answered[0]!r}: the model tells no classes apart"]


def far_rate(spec: JobSpec) -> list[str]:
    """That the learning rate is none that such fine-tuning uses."""
    if not is_far_too_high(spec):
        return []
    rate, usual = spec.plan().learning_rate, default_learning_rate(spec.fine_tuning)
    return [
        f"learning rate {rate:g} is {rate / usual:,.0f} times the usual {usual:g} of fine_tuning={spec.fine_tuning}: "
        f"such a rate destroys what the model knew; {options(learning_rate=f'{usual:g}')}"
    ]


def truncated_texts(spec: Data, found: Mapping[str, float]) -> list[str]:
    """That most texts are longer than what the model was shown of them."""
    share = found.get(metrics.TRUNCATED_SHARE)
    if share is None or share < _MOST_TRUNCATED:
        return []
    which = "all" if share == 1 else f"{share:.0%} of the"
    return [
        f"{which} training texts are longer than max_seq_length={spec.max_seq_length} tokens and were cut there; "
        f"{options(max_seq_length=2 * spec.max_seq_length)}, if the model takes as many"
    ]


def _beats_words(spec: JobSpec, found: Mapping[str, float]) -> bool:
    task = metrics.TASKS[spec.task]
    measured, words = found.get(task.quality), found.get(task.baseline or "")
    return measured is not None and words is not None and not below_baseline(spec, found)


def unmoved_loss(spec: JobSpec, found: Mapping[str, float], loss: Sequence[float]) -> list[str]:
    """That the training loss did not fall, of a job that has not shown by its quality that it has learnt something."""
    if len(loss) < _FEWEST_POINTS or _beats_words(spec, found):
        return []
    some = max(2, len(loss) // 4)
    first, last = fmean(loss[:some]), fmean(loss[-some:])
    if last <= (1 - _LEAST_FALL) * first:
        return []
    return [f"the training loss did not fall: {first:.4f} at the beginning, {last:.4f} at the end"]
