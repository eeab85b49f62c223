"""The status of a trial follows from the cause of its job's end, whatever the launcher says about it."""

import pytest

from paretune.specification.ending import STOPPED, Cause, Ending, JobState, cut_off, failed
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
