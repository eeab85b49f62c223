"""The SageMaker stand-in does what the service is documented to do, with jobs that really run."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import psutil
import pytest

from paretune.specification.job_phases import read_phases
from tests.processes import wait_until, working_in
from tests.stand_ins.sagemaker.client import GROUP, IMAGE, Client, refusal
from tests.stand_ins.sagemaker.emulator import Emulator, namespaces_are_missing

ROOT = Path(__file__).parents[2]
missing = namespaces_are_missing()
needs_namespaces = pytest.mark.skipif(missing is not None, reason=str(missing))


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
        quotas={"ml.g5.xlarge": 3, "ml.m5.large for training warm pool usage": 2},
        start_delay_s=0.05,
        grace_s=0.7,
        interrupt_grace_s=5.0,
        failure_grace_s=0.3,
    ) as emulator:
        yield Client(emulator)


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
    assert [item["Status"] for item in passed] == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(first["EndTime"] == other["StartTime"] for first, other in itertools.pairwise(passed))
    assert job["CreationTime"] <= job["TrainingStartTime"] < job["TrainingEndTime"] <= job["LastModifiedTime"]
    assert (job["TrainingTimeInSeconds"], job["BillableTimeInSeconds"]) == (1, 1)
    assert [(entry["MetricName"], entry["Value"]) for entry in job["FinalMetricDataList"]] == [("eval:f1", 0.5)]
    assert job["Environment"] == {"COLOUR": "blue"}
    assert client.lines("whole") == ["f1=0.25", "f1=none f1=0.5", "no end of line"]
    assert client.archive("whole", "model") == {"weights": "weights\n"}
    assert client.archive("whole", "output") == {"a/plot": "plot\n"}
    tags = client.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "study", "Value": "s1"}]


@needs_namespaces
def test_a_job_that_waits_for_capacity_is_pending_and_its_bill_follows_from_its_phases(tmp_path: Path) -> None:
    delays = {"pending_s": 1.2, "start_delay_s": 0.2, "download_delay_s": 1.1, "upload_delay_s": 1.1}
    with Emulator.start(tmp_path / "account", {"*": Path(sys.prefix)}, **delays) as emulator:
        client = Client(emulator)
        client.start("waits", "echo weights > /opt/ml/model/weights")
        job = client.wait("waits")

    passed = [item["Status"] for item in job["SecondaryStatusTransitions"]]
    assert passed == ["Starting", "Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]
    phases = read_phases(job)
    assert phases.faults == ()
    assert phases.seconds["waiting"] >= 1.2
    assert phases.seconds["downloading"] >= 1.1
    assert phases.seconds["uploading"] >= 1.1
    assert abs(phases.billed_seconds - job["BillableTimeInSeconds"]) <= 1  # the emulator counts by a clock of its own


@needs_namespaces
def test_a_container_is_a_machine_of_its_own(client: Client, port: int) -> None:
    trace = Path(sys.prefix) / "trace-of-a-job"
    client.start(
        "place",
        f"""
        echo "process $$ on $(hostname) in $PWD home $HOME colour $COLOUR"
        python3 -c 'import paretune.cli.main' 2>&1 | tail -n 1
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
def test_a_long_failure_is_cut_before_its_exit_refusal(client: Client) -> None:
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
    assert [item["Status"] for item in job["SecondaryStatusTransitions"]][-3:] == ["Stopping", "Uploading", "Stopped"]
    assert client.lines("stopped") == ["waiting", "told to stop"]
    assert client.archive("stopped", "output") == {"late": "late\n"}
    assert client.get("stopped/checkpoints/step") == b"7\n"
    refused = refusal(client.sagemaker.stop_training_job, TrainingJobName="stopped")
    assert "ValidationException: The request was rejected because the training job is in status Stopped" in refused


