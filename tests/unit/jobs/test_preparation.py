"""The launching side of preparation: a process of its own, whose answers, faults, death and end are understood."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, Interrupted, JobFailed, LaunchRefused
from paretune.core.interruption import Interruption
from paretune.jobs.preparation import prepare
from paretune.spec.container import JobInputs
from paretune.spec.job import JobSpec
from tests.processes import working_in
from tests.workplaces import make_workplace


class BusyClock(SystemClock):
    """Does something else each time somebody waits."""

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
    return prepare(
        spec,
        make_workplace(
            home=home,
            clock=BusyClock(meanwhile),
            environment=dict(os.environ) | environment,
            interruption=interruption,
        ),
    )


def test_faults_found_meanwhile_are_named_with_those_of_the_data(workplace: Path, tiny_model: Path) -> None:
    (workplace / "rows.csv").write_text("text,label\n")

    def check() -> None:
        raise BadInput(["the account has no quota"])

    with pytest.raises(BadInput) as caught:
        prepare(
            JobSpec(model=str(tiny_model), dataset="rows.csv"),
            make_workplace(home=workplace / "home", environment=dict(os.environ)),
            meanwhile=check,
        )

    assert caught.value.faults[0] == "the account has no quota"
    assert any("rows.csv" in fault for fault in caught.value.faults[1:])


def test_nothing_goes_on_preparing_when_the_check_ends_the_command(workplace: Path) -> None:
    def check() -> None:
        raise LaunchRefused("no credentials")

    with pytest.raises(LaunchRefused):
        prepare(
            JobSpec(),
            make_workplace(home=workplace / "home", environment=dict(os.environ)),
            meanwhile=check,
        )

    assert working_in(workplace / "home") == []


def test_rows_and_model_are_prepared_once_for_jobs_that_share_them(
    workplace: Path, tiny_model: Path, reviews: Path
) -> None:
    spec = JobSpec(model=str(tiny_model), dataset=str(reviews), max_seq_length=32)
    first = _prepare(spec, workplace / "home")
    assert first.dataset is not None
    written = (first.dataset.folder / "train.arrow").stat().st_mtime_ns

    second = _prepare(spec, workplace / "home")

    assert first == second
    assert first.model == tiny_model.resolve()
    assert first.dataset.labels == ("negative", "positive")
    assert first.dataset.facts["train_rows"] == 108
    assert first.dataset.folder.is_relative_to(workplace / "home")
    assert (first.dataset.folder / "train.arrow").stat().st_mtime_ns == written


def test_all_faults_of_model_data_and_arguments_are_reported_at_once(workplace: Path, reviews: Path) -> None:
    (workplace / "no-weights").mkdir()
    spec = JobSpec(
        model="./no-weights", dataset=str(reviews), text_column="words", training_arguments={"weight_decai": 0.1}
    )

    with pytest.raises(BadInput) as raised:
        _prepare(spec, workplace / "home")

    faults = raised.value.faults
    assert len(faults) == 3
    for name in ("weight_decai", "no-weights", "'words'"):
        assert sum(name in fault for fault in faults) == 1


def test_a_script_of_the_user_s_own_finds_its_own_inputs(workplace: Path) -> None:
    script = workplace / "train.py"
    script.write_text("")

    assert _prepare(JobSpec(entry_script=str(script)), workplace / "home") == JobInputs()
    with pytest.raises(BadInput, match=r"entry_script missing\.py does not exist"):
        _prepare(JobSpec(entry_script="missing.py"), workplace / "home")


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


def test_a_preparing_process_that_is_killed_is_a_failed_preparation(workplace: Path) -> None:
    home = workplace / "home"

    def kill() -> None:
        for process in working_in(home):
            process.kill()

    with pytest.raises(JobFailed, match="preparation failed: it ended with exit code -9"):
        _prepare(JobSpec(), home, meanwhile=kill)


def _break(workplace: Path, line: str) -> str:
    """A folder that puts a library in front of the real one that does nothing but `line`."""
    broken = workplace / "broken"
    broken.mkdir()
    (broken / "datasets.py").write_text(line + "\n")
    return str(broken)


def test_a_preparing_process_that_breaks_says_why(workplace: Path) -> None:
    broken = _break(workplace, "raise RuntimeError('broken on purpose')")

    with pytest.raises(JobFailed) as raised:
        _prepare(JobSpec(), workplace / "home", PYTHONPATH=broken)

    assert raised.value.reason == "RuntimeError: broken on purpose"
    assert any("Traceback" in line for line in raised.value.log_tail)


def test_a_full_disk_is_the_user_s_to_clear_and_named(workplace: Path) -> None:
    broken, home = _break(workplace, "raise OSError(28, 'No space left on device')"), workplace / "home"

    with pytest.raises(BadInput, match=f"the disk that holds {home} is full"):
        _prepare(JobSpec(), home, PYTHONPATH=broken)
