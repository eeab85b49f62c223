"""Why a study begins no further trial: it has enough, an objective is never recorded, or every job would fail alike.

The other reasons follow from what is suggested next, and are said there: in `split` no job is worth its price or fits
the dollars that are left, in `sampled` all points were tried or fit no longer; in `verification` nothing lacks runs.
"""

import re
from collections.abc import Sequence

from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Next, Trial, TrialStatus

FEWEST_WITHOUT = 2  # completed trials that all lack an objective, after which a study ends
_ERROR = re.compile(
    r"\b(?:ModuleNotFound|Import|Syntax|Indentation|Name|UnboundLocal|Type|Attribute|Key|Index|Value|FileNotFound|"
    r"NotImplemented|Assertion)Error\b|No module named|package \S+ is missing|No matching distribution found|"
    r"unrecognized arguments|arguments are required|error: argument"
)
"""Python's exceptions of wrong code and missing packages, and argparse's messages."""
_CHANGING = re.compile(r"[0-9a-f]{8,}")  # ids of runs, parts of temporary folders


def has_enough(file: StudyFile, count: int) -> bool:
    """Whether the study may have no more trials than these."""
    return file.n_trials is not None and count >= file.n_trials


def lacks_objective(trials: Sequence[Trial], file: StudyFile) -> str:
    """The reason why no trial will ever have all objectives, in words; empty while one may.

    A training that has completed twice without logging a metric will not log it the next time.
    """
    done = [trial for trial in trials if trial.status is TrialStatus.COMPLETED and not trial.is_probe]
    absent = [name for name in file.objectives if not any(name in trial.values for trial in done)]
    if len(done) < FEWEST_WITHOUT or not absent or not file.is_own:
        return ""
    logged = ", ".join(sorted({name for trial in done for name in trial.measured} - {*file.objectives}))
    return (
        f"{len(done)} jobs have completed and none has logged {' or '.join(absent)}, which is an objective; what they "
        f"have logged beside the others is {logged or 'nothing'}: name one of these in objectives"
    )


def hopeless(trials: Sequence[Trial], file: StudyFile, since: int = 0) -> str:
    """The reason why no further job can complete, and what to change; empty while one may.

    No trial has completed, and two from the position `since` on have failed with the same error of the code, or were
    ended at the study's own limit of runtime.
    """
    if any(trial.status is TrialStatus.COMPLETED and not trial.is_probe for trial in trials):
        return ""
    alike: dict[str, list[Trial]] = {}
    for trial in trials[since:]:
        has_own_limit = trial.spec.max_runtime_minutes >= file.job.max_runtime_minutes
        if trial.is_cut_off and not trial.is_probe and has_own_limit:
            alike.setdefault("", []).append(trial)
        elif trial.status is TrialStatus.FAILED and trial.follows is Next.INSIST and _ERROR.search(trial.reason):
            alike.setdefault(_CHANGING.sub("#", trial.reason), []).append(trial)
    for reason, (first, *others) in alike.items():
        if others and (not reason or not _is_of_one_strategy([first, *others], file)):
            numbers = f"trials {first.number} and {others[0].number}"
            none = "and no trial has completed, so no more are started"
            if reason:
                return (
                    f"{numbers} failed with the same error of the code, {none}: {others[-1].reason}; correct the code, "
                    "or add the missing package to its requirements.txt"
                )
            minutes = others[-1].spec.max_runtime_minutes
            return (
                f"{numbers} were ended at max_runtime_minutes {minutes:g}, {none}: give them more, such as "
                f"--max_runtime_minutes {4 * minutes:g}, or less work, such as fewer max_train_samples"
            )
    return ""


def _is_of_one_strategy(failed: Sequence[Trial], file: StudyFile) -> bool:
    """Whether all of them have one of several strategies: with another one a job may complete."""
    return "strategy" in file.search and len({trial.point["strategy"] for trial in failed}) == 1
