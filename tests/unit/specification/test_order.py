import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.core.tags import Attribution
from paretune.specification import launchers
from paretune.specification.container import Command, Slot
from paretune.specification.order import Limits, Offer, Order, Payload, job_name, job_of
from paretune.specification.parallelism import BatchPlan
from paretune.specification.price import Price

SAGEMAKER = json.loads(json.dumps(launchers.known()["sagemaker"].as_json()))
BATCH = BatchPlan(per_device_train_batch_size=16, gradient_accumulation_steps=2, devices=4, learning_rate=1e-4)
PRICE = Price(usd_per_hour=1.408, region="us-east-1", as_of="2026-08", source="AWS", instance_type="ml.g5.xlarge")
OFFERS = tuple(
    Offer(
        instance_type=name,
        instance_count=4,
        batch=BATCH,
        price=PRICE if name == "ml.g5.xlarge" else None,
        request=request,
        computation=f"hash of {name}",
        training={} if name == "ml.g5.xlarge" else {"instance_type": name, "fallback_instance_types": None},
        image="image:1",
        packages=("peft==0.18",),
    )
    for name, request in (("ml.g5.xlarge", 0), ("ml.g5.2xlarge", 0), ("ml.g4dn.xlarge", 1))
)
COMMAND = Command(
    words=("--batch", Slot.BATCH),
    script="train.py",
    recorded={"lr": "0.1"},
    takes_seed=False,
    metric_definitions=({"Name": "f1", "Regex": "f1=(.*)"},),
)
LIMITS = Limits(max_seconds=3600.0, deadline_s=3300.0, billed_after_s=100.0, worst_usd=5.8, budget="team.yaml")
PAYLOAD = Payload(
    training={"instance_type": "ml.g5.xlarge", "fallback_instance_types": ["ml.g5.2xlarge", "ml.g4dn.xlarge"]},
    environment={"DEBUG": "1"},
    launcher=SAGEMAKER,
)
ORDER = Order(
    job_name=job_name("run1", 1),
    run_id="run1",
    offers=OFFERS,
    limits=LIMITS,
    payload=PAYLOAD,
    owner=Attribution(user="ada"),
    tags={"team": "nlp"},
    request="digest",
    place={"role": "arn:aws:iam::123456789012:role/jobs", "s3_bucket": "my-models"},
)


@pytest.mark.parametrize("value", [*OFFERS, LIMITS, PAYLOAD, replace(PAYLOAD, kind="script", command=COMMAND)])
def test_a_value_comes_back_from_its_json(value: Offer | Limits | Payload) -> None:
    raw = json.loads(json.dumps(value.as_json()))

    assert type(value).from_json({**raw, "of_a_newer_version": 1}) == value


def test_a_value_without_a_member_that_it_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="batch"):
        Offer.from_json({"instance_type": "local"})


def test_a_job_reads_its_order_and_nothing_of_account_owner_and_budget() -> None:
    text = json.dumps(ORDER.as_json())
    read = Order.from_json(json.loads(text))

    assert read.as_json() == ORDER.as_json()
    assert (read.offers, read.run_id, read.max_seconds, read.deadline_s) == (OFFERS, "run1", 3600.0, 3300.0)
    assert not [word for word in ("team.yaml", "my-models", "role/jobs", "ada", "nlp", "digest") if word in text]


def test_a_script_gets_its_command_without_what_only_the_launching_machine_needs() -> None:
    order = replace(ORDER, payload=replace(PAYLOAD, kind="script", command=COMMAND))

    raw = order.as_json()["command"]

    assert (raw["script"], raw["processes"]) == ("train.py", 1)
    assert not {"recorded", "takes_seed", "takes_batch", "accumulates"} & raw.keys()
    assert Order.from_json(json.loads(json.dumps(order.as_json()))).payload.command == replace(
        COMMAND, recorded={}, takes_seed=True
    )


@given(spent_s=st.floats(0, 4000), per_device=st.integers(1, 32))
def test_a_later_attempt_has_what_the_earlier_ones_have_left(spent_s: float, per_device: int) -> None:
    smaller = replace(BATCH, per_device_train_batch_size=per_device)

    later = ORDER.next(attempt=3, spent_s=spent_s, offers=OFFERS[1:], batch=smaller)

    assert (later.job_name, later.attempt, job_of(later.job_name)) == ("paretune-run1-3", 3, "run1")
    assert (later.max_seconds, later.deadline_s) == (3600.0 - spent_s, 3300.0 - spent_s)
    assert later.has_time == (spent_s < 3300.0)
    assert [offer.batch for offer in later.offers] == [smaller, BATCH]
    assert replace(later, attempt=1, spent_seconds=0.0, job_name=ORDER.job_name, offers=OFFERS) == ORDER


def test_offers_of_one_request_go_together_and_each_has_its_own_training() -> None:
    assert [offer.instance_type for offer in ORDER.together] == ["ml.g5.xlarge", "ml.g5.2xlarge"]
    assert ORDER.training == PAYLOAD.training
    assert ORDER.next(attempt=2, spent_s=0.0, offers=OFFERS[2:]).training == {"instance_type": "ml.g4dn.xlarge"}