@needs_namespaces
def test_a_job_that_runs_too_long_and_does_not_listen_is_killed_after_the_grace_period(client: Client) -> None:
    client.start(
        "endless", "trap '' TERM; while true; do sleep 0.1; done", StoppingCondition={"MaxRuntimeInSeconds": 1}
    )
    job = client.wait("endless")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    stopping = next(item for item in job["SecondaryStatusTransitions"] if item["Status"] == "Stopping")
    assert 0.6 < (stopping["EndTime"] - stopping["StartTime"]).total_seconds() < 2.5
    assert job["TrainingTimeInSeconds"] == 2


@needs_namespaces
def test_a_job_that_is_stopped_at_once_stays_stopped(client: Client) -> None:
    client.start("early", "exec sleep 60")
    client.sagemaker.stop_training_job(TrainingJobName="early")
    assert client.describe("early")["TrainingJobStatus"] in ("Stopping", "Stopped")
    job = client.wait("early")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")


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

    passed = [item["Status"] for item in job["SecondaryStatusTransitions"]]
    once = ["Starting", "Downloading", "Training"]
    assert passed == [*once, "Interrupted", *once, "Uploading", "Completed"]
    assert "leaving" in client.lines("spot")
    assert client.lines("spot")[-1] == "going on from 5"
    assert client.archive("spot", "model") == {}
    assert job["BillableTimeInSeconds"] == max(1, round(0.4 * job["TrainingTimeInSeconds"]))
    streams = client.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="spot/algo-1-")["logStreams"]
    assert len(streams) == 2


@needs_namespaces
def test_a_spot_job_ends_when_it_has_waited_too_long(client: Client) -> None:
    condition = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
    client.start("waiting", "exec sleep 60", **SPOT | {"StoppingCondition": condition})
    job = client.wait("waiting")

    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")


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
    assert "Restarting" in [item["Status"] for item in retried["SecondaryStatusTransitions"]]


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
    assert [item["Status"] for item in job["SecondaryStatusTransitions"]] == ["Starting", "Downloading", "Failed"]


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
    retained = {"KeepAlivePeriodInSeconds": 600}
    client.start("pool-1", "echo up; exec sleep 0.3", resources=retained)
    assert client.describe("pool-1")["WarmPoolStatus"] == {"Status": "InUse"}
    client.wait("pool-1")
    assert client.describe("pool-1")["WarmPoolStatus"]["Status"] == "Available"
    client.emulator.pass_time(100)
    client.start("pool-2", "true", resources=retained)

    first = client.describe("pool-1")["WarmPoolStatus"]
    assert (first["Status"], first["ReusedByJob"]) == ("Reused", "pool-2")
    assert 100 <= first["ResourceRetainedBillableTimeInSeconds"] < 120
    client.wait("pool-2")
    assert client.describe("pool-2")["WarmPoolStatus"]["Status"] == "Available"
    client.emulator.pass_time(600)
    last = client.describe("pool-2")["WarmPoolStatus"]
    assert last == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 600}

    client.start("pool-3", "exit 1", resources=retained)
    client.wait("pool-3")
    training_job_summaries = client.sagemaker.list_training_jobs(WarmPoolStatusEquals="Available")[
        "TrainingJobSummaries"
    ]
    assert [job["TrainingJobName"] for job in training_job_summaries] == ["pool-3"]
    client.sagemaker.update_training_job(TrainingJobName="pool-3", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
    assert client.describe("pool-3")["WarmPoolStatus"]["Status"] == "Terminated"
    refused = refusal(
        client.sagemaker.create_training_job,
        **client.request("pool-4", ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 3} | retained),
    )
    assert refused.startswith("ResourceLimitExceeded: The account-level service limit 'ml.m5.large for training warm")


@needs_namespaces
def test_a_quota_counts_all_running_jobs_of_its_kind(client: Client) -> None:
    client.start("used", "exec sleep 60", instances=2, resources={"InstanceType": "ml.g5.xlarge"})
    request = client.request("over", ResourceConfig={"InstanceType": "ml.g5.xlarge", "InstanceCount": 2})
    refused = refusal(client.sagemaker.create_training_job, **request)

    assert "'ml.g5.xlarge for training job usage' is 3 Instances, with current utilization of 2 Instances" in refused
    assert "request delta of 2 Instances" in refused
    client.put("over/code/run.sh", "true")
    client.sagemaker.create_training_job(**request | SPOT)  # spot instances have a quota of their own
    client.sagemaker.stop_training_job(TrainingJobName="used")
    assert client.wait("over")["TrainingJobStatus"] == "Completed"
    client.wait("used")


