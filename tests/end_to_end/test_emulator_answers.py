"""The SageMaker stand-in answers and refuses in the words of the service; nothing runs here."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paretune.commands.estimate.plans import offered_plans
from paretune.launchers.sagemaker.training_plans import training_plan
from paretune.specification.placement import Placement
from tests.stand_ins.sagemaker.client import GROUP, Client, refusal
from tests.stand_ins.sagemaker.disturbances import Disturbances
from tests.stand_ins.sagemaker.emulator import Emulator
from tests.stand_ins.sagemaker.settings import Settings
from tests.stand_ins.sagemaker.validation import Refusal

PRICES = [
    {"product": {"attributes": {"instanceName": name, "regionCode": "us-east-1"}}, "serviceCode": "AmazonSageMaker"}
    for name in ("ml.m5.large", "ml.g5.xlarge")
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("emulator")
    images = {"*/training:*": Path(sys.prefix)}
    with Emulator.start(root, images, prices=PRICES, quotas={"ml.p4d.24xlarge": 0}) as emulator:
        yield Client(emulator)


def test_quotas_prices_and_permissions_are_told(client: Client) -> None:
    pages = list(client.quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker"))
    values = {quota["QuotaName"]: quota["Value"] for page in pages for quota in page["Quotas"]}
    assert len(pages) > 2
    assert values["ml.p4d.24xlarge for training job usage"] == 0
    assert values["ml.p4d.24xlarge for spot training job usage"] == 20
    quota = next(quota for quota in pages[0]["Quotas"])
    result = client.quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode=quota["QuotaCode"])["Quota"]
    assert result["QuotaName"] == quota["QuotaName"]

    expected = [{"Type": "TERM_MATCH", "Field": "instanceName", "Value": "ml.g5.xlarge"}]
    (price,) = client.pricing.get_products(ServiceCode="AmazonSageMaker", Filters=expected)["PriceList"]
    assert json.loads(price) == PRICES[1]

    role = client.emulator.role
    client.emulator.deny("iam:PassRole")
    actions = ["iam:PassRole", "s3:GetObject"]
    answer = client.iam.simulate_principal_policy(PolicySourceArn=role, ActionNames=actions)["EvaluationResults"]
    decisions = {item["EvalActionName"]: item["EvalDecision"] for item in answer}
    assert decisions == {"iam:PassRole": "implicitDeny", "s3:GetObject": "allowed"}
    refused = refusal(client.sagemaker.create_training_job, **client.request("denied"))
    assert refused.startswith("AccessDeniedException: ")
    client.emulator.allow("iam:PassRole")
    trust = client.iam.get_role(RoleName=role.rpartition("/")[2])["Role"]["AssumeRolePolicyDocument"]
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}


PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
BOUGHT = {
    "TrainingPlanArn": PLAN,
    "TrainingPlanName": "mine",
    "Status": "Active",
    "UpfrontFee": "2880",
    "CurrencyCode": "USD",
    "StartTime": 1.8e9,
    "EndTime": 1.8e9 + 3 * 86400,
    "ReservedCapacitySummaries": [
        {
            "ReservedCapacityArn": PLAN.replace("training-plan", "reserved-capacity"),
            "InstanceType": "ml.p5.48xlarge",
            "TotalInstanceCount": 4,
            "Status": "Active",
            "DurationHours": 72,
        }
    ],
}
LONG = {"AlgorithmSpecification": {"TrainingImage": "x", "TrainingInputMode": "File", "AlgorithmName": "y"}}
SIZES = {"InstanceType": "ml.m5.large", "InstanceCount": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"TrainingJobName": "under_score"},
            "'trainingJobName' failed to satisfy constraint: Member must satisfy regul",
        ),
        ({"TrainingJobName": "x" * 64}, "'trainingJobName' failed to satisfy constraint: Member must have length less"),
        ({"HyperParameters": {str(number): "" for number in range(101)}}, "'hyperParameters' failed to satisfy"),
        ({"HyperParameters": {"a": "x" * 2501}}, "'hyperParameters.a.member' failed to satisfy"),
        ({"HyperParameters": {"a": "two\nlines"}}, "'hyperParameters.a.member' failed to satisfy"),
        ({"Environment": {"A": "x" * 513}}, "'environment.A.member' failed to satisfy"),
        ({"Environment": {f"A{number}": "" for number in range(101)}}, "'environment' failed to satisfy"),
        ({"RoleArn": "arn:aws:iam::1:role/x-and-more"}, "'roleArn' failed to satisfy"),
        ({"StoppingCondition": {}}, "MaxRuntimeInSeconds"),
        ({"EnableManagedSpotTraining": True}, "Invalid MaxWaitTimeInSeconds"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 2, "MaxWaitTimeInSeconds": 3}}, "EnableManagedSpotTraining"),
        (
            {"ResourceConfig": SIZES | {"InstanceType": "ml.x9.large"}},
            "'resourceConfig.instanceType' failed to satisfy",
        ),
        (
            {"ResourceConfig": SIZES | {"KeepAlivePeriodInSeconds": 21601}},
            "keepAlivePeriodInSeconds' failed to satisfy",
        ),
        (LONG, "exactly one of TrainingImage and AlgorithmName"),
        (
            {"AlgorithmSpecification": {"TrainingImage": "other:1", "TrainingInputMode": "File"}},
            "Cannot find repository in registry",
        ),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused(client: Client, changes: dict[str, Any], message: str) -> None:
    refused = refusal(client.sagemaker.create_training_job, **client.request("refused") | changes)

    assert refused.startswith("ValidationException: ")
    assert message in refused
    assert "refused" not in client.emulator.jobs()


M5, C5 = ({"InstanceType": name, "InstanceCount": 1} for name in ("ml.m5.large", "ml.c5.xlarge"))


@pytest.mark.parametrize(
    ("resources", "others", "message"),
    [
        ({"InstancePreferences": [M5] * 6}, {}, "'resourceConfig.instancePreferences' failed to satisfy"),
        ({"InstancePreferences": [M5, M5]}, {}, "can appear only once"),
        ({"InstancePreferences": [M5], "InstanceType": "ml.m5.large"}, {}, "mutually exclusive with InstanceType"),
        ({"InstancePreferences": [M5, C5]}, {"EnableManagedSpotTraining": True}, "with EnableManagedSpotTraining"),
        ({"InstancePreferences": [M5, {"InstanceType": "ml.c5.xlarge"}]}, {}, "on every preference"),
        ({"InstancePreferences": [M5], "InstanceCount": 1}, {}, "not in both"),
        ({"InstancePreferences": [M5], "SelectedInstanceType": "ml.m5.large"}, {}, "read-only"),
        ({"InstancePreferences": [M5, C5], "KeepAlivePeriodInSeconds": 60}, {}, "no warm pool"),
        (M5 | {"TrainingPlanArn": f"{PLAN}-unknown"}, {}, "does not exist"),
        (M5 | {"TrainingPlanArn": PLAN}, {}, "does not have 1 instances of type ml.m5.large"),
    ],
)
def test_capacity_that_breaks_a_rule_is_refused(
    client: Client, resources: dict[str, Any], others: dict[str, Any], message: str
) -> None:
    client.emulator.buy_plan(BOUGHT)
    request = client.request("refused", ResourceConfig={"VolumeSizeInGB": 1} | resources) | others
    if "EnableManagedSpotTraining" in others:
        request["StoppingCondition"] = {"MaxRuntimeInSeconds": 2, "MaxWaitTimeInSeconds": 3}
    refused = refusal(client.sagemaker.create_training_job, **request)

    assert refused.startswith("ValidationException: ")
    assert message in refused


def test_the_quota_of_every_preferred_type_counts(client: Client) -> None:
    client.emulator.set_quota("ml.c5.xlarge", 0)
    request = client.request("many", ResourceConfig={"VolumeSizeInGB": 1, "InstancePreferences": [M5, C5]})

    refused = refusal(client.sagemaker.create_training_job, **request)

    assert refused.startswith("ResourceLimitExceeded: ")
    assert "'ml.c5.xlarge for training job usage'" in refused


def test_training_plans_are_described_and_offered_in_the_shapes_of_the_service(client: Client) -> None:
    client.emulator.buy_plan(BOUGHT)
    client.emulator.offer_plans(
        [
            {
                "TrainingPlanOfferingId": "tpo-1",
                "TargetResources": ["training-job"],
                "UpfrontFee": "960",
                "DurationHours": 24,
                "ReservedCapacityOfferings": [{"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2}],
            }
        ]
    )

    account: Any = SimpleNamespace(client=lambda _: client.sagemaker)
    assert training_plan(PLAN, account).share_usd(3600.0) == pytest.approx(10.0)
    missing = refusal(client.sagemaker.describe_training_plan, TrainingPlanName="another")
    assert missing.startswith("ResourceNotFound: ")
    two, three = (Placement(instance_type="ml.p5.48xlarge", instance_count=count) for count in (2, 3))
    assert [plan.name for plan in offered_plans(two, account)] == ["tpo-1"]
    assert offered_plans(three, account) == []


def test_channels_are_counted_and_told_apart(client: Client) -> None:
    uri = f"s3://{client.emulator.bucket}/x"
    for channels in ([client.channel(f"c{number}", uri) for number in range(21)], [client.channel("a", uri)] * 2):
        refused = refusal(client.sagemaker.create_training_job, **client.request("crowd", InputDataConfig=channels))
        assert refused.startswith("ValidationException: ")


def test_calls_fail_on_request_and_everything_is_noted(client: Client) -> None:
    client.emulator.clear_requests()
    client.emulator.inject("ListTrainingJobs", "ThrottlingException", times=2)
    client.emulator.inject("PutObject", "AccessDenied", "Access Denied")
    client.emulator.inject("SimulatePrincipalPolicy", "AccessDenied", "not you", status=403)
    for _ in range(2):
        assert refusal(client.sagemaker.list_training_jobs) == "ThrottlingException: Rate exceeded"
    client.sagemaker.list_training_jobs(NameContains="a")
    assert refusal(client.put, key="a", content="b") == "AccessDenied: Access Denied"
    client.put("a", "b")
    query = {"PolicySourceArn": client.emulator.role, "ActionNames": ["s3:GetObject"]}
    assert refusal(client.iam.simulate_principal_policy, **query) == "AccessDenied: not you"

    noted = [(request.service, request.operation, request.status) for request in client.emulator.requests()]
    assert noted == [
        *[("sagemaker", "ListTrainingJobs", 400)] * 2,
        ("sagemaker", "ListTrainingJobs", 200),
        ("s3", "PutObject", 403),
        ("s3", "PutObject", 200),
        ("iam", "SimulatePrincipalPolicy", 403),
    ]
    assert client.emulator.requests("ListTrainingJobs")[2].body == {"NameContains": "a"}
    put = client.emulator.requests("PutObject")[1]
    assert put.path == f"/{client.emulator.bucket}/a"
    assert put.headers["User-Agent"].startswith("Boto3/")


def test_log_tokens_lead_to_every_event_once_in_answers_of_at_most_a_mebibyte(client: Client) -> None:
    client.logs.create_log_stream(logGroupName=GROUP, logStreamName="long/algo-1-1")

    def put(*messages: str) -> None:
        events = [{"timestamp": int(time.time() * 1000), "message": message} for message in messages]
        client.logs.put_log_events(logGroupName=GROUP, logStreamName="long/algo-1-1", logEvents=events)

    def get(**more: Any) -> tuple[list[str], str]:
        answer = client.logs.get_log_events(
            logGroupName=GROUP, logStreamName="long/algo-1-1", startFromHead=True, **more
        )
        return [event["message"][:2] for event in answer["events"]], answer["nextForwardToken"]

    assert get()[0] == []
    token = get()[1]
    for number in range(3):
        put(*(f"{number}{part}" + "x" * 200_000 for part in range(3)))
    seen: list[str] = []
    sizes = []
    while True:
        result, following = get(nextToken=token)
        if following == token:
            break
        seen, token = seen + result, following
        sizes.append(len(result))
    assert result == []
    assert seen == [f"{number}{part}" for number in range(3) for part in range(3)]
    assert sizes == [5, 4]
    put("new")
    result, following = get(nextToken=token)
    assert result == ["ne"]
    assert get(nextToken=following) == ([], following)
    newest = client.logs.get_log_events(logGroupName=GROUP, logStreamName="long/algo-1-1")["events"]
    assert [event["message"][:2] for event in newest] == ["11", "12", "20", "21", "22", "ne"]


def test_calls_beyond_a_rate_are_throttled_operation_by_operation() -> None:
    limited = Disturbances(calls_per_second=2)
    for operation in ("ListTrainingJobs", "DescribeTrainingJob"):
        limited.meet(operation)
        limited.meet(operation)
        with pytest.raises(Refusal, match="Rate exceeded") as caught:
            limited.meet(operation)
        assert caught.value.code == "ThrottlingException"
    unlimited = Disturbances(calls_per_second=None)
    for _ in range(100):
        unlimited.meet("ListTrainingJobs")


@pytest.mark.slow
def test_settings_come_back_from_their_file(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, images={"*": tmp_path}, forward=(1,), hide=(tmp_path,), prices=({"a": 1},))
    settings.write(tmp_path / "settings.json")

    assert Settings.read(tmp_path / "settings.json") == settings
