"""A study with `once`: each call is a new driver that knows only what stands in the storages."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from paretune.cli import main
from paretune.core.errors import CallAgain, LaunchRefused
from paretune.launchers.base import Job
from paretune.specification.container import Event, JobDocument, JobInputs
from paretune.studies.search.driver import Driver
from paretune.tracking import Tracking
from tests.scripted_jobs import SECONDS
from tests.scripted_study import RATES, Desk, JudgedLauncher, always_done, searched
from tests.stand_ins.aws import FakeClock
from tests.study_tables import books_of, write_study

QUOTA = LaunchRefused("the account-level quota is 1 instance")
TOLD = [Event(time=1.0, step=1, total_steps=4, metrics={"f1": 0.5})]


class LastingLauncher(JudgedLauncher):
    """Its jobs run for SECONDS, whoever looks, and tell everything to each one who attaches."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(always_done)
        self._clock = clock
        self._begun: dict[str, float] = {}

    def submit(self, document: JobDocument, inputs: JobInputs) -> Job:
        job = super().submit(document, inputs)
        self._begun[job.name] = self._clock.now()
        return job

    def attach(self, job_name: str) -> Job | None:
        value = self.jobs.get(job_name)
        if value is None:
            return None
        has_ended = self._clock.now() >= self._begun[job_name] + SECONDS
        return replace(value, looks=1 if has_ended else 0, new_events=list(TOLD))


@dataclass
class Rounds:
    """Calls rounds of one study, some seconds apart."""

    desk: Desk
    terms: dict[str, Any]
    apart_s: float = 60.0
    drivers: list[Driver] = field(default_factory=list)

    def call(self) -> str:
        """One round; why the search has ended, empty where it has not."""
        driver = self.desk.driver(once=True, **self.terms)
        self.drivers.append(driver)
        try:
            driver.adopt()
            return searched(driver)
        except CallAgain as error:
            driver.stop(error)
            return ""
        finally:
            self.desk.clock.sleep(self.apart_s)

    def until_the_end(self, most: int = 60) -> str:
        """All rounds that it takes."""
        return next(reason for _ in range(most) if (reason := self.call()))


@pytest.fixture
def desk(workplace: Path, tmp_path: Path) -> Iterator[Desk]:
    clock = FakeClock()
    made = Desk(tmp_path, clock, Tracking({}, clock), LastingLauncher(clock))
    yield made
    made.close()


def test_a_study_in_rounds_runs_each_job_once_and_books_it(desk: Desk) -> None:
    rounds = Rounds(desk, {"n_parallel": 2})
    assert rounds.until_the_end() == "every point was tried"

    ended = rounds.drivers[-1].trials.values()
    assert sorted(float(trial.point["learning_rate"]) for trial in ended) == list(RATES)
    assert len(desk.launcher.created) == 4
    assert rounds.drivers[-1].table.balance().spent_usd == pytest.approx(4 * SECONDS / 3600)
    assert len(rounds.drivers) == 3  # two begin, two have ended and two begin, two have ended


@pytest.mark.slow
def test_the_command_plays_rounds_until_the_study_has_ended(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(workplace, sampler="split", n_parallel=2, n_trials=4, budget_usd=20.0)
    path.write_text(path.read_text().replace("sampler: none\n", ""))
    codes: list[int] = []
    while not codes or (codes[-1] == 75 and len(codes) < 60):
        codes.append(main(["study", "--study", "study.yaml", "--once"]))
    output = capsys.readouterr()
    assert codes[-1] == 0
    assert len(codes) > 3
    assert "has not ended: 0 trials have ended, 2 are under way: call again" in output.err
    storage = f"sqlite:///{workplace / '.paretune' / 'studies.db'}"
    running, ended, balance = books_of(path, storage)
    jobs = [path for path in (workplace / ".paretune/simulated/jobs").glob("*.json") if ".stop" not in path.name]
    assert 0 < sum(trial.counts for trial in ended) <= 4
    assert len(jobs) == len(ended)
    assert not running
    assert balance.committed_usd == 0

    assert main(["study", "--study", "study.yaml", "--once"]) == 0
    assert len(books_of(path, storage)[1]) == len(ended)


def test_rounds_are_refused_where_jobs_end_with_their_process(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(workplace, job={"launcher": "local"}, search={"learning_rate": {"choices": [1e-5, 1e-4]}}, n_trials=2)
    assert main(["study", "--study", "study.yaml", "--once"]) == 2
    assert "once=true needs jobs that go on when the command has ended" in capsys.readouterr().err
    assert not (workplace / ".paretune" / "studies.db").exists()


def test_rounds_on_a_server_are_refused_where_each_machine_has_budgets_of_its_own(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "team.yaml").write_text("budgets: [{name: all, usd_per_month: 10}]\n")
    write_study(workplace, storage="postgresql://nobody@localhost:1/studies", n_trials=4)

    assert main(["study", "--study", "study.yaml", "--once", "--budget", "team.yaml"]) == 2
    assert f"needs the ledger of {workplace / 'team.yaml'} on a server, too" in capsys.readouterr().err
