"""A study whose jobs wait in a queue, with its real driver, ledger and MLflow store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.ledger.trial_entry import TrialStatus
from paretune.pricing.prices import PriceList
from paretune.specification.placement import Placement
from paretune.studies.search.joint import search
from paretune.tracking import Tracking
from tests.scripted_study import RATES, Desk
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, FakeClock
from tests.unit.launchers.sagemaker.queue.conftest import QUEUE
from tests.unit.launchers.sagemaker.queue.playing import Players


class PlayingClock(FakeClock):
    """A clock on which jobs go on while somebody sleeps.

    Attributes:
        most: the largest numbers of training jobs, and of jobs that waited, at one moment.
    """

    players: Players | None = None
    aws: Aws | None = None
    most: tuple[int, int] = (0, 0)

    def sleep(self, seconds: float) -> None:
        players, self.players = self.players, None
        if players is None or self.aws is None:  # it is played already
            super().sleep(seconds)
        else:
            players.second()
            states = [job["status"] for job in self.aws.queues.service_jobs()]
            trains = sum(state in {"SCHEDULED", "STARTING", "RUNNING"} for state in states)
            self.most = (max(self.most[0], trains), max(self.most[1], states.count("RUNNABLE")))
        self.players = players


@pytest.fixture
def clock() -> PlayingClock:
    return PlayingClock()


class Launcher(SageMakerLauncher):
    """A queue whose jobs need no rows and no model."""

    reads_inputs = False


@pytest.fixture
def desk(workplace: Path, tmp_path: Path, aws: Aws, clock: PlayingClock, package: Path) -> Iterator[Desk]:
    aws.queues.add(QUEUE, capacity=1)
    clock.players, clock.aws = Players(aws, clock), aws
    cluster = Placement(role=ROLE, bucket=BUCKET, instance_type="ml.m5.large", queue=QUEUE)
    launcher: Any = Launcher(cluster, clock, {}, package=package, calls_per_minute=600)
    made = Desk(tmp_path, clock, Tracking({}, clock), launcher)
    yield made
    made.close()


def test_the_jobs_of_a_study_wait_for_each_other_in_the_queue_and_its_bill_is_that_of_their_training(
    desk: Desk, aws: Aws, clock: PlayingClock
) -> None:
    job = {"instance_type": "ml.m5.large", "model": "quick", "queue": QUEUE, "role": ROLE, "bucket": BUCKET}
    driver = desk.driver(n_parallel=3, job=job | {"max_runtime_minutes": 6})

    assert search(driver) == "every point was tried"

    completed = [trial for trial in driver.trials.values() if trial.status is TrialStatus.COMPLETED]
    assert sorted(trial.point["learning_rate"] for trial in completed) == list(RATES)
    assert clock.most == (1, 2)  # one trains, and of three at a time the others wait: none is refused
    assert len(aws.queues.service_jobs()) == len(aws.sagemaker.jobs) == len(RATES)
    billed = sum(job["BillableTimeInSeconds"] for job in aws.sagemaker.jobs.values())
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")
    assert price is not None
    assert driver.ledger.balance().spent_usd == pytest.approx(billed * price.usd_per_hour / 3600)
