"""The SageMaker stand-in does what the service is documented to do, with jobs that really run."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.processes import wait_until, working_in
from tests.stand_ins.sagemaker.emulator import Emulator, namespaces_are_missing
from tests.stand_ins.sagemaker.settings import Settings

ROOT = Path(__file__).parents[2]
GROUP = "/aws/sagemaker/TrainingJobs"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1"
PRICES = [
    {"product": {"attributes": {"instanceName": name, "regionCode": "us-east-1"}}, "serviceCode": "AmazonSageMaker"}
    for name in ("ml.m5.large", "ml.g5.xlarge")
]

missing = namespaces_are_missing()
needs_namespaces = pytest.mark.skipif(missing is not None, reason=str(missing))


class Client:
    """Jobs, data and logs of one emulator, through boto3.

    A job runs the shell script that it is given; in it, `$code` is the folder of the script.
    """

    def __init__(self, emulator: Emulator) -> None:
        options = {
            "endpoint_url": emulator.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
            "config": Config(retries={"total_max_attempts": 1}),
        }
        self.emulator = emulator
        self.sagemaker = boto3.client("sagemaker", **options)
        self.s3 = boto3.client("s3", **options)
        self.logs = boto3.client("logs", **options)
        self.iam = boto3.client("iam", **options)
        self.quotas = boto3.client("service-quotas", **options)
        self.pricing = boto3.client("pricing", **options)

    def request(self, name: str, **changes: Any) -> dict[str, Any]:
        """A job named `name` on one ml.m5.large."""
        base = f"s3://{self.emulator.bucket}"
        usual = {
            "TrainingJobName": name,
            "RoleArn": self.emulator.role,
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/bash", "-c", "code=/opt/ml/input/data/code; . $code/run.sh"],
                "MetricDefinitions": [{"Name": "eval:f1", "Regex": r"f1=(\S+)"}],
            },
            "InputDataConfig": [self.channel("code", f"{base}/{name}/code/")],
            "OutputDataConfig": {"S3OutputPath": f"{base}/{name}/results"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        }
        return usual | changes

    def channel(self, name: str, uri: str, **changes: Any) -> dict[str, Any]:
        """A channel with all objects below an address."""
        source = {"S3DataType": "S3Prefix", "S3Uri": uri} | changes
        return {"ChannelName": name, "DataSource": {"S3DataSource": source}}

    def start(self, name: str, script: str, *, instances: int = 1, resources: Any = None, **changes: Any) -> None:
        """Create a job that runs `script`."""
        self.put(f"{name}/code/run.sh", script)
        request = self.request(name, **changes)
        request["ResourceConfig"] |= {"InstanceCount": instances} | (resources or {})
        self.sagemaker.create_training_job(**request)

    def put(self, key: str, content: str | bytes) -> None:
        """An object in the bucket."""
        body = content.encode() if isinstance(content, str) else content
        self.s3.put_object(Bucket=self.emulator.bucket, Key=key, Body=body)

    def get(self, key: str) -> bytes | None:
        """What an object holds, or None."""
        try:
            content: bytes = self.s3.get_object(Bucket=self.emulator.bucket, Key=key)["Body"].read()
        except ClientError:
            return None
        return content

    def describe(self, name: str) -> dict[str, Any]:
        """DescribeTrainingJob."""
        answer: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
        return answer

    def wait(self, name: str, status: str | None = None, within_s: float = 30) -> dict[str, Any]:
        """Describe it once it is over, or once its secondary status is `status`."""

        def look() -> dict[str, Any] | None:
            job = self.describe(name)
            done = job["SecondaryStatus"] == status or job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped")
            return job if done else None

        return wait_until(look, within_s=within_s, what=f"{name} {status or 'over'}") or {}

    def lines(self, name: str, host: str = "algo-1") -> list[str]:
        """What a host has logged so far, over all its streams."""
        streams = self.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/{host}-")
        return [
            event["message"]
            for stream in streams["logStreams"]
            for event in self.logs.get_log_events(
                logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
            )["events"]
        ]

    def says(self, name: str, text: str) -> None:
        """Wait until a job has printed a line."""
        wait_until(lambda: text in self.lines(name), within_s=20, what=f"{name} printed {text}")

    def archive(self, name: str, what: str) -> dict[str, str]:
        """Name to content of the files in an archive of results; empty where there is none."""
        content = self.get(f"{name}/results/{name}/output/{what}.tar.gz")
        if content is None:
            return {}
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            return {entry.name: (tar.extractfile(entry) or io.BytesIO()).read().decode() for entry in tar}


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A service on this machine's loopback address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hello) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Client]:
    with Emulator.start(
        tmp_path_factory.mktemp("emulator"),
        {"*/training:*": Path(sys.prefix)},
        forward=[port],
        hide=[ROOT / "src"],
        prices=PRICES,
        quotas={"ml.p4d.24xlarge": 0, "ml.g5.xlarge": 3, "ml.m5.large for training warm pool usage": 2},
        start_delay_s=0.05,
        grace_s=0.7,
        interrupt_grace_s=5.0,
        failure_grace_s=0.3,
    ) as emulator:
        yield Client(emulator)


@pytest.fixture(autouse=True)
def _undisturbed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "client" in request.fixturenames:
        emulator = request.getfixturevalue("client").emulator
        emulator.clear_injections()
        emulator.clear_requests()


def code(call: Callable[..., Any], **arguments: Any) -> str:
    """Error code and message of a call that is refused."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return f"{error['Code']}: {error['Message']}"


