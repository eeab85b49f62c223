"""An ending of a job: which are possible, how it is stored, and what the log adds to a silent one."""

import pytest

from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, cut_off, failed, without_ids


@pytest.mark.parametrize(
    ("state", "cause"),
    [(JobState.RUNNING, None), (JobState.STOPPING, None), (JobState.FAILED, None), (JobState.COMPLETED, Cause.ERROR)],
)
def test_an_ending_that_cannot_be_is_refused(state: JobState, cause: Cause | None) -> None:
    with pytest.raises(ValueError, match="job"):
        Ending(state, cause)


@pytest.mark.parametrize("ending", [COMPLETED, STOPPED, cut_off("too long"), failed(Cause.SILENT, "it ended")])
def test_an_ending_is_stored_and_read_back(ending: Ending) -> None:
    assert Ending.from_json(ending.as_json()) == ending


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("ModuleNotFoundError: No module named 'evaluate'", Cause.CODE),
        ("json.decoder.JSONDecodeError: Expecting value", Cause.ERROR),
        ("mine.ValueError: 12 of 30 words are missing", Cause.CODE),
        ("train.py: error: argument --epochs: invalid int value: 'two'", Cause.CODE),
        ("ERROR: No matching distribution found for evaluate==99", Cause.CODE),
        ("torch.OutOfMemoryError: CUDA out of memory", Cause.ERROR),
        ("there was no TypeError", Cause.ERROR),
    ],
)
def test_a_silent_end_is_explained_by_the_last_words_of_the_log(line: str, cause: Cause) -> None:
    silent = failed(Cause.SILENT, "the command ended with exit code 1")

    assert silent.explained(["step 1", line, ""]) == failed(cause, f"the command ended with exit code 1: {line}")
    assert silent.explained([]) == silent


def test_an_end_with_a_reason_keeps_it_whatever_the_log_says() -> None:
    ending = failed(Cause.DISK_FULL, "the command ended with exit code 1")

    assert ending.explained(["KeyError: 'label'"]) == ending


def test_sentences_of_equal_jobs_differ_only_in_ids() -> None:
    one, other = (f"no file /jobs/paretune-{run_id}-1/model" for run_id in ("8c1f0e2d7a", "00ff00ff00"))

    assert without_ids(one) == without_ids(other)
    assert without_ids("step 1") != without_ids("step 2")
