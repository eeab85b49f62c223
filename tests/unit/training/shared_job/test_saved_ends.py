"""Ends of trials that outlive an interruption, with the model where its folder does not."""

import shutil
from pathlib import Path

from paretune.specification.container import FailureKind, JobFolder, JobReport, MemberEnd
from paretune.training.shared_job.trials import load_end, save_end

DONE = MemberEnd(seconds=3.5, report=JobReport(metrics={"f1": 0.5}))


def trial(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path).of_member("a")
    folder.model.mkdir(parents=True)
    (folder.model / "weights").write_text("1234")
    return folder


def test_a_model_whose_folder_begins_empty_again_is_put_back(tmp_path: Path) -> None:
    folder = trial(tmp_path)
    save_end(folder, DONE, name="job.a", with_model=True)
    shutil.rmtree(folder.model)

    assert load_end(folder, name="job.a", with_model=False) == DONE
    assert not folder.model.exists()
    assert load_end(folder, name="job.a", with_model=True) == DONE
    assert (folder.model / "weights").read_text() == "1234"


def test_a_trial_whose_model_is_incomplete_has_not_ended(tmp_path: Path) -> None:
    folder = trial(tmp_path)
    save_end(folder, DONE, name="job.a", with_model=True)
    (folder.checkpoints / "model" / "weights").write_text("12")

    assert load_end(folder, name="job.a", with_model=True) is None


def test_an_end_of_another_job_or_half_of_one_is_none(tmp_path: Path) -> None:
    folder = trial(tmp_path)
    assert load_end(folder, name="job.a", with_model=True) is None
    failed = MemberEnd(seconds=1.0, failure=(FailureKind.ERROR, "odd"))
    save_end(folder, failed, name="job.a", with_model=True)

    assert load_end(folder, name="job.a", with_model=True) == failed
    assert load_end(folder, name="another.a", with_model=True) is None
    (folder.checkpoints / "end.json").write_text('{"name": "job.a", "en')
    assert load_end(folder, name="job.a", with_model=True) is None