@needs_namespaces
def test_a_job_leaves_its_status_log_metrics_and_results(client: Client) -> None:
    client.start(
        "whole",
        """
        echo f1=0.25; echo; echo 'f1=none f1=0.5'; printf 'no end of line'
        echo weights > /opt/ml/model/weights; mkdir /opt/ml/output/data/a; echo plot > /opt/ml/output/data/a/plot
        """,
        Tags=[{"Key": "study", "Value": "s1"}],
        Environment={"COLOUR": "blue"},
    )
    job = client.wait("whole")

    assert job["TrainingJobStatus"] == "Completed"
    passed = job["SecondaryStatusTransitions"]
    assert [one["Status"] for one in passed] == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(one["EndTime"] == other["StartTime"] for one, other in itertools.pairwise(passed))
    assert job["CreationTime"] <= job["TrainingStartTime"] < job["TrainingEndTime"] <= job["LastModifiedTime"]
    assert (job["TrainingTimeInSeconds"], job["BillableTimeInSeconds"]) == (1, 1)
    assert [(one["MetricName"], one["Value"]) for one in job["FinalMetricDataList"]] == [("eval:f1", 0.5)]
    assert job["Environment"] == {"COLOUR": "blue"}
    assert client.lines("whole") == ["f1=0.25", "f1=none f1=0.5", "no end of line"]
    assert client.archive("whole", "model") == {"weights": "weights\n"}
    assert client.archive("whole", "output") == {"a/plot": "plot\n"}
    tags = client.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "study", "Value": "s1"}]


