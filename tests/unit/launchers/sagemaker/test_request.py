"""The requests of typical jobs, as in the golden files in `requests` and as AWS accepts them; and their images.

`REWRITE_REQUESTS=1 python -m pytest tests/unit/launchers/sagemaker/test_request.py` rewrites the files.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sagemaker.core.image_uris import get_training_image_uri

from paretune.core.errors import BadInput
from paretune.launchers import SAGEMAKER
from paretune.launchers.offers import limits_of, worst_case_usd
from paretune.launchers.sagemaker.images import IMAGES, READ_ON, Image, choose_image
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.place import images_of
from paretune.specification.catalog import REGIONS, instance, instances
from paretune.specification.container import JobInputs, UserCode
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from tests.support.bound_scripts import script_inputs
from tests.support.sagemaker_jobs import placed
from tests.support.stand_ins.aws import BUCKET, Aws

Make = Callable[..., Order]
Ask = Callable[..., dict[str, Any]]

GPU, P4D, CPU, V100 = "ml.g5.12xlarge", "ml.p4d.24xlarge", "ml.m5.large", "ml.p3.2xlarge"
CASES: dict[str, dict[str, Any]] = {
    "cpu": {"num_train_epochs": 2.0, "max_runtime_minutes": 30.5},
    "spot_cluster": {
        "instance_type": "ml.g5.12xlarge",
        "instance_count": 2,
        "strategy": "fsdp",
        "spot": True,
        "tags": {"team": "search"},
        "sagemaker.subnets": "subnet-1, subnet-2",
        "sagemaker.security_group_ids": "sg-1",
        "sagemaker.kms_key_id": "alias/mine",
        "sagemaker.training_image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/own:1",
        "sagemaker.network_isolation": True,
        "sagemaker.encrypt_traffic": True,
    },
    "fallback": {"instance_type": "ml.g5.xlarge", "fallback_instance_types": "ml.g5.2xlarge, ml.g6.xlarge"},
    "project": {
        "instance_type": "ml.g4dn.xlarge",
        "project": ".",
        "environment": {"MODE": "quick", "HF_TOKEN": "secret:arn:aws:secretsmanager:us-east-1:123456789012:secret:hub"},
    },
}


@pytest.fixture
def ask(launcher: SageMakerLauncher, order: Make, aws: Aws) -> Ask:
    """Return a function that returns a specification's request; the account refuses one that breaks the API's rules."""

    def make(**changes: Any) -> dict[str, Any]:
        project = UserCode() if "project" in changes else None
        launcher.submit(order(inputs=JobInputs(code=project), **changes))
        return aws.of("CreateTrainingJob")[-1].parameters

    return make


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_that_of_its_golden_file_and_keeps_the_rules_of_the_api(ask: Ask, name: str) -> None:
    request = ask(**CASES[name])

    text = re.sub("/code/[0-9a-f]{32}/", "/code/HASH/", json.dumps(request, indent=1)) + "\n"
    text = re.sub(r'("PARETUNE_LAUNCHED_BY": ")[^"]+', r"\1USER@MACHINE", text)
    path = Path(__file__).parent / "requests" / f"{name}.json"
    if os.environ.get("REWRITE_REQUESTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_instances_are_kept_for_the_minutes_that_were_asked_for_and_otherwise_not_at_all(ask: Ask) -> None:
    kept = ask(instance_type="ml.m5.large", sagemaker={"keep_alive_minutes": 10.0})

    assert kept["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600
    assert ask(instance_type="ml.m5.large")["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0) == 0


def test_spot_waits_no_longer_than_aws_allows(ask: Ask) -> None:
    request = ask(spot=True, max_runtime_minutes=40_320.0)

    assert request["StoppingCondition"]["MaxWaitTimeInSeconds"] == 28 * 24 * 3600


@pytest.mark.parametrize(("instance_type", "has_disks"), [("ml.g5.xlarge", True), ("ml.p3.2xlarge", False)])
def test_a_key_is_not_named_for_disks_that_the_instance_encrypts_itself(
    ask: Ask, aws: Aws, instance_type: str, has_disks: bool
) -> None:
    key = {"sagemaker.kms_key_id": "alias/mine", "sagemaker.volume_size_in_gb": 100}
    request = ask(instance_type=instance_type, **key)

    assert ("VolumeKmsKeyId" not in request["ResourceConfig"]) is has_disks
    assert request["OutputDataConfig"]["KmsKeyId"] == "alias/mine"
    assert {call.parameters["SSEKMSKeyId"] for call in aws.of("PutObject")} == {"alias/mine"}


def test_what_is_sent_says_nothing_of_this_machine_and_nothing_is_printed(
    ask: Ask, aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    request = ask()

    uploaded = b"".join(aws.objects.values()) + json.dumps(request).encode()
    assert str(tmp_path).encode() not in uploaded
    assert str(Path.home()).encode() + b"/" not in uploaded
    assert capsys.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.parametrize(("instance_type", "uses"), [(P4D, True), ("ml.p5en.48xlarge", True), ("ml.g5.xlarge", False)])
def test_only_instances_with_rdma_are_configured_to_use_it(ask: Ask, instance_type: str, uses: bool) -> None:
    environment = ask(instance_type=instance_type)["Environment"]

    assert (environment.get("FI_EFA_USE_DEVICE_RDMA") == "1") is uses
    assert BUCKET not in environment.values()


def test_libraries_of_aws_are_switched_on_in_the_request(ask: Ask) -> None:
    smp = ask(instance_type=GPU, strategy="smp", tensor_parallel_degree=4, hybrid_shard_degree=1)
    smddp = ask(run="run2", instance_type=GPU, instance_count=2, strategy="smddp")

    degrees = {"tensor_parallel_degree": 4, "hybrid_shard_degree": 1}
    assert json.loads(smp["HyperParameters"]["mp_parameters"]).items() >= degrees.items()
    enabled = {"sagemaker_distributed_dataparallel_enabled": True}
    assert json.loads(smddp["Environment"]["SM_FRAMEWORK_PARAMS"]) == enabled


PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/autumn"
SERVER = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/mine"


def test_switches_of_aws_are_in_the_request_only_if_they_are_set(ask: Ask, launcher: SageMakerLauncher) -> None:
    plain = ask(instance_type=P4D)
    switches = {
        "infra_check": True,
        "remote_debug": True,
        "retry_attempts": 3,
        "link_mlflow": True,
        "training_plan": PLAN,
    }
    launcher._environment = {"MLFLOW_TRACKING_URI": SERVER}
    request = ask(run="run2", instance_type=P4D, **{f"sagemaker.{name}": value for name, value in switches.items()})

    names = ("InfraCheckConfig", "RemoteDebugConfig", "RetryStrategy", "MlflowConfig")
    assert [request[name] for name in names] == [
        {"EnableInfraCheck": True},
        {"EnableRemoteDebug": True},
        {"MaximumRetryAttempts": 3},
        {"MlflowResourceArn": SERVER, "MlflowRunName": request["TrainingJobName"]},
    ]
    assert request["ResourceConfig"]["TrainingPlanArn"] == PLAN
    assert not {*names} & plain.keys()
    assert "TrainingPlanArn" not in plain["ResourceConfig"]


def test_a_job_on_a_training_plan_costs_what_the_plan_costs(launcher: SageMakerLauncher) -> None:
    paid = JobSpec(instance_type="ml.p5.48xlarge", sagemaker={"training_plan": PLAN})
    priced = paid.replace(**{"sagemaker.training_plan_usd_per_hour": 31.25})

    assert worst_case_usd(paid, launcher, {}) == 0
    after_s = limits_of(priced, launcher, {}).billed_after_s
    assert worst_case_usd(priced, launcher, {}) == pytest.approx(31.25 * (3600 + after_s) / 3600)
    (fault,) = faults_of_spec(instance_type="ml.p5.48xlarge", spot=True, sagemaker={"training_plan": PLAN})
    assert "leave out spot and fallback_instance_types" in fault


def test_smp_takes_the_other_parameters_of_its_library(ask: Ask) -> None:
    more = '{"sm_activation_offloading": true, "activation_loading_horizon": 4}'
    request = ask(instance_type=P4D, strategy="smp", **{"sagemaker.mp_parameters": more})

    sent = json.loads(request["HyperParameters"]["mp_parameters"])
    assert sent == {"random_seed": 42, "sm_activation_offloading": True, "activation_loading_horizon": 4}
    (fault,) = faults_of_spec(instance_type=P4D, strategy="smp", sagemaker={"mp_parameters": {"partitions": 2}})
    assert "sagemaker.mp_parameters has partitions, but must have only sm_activation_offloading" in fault


def faults_of_spec(**values: Any) -> list[str]:
    with pytest.raises(BadInput) as refused:
        JobSpec(**values)
    return list(refused.value.faults)


def image_of(instance_type: str, region: str = "us-east-1", strategy: str = "ddp", *, is_users: bool = False) -> Image:
    return choose_image(instance(instance_type), strategy, region, is_users=is_users)


@pytest.mark.parametrize(
    ("instance_type", "strategy", "image"),
    [
        (GPU, "deepspeed", "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04"),
        (
            "ml.p4de.24xlarge",
            "ddp",
            "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04",
        ),
        ("ml.g6e.xlarge", "ddp", "huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"),
        ("ml.p5.48xlarge", "fsdp", "huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"),
        (
            "ml.p6-b300.48xlarge",
            "ddp",
            "huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04",
        ),
        (V100, "ddp", "pytorch-training:2.6.0-gpu-py312"),
        (CPU, "fsdp", "pytorch-training:2.10.0-cpu-py313"),
        (P4D, "smddp", "smdistributed-modelparallel:2.4.1-gpu-py311-cu121"),
        ("ml.p5.48xlarge", "smp", "smdistributed-modelparallel:2.5.1-gpu-py311-cu124"),
    ],
)
def test_the_image_suits_instance_and_strategy_and_lies_in_the_region(
    instance_type: str, strategy: str, image: str
) -> None:
    is_of_aws = strategy in ("smddp", "smp")
    regions = ["us-east-1", "eu-west-1"] if is_of_aws else ["us-east-1", "us-gov-west-1", "cn-north-1"]
    for region in regions:
        uri = image_of(instance_type, region, strategy=strategy).uri
        assert uri.endswith(f"/{image}")
        assert f".dkr.ecr.{region}." in uri


def sdk_s_own(uri: str, instance_type: str) -> str:
    """Return the image that the SDK of AWS chooses for a region, an instance type, and the versions in an address."""
    region, repository, version, python = re.findall(r"\.ecr\.([\w-]+)\.[\w.]+/([\w-]+):([\d.]+)-.*(py3\d+)", uri)[0]
    options: dict[str, Any] = {"framework": "pytorch", "framework_version": version}
    if transformers := re.search(r"-transformers([\d.]+)-", uri):
        options = {"framework": "huggingface", "framework_version": transformers[1], "pytorch_version": version}
    if repository == "smdistributed-modelparallel":
        enabled = {"enabled": True}
        options["distribution"] = {"torch_distributed": enabled, "smdistributed": {"modelparallel": enabled}}
    return str(get_training_image_uri(region, py_version=python, instance_type=instance_type, **options))


def test_every_image_that_a_job_can_get_is_the_one_that_the_sdk_of_aws_gives_for_its_versions() -> None:
    ours = [item for item in instances().values() if item.launcher == SAGEMAKER.name]
    with pytest.raises(ValueError, match="arm64"):
        image_of("ml.p6e-gb200.36xlarge")
    types = {item.family: item.instance_type for item in ours if item.has_gpu or not item.accelerator_count}
    del types["p6e-gb200"]
    clusters = [(name, "ddp") for name in types.values()]
    clusters += [(P4D, "smddp"), *((types[family], "smp") for family in SAGEMAKER.special_strategies["smp"])]
    checked = set()
    for instance_type, strategy in clusters:
        uri = image_of(instance_type, strategy=strategy).uri
        assert uri == sdk_s_own(uri, instance_type), (instance_type, strategy)
        checked.add(uri.rpartition("/")[2].partition("py3")[0])

    assert len(checked) == 6
    assert {image.strategies for image in IMAGES} == {(), ("smddp",), ("smp",)}


@pytest.mark.slow  # in `.ci/full slow` only, because a clone should pass its tests on any day
def test_the_list_of_images_was_read_within_the_last_90_days() -> None:
    age = (date.today() - READ_ON).days

    assert age <= 90, f"AWS's images were read {age} days ago: bring IMAGES and READ_ON in images.py up to date"


def test_a_gpu_job_has_an_image_in_every_region_with_all_that_a_training_needs() -> None:
    bare = ("deepspeed", *image_of(CPU).requirements)
    for instance_type, plain in ((GPU, "pytorch-training:2.8.0-gpu"), ("ml.g6.xlarge", "pytorch-training:2.10.0-gpu")):
        images = {region: image_of(instance_type, region, strategy="deepspeed") for region in REGIONS}

        for region, image in images.items():
            assert f".dkr.ecr.{region}." in image.uri
            assert "huggingface" in image.uri or (plain in image.uri and image.requirements == bare)
        assert "huggingface" not in images["eu-central-2"].uri


@pytest.mark.trains
def test_what_an_image_lacks_is_installed_in_exact_versions() -> None:
    bare, full = image_of(CPU).requirements, image_of(GPU).requirements

    assert {line.split("==")[0] for line in bare} >= {"transformers", "accelerate", "scikit-learn"}
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in bare)
    assert {line.split("==")[0] for line in full} == {"transformers", "accelerate", "peft"}
    assert image_of(GPU, is_users=True).requirements == ()
    assert image_of("ml.g6.xlarge").requirements == ()  # it has what our training is tested with
    assert image_of("ml.g6.xlarge", is_users=True).requirements == ()
    assert image_of(V100).requirements == bare
    assert image_of(GPU, strategy="deepspeed_zero3").requirements == ("deepspeed", *full)
    assert "transformers==5.3.0" in image_of(P4D, strategy="smp").requirements


@pytest.mark.trains
def test_a_job_without_a_network_is_refused_if_it_would_install_anything_or_read_a_secret(
    launcher: SageMakerLauncher, tmp_path: Path
) -> None:
    script, project = tmp_path / "train.py", UserCode(requirements=("einops",))
    script.touch()
    own = {"instance_type": GPU, "entry_script": str(script)}

    def fault(inputs: JobInputs | None = None, image: str | None = None, **changes: Any) -> str:
        spec = JobSpec(**changes, sagemaker={"network_isolation": True, "training_image": image})
        try:
            placed(launcher, spec, inputs or (script_inputs(spec) if spec.entry_script else JobInputs()))
        except BadInput as error:
            return str(error)
        return ""

    for part in ("transformers==", "sagemaker.training_image"):
        assert part in fault(instance_type=CPU)
    assert "einops" in fault(JobInputs(code=project), instance_type=GPU, project=".")
    assert not fault(JobInputs(code=replace(project, requirements=())), instance_type=CPU, project=".")
    assert not fault(**own)
    (tmp_path / "requirements.txt").write_text("einops\n")
    assert "einops" in fault(**own)
    assert not fault(**own, image="own:1")
    secret = {"TOKEN": "secret:arn:aws:secretsmanager:us-east-1:123456789012:secret:token"}
    assert "environment.TOKEN" in fault(**own, image="own:1", environment=secret)


def test_a_password_in_requirements_is_refused(launcher: SageMakerLauncher, tmp_path: Path) -> None:
    line = "--extra-index-url https://ada:hush@packages.example/simple"
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").write_text(f"einops\n{line}\n")
    script = JobSpec(instance_type=GPU, entry_script=str(tmp_path / "train.py"))
    project = JobInputs(code=UserCode(requirements=(line,)))

    for spec, inputs in ((script, script_inputs(script)), (JobSpec(instance_type=GPU), project)):
        with pytest.raises(BadInput, match="must not contain a password or key") as refused:
            placed(launcher, spec, inputs)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    ["own @ git+https://git.example:8443/own.git@v1", "--extra-index-url https://ada:${TOKEN}@packages.example/"],
)
def test_a_port_and_a_variable_in_requirements_are_no_password(
    launcher: SageMakerLauncher, tmp_path: Path, line: str
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").write_text(line)

    spec = JobSpec(instance_type=GPU, entry_script=str(tmp_path / "train.py"))
    placed(launcher, spec, script_inputs(spec))


def test_requirements_that_are_no_utf_8_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").write_text("einops\n", encoding="utf-16")  # as PowerShell redirects pip freeze

    with pytest.raises(BadInput, match=r"requirements\.txt is not UTF-8 .*: save it as UTF-8"):
        script_inputs(JobSpec(instance_type=GPU, entry_script=str(tmp_path / "train.py")))


def test_a_region_without_images_is_a_fault_that_names_it_and_no_crash() -> None:
    with pytest.raises(BadInput) as refused:
        images_of(JobSpec(instance_type=GPU), "mars-1")

    (fault,) = refused.value.faults
    assert "on ml.g5.12xlarge in mars-1" in fault
    assert "set sagemaker.training_image, or use another region" in fault
    own = images_of(JobSpec(instance_type=GPU, sagemaker={"training_image": "own:1"}), "mars-1")
    assert own[GPU].uri == "own:1"


@pytest.mark.parametrize(
    ("instance_type", "image", "part"),
    [
        (CPU, "x/pytorch-training:2.9.0-gpu-py312", "use its -cpu- variant"),
        (GPU, "x/pytorch-training:2.9.0-cpu-py312", "use its -gpu- variant"),
        (
            GPU,
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/own:1",
            "is in eu-west-1, but the job runs in us-east-1",
        ),
        (GPU, "x/training:2.1.0-transformers4.36.0-gpu", "has transformers 4.36, but paretune's training needs 5.3 or"),
    ],
)
def test_an_image_that_does_not_suit_the_job_is_one_fault_with_a_way_out(
    instance_type: str, image: str, part: str
) -> None:
    with pytest.raises(BadInput) as refused:
        images_of(JobSpec(instance_type=instance_type, sagemaker={"training_image": image}), "us-east-1")

    (fault,) = refused.value.faults
    assert part in fault


def test_the_name_of_a_repository_does_not_tell_for_which_instances_its_image_is() -> None:
    own = "x/llm-cpu-offload:1"

    assert images_of(JobSpec(instance_type=GPU, sagemaker={"training_image": own}), "us-east-1")[GPU].uri == own


def test_an_empty_variable_of_the_environment_reaches_the_job(ask: Ask) -> None:
    assert ask(environment={"EMPTY": ""})["Environment"]["EMPTY"] == ""
