"""What is to be said of the model that a finished job returns: the one home of these sentences.

A verdict says what was seen, what it means, and the `-P` that mends it. They are said at the end of the job, are the
tag `paretune.verdict` of its run, and stand in its note; a study says those of what it recommends.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paretune.jobs.notes.rates import is_far_too_high, is_full_rate, is_unscaled
from paretune.spec import metrics
from paretune.spec.container import JobReport
from paretune.spec.job import JobSpec, default_learning_rate

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
    if spec.entry_script is not None:
        return []
    said = [*below_baseline(spec, found), *one_class_only(report), *far_rate(spec)]
    return [*said, *truncated_texts(spec, found), *unmoved_loss(found, loss)]


def below_baseline(spec: JobSpec, found: Mapping[str, float]) -> list[str]:
    """That a model is no better than answering the most frequent class, or worse than words alone."""
    f1, words = found.get(metrics.F1), found.get(metrics.BASELINE_TFIDF)
    majority = found.get(metrics.BASELINE_MAJORITY)
    if f1 is None:
        return []
    if majority is not None and f1 <= majority:
        than = f"no better than {majority:.4f}, which always answering the most frequent class reaches"
        means = "the model has learnt nothing"
    elif words is not None and f1 < words:
        than = f"below {words:.4f}, which TF-IDF with logistic regression reaches on the same rows"
        means = "the model has not learnt what single words tell"
    else:
        return []
    return [f"F1 {f1:.4f} is {than}: {means}; {', '.join(_mends(spec))}"]


def _mends(spec: JobSpec) -> list[str]:
    mends = []
    if is_full_rate(spec) or is_far_too_high(spec):
        mends.append(f"-P learning_rate={default_learning_rate(spec.fine_tuning):g}")
    elif is_unscaled(spec, spec.plan()):
        mends.append("-P learning_rate_scaling=sqrt")
    if spec.fine_tuning == "head":
        mends.append("-P fine_tuning=full")
    return [*mends, f"-P num_train_epochs={_TIMES_THE_EPOCHS * spec.num_train_epochs:g}"]


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
        f"such a rate destroys what the model knew; -P learning_rate={usual:g}"
    ]


def truncated_texts(spec: JobSpec, found: Mapping[str, float]) -> list[str]:
    """That most texts are longer than what the model was shown of them."""
    share = found.get(metrics.TRUNCATED_SHARE)
    if share is None or share < _MOST_TRUNCATED:
        return []
    which = "all" if share == 1 else f"{share:.0%} of the"
    return [
        f"{which} training texts are longer than max_seq_length={spec.max_seq_length} tokens and were cut there; "
        f"-P max_seq_length={2 * spec.max_seq_length}, if the model takes as many"
    ]


def unmoved_loss(found: Mapping[str, float], loss: Sequence[float]) -> list[str]:
    """That the training loss did not fall, of a job that has not shown by its F1 that it has learnt something."""
    words = found.get(metrics.BASELINE_TFIDF)
    if len(loss) < _FEWEST_POINTS or (words is not None and found.get(metrics.F1, 0.0) >= words):
        return []
    some = max(2, len(loss) // 4)
    first, last = fmean(loss[:some]), fmean(loss[-some:])
    if last <= (1 - _LEAST_FALL) * first:
        return []
    return [f"the training loss did not fall: {first:.4f} at the beginning, {last:.4f} at the end"]