@needs_namespaces
def test_a_container_is_a_machine_of_its_own(client: Client, port: int) -> None:
    trace = Path(sys.prefix) / "trace-of-a-job"
    client.start(
        "place",
        f"""
        echo "process $$ on $(hostname) in $PWD home $HOME colour $COLOUR"
        python3 -c 'import paretune.cli' 2>&1 | tail -n 1
        touch {trace} && ls {trace}
        curl -s http://127.0.0.1:{port}/
        curl -s -o /dev/null -w '%{{http_code}}\n' $AWS_ENDPOINT_URL/
        command -v nvidia-smi || echo no graphics
        cat /opt/ml/input/config/hyperparameters.json; echo
        cat /opt/ml/input/config/inputdataconfig.json; echo
        cat /opt/ml/input/config/resourceconfig.json; echo
        """,
        Environment={"COLOUR": "blue"},
        HyperParameters={"epochs": "1"},
    )
    assert client.wait("place")["TrainingJobStatus"] == "Completed"

    identity, missing_package, *rest, hyperparameters, channels, resources = client.lines("place")
    assert identity == "process 1 on algo-1 in / home /opt/home colour blue"
    assert "No module named 'paretune" in missing_package
    assert rest == [str(trace), "hello from outside", "200", "no graphics"]
    assert not trace.exists()
    assert json.loads(hyperparameters) == {"epochs": "1"}
    assert json.loads(channels)["code"]["TrainingInputMode"] == "File"
    assert json.loads(resources) == {
        "current_group_name": "homogeneousCluster",
        "current_host": "algo-1",
        "current_instance_type": "ml.m5.large",
        "hosts": ["algo-1"],
        "instance_groups": [
            {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.large", "hosts": ["algo-1"]}
        ],
        "network_interface_name": "eth0",
        "topology": None,
    }


@needs_namespaces
def test_the_instance_that_failed_first_gives_the_reason(client: Client) -> None:
    client.start(
        "second",
        """
        echo kept > /opt/ml/output/data/$CURRENT_HOST; echo lost > /opt/ml/model/$CURRENT_HOST
        [ $CURRENT_HOST = algo-1 ] && exec sleep 60
        printf 'out of luck' > /opt/ml/output/failure; exit 3
        """,
        instances=2,
    )
    job = client.wait("second")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Failed", "Failed")
    assert job["FailureReason"] == "AlgorithmError: out of luck, exit code: 3"
    assert client.archive("second", "output") == {"algo-1": "kept\n", "algo-2": "kept\n"}
    assert client.archive("second", "model") == {}


@needs_namespaces
def test_a_long_failure_is_cut_before_its_exit_code(client: Client) -> None:
    client.start("wordy", "printf 'x%.0s' $(seq 2000) > /opt/ml/output/failure; kill -9 $$; exit 7")
    job = client.wait("wordy")

    assert len(job["FailureReason"]) == 1024
    assert job["FailureReason"].endswith("xxx, exit code: 7")  # process 1 cannot kill itself


@needs_namespaces
def test_stop_sends_sigterm_to_process_1_and_keeps_what_was_done(client: Client) -> None:
    client.start(
        "stopped",
        """
        trap 'echo told to stop; echo late > /opt/ml/output/data/late; echo 7 > /opt/ml/checkpoints/step; exit 0' TERM
        echo waiting; while true; do sleep 0.05; done
        """,
        CheckpointConfig={"S3Uri": f"s3://{client.emulator.bucket}/stopped/checkpoints"},
    )
    client.says("stopped", "waiting")
    client.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert client.describe("stopped")["TrainingJobStatus"] in ("Stopping", "Stopped")
    job = client.wait("stopped")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert [one["Status"] for one in job["SecondaryStatusTransitions"]][-3:] == ["Stopping", "Uploading", "Stopped"]
    assert client.lines("stopped") == ["waiting", "told to stop"]
    assert client.archive("stopped", "output") == {"late": "late\n"}
    assert client.get("stopped/checkpoints/step") == b"7\n"
    refused = code(client.sagemaker.stop_training_job, TrainingJobName="stopped")
    assert "ValidationException: The request was rejected because the training job is in status Stopped" in refused


@needs_namespaces
def test_a_job_that_runs_too_long_and_does_not_listen_is_killed_after_the_grace_period(client: Client) -> None:
    client.start(
        "endless", "trap '' TERM; while true; do sleep 0.1; done", StoppingCondition={"MaxRuntimeInSeconds": 1}
    )
    job = client.wait("endless")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    stopping = next(one for one in job["SecondaryStatusTransitions"] if one["Status"] == "Stopping")
    assert 0.6 < (stopping["EndTime"] - stopping["StartTime"]).total_seconds() < 2.5
    assert job["TrainingTimeInSeconds"] == 2


SPOT = {"EnableManagedSpotTraining": True, "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90}}


@needs_namespaces
def test_an_interrupted_spot_job_goes_on_from_its_checkpoint_on_new_instances(client: Client) -> None:
    client.put("spot/checkpoints/older/step", "1")
    client.start(
        "spot",
        """
        trap 'echo leaving; echo 5 > /opt/ml/checkpoints/step; exit 0' TERM
        ls /opt/ml/checkpoints /opt/ml/checkpoints/older
        [ -e /opt/ml/checkpoints/step ] && { echo going on from $(cat /opt/ml/checkpoints/step); exit 0; }
        touch /opt/ml/model/first; echo 4 > /opt/ml/checkpoints/step; echo waiting; while true; do sleep 0.05; done
        """,
        CheckpointConfig={"S3Uri": f"s3://{client.emulator.bucket}/spot/checkpoints"},
        **SPOT,
    )
    wait_until(lambda: client.get("spot/checkpoints/step") == b"4\n", within_s=10, what="copied while it runs")
    client.emulator.interrupt("spot")
    job = client.wait("spot")

    passed = [one["Status"] for one in job["SecondaryStatusTransitions"]]
    once = ["Starting", "Downloading", "Training"]
    assert passed == [*once, "Interrupted", *once, "Uploading", "Completed"]
    assert "leaving" in client.lines("spot")
    assert client.lines("spot")[-1] == "going on from 5"
    assert client.archive("spot", "model") == {}
    assert job["BillableTimeInSeconds"] == max(1, round(0.4 * job["TrainingTimeInSeconds"]))
    streams = client.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="spot/algo-1-")["logStreams"]
    assert len(streams) == 2


@needs_namespaces
def test_broken_hardware_is_an_internal_error_unless_the_job_may_be_retried(client: Client) -> None:
    script = "[ -e /opt/ml/checkpoints/1 ] && exit 0; touch /opt/ml/checkpoints/1; echo up; exec sleep 60"
    client.start("broken", script, instances=2)
    client.start(
        "retried",
        script,
        RetryStrategy={"MaximumRetryAttempts": 1},
        CheckpointConfig={"S3Uri": f"s3://{client.emulator.bucket}/retried/checkpoints"},
    )
    client.emulator.kill_instance("broken", "algo-2")
    client.says("retried", "up")
    client.emulator.kill_instance("retried", "algo-1")

    assert client.wait("broken")["FailureReason"].startswith("InternalServerError: ")
    retried = client.wait("retried")
    assert retried["TrainingJobStatus"] == "Completed"
    assert "Restarting" in [one["Status"] for one in retried["SecondaryStatusTransitions"]]


@needs_namespaces
def test_a_type_without_capacity_fails_the_job_before_it_costs_anything(client: Client) -> None:
    client.emulator.lack_capacity("ml.g5.xlarge")
    client.start("lacking", "true", resources={"InstanceType": "ml.g5.xlarge"})
    job = client.wait("lacking")

    assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert "TrainingStartTime" not in job
    assert "BillableTimeInSeconds" not in job
    client.start("enough", "true", resources={"InstanceType": "ml.g5.xlarge"})
    assert client.wait("enough")["TrainingJobStatus"] == "Completed"


@needs_namespaces
def test_channels_are_filled_by_prefix_and_shared_out_on_request(client: Client) -> None:
    for key in ("data/a", "data/b", "data/c", "data/deep/d", "data_more/e"):
        client.put(f"shards/{key}", key)
    base = f"s3://{client.emulator.bucket}/shards"
    client.start(
        "channels",
        "cd /opt/ml/input/data; find data shares one -type f | sort | tr '\n' ' '",
        instances=2,
        InputDataConfig=[
            client.channel("code", f"s3://{client.emulator.bucket}/channels/code/"),
            client.channel("data", f"{base}/data"),
            client.channel("shares", f"{base}/data/", S3DataDistributionType="ShardedByS3Key"),
            client.channel("one", f"{base}/data/a"),
        ],
    )
    assert client.wait("channels")["TrainingJobStatus"] == "Completed"

    everything = "data/a data/b data/c data/data_more/e data/deep/d one/a "
    assert client.lines("channels") == [f"{everything}shares/a shares/c "]
    assert client.lines("channels", "algo-2") == [f"{everything}shares/b shares/deep/d "]


@needs_namespaces
def test_a_channel_without_objects_fails_the_job(client: Client) -> None:
    client.start("empty", "true", InputDataConfig=[client.channel("code", f"s3://{client.emulator.bucket}/nowhere")])
    job = client.wait("empty")

    assert job["FailureReason"].startswith("ClientError: Data download failed: no S3 objects found under S3 URL s3://")
    assert [one["Status"] for one in job["SecondaryStatusTransitions"]] == ["Starting", "Downloading", "Failed"]


@needs_namespaces
def test_two_jobs_of_two_instances_meet_on_the_same_port_without_meeting_each_other(client: Client) -> None:
    meeting = """
        cat > /tmp/meet.py <<'END'
import os, socket, time
if os.environ["CURRENT_HOST"] == "algo-1":
    listener = socket.create_server(("algo-1", 7777))
    other, address = listener.accept()
    print(other.recv(100).decode(), "from", socket.gethostbyaddr(address[0])[0])
else:
    while True:
        try:
            with socket.create_connection(("algo-1", 7777)) as other:
                other.send(os.environ["TRAINING_JOB_NAME"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
END
        python3 /tmp/meet.py
    """
    names = ["meeting-1", "meeting-2"]
    for name in names:
        client.start(name, meeting, instances=2)

    assert [client.wait(name)["TrainingJobStatus"] for name in names] == ["Completed", "Completed"]
    assert [client.lines(name) for name in names] == [[f"{name} from algo-2"] for name in names]


@needs_namespaces
def test_a_warm_pool_serves_the_next_job_like_it_and_is_given_up_in_time(client: Client) -> None:
    kept = {"KeepAlivePeriodInSeconds": 600}
    client.start("pool-1", "echo up; exec sleep 0.3", resources=kept)
    assert client.describe("pool-1")["WarmPoolStatus"] == {"Status": "InUse"}
    client.wait("pool-1")
    assert client.describe("pool-1")["WarmPoolStatus"]["Status"] == "Available"
    client.emulator.pass_time(100)
    client.start("pool-2", "true", resources=kept)

    first = client.describe("pool-1")["WarmPoolStatus"]
    assert (first["Status"], first["ReusedByJob"]) == ("Reused", "pool-2")
    assert 100 <= first["ResourceRetainedBillableTimeInSeconds"] < 120
    client.wait("pool-2")
    assert client.describe("pool-2")["WarmPoolStatus"]["Status"] == "Available"
    client.emulator.pass_time(600)
    last = client.describe("pool-2")["WarmPoolStatus"]
    assert last == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 600}

    client.start("pool-3", "exit 1", resources=kept)
    client.wait("pool-3")
    found = client.sagemaker.list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in found] == ["pool-3"]
    client.sagemaker.update_training_job(TrainingJobName="pool-3", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
    assert client.describe("pool-3")["WarmPoolStatus"]["Status"] == "Terminated"
    refused = code(
        client.sagemaker.create_training_job,
        **client.request("pool-4", ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 3} | kept),
    )
    assert refused.startswith("ResourceLimitExceeded: The account-level service limit 'ml.m5.large for training warm")


