"""The plan of a job is made once, kept in its run, and read back by whoever follows the job."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paretune.core.errors import LaunchRefused, LostContact
from paretune.core.interruption import Interruption
from paretune.jobs.follow import Sync, plan_of
from paretune.jobs.plan import PLAN, completed, plan
from paretune.specification.job import JobSpec
from paretune.specification.plan import Plan
from tests.support.scripted_jobs import CAPACITY, DONE, ENDLESS, LARGE, SMALL
from tests.support.tags import tags_of
from tests.support.users import User
from tests.support.workplaces import make_workplace

SCRIPT = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"


@pytest.fixture
def user(workplace: Path) -> User:
    (workplace / "train.py").write_text(SCRIPT)
    return User(workplace)


def test_a_plan_is_json_both_ways(user: User) -> None:
    made = plan(user.spec(fallback_instance_types=LARGE, tags={"user": "ana"}), user.place())

    read = Plan.from_json(json.loads(json.dumps(made.as_json())))

    assert read.as_json() == made.as_json()
    assert replace(read, payload=made.payload) == replace(made, inputs=None)
    assert [offer.instance_type for offer in read.offers] == [SMALL, LARGE]


@pytest.mark.parametrize("lost", ["settings", "chosen_batch", "accumulates", "max_runtime_minutes", "spec_hash"])
def test_who_follows_a_job_needs_the_plan_and_no_tag_about_it(user: User, lost: str) -> None:
    user.launcher.endings = [CAPACITY, DONE]
    run_id = user.is_killed(fallback_instance_types=LARGE)
    if f"paretune.{lost}" in tags_of(user.client.get_run(run_id)):
        user.client.delete_tag(run_id, f"paretune.{lost}")
    place = user.place()

    (collected,) = Sync(workplace_at=lambda *_: place, tracking=place.tracking, interruption=Interruption()).run()

    assert collected.result is not None
    assert collected.result.offer.instance_type == LARGE


@pytest.mark.parametrize("text", ["", "{not json", "[]", '{"card": {}}', "[" * 100_000])
def test_a_plan_that_cannot_be_read_is_made_again_from_what_was_given(user: User, text: str) -> None:
    user.launcher.endings = [ENDLESS]
    run_id = user.is_killed()
    place = user.place()
    (run,) = place.tracking.unfinished()
    before = plan_of(run, place)
    user.client.log_text(run_id, text, PLAN)

    again = plan_of(run, user.place())

    assert again.identity.given == before.identity.given
    assert again.offer.price == before.offer.price
    assert not again.is_whole


@pytest.mark.parametrize("part", ["limits", "identity"])
def test_another_request_in_a_forged_plan_does_not_change_what_the_same_command_starts(user: User, part: str) -> None:
    run_id = user.is_killed(before_creation=True, max_runtime_minutes=30.0)
    forged = json.loads(_text(user, run_id))
    forged["limits"]["max_seconds"] = 60 * 40_320.0
    if part == "identity":
        forged["identity"]["given"]["max_runtime_minutes"] = 40_320.0
    user.client.log_text(run_id, json.dumps(forged), PLAN)
    user.client.set_tag(run_id, "paretune.watched_by", "")
    user.launcher.endings = [DONE]

    if part == "identity":
        with pytest.raises(LostContact, match=r"plan\.json of run \w+ must be that of this command"):
            user.type(max_runtime_minutes=30.0)
        assert user.launcher.created == []
        return
    user.type(max_runtime_minutes=30.0)

    assert [order.max_seconds for order in user.launcher.orders] == [1800.0]


def _text(user: User, run_id: str) -> str:
    text = user.place().tracking.artifact_text(run_id, PLAN)
    assert text is not None
    return text


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("offers", []),
        ("limits", {"max_seconds": float("nan")}),
        ("limits", {"max_seconds": -5}),
        ("limits", {"max_seconds": 60, "worst_usd": float("nan")}),
        ("limits", {"max_seconds": 60, "kept_s": -1}),
    ],
)
def test_a_plan_without_offers_or_with_limits_that_are_no_numbers_is_no_plan(
    user: User, part: str, value: object
) -> None:
    values = plan(user.spec(), user.place()).as_json()

    with pytest.raises(ValueError, match="offers"):
        Plan.from_json({**values, part: value})
    values["offers"][0]["batch"]["per_device_train_batch_size"] = 0
    with pytest.raises(ValueError, match="offers"):
        Plan.from_json(values)


@pytest.mark.parametrize("part", ["payload", "identity"])
def test_nothing_of_an_edited_plan_in_mlflow_runs_in_a_later_attempt_on_this_machine(
    workplace: Path, part: str
) -> None:
    (workplace / "train.py").write_text(SCRIPT)
    place = make_workplace(home=workplace / "home")
    made = plan(JobSpec(entry_script=str(workplace / "train.py"), training_arguments={"lr": 0.5}), place)
    first = made.order("one", "run")
    place.launcher.request_of = lambda name: first.request if name == first.job_name else ""  # type: ignore[method-assign]
    forged = json.loads(json.dumps(made.as_json()))
    forged["payload"]["command"] |= {"script": "", "words": ["touch PWNED"]}
    forged["payload"]["environment"] = {"LD_PRELOAD": "evil.so"}
    forged["limits"]["max_seconds"] = 1e9
    if part == "identity":
        forged["identity"]["given"]["entry_script"] = "evil.py"
    read = Plan.from_json(forged)
    later = read.order("one", "run").next(attempt=2, spent_s=1.0)

    if part == "identity":
        with pytest.raises(LaunchRefused, match=r"somebody has changed it in MLflow: the job is not tried again"):
            completed(later, read, place)
        return
    runs = completed(later, read, place)
    assert runs.payload == made.payload
    assert runs.inputs.code is not None
    assert runs.limits.max_seconds == made.limits.max_seconds
    assert (runs.attempt, runs.spent_seconds) == (2, 1.0)
