"""A job whose batch is not given computes what fits in memory, and its step keeps its rows."""

from pathlib import Path
from typing import Any

import pytest

import paretune
from paretune.cli import main
from paretune.jobs.launch import begin_job
from paretune.jobs.plan import plan
from paretune.specification.parallelism import BatchPlan
from paretune.tracking.schema import unpacked
from tests.support.scripted_jobs import CAPACITY, DONE, ENDLESS, LARGE, MEMORY, OTHER, ScriptedLauncher
from tests.support.users import User

LONG: dict[str, Any] = {
    "entry_script": None,
    "model": "Qwen/Qwen2.5-0.5B",
    "task": "causal-lm",
    "max_seq_length": 1024,
    "max_train_samples": 1000,
    "max_runtime_minutes": 600,
}
"""A job on a GPU of 24 GB, in which 16 rows do not fit and one row does."""


class WithoutInputs(ScriptedLauncher):
    """Its jobs read no prepared rows, as those of the simulated launcher."""

    reads_inputs = False


@pytest.fixture
def user(workplace: Path, no_settings: None) -> User:
    user = User(workplace)
    user.launcher = WithoutInputs([DONE, DONE])
    return user


def plans(user: User) -> list[BatchPlan]:
    return [order.batch for order in user.launcher.orders]


def test_the_job_computes_the_batch_that_the_estimate_shows_and_its_run_says_that_it_was_chosen(user: User) -> None:
    (row,) = paretune.estimate(user.spec(**LONG)).rows()
    run = user.client.get_run(user.type(**LONG).run_id).data

    (plan,) = plans(user)
    assert row["fits"] == "yes"
    assert 1 <= plan.per_device_train_batch_size < 16
    assert plan.global_batch_size == 16 == plan.per_device_train_batch_size * plan.gradient_accumulation_steps
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size"):
        assert row[name] == getattr(plan, name) == int(run.params[name])
    assert unpacked(run.tags)["paretune.chosen_batch"] == str(plan.per_device_train_batch_size)
    assert any("rows at once, because 16 may not fit in memory" in text for text in user.messages)


@pytest.mark.parametrize(
    "given", [{"per_device_train_batch_size": 16}, {"gradient_accumulation_steps": 1}, {"max_seq_length": 64}]
)
def test_a_batch_that_is_given_or_fits_is_not_changed(user: User, given: dict[str, Any]) -> None:
    run = user.client.get_run(user.type(**LONG | given).run_id).data

    assert [plan.per_device_train_batch_size for plan in plans(user)] == [16]
    assert "paretune.chosen_batch" not in run.tags


def test_the_rows_of_a_given_global_batch_stay(user: User) -> None:
    user.type(**LONG, global_batch_size=24)

    (plan,) = plans(user)
    assert plan.global_batch_size == 24
    assert plan.per_device_train_batch_size * plan.gradient_accumulation_steps >= 24


def test_a_retry_without_memory_begins_from_the_chosen_batch_and_keeps_the_step(user: User) -> None:
    user.launcher.endings = [MEMORY, DONE]
    run = user.client.get_run(user.type(**LONG).run_id).data

    first, second = plans(user)
    assert 1 <= second.per_device_train_batch_size < first.per_device_train_batch_size < 16
    assert first.global_batch_size == second.global_batch_size == 16
    assert run.params["per_device_train_batch_size"] == str(first.per_device_train_batch_size)
    assert unpacked(run.tags)["paretune.used_per_device_train_batch_size"] == str(second.per_device_train_batch_size)


def test_the_same_command_is_one_job_although_another_batch_would_be_chosen_now(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.launcher.endings = [ENDLESS]
    run_id = user.is_killed(**LONG)
    (first,) = plans(user)
    before = plan(user.spec(**LONG), user.place()).identity
    monkeypatch.setattr("paretune.estimating.memory._OF_DEVICE", ((180.0, 0.3), (2**30, 0.6)))
    changed = plan(user.spec(**LONG), user.place())

    job = begin_job(user.spec(**LONG), user.place())

    assert (
        changed.offer.batch.per_device_train_batch_size < first.per_device_train_batch_size
    )  # a new job would use this
    assert changed.identity == before
    assert job.record.run.run_id == run_id
    assert len(user.launcher.created) == 1
    assert job.order.batch == first  # what a retry would continue from


def test_the_chosen_batch_fits_on_every_type_that_the_job_may_get(user: User) -> None:
    lengths = {**LONG, "max_seq_length": 2048}
    alone = plan(user.spec(**lengths, instance_type="ml.g6e.xlarge"), user.place()).offer.batch
    user.launcher.endings = [CAPACITY, DONE]
    user.type(**lengths, instance_type="ml.g6e.xlarge", fallback_instance_types="ml.g5.xlarge", spot=True)

    first, second = plans(user)
    assert first.per_device_train_batch_size < alone.per_device_train_batch_size  # the other type has half the memory
    assert first.per_device_train_batch_size == second.per_device_train_batch_size
    assert first.global_batch_size == second.global_batch_size == 16


def test_a_script_or_another_program_keeps_its_own_batch(user: User) -> None:
    user.type()
    described = {**LONG, "program": "trainer", "instance_type": OTHER, "max_seq_length": 2048}

    (row,) = paretune.estimate(user.spec(**described)).rows()

    assert [plan.per_device_train_batch_size for plan in plans(user)] == [16]
    assert (row["per_device_train_batch_size"], row["fits"]) == (8, "no")  # 8 is the Trainer's default
    assert "--per_device_train_batch_size" in str(row["fits_instead"])


def test_a_dry_run_shows_the_chosen_batch(
    no_settings: None, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**LONG, "instance_type": LARGE, "launcher": "simulated"}
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]

    assert main(["train", *words, "--dry_run=true"]) == 0

    assert "rows at once, because 16 may not fit in memory" in capsys.readouterr().out
