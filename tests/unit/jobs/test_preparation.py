"""The launching side of preparation: another process, whose answers, faults, crash and end are handled."""

import os
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from paretune.core.clock import SystemClock
from paretune.core.errors import Interrupted, JobFailed, LaunchRefused
from paretune.core.interruption import Interruption
from paretune.jobs.preparation import cache_inputs, inputs_of, load_cached_inputs
from paretune.specification.container import JobInputs, PreparedDataset
from paretune.specification.job import JobSpec
from tests.support.processes import working_in
from tests.support.workplaces import make_workplace


class BusyClock(SystemClock):
    """Does something else each time that somebody waits."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        self._meanwhile()
        super().sleep(seconds)


def _prepare(
    spec: JobSpec,
    home: Path,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    interruption: Interruption | None = None,
    **environment: str,
) -> JobInputs:
    return inputs_of(
        spec,
        make_workplace(
            home=home,
            clock=BusyClock(meanwhile),
            environment=dict(os.environ) | environment,
            interruption=interruption,
        ),
    )


@pytest.mark.trains
def test_nothing_goes_on_preparing_when_the_check_ends_the_command(workplace: Path) -> None:
    def check() -> None:
        raise LaunchRefused("no credentials")

    with pytest.raises(LaunchRefused):
        inputs_of(
            JobSpec(),
            make_workplace(home=workplace / "home", environment=dict(os.environ)),
            meanwhile=check,
        )

    assert working_in(workplace / "home") == []


@pytest.mark.slow
def test_rows_and_model_are_prepared_once_for_jobs_that_share_them(
    workplace: Path, tiny_model: Path, reviews: Path
) -> None:
    spec = JobSpec(model=str(tiny_model), dataset=str(reviews), max_seq_length=32)
    first = _prepare(spec, workplace / "home")
    assert first.dataset is not None
    written = (first.dataset.folder / "train" / "tokens.npy").stat().st_mtime_ns

    second = _prepare(spec, workplace / "home")

    assert first == second
    assert first.model == tiny_model.resolve()
    assert first.dataset.labels == ("negative", "positive")
    assert first.dataset.facts["train_rows"] == 108
    assert first.dataset.folder.is_relative_to(workplace / "home")
    assert (first.dataset.folder / "train" / "tokens.npy").stat().st_mtime_ns == written


@pytest.mark.trains
def test_an_interruption_ends_the_preparing_process(workplace: Path) -> None:
    home, interruption, seen = workplace / "home", Interruption(), []

    def interrupt_once_it_runs() -> None:
        if found := working_in(home):
            seen.extend(found)
            interruption.reason = "interrupted by the test"

    with pytest.raises(Interrupted, match="by the test"):
        _prepare(JobSpec(), home, meanwhile=interrupt_once_it_runs, interruption=interruption)

    assert seen
    assert not any(process.is_running() for process in seen)


@pytest.mark.trains
def test_a_preparing_process_that_breaks_says_why(workplace: Path) -> None:
    broken = workplace / "broken"  # hides the real library behind this one
    broken.mkdir()
    (broken / "datasets.py").write_text("raise RuntimeError('broken on purpose')\n")

    with pytest.raises(JobFailed) as raised:
        _prepare(JobSpec(), workplace / "home", PYTHONPATH=str(broken))

    assert raised.value.reason == "RuntimeError: broken on purpose"
    assert any("Traceback" in line for line in raised.value.log_tail)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    """Return a job that reads files of its test."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "rows.csv").write_text("text,label\n")
    return JobSpec(model=str(tmp_path / "model"), dataset=str(tmp_path / "rows.csv"))


@pytest.fixture
def inputs(tmp_path: Path) -> JobInputs:
    """Return a prepared data set."""
    (tmp_path / "prepared").mkdir()
    dataset = PreparedDataset(
        key="k", folder=tmp_path / "prepared", labels=("a", "b"), facts={"train_rows": 2.0}, digests={}
    )
    dataset.write()
    return JobInputs(dataset=dataset, model=tmp_path / "model")


def test_what_was_prepared_is_known_again_unless_it_would_be_made_differently(
    spec: JobSpec, inputs: JobInputs, tmp_path: Path
) -> None:
    assert load_cached_inputs(spec, tmp_path) is None

    cache_inputs(spec, tmp_path, inputs)

    assert load_cached_inputs(spec, tmp_path) == inputs
    for changes in ({"max_seq_length": 64}, {"precision": "bf16"}, {"instance_count": 2}):
        assert load_cached_inputs(spec.replace(**changes), tmp_path) is None


@pytest.mark.slow
def test_rows_in_s3_are_prepared_as_those_of_a_file_and_again_when_they_change(
    workplace: Path, tiny_model: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = JobSpec(model=str(tiny_model), dataset=str(reviews), max_seq_length=32)
    there = here.replace(dataset="s3://films/day/rows.csv")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="films")
        s3.put_object(Bucket="films", Key="day/rows.csv", Body=reviews.read_bytes())
        assert _prepare(there, workplace / "home") == _prepare(here, workplace / "home")

        s3.put_object(Bucket="films", Key="day/rows.csv", Body=b"text,label\n" + b"a film,good\nthe film,bad\n" * 20)
        changed = _prepare(there, workplace / "home").dataset

    assert changed is not None
    assert changed.facts["train_rows"] == 36