@needs_namespaces
@pytest.mark.slow
def test_jobs_are_found_by_name_status_and_time_page_by_page(client: Client) -> None:
    for number in range(3):
        client.start(f"listed-{number}", "true" if number else "exit 1")
    for number in range(3):
        client.wait(f"listed-{number}")

    def names(**expected: Any) -> list[str]:
        pages = client.sagemaker.get_paginator("list_training_jobs").paginate(NameContains="listed", **expected)
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    assert names(MaxResults=2) == ["listed-2", "listed-1", "listed-0"]
    assert names(SortOrder="Ascending", StatusEquals="Completed") == ["listed-1", "listed-2"]
    assert names(CreationTimeAfter=0, LastModifiedTimeAfter=time.time() + 10) == []
    assert len(names(CreationTimeAfter=time.time() - 60)) == 3
    assert refusal(client.sagemaker.create_training_job, **client.request("listed-1")).startswith("ResourceInUse: ")
    assert "ValidationException: Requested resource not found." in refusal(client.describe, name="never")
    client.sagemaker.delete_training_job(TrainingJobName="listed-0")
    assert names(StatusEquals="Failed") == []


def _starts(root: Path) -> subprocess.Popen[str]:
    """A process that starts an emulator with a two-instance job, and stays."""
    program = """
import sys, time
from pathlib import Path
from tests.stand_ins.sagemaker.client import Client
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
    starter = _starts(tmp_path)
    try:
        assert starter.stdout is not None
        emulator = int(starter.stdout.readline())
        assert working_in(tmp_path)
        wait_until(lambda: len(_sleepers() - before) == 4, within_s=30, what="both instances and their children")
        os.kill(emulator if victim == "the emulator" else starter.pid, signal.SIGKILL)

        def are_gone() -> bool:
            return not psutil.pid_exists(emulator) or psutil.Process(emulator).status() == psutil.STATUS_ZOMBIE

        wait_until(are_gone, within_s=10, what="the end of the emulator")
        wait_until(lambda: not _sleepers() - before, within_s=10, what="the end of the containers")
    finally:
        starter.kill()
        starter.communicate()
    assert not working_in(tmp_path)


def _sleepers() -> set[int]:
    result = set()
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", "600"]:
            result.add(process.pid)
    return result


TRAIN = """
import os, signal, socket, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {socket.gethostname()}: {total.item()} {sys.argv[1:]}")
dist.destroy_process_group()
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
        stopping_condition=StoppingCondition(max_runtime_in_seconds=300),
        hyperparameters={"epochs": 1},
        **options,
    )
    request = trainer._create_training_job_args()
    TrainingJob.create(session=session, **request | {"training_job_name": name})
    return client.wait(name, within_s=300)


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
    for name, value in client.emulator.environment.items():
        monkeypatch.setenv(name, value)

    item = _submit(client, tmp_path, "sdk-one", instances=1, code={"command": "exec python3 one.py"})
    two = _submit(client, tmp_path, "sdk-two", instances=2, code={"entry_script": "train.py"}, distributed=Torchrun())

    message = {
        job["TrainingJobName"]: (job.get("FailureReason"), client.lines(job["TrainingJobName"])) for job in (item, two)
    }
    assert (item["TrainingJobStatus"], two["TrainingJobStatus"]) == ("Completed", "Completed"), message
    assert 'given {"epochs": 1} process 1' in client.lines("sdk-one")
    for number, host in enumerate(("algo-1", "algo-2")):
        assert f"rank {number} of 2 on {host}: 3.0 ['--epochs', '1']" in client.lines("sdk-two", host)
