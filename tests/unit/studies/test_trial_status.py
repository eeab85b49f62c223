"""The status of a trial follows from the cause of its job's end, and whether its job starts again from its status."""

from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from paretune.specification.ending import STOPPED, Cause, Ending, JobState, cut_off, failed
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.sampler.sampler import SplitSampler
from paretune.studies.search.ended_trials import EndedTrials
from paretune.studies.search.table import StudyTable
from paretune.studies.trial_status import TrialStatus


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_gives_a_trial_a_status(cause: Cause) -> None:
    status = TrialStatus.of_end(failed(cause, ""), is_lost=False)

    assert status not in (TrialStatus.RUNNING, TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.INTERRUPTED)


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (cut_off("el tiempo se acabó"), TrialStatus.CUT_OFF),  # as a launcher from another package may word it
        (failed(Cause.TIME_LIMIT, "slurmstepd: *** JOB 7 CANCELLED DUE TO TIME LIMIT ***"), TrialStatus.CUT_OFF),
        (failed(Cause.ERROR, "MaxRuntimeExceeded"), TrialStatus.FAILED),  # the word of a script
        (failed(Cause.CODE, "NameError: name 'MaxRuntimeExceeded' is not defined"), TrialStatus.FAILED),
        (Ending(JobState.STOPPED, Cause.CAPACITY, "no spot instance"), TrialStatus.REFUSED),
        (Ending(JobState.STOPPED, Cause.ERROR, "stopped from outside"), TrialStatus.FAILED),
        (STOPPED, TrialStatus.STOPPED),
    ],
)
def test_the_words_of_a_launcher_or_a_script_change_no_status(ending: Ending, status: TrialStatus) -> None:
    assert TrialStatus.of_end(ending, is_lost=False) is status


def test_only_a_failure_is_blamed_on_the_process_that_the_job_died_with() -> None:
    lost = {cause: TrialStatus.of_end(failed(cause, ""), is_lost=True) for cause in Cause}

    assert lost[Cause.ERROR] is lost[Cause.SILENT] is TrialStatus.INTERRUPTED
    assert lost[Cause.OUT_OF_MEMORY] is TrialStatus.OUT_OF_MEMORY
    assert lost[Cause.TIME_LIMIT] is TrialStatus.CUT_OFF


ENDS = [status for status in TrialStatus if status is not TrialStatus.RUNNING and not status.is_retryable]
AGAIN = {TrialStatus.FAILED, TrialStatus.CUT_OFF}


@pytest.mark.parametrize("ends", [each for count in (1, 2) for each in product(ENDS, repeat=count)])
def test_driver_and_sampler_agree_on_whether_a_job_that_ended_so_may_start_again(
    tmp_path: Path, ends: tuple[TrialStatus, ...]
) -> None:
    """A job may start once more after one failure or time limit, and never after two or after any other end."""
    (tmp_path / "train.py").write_text("parser.add_argument('--leaves')\n")
    job = {"entry_script": str(tmp_path / "train.py"), "instance_type": "ml.g5.xlarge"}
    goals = {"cost_usd": "minimize", "ndcg": "maximize"}
    search = {"training_arguments.leaves": {"choices": [7]}}
    file = StudyFile.read({"name": "one", "job": job, "search": search, "objectives": goals, "budget_usd": 9})
    point = {"training_arguments.leaves": 7}
    with closing(StudyTable(file, "sqlite://")) as table:
        for status in ends:
            number, _ = table.ask(point, {})
            measured = {"cost_usd": 0.1, "ndcg": 0.5} if status is TrialStatus.COMPLETED else {}
            given = file.spec_at(point).given_text()
            table.save(Trial(number=number, point=point, given=given, status=status, measured=measured, cost_usd=0.1))
            table.tell(table.trials()[1][-1])
        sampler = SplitSampler(file.job, table.distributions, objectives=list(goals), metric="ndcg", stop=False)
        may_start = not EndedTrials(file, table.trials()[1]).final

        assert (sampler.next_job(table.study) is not None) == may_start
        assert may_start == (len(ends) == 1 and ends[0] in AGAIN)