@needs_namespaces
def test_a_quota_counts_all_running_jobs_of_its_kind(client: Client) -> None:
    client.start("used", "exec sleep 60", instances=2, resources={"InstanceType": "ml.g5.xlarge"})
    request = client.request("over", ResourceConfig={"InstanceType": "ml.g5.xlarge", "InstanceCount": 2})
    refused = code(client.sagemaker.create_training_job, **request)

    assert "'ml.g5.xlarge for training job usage' is 3 Instances, with current utilization of 2 Instances" in refused
    assert "request delta of 2 Instances" in refused
    client.put("over/code/run.sh", "true")
    client.sagemaker.create_training_job(**request | SPOT)  # spot instances have a quota of their own
    client.sagemaker.stop_training_job(TrainingJobName="used")
    assert client.wait("over")["TrainingJobStatus"] == "Completed"
    client.wait("used")


def test_quotas_prices_and_permissions_are_told(client: Client) -> None:
    pages = list(client.quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker"))
    values = {quota["QuotaName"]: quota["Value"] for page in pages for quota in page["Quotas"]}
    assert len(pages) > 2
    assert values["ml.p4d.24xlarge for training job usage"] == 0
    assert values["ml.p4d.24xlarge for spot training job usage"] == 20
    quota = next(quota for quota in pages[0]["Quotas"])
    found = client.quotas.get_service_quota(ServiceCode="sagemaker", QuotaCode=quota["QuotaCode"])["Quota"]
    assert found["QuotaName"] == quota["QuotaName"]

    wanted = [{"Type": "TERM_MATCH", "Field": "instanceName", "Value": "ml.g5.xlarge"}]
    (price,) = client.pricing.get_products(ServiceCode="AmazonSageMaker", Filters=wanted)["PriceList"]
    assert json.loads(price) == PRICES[1]

    role = client.emulator.role
    client.emulator.deny("iam:PassRole")
    actions = ["iam:PassRole", "s3:GetObject"]
    answer = client.iam.simulate_principal_policy(PolicySourceArn=role, ActionNames=actions)["EvaluationResults"]
    decisions = {one["EvalActionName"]: one["EvalDecision"] for one in answer}
    assert decisions == {"iam:PassRole": "implicitDeny", "s3:GetObject": "allowed"}
    refused = code(client.sagemaker.create_training_job, **client.request("denied"))
    assert refused.startswith("AccessDeniedException: ")
    client.emulator.allow("iam:PassRole")
    trust = client.iam.get_role(RoleName=role.rpartition("/")[2])["Role"]["AssumeRolePolicyDocument"]
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}


