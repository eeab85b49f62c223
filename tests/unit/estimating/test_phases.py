"""Phases of jobs on SageMaker: medians and intervals by kind of instance, and how they divide a predicted job."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paretune.estimating.phases import Seconds, phases_of, usual
from paretune.specification.job import JobSpec
from paretune.specification.job_phases import PHASES

HOUR = Seconds(seconds=3600, seconds_low=3000, seconds_high=4320)


@pytest.fixture
def public_jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    sys.modules.pop("public_jobs", None)
    import public_jobs

    return public_jobs


def divide(total: Seconds = HOUR, *, instance_type: str = "ml.g5.xlarge", **more: Any) -> dict[str, Seconds]:
    return dict(phases_of(total, JobSpec(instance_type=instance_type), **more))


def test_the_billed_phases_add_up_to_the_seconds_of_the_job() -> None:
    phases = divide()
    assert tuple(phases) == PHASES
    assert sum(phases[phase].seconds for phase in PHASES[2:]) == pytest.approx(3600)
    assert phases["training"].seconds_high / phases["training"].seconds == pytest.approx(1.2)


def test_a_short_job_keeps_a_tenth_for_its_training() -> None:
    phases = divide(Seconds(seconds=100, seconds_low=50, seconds_high=200))
    assert phases["training"].seconds == pytest.approx(10)
    assert sum(phases[phase].seconds for phase in PHASES[2:]) == pytest.approx(100)


def test_the_bytes_of_a_model_are_uploaded_in_addition() -> None:
    small, large = divide(uploaded_bytes=0), divide(uploaded_bytes=5e9)
    assert large["uploading"].seconds - small["uploading"].seconds == pytest.approx(25)  # 200 MB/s
    assert large["training"].seconds == pytest.approx(small["training"].seconds - 25)
    packed = divide(uploaded_bytes=1e8)
    assert packed["uploading"].seconds - small["uploading"].seconds == pytest.approx(10)  # 10 MB/s


def test_phases_follow_what_earlier_jobs_took_around_their_steps() -> None:
    assert divide(factor=2)["image"].seconds == pytest.approx(2 * usual("image", "gpu").seconds)
    assert divide(factor=2)["starting"] == usual("starting", "gpu")  # which is in no bill


def test_a_timeline_with_missing_or_impossible_phases_is_read_as_far_as_it_goes(
    public_jobs: ModuleType, tmp_path: Path
) -> None:
    head = "id,source,date,instance_type,coarse,seconds_starting,seconds_downloading_image,seconds_uploading,note"
    rows = [
        "T1,ann/one/a.ipynb@x,2024-01-01,ml.g5.xlarge,no,100,60,30,",
        "T2,ann/one/b.ipynb@x,2024-01-01,ml.p2.xlarge,no,-5,60,,",
        "T3,bob/two:c.ipynb@x,,,no,soon,inf,20,",
        ",bob/two/d.ipynb@x,,ml.m4.xlarge,no",
        "T5,bob/two/c.ipynb@x,,ml.m5.large,yes,1,1,1,",
    ]
    path = tmp_path / "timelines.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    messages: list[str] = []
    jobs = public_jobs.read_jobs(path, messages.append)

    assert [(job.name, job.repository, job.kind) for job in jobs] == [
        ("T1", "ann/one", "gpu"),
        ("T2", "ann/one", "gpu"),
        ("T3", "bob/two", "any"),
        ("line 5", "bob/two", "cpu"),
    ]
    assert messages == [
        "T2: seconds_starting cannot be '-5': left out",
        "T3: seconds_starting cannot be 'soon': left out",
        "T3: seconds_downloading_image cannot be 'inf': left out",
    ]


def test_the_interval_of_a_repository_is_fitted_without_its_own_jobs(public_jobs: ModuleType) -> None:
    def job(repository: str, seconds: float) -> Any:
        return public_jobs.PublicJob(
            name="T", repository=repository, date="2024", kind="gpu", seconds={"seconds_starting": seconds}
        )

    jobs = [job(f"usual/{number}", 90.0 + number) for number in range(20)] + [job("slow/one", 9000.0)] * 20
    assert public_jobs.coverage(jobs, "seconds_starting")["slow/one"] == (0, 20)


def test_jobs_that_the_program_has_not_seen_judge_its_own_intervals(public_jobs: ModuleType) -> None:
    public = usual("image", "gpu")
    seconds = (public.seconds, public.seconds_high + 1, public.seconds_low - 1, public.seconds_high)
    jobs = [
        public_jobs.PublicJob(
            name="T", repository="new/one", date="2026", kind="gpu", seconds={"seconds_downloading_image": value}
        )
        for value in seconds
    ]
    assert public_jobs.coverage_of_program(jobs, "image") == {"new/one": (2, 4)}
    assert public_jobs.uploads_without("new/one", jobs) == {}


def test_answers_that_are_none_are_named(
    public_jobs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (
        ("list", "[]"),
        ("torn", '{"TrainingJobStatus": '),
        ("other", '{"TrainingJobStatus": "Dreams"}'),
    ):
        (tmp_path / f"{name}.json").write_text(text)
    public_jobs.print_bills(tmp_path)

    printed = capsys.readouterr().out
    assert "list: left out" in printed
    assert "torn: left out" in printed
    assert "1 has not ended" in printed


def test_too_few_waits_have_the_interval_of_the_longest_wait(public_jobs: ModuleType) -> None:
    def job(kind: str, seconds: float) -> Any:
        return public_jobs.PublicJob(
            name="T", repository="a/b", date="2025", kind=kind, seconds={"seconds_pending_capacity": seconds}
        )

    rows = public_jobs.waiting_rows([job("gpu", 133.0), job("gpu", 0.0), *[job("cpu", 0.0)] * 30], 656.0)
    most = {row["kind"]: row["most_seconds"] for row in rows}
    assert most == {"any": 0, "cpu": 0, "gpu": 656, "multi_gpu": 656}
    assert usual("waiting", "gpu").seconds_high == 656