LONG = {"AlgorithmSpecification": {"TrainingImage": "x", "TrainingInputMode": "File", "AlgorithmName": "y"}}
SIZES = {"InstanceType": "ml.m5.large", "InstanceCount": 1}


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_a_request_that_breaks_a_rule_is_refused(client: Client, changes: dict[str, Any], said: str) -> None:
    refused = code(client.sagemaker.create_training_job, **client.request("refused") | changes)

    assert refused.startswith("ValidationException: ")
    assert said in refused
    assert "refused" not in client.emulator.jobs()


def test_channels_are_counted_and_told_apart(client: Client) -> None:
    uri = f"s3://{client.emulator.bucket}/x"
    for channels in ([client.channel(f"c{number}", uri) for number in range(21)], [client.channel("a", uri)] * 2):
        refused = code(client.sagemaker.create_training_job, **client.request("crowd", InputDataConfig=channels))
        assert refused.startswith("ValidationException: ")


@needs_namespaces
def test_jobs_are_found_by_name_status_and_time_page_by_page(client: Client) -> None:
    for number in range(3):
        client.start(f"listed-{number}", "true" if number else "exit 1")
    for number in range(3):
        client.wait(f"listed-{number}")

    def names(**wanted: Any) -> list[str]:
        pages = client.sagemaker.get_paginator("list_training_jobs").paginate(NameContains="listed", **wanted)
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    assert names(MaxResults=2) == ["listed-2", "listed-1", "listed-0"]
    assert names(SortOrder="Ascending", StatusEquals="Completed") == ["listed-1", "listed-2"]
    assert names(CreationTimeAfter=0, LastModifiedTimeAfter=time.time() + 10) == []
    assert len(names(CreationTimeAfter=time.time() - 60)) == 3
    assert code(client.sagemaker.create_training_job, **client.request("listed-1")).startswith("ResourceInUse: ")
    assert "ValidationException: Requested resource not found." in code(client.describe, name="never")
    client.sagemaker.delete_training_job(TrainingJobName="listed-0")
    assert names(StatusEquals="Failed") == []


def test_calls_fail_on_request_and_everything_is_noted(client: Client) -> None:
    client.emulator.clear_requests()
    client.emulator.inject("ListTrainingJobs", "ThrottlingException", times=2)
    client.emulator.inject("PutObject", "AccessDenied", "Access Denied")
    client.emulator.inject("SimulatePrincipalPolicy", "AccessDenied", "not you", status=403)
    for _ in range(2):
        assert code(client.sagemaker.list_training_jobs) == "ThrottlingException: Rate exceeded"
    client.sagemaker.list_training_jobs(NameContains="a")
    assert code(client.put, key="a", content="b") == "AccessDenied: Access Denied"
    client.put("a", "b")
    asked = {"PolicySourceArn": client.emulator.role, "ActionNames": ["s3:GetObject"]}
    assert code(client.iam.simulate_principal_policy, **asked) == "AccessDenied: not you"

    noted = [(one.service, one.operation, one.status) for one in client.emulator.requests()]
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
        found, following = get(nextToken=token)
        if following == token:
            break
        seen, token = seen + found, following
        sizes.append(len(found))
    assert found == []
    assert seen == [f"{number}{part}" for number in range(3) for part in range(3)]
    assert sizes == [5, 4]
    put("new")
    found, following = get(nextToken=token)
    assert found == ["ne"]
    assert get(nextToken=following) == ([], following)
    newest = client.logs.get_log_events(logGroupName=GROUP, logStreamName="long/algo-1-1")["events"]
    assert [event["message"][:2] for event in newest] == ["11", "12", "20", "21", "22", "ne"]


def _starts(root: Path) -> subprocess.Popen[str]:
    """A process that starts an emulator with a two-instance job, and stays."""
    program = """
import sys, time
from pathlib import Path
from tests.end_to_end.test_emulator import Client
from tests.stand_ins.sagemaker.emulator import Emulator
emulator = Emulator.start(Path(sys.argv[1]))
client = Client(emulator)
client.start("left", "trap '' TERM; echo up; sleep 600 & sleep 600", instances=2)
client.says("left", "up")
print(emulator.pid, flush=True)
time.sleep(600)
"""
    return subprocess.Popen(
        [sys.executable, "-c", program, str(root)], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


@needs_namespaces
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["the emulator", "who started it"])
def test_nothing_of_a_job_outlives_the_emulator_or_who_started_it(tmp_path: Path, victim: str) -> None:
    before = _sleepers()
    with _starts(tmp_path) as starter:
        assert starter.stdout is not None
        emulator = int(starter.stdout.readline())
        assert working_in(tmp_path)
        assert len(_sleepers() - before) == 4
        os.kill(emulator if victim == "the emulator" else starter.pid, signal.SIGKILL)

        def are_gone() -> bool:
            return not psutil.pid_exists(emulator) or psutil.Process(emulator).status() == psutil.STATUS_ZOMBIE

        wait_until(are_gone, within_s=10, what="the end of the emulator")
        wait_until(lambda: not _sleepers() - before, within_s=10, what="the end of the containers")
        starter.kill()
    assert not working_in(tmp_path)


def _sleepers() -> set[int]:
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", "600"]:
            found.add(process.pid)
    return found


TRAIN = """
import os, signal, socket, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {socket.gethostname()}: {total.item()} {sys.argv[1:]}")
"""


def _submit(client: Client, source: Path, name: str, *, instances: int, **options: Any) -> dict[str, Any]:
    """Run a job through the SageMaker SDK."""
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.core.resources import TrainingJob
    from sagemaker.core.training.configs import Compute, OutputDataConfig, SourceCode, StoppingCondition
    from sagemaker.train import ModelTrainer

    session = boto3.Session(region_name="us-east-1")
    trainer = ModelTrainer(
        training_image=IMAGE,
        role=client.emulator.role,
        base_job_name=name,
        sagemaker_session=Session(boto_session=session, default_bucket=client.emulator.bucket),
        source_code=SourceCode(source_dir=str(source), **options.pop("code")),
        compute=Compute(instance_type="ml.m5.large", instance_count=instances, volume_size_in_gb=1),
        output_data_config=OutputDataConfig(s3_output_path=f"s3://{client.emulator.bucket}/{name}/results"),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
        hyperparameters={"epochs": 1},
        **options,
    )
    request = trainer._create_training_job_args()
    TrainingJob.create(session=session, **request | {"training_job_name": name})
    trainer._temp_code_dir.cleanup()
    return client.wait(name, within_s=60)


@needs_namespaces
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:sagemaker.train.configs has been moved:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up <TemporaryDirectory:ResourceWarning")
def test_the_sdk_runs_a_command_and_a_torchrun_over_two_instances(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sagemaker.train.distributed import Torchrun

    (tmp_path / "one.py").write_text('import os; print("given", os.environ["SM_HPS"], "process", os.getpid())')
    (tmp_path / "train.py").write_text(TRAIN)
    for name, value in (client.emulator.environment | {"SAGEMAKER_VALIDATE_ROLE": "false"}).items():
        monkeypatch.setenv(name, value)

    one = _submit(client, tmp_path, "sdk-one", instances=1, code={"command": "exec python3 one.py"})
    two = _submit(client, tmp_path, "sdk-two", instances=2, code={"entry_script": "train.py"}, distributed=Torchrun())

    assert (one["TrainingJobStatus"], two["TrainingJobStatus"]) == ("Completed", "Completed")
    assert 'given {"epochs": 1} process 1' in client.lines("sdk-one")
    for number, host in enumerate(("algo-1", "algo-2")):
        assert f"rank {number} of 2 on {host}: 3.0 ['--epochs', '1']" in client.lines("sdk-two", host)


def test_settings_come_back_from_their_file(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, images={"*": tmp_path}, forward=(1,), hide=(tmp_path,), prices=({"a": 1},))
    settings.write(tmp_path / "settings.json")

    assert Settings.read(tmp_path / "settings.json") == settings
