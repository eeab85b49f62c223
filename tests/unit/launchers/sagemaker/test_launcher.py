"""The launcher: what is created, adopted and shown, whatever AWS answers and whenever the launcher dies."""

import contextlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, LaunchRefused, LostContact
from paretune.core.tags import Attribution
from paretune.jobs.warnings import foreseen, warnings_of
from paretune.launchers.disk import bytes_on_disk, volume_for_gib
from paretune.launchers.offers import admit
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.request import build_request
from paretune.specification.container import Command, JobInputs, PreparedDataset, UserCode
from paretune.specification.ending import JobState
from paretune.specification.job import JobSpec
from paretune.specification.order import Limits, Order
from tests.support.bound_scripts import script_inputs
from tests.support.fake_clock import FakeClock
from tests.support.sagemaker_jobs import job_of, placed
from tests.support.stand_ins.aws import ACCOUNT, BUCKET, Aws, error
from tests.support.workplaces import make_workplace

Make = Callable[..., Order]
NAME = "paretune-run1-1"


def channel(request: dict[str, Any], name: str) -> str:
    (uri,) = [
        entry["DataSource"]["S3DataSource"]["S3Uri"]
        for entry in request["InputDataConfig"]
        if entry["ChannelName"] == name
    ]
    return str(uri)


def sent(aws: Aws) -> dict[str, Any]:
    """Return the last request for a job."""
    return aws.of("CreateTrainingJob")[-1].parameters


def document_of(aws: Aws, name: str = NAME) -> dict[str, Any]:
    """Return the document of a job from S3."""
    document: dict[str, Any] = json.loads(aws.objects[f"paretune/jobs/{name}/job.json"])
    return document


def another(clock: Clock, package: Path, **changes: Any) -> SageMakerLauncher:
    """Return a launcher in another process."""
    return SageMakerLauncher(None, clock, {}, package=package, **changes)


@pytest.fixture
def dataset(tmp_path: Path) -> PreparedDataset:
    folder = tmp_path / "prepared"
    folder.mkdir()
    (folder / "rows.arrow").write_bytes(b"rows")
    made = PreparedDataset(key="0123456789abcdef", folder=folder, labels=("a", "b"), facts={}, digests={})
    made.write()
    return made


def test_a_job_that_may_have_been_created_is_lost_sight_of_and_not_given_up(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    aws.refuse("CreateTrainingJob", ReadTimeoutError(endpoint_url="https://aws"))
    aws.refuse("DescribeTrainingJob", EndpointConnectionError(endpoint_url="https://aws"), times=9)

    with pytest.raises(LostContact, match=f"{NAME} may have been created"):
        launcher.submit(order())


def test_a_throttle_after_an_answer_that_may_have_been_lost_is_no_refusal(
    launcher: SageMakerLauncher, order: Make, aws: Aws, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    throttled = error("ThrottlingException", "Rate exceeded", RetryAttempts=7)
    aws.refuse("CreateTrainingJob", throttled, times=2)
    with pytest.raises(LostContact, match=f"{NAME} may have been created"):
        launcher.submit(order())

    monkeypatch.setattr(clock, "sleep", lambda _: aws.show(NAME))  # AWS shows it a moment later
    assert launcher.submit(order()).name == NAME

    aws.training.jobs.clear()
    aws.refuse("CreateTrainingJob", error("ThrottlingException", "Rate exceeded"))
    with pytest.raises(LaunchRefused, match="throttling"):
        launcher.submit(order())


def test_a_job_of_this_name_that_aws_shows_late_is_adopted(
    launcher: SageMakerLauncher, order: Make, aws: Aws, clock: FakeClock, package: Path
) -> None:
    launcher.submit(order())
    aws.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", times=5)

    assert another(clock, package).submit(order()).name == NAME


def test_an_empty_answer_neither_gives_a_job_to_another_run_nor_says_that_there_is_none(
    launcher: SageMakerLauncher, order: Make, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.submit(replace(order(), run_id="mine"))  # its name does not contain its run
    empty, describe = [{}], aws._own["DescribeTrainingJob"]
    monkeypatch.setitem(aws._own, "DescribeTrainingJob", lambda request: empty.pop() if empty else describe(request))
    job = launcher.attach(NAME)
    assert job is not None
    assert job.run_id == "mine"

    aws.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", times=99)
    monkeypatch.setitem(aws._own, "ListTrainingJobs", lambda _: {})
    with pytest.raises(LaunchRefused, match="has not described"):
        launcher.attach(NAME)


def test_somebody_who_wants_to_stop_is_heard_between_two_uploads_and_nothing_is_created(
    order: Make, aws: Aws, clock: FakeClock, package: Path
) -> None:
    def check() -> None:
        if aws.count("PutObject") >= 1:
            raise Interrupted("interrupted by SIGINT")

    with pytest.raises(Interrupted):
        another(clock, package, check=check).submit(order())

    assert [key for key in aws.objects if key.endswith("code.tar.gz")] == list(aws.objects)
    assert aws.training.jobs == {}


@pytest.mark.parametrize("steps", range(8))
def test_killed_between_any_two_calls_and_started_again_it_creates_one_job_from_the_same_uploads(
    launcher: SageMakerLauncher, order: Make, aws: Aws, clock: FakeClock, package: Path, steps: int
) -> None:
    class Killed(BaseException):
        pass

    before = [None] * steps

    def die(operation: str) -> None:
        if not before:
            raise Killed
        before.pop()

    aws.meet = die  # type: ignore[method-assign]
    with contextlib.suppress(Killed):
        launcher.submit(order())
    aws.meet = lambda operation: None  # type: ignore[method-assign]

    result = another(clock, package)
    job = result.attach(NAME) or result.submit(order())

    assert job.state() is JobState.RUNNING
    assert list(aws.training.jobs) == [NAME]


def test_data_and_model_become_channels_that_all_jobs_share(
    launcher: SageMakerLauncher, order: Make, aws: Aws, dataset: PreparedDataset, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"w" * 10)
    inputs = JobInputs(dataset=dataset, model=model)
    launcher.submit(order(run="run1", inputs=inputs))
    first = sent(aws)
    launcher.submit(order(run="run2", learning_rate=1e-3, inputs=inputs))

    assert channel(first, "dataset").endswith(f"/datasets/{dataset.key}/")
    assert "/models/" in channel(first, "model")
    for name in ("dataset", "model", "code"):
        assert channel(first, name) == channel(sent(aws), name)
    keys = [call.parameters["Key"] for call in aws.of("PutObject")]
    assert len(keys) == len(set(keys))


def sized(tmp_path: Path, dataset: PreparedDataset, model_gib: int, data_gib: int = 0) -> JobInputs:
    """Return a model's folder and rows of these sizes."""
    (tmp_path / "model").mkdir()
    for path, size in ((tmp_path / "model" / "weights", model_gib), (dataset.folder / "rows.arrow", data_gib)):
        with path.open("wb") as file:
            file.truncate(size * 2**30)  # a sparse file, which takes no space
    (dataset.folder / "dataset.json").unlink()
    return JobInputs(dataset=dataset, model=tmp_path / "model")


# A model of 14 GiB in fp16 has 28 GiB of weights in fp32: 14 read, 56 written with room for a copy, 84 per checkpoint.
@pytest.mark.parametrize(
    ("model_gib", "data_gib", "changes", "volume"),
    [
        (0, 0, {}, 30),
        (2, 1, {}, 58),  # 2 + 2 x 4 + 3 x 12 + 2 x 1 = 48
        (14, 0, {}, 332),  # 14 + 56 + 3 x 84 = 322
        (14, 0, {"num_train_epochs": 1.0}, 164),  # one checkpoint, where it is stopped
        (14, 0, {"num_train_epochs": 1.0, "spot": True}, 332),  # one every two minutes: two, and a new one
        (14, 0, {"num_train_epochs": 1.0, "training_arguments": {"max_steps": 5000}}, 332),  # instead of the epochs
        (14, 0, {"num_train_epochs": 1.0, "training_arguments": {"max_steps": -1}}, 164),
        (14, 0, {"num_train_epochs": 9.0, "training_arguments": {"save_total_limit": None}}, 836),  # 14 + 56 + 9 x 84
        (14, 0, {"training_arguments": {"save_total_limit": None, "save_strategy": "no"}}, 164),
        (14, 0, {"training_arguments": {"save_total_limit": None, "max_steps": 90, "save_steps": 10}}, 836),
        (14, 0, {"training_arguments": {"save_total_limit": 4, "save_steps": 10}}, 500),
        (14, 0, {"training_arguments": {"load_best_model_at_end": True}}, 416),  # a third more in each checkpoint
        (14, 0, {"fine_tuning": "lora"}, 360),  # merged as large as it was read: 28 more, with room for a copy
        (14, 0, {"strategy": "deepspeed", "instance_type": "ml.g5.12xlarge"}, 500),  # 14 + 56 + 3 x 140 = 490
    ],
)
def test_the_volume_follows_from_model_data_and_what_is_written(
    dataset: PreparedDataset, tmp_path: Path, model_gib: int, data_gib: int, changes: dict[str, Any], volume: int
) -> None:
    spec = JobSpec(**{"instance_type": "ml.m5.large", "num_train_epochs": 3.0} | changes)
    size = bytes_on_disk(spec, sized(tmp_path, dataset, model_gib, data_gib))

    assert size is not None
    assert volume_for_gib(size) == volume


@pytest.mark.parametrize(
    "changes",
    [
        {"training_arguments": {"save_steps": 100}},
        {"training_arguments": {"save_strategy": "best"}},
        {"training_arguments": {"max_steps": 5000}},
        {"spot": True},
        {"sagemaker.keep_alive_minutes": 10.0, "training_arguments": {"save_steps": 100}},
    ],
)
def test_a_job_that_keeps_an_unknown_number_of_checkpoints_needs_a_volume_of_a_given_size(
    launcher: SageMakerLauncher,
    order: Make,
    aws: Aws,
    dataset: PreparedDataset,
    tmp_path: Path,
    changes: dict[str, Any],
) -> None:
    kept = {**changes, "training_arguments": {**changes.get("training_arguments", {}), "save_total_limit": None}}
    inputs, given = sized(tmp_path, dataset, 0), {**kept, "sagemaker.volume_size_in_gb": 700}

    with pytest.raises(BadInput, match=r"save_total_limit=null .* set sagemaker\.volume_size_in_gb"):
        order(inputs=inputs, **kept)
    assert aws.objects == {}

    assert launcher.preview(order(inputs=inputs, **given))["ResourceConfig"]["VolumeSizeInGB"] == 700
    place = make_workplace(launcher=launcher, home=tmp_path)
    assert foreseen(job_of(**given), inputs, place).disk_bytes is None  # so there is no warning about it


def test_a_price_that_is_not_known_is_read_in_the_region_of_the_job(
    aws: Aws, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n")  # in the format of `aws configure`
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.chdir(tmp_path)
    launcher, spec = SageMakerLauncher(None, clock, {}), job_of()
    refresh = "ml.m5.large in eu-west-1 is not known, so .*`paretune prices --refresh true --region eu-west-1`"

    warnings = warnings_of([foreseen(spec, JobInputs(), make_workplace(launcher=launcher, home=tmp_path))])
    assert re.search(refresh, " ".join(warnings))
    with pytest.raises(BudgetRefused, match=refresh):
        admit(spec.replace(max_cost_usd=1.0), launcher, {})


@pytest.mark.parametrize(("instance_type", "volume"), [("ml.m5.large", 64), ("ml.g5.xlarge", 232)])
def test_kept_instances_are_reused_by_probes_and_by_other_trainings_of_the_model(
    order: Make,
    dataset: PreparedDataset,
    tmp_path: Path,
    instance_type: str,
    volume: int,
) -> None:
    inputs = sized(tmp_path, dataset, 1)
    ways: list[dict[str, Any]] = [{"num_train_epochs": epochs} for epochs in (1.0, 9.0)]
    ways += [{"fine_tuning": "lora"}, {"probe_steps": 40}]

    kept: dict[str, Any] = {"instance_type": instance_type, "sagemaker": {"keep_alive_minutes": 10.0}}
    orders = [order(inputs=inputs, **kept, **way) for way in ways]
    sizes = {build_request(each)["ResourceConfig"]["VolumeSizeInGB"] for each in orders}

    assert sizes == {volume}  # AWS reuses kept instances only for an equal volume


@pytest.mark.parametrize(
    ("model_gib", "changes", "part"),
    [
        (14, {"instance_type": "ml.g4dn.xlarge"}, "332 GiB, but ml.g4dn.xlarge has only 116 GiB"),
        (
            14,
            {"instance_type": "ml.g5.12xlarge", "fallback_instance_types": "ml.g5.xlarge"},
            "g5.xlarge has only 232 GiB",
        ),
        (800, {}, "ml.m5.large has a volume of at most 16384 GiB"),
    ],
)
def test_what_does_not_fit_on_an_instance_is_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher,
    order: Make,
    aws: Aws,
    dataset: PreparedDataset,
    tmp_path: Path,
    model_gib: int,
    changes: dict[str, Any],
    part: str,
) -> None:
    with pytest.raises(BadInput, match=f"{part}.* fine_tuning=lora"):
        order(inputs=sized(tmp_path, dataset, model_gib), num_train_epochs=3.0, **changes)

    assert aws.objects == {}


def test_a_given_volume_above_the_own_disks_of_an_instance_is_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher, order: Make, aws: Aws, dataset: PreparedDataset, tmp_path: Path
) -> None:
    inputs = sized(tmp_path, dataset, 0, data_gib=161)  # files of a data set are not read for a preview
    given = {"instance_type": "ml.m5.large", "fallback_instance_types": "ml.g5.xlarge", "num_train_epochs": 3.0}

    with pytest.raises(BadInput, match=r"at most 232 for ml\.g5\.xlarge, .* need 332 GiB, got 400: lower it"):
        order(inputs=inputs, **given, **{"sagemaker.volume_size_in_gb": 400})
    assert aws.objects == {}
    fits = order(inputs=inputs, **given, **{"sagemaker.volume_size_in_gb": 232})
    assert launcher.preview(fits)["ResourceConfig"]["VolumeSizeInGB"] == 232


def test_a_given_volume_above_the_own_disks_of_an_instance_is_accepted_if_the_job_needs_less(
    launcher: SageMakerLauncher, order: Make, dataset: PreparedDataset, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"instance_type": "ml.g5.xlarge", "sagemaker.volume_size_in_gb": 400}

    request = launcher.preview(order(inputs=sized(tmp_path, dataset, 0), **given))

    assert request["ResourceConfig"]["VolumeSizeInGB"] == 400  # AWS ignores it


def test_the_volume_holds_the_local_files_that_a_script_reads(tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("wb") as file:
        file.truncate(40 * 2**30)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    script = str(tmp_path / "code" / "train.py")
    spec = JobSpec(instance_type="ml.m5.large", entry_script=script, dataset=str(tmp_path / "rows.csv"))

    assert bytes_on_disk(spec, script_inputs(spec)) == 80 * 2**30


def test_arguments_of_a_script_that_are_named_as_ours_say_nothing_about_the_disk(tmp_path: Path) -> None:
    declared = "parser.add_argument('--save_total_limit')\nparser.parse_args()\n"
    (tmp_path / "train.py").write_text(f"import argparse\nparser = argparse.ArgumentParser()\n{declared}")
    given: dict[str, Any] = {
        "entry_script": str(tmp_path / "train.py"),
        "training_arguments": {"save_total_limit": "all"},
    }
    spec = JobSpec(instance_type="ml.m5.large", sagemaker={"volume_size_in_gb": 1}, **given)

    assert foreseen(spec, script_inputs(spec), make_workplace(home=tmp_path)).disk_bytes == 0


def test_every_job_says_in_aws_of_which_study_user_and_team_it_is_whatever_it_runs(
    launcher: SageMakerLauncher, order: Make, aws: Aws, tmp_path: Path
) -> None:
    attribution = Attribution(study="batch, and rate", user="DOMAIN\\ana", team="nlp")
    expected = {"paretune:study": "batch- and rate", "paretune:user": "DOMAIN-ana", "paretune:team": "nlp"}
    project = UserCode()
    actual = order("run1", whose=attribution, tags={"team": "nlp"})
    foreign = order("run3", whose=attribution, inputs=JobInputs(code=project), project=".")

    for each in (actual, foreign):
        tags = {tag["Key"]: tag["Value"] for tag in launcher.preview(each)["Tags"]}
        assert tags.items() >= expected.items()
        assert tags["paretune:run"] == each.job_name.split("-")[1]
        assert "paretune:spec" in tags
    launcher.submit(actual)
    assert {tag["Key"] for tag in sent(aws)["Tags"]} >= {*expected, "team"}
    assert "DOMAIN" not in json.dumps(document_of(aws))  # the job itself does not learn who owns it


def test_the_document_gives_the_training_nothing_of_account_network_and_money(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    launcher.submit(
        order(
            sagemaker={"kms_key_id": "alias/mine", "subnets": "subnet-1", "security_group_ids": "sg-1"},
            max_cost_usd=5.0,
            region="us-east-1",
            tags={"team": "search"},
        )
    )

    spec = document_of(aws)["spec"]
    assert not {"region", "role", "sagemaker", "max_cost_usd", "tags"} & set(spec)


def test_a_script_of_the_user_s_own_travels_with_its_folder_and_its_local_files_become_channels(
    launcher: SageMakerLauncher, order: Make, aws: Aws, tmp_path: Path
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / "lib").mkdir(parents=True)
    elsewhere.mkdir()
    names = "".join(f"p.add_argument('--{name}')\n" for name in ("model", "dataset", "validation_file"))
    (project / "train.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{names}")
    (project / "lib" / "model.py").write_text("pass\n")
    (project / "requirements.txt").write_text("einops\n")
    (elsewhere / "weights").write_text("w")
    (elsewhere / "valid.csv").write_text("text,label\n")

    given = {
        "entry_script": str(project / "train.py"),
        "model": str(elsewhere),
        "dataset": "a/hub-id",
        "validation_file": str(elsewhere / "valid.csv"),
    }
    inputs = script_inputs(job_of(**given))
    launcher.submit(order(inputs=inputs, **given))

    request, command = sent(aws), document_of(aws)["command"]
    assert command["script"] == "/opt/ml/input/data/code/script/train.py"
    words = ["--model", "/opt/ml/input/data/model", "--dataset", "a/hub-id"]
    assert command["words"] == [*words, "--validation_file", "/opt/ml/input/data/validation/valid.csv"]
    code = inputs.code
    assert code is not None
    assert code.command.recorded["model"] == str(elsewhere)  # as it was given
    with tarfile.open(fileobj=io.BytesIO(aws.objects[channel(request, "code").partition(f"{BUCKET}/")[2]])) as archive:
        sent_names = {name for name in archive.getnames() if name.startswith("script/")}
    assert sent_names == {"script/train.py", "script/lib/model.py", "script/requirements.txt"}
    assert channel(request, "model").endswith("/")
    assert channel(request, "validation").endswith("/valid.csv")
    assert "HF_HUB_OFFLINE" not in request["Environment"]
    assert str(tmp_path) not in json.dumps(document_of(aws)) + json.dumps(request, default=str)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "mine" / "train.py"
    path.parent.mkdir()
    path.write_text("import argparse\nargparse.ArgumentParser().add_argument('--train_file')\n")
    return str(path)


@pytest.mark.parametrize(
    ("address", "uri", "path"),
    [
        ("s3://corp/train/rows.csv", "s3://corp/train/rows.csv", "/opt/ml/input/data/train/rows.csv"),
        ("s3://corp/train", "s3://corp/train/", "/opt/ml/input/data/train"),
        ("s3://corp/train/", "s3://corp/train/", "/opt/ml/input/data/train"),
    ],
)
def test_data_of_a_script_in_s3_are_a_channel_and_the_script_gets_their_path_there(
    launcher: SageMakerLauncher, order: Make, aws: Aws, script: str, address: str, uri: str, path: str
) -> None:
    aws.add_bucket("corp")
    aws.s3.put_object("corp", "train/rows.csv", b"text,label")
    given: dict[str, Any] = {"entry_script": script, "dataset": address, "sagemaker.input_mode": "FastFile"}

    launcher.submit(order(inputs=script_inputs(job_of(**given)), **given))

    assert channel(sent(aws), "train") == uri
    assert document_of(aws)["command"]["words"] == ["--train_file", path]
    modes = {entry["ChannelName"]: entry["InputMode"] for entry in sent(aws)["InputDataConfig"]}
    assert modes == {"code": "File", "job": "File", "train": "FastFile"}
    assert aws.count("GetObject") == 0
    aws.end(NAME, "Failed", reason="AlgorithmError: out_of_memory: x")
    launcher.submit(order(attempt=2, **given))
    assert channel(sent(aws), "train") == uri


def test_data_in_s3_that_are_not_there_are_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher, order: Make, aws: Aws, script: str
) -> None:
    spec = job_of(entry_script=script, dataset=f"s3://{BUCKET}/nothing.csv", test_file=f"s3://{BUCKET}/none/")

    with pytest.raises(BadInput, match=r"dataset s3://models/nothing\.csv is neither an object") as refused:
        placed(launcher, spec, script_inputs(spec))

    assert [fault.split()[0] for fault in refused.value.faults] == ["dataset", "test_file"]
    assert aws.count("PutObject") == 0


def test_a_folder_without_files_is_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher, order: Make, script: str, tmp_path: Path
) -> None:
    (tmp_path / "rows" / "deep").mkdir(parents=True)
    spec = job_of(entry_script=script, dataset=str(tmp_path / "rows"))
    project = JobInputs(code=UserCode(inputs={"data": tmp_path / "rows"}))

    for name, inputs in (("dataset", script_inputs(spec)), ("data", project)):
        with pytest.raises(BadInput, match=f"^{name} must contain files, because SageMaker drops empty folders"):
            placed(launcher, spec, inputs)
        with pytest.raises(BadInput, match=f"^{name} must contain files"):
            launcher.fit(spec, launcher.place(spec, account=False), inputs)


def test_a_data_folder_with_a_link_to_a_folder_is_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher, order: Make, script: str, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").touch()
    (tmp_path / "rows" / "train").symlink_to(tmp_path / "elsewhere")
    spec = job_of(entry_script=script, dataset=str(tmp_path / "rows"))

    with pytest.raises(BadInput, match=r"^dataset must not contain links to folders.* replace .*/rows/train with a"):
        placed(launcher, spec, script_inputs(spec))


def test_a_data_file_whose_name_is_not_utf_8_is_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher, order: Make, script: str, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / os.fsdecode(b"caf\xe9.jpg")).touch()
    (tmp_path / "images" / "caf\u00e9.jpg").touch()
    spec = job_of(entry_script=script, dataset=str(tmp_path / "images"))

    with pytest.raises(BadInput, match=r"^dataset has a file whose name is not UTF-8.*: rename 'caf\\udce9.jpg'"):
        placed(launcher, spec, script_inputs(spec))


@pytest.mark.parametrize("closed", ["rows.csv", "deep"])
def test_data_that_this_user_may_not_read_are_refused_before_anything_is_uploaded(
    launcher: SageMakerLauncher, order: Make, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "rows.csv").touch()
    (tmp_path / "data" / "gone.csv").symlink_to("nowhere")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name not in {closed, "gone.csv"})  # as for no root
    spec = job_of(entry_script=script, dataset=str(tmp_path / "data"))

    with pytest.raises(BadInput, match=f"^dataset must be readable to be uploaded, and you may not read .*/{closed}:"):
        placed(launcher, spec, script_inputs(spec))


def test_data_of_a_project_in_s3_are_a_channel(launcher: SageMakerLauncher, order: Make, aws: Aws) -> None:
    payload = UserCode(inputs={"data": "s3://corp/train/"})

    launcher.submit(order(project=".", **{"sagemaker.input_mode": "FastFile"}, inputs=JobInputs(code=payload)))

    modes = {entry["ChannelName"]: entry["InputMode"] for entry in sent(aws)["InputDataConfig"]}
    assert (channel(sent(aws), "data"), modes["data"]) == ("s3://corp/train/", "FastFile")


@pytest.mark.parametrize(
    ("fallbacks", "changes", "in_one_request", "waits_s"),
    [
        ("ml.g5.2xlarge,ml.g5.4xlarge", {}, 3, None),
        ("ml.g5.2xlarge,ml.g6.xlarge", {}, 2, 1800),  # the last one has a driver for a newer image
        ("ml.g5.2xlarge,ml.g5.12xlarge", {}, 2, 1800),  # the last one has four GPUs, so another batch
        ("ml.g5.12xlarge", {}, 1, 1800),
        ("ml.g5.2xlarge", {"spot": True}, 1, None),
        ("ml.g5.2xlarge", {"sagemaker.keep_alive_minutes": 10}, 1, 1800),
        ("ml.g5.2xlarge,ml.g5.4xlarge,ml.g5.8xlarge,ml.g5.16xlarge,ml.g6.xlarge", {}, 5, 1800),
    ],
)
def test_aws_takes_the_first_free_one_of_the_types_with_equal_requests(
    launcher: SageMakerLauncher,
    order: Make,
    aws: Aws,
    fallbacks: str,
    changes: dict[str, Any],
    in_one_request: int,
    waits_s: int | None,
) -> None:
    given = {"instance_type": "ml.g5.xlarge", "fallback_instance_types": fallbacks, "global_batch_size": 16}
    expected = [*job_of(**given).instance_types()][:in_one_request]

    job = launcher.submit(order(**given, **changes))

    resources = sent(aws)["ResourceConfig"]
    if in_one_request == 1:
        assert resources["InstanceType"] == "ml.g5.xlarge"
        assert job.chosen_instance_type() == ""
    else:
        assert [each["InstanceType"] for each in resources["InstancePreferences"]] == expected
        found = launcher.attach(NAME)
        assert found is not None
        assert found.chosen_instance_type() == expected[-1]  # the only one with capacity here
    assert resources["InstanceCount"] == 1
    assert sent(aws)["StoppingCondition"].get("MaxPendingTimeInSeconds") == waits_s


def checkpoints(aws: Aws) -> str:
    return str(sent(aws)["CheckpointConfig"]["S3Uri"])


def test_the_next_attempt_of_a_run_continues_where_the_last_one_wrote(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    launcher.submit(order(attempt=1))
    first = checkpoints(aws)
    aws.end(NAME, "Failed", reason="AlgorithmError: out_of_memory: x")
    launcher.submit(order(attempt=2))

    assert checkpoints(aws) == first == f"s3://{BUCKET}/paretune/checkpoints/run1/"
    launcher.submit(order(run="run2"))
    assert checkpoints(aws) == f"s3://{BUCKET}/paretune/checkpoints/run2/"


def test_the_next_attempt_of_a_project_runs_the_command_of_the_first(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    payload = UserCode(command=Command(words=("launched",)))
    launcher.submit(order(attempt=1, project=".", inputs=JobInputs(code=payload)))
    launcher.submit(order(attempt=2, project="."))  # from any machine, because all it needs is in AWS

    first, second = (call.parameters for call in aws.of("CreateTrainingJob"))
    assert document_of(aws, "paretune-run1-2")["command"]["words"] == ["launched"]
    assert second["AlgorithmSpecification"] == first["AlgorithmSpecification"]
    assert second["ResourceConfig"] == first["ResourceConfig"]


FALLBACKS = {"instance_type": "ml.p4d.24xlarge", "fallback_instance_types": "ml.g5.48xlarge,ml.m5.large"}
SWITCHES = {
    "environment": {"MODE": "quick"},
    "sagemaker.retry_attempts": 3,
    "sagemaker.subnets": "subnet-1",
    "sagemaker.security_group_ids": "sg-1",
    "sagemaker.kms_key_id": "alias/mine",
    "sagemaker.encrypt_traffic": True,
}


def without_names(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name not in ("TrainingJobName", "InputDataConfig")}


def forged(order: Order, **changes: Any) -> Order:
    """Return an order whose offers were edited in MLflow."""
    return replace(order, offers=tuple(replace(offer, **changes) for offer in order.offers))


def test_a_later_attempt_is_the_first_order_read_back_whatever_mlflow_says(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    launcher.submit(order(**FALLBACKS, **SWITCHES))
    first = sent(aws)
    aws.end(NAME, "Failed", reason="InternalServerError: x")
    asked = order(attempt=2, **FALLBACKS, **SWITCHES)
    edited = replace(
        forged(asked, image="evil:1", packages=("evil",), instance_count=64, volume_gib=9000, training={"seed": 1}),
        limits=Limits(max_seconds=1e9, kept_s=3600.0),
        payload=replace(asked.payload, kind="project", command=Command(words=("evil",)), strategy="evil"),
        place={"tags": asked.place["tags"], "role": "evil", "s3_bucket": "evil"},
    )

    launcher.submit(edited)

    assert without_names(sent(aws)) == without_names(first)
    assert {channel["ChannelName"] for channel in sent(aws)["InputDataConfig"]} == {"code", "job"}
    documents = [document_of(aws, f"paretune-run1-{attempt}") for attempt in (1, 2)]
    differing = {name for name in documents[0] if documents[0][name] != documents[1][name]}
    assert differing == {"job_name", "attempt"}


def test_a_later_attempt_on_another_type_has_the_image_volume_and_variables_of_that_type(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    launcher.submit(order(**FALLBACKS, **SWITCHES))
    first = sent(aws)
    aws.end(NAME, "Failed", reason="CapacityError: x")
    whole = order(**FALLBACKS, **SWITCHES)
    later = whole.next(attempt=2, spent_s=100.0, offers=whole.offers[2:])

    launcher.submit(forged(later, image="evil:1", packages=(), volume_gib=1))

    request, document = sent(aws), document_of(aws, "paretune-run1-2")
    alone = launcher.preview(order("run2", **SWITCHES))  # a job on ml.m5.large only
    for name in ("AlgorithmSpecification", "VpcConfig", "RetryStrategy", "OutputDataConfig"):
        assert request[name] == alone[name]
    assert request["ResourceConfig"] == alone["ResourceConfig"]
    assert first["Environment"].keys() - request["Environment"].keys() == {
        "FI_PROVIDER",
        "FI_EFA_USE_DEVICE_RDMA",
        "RDMAV_FORK_SAFE",
    }
    assert request["Environment"]["MODE"] == "quick"
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3500}
    assert (document["spec"]["instance_type"], document["max_seconds"]) == ("ml.m5.large", 3500.0)
    assert document["packages"] == [*later.offer.packages]


def test_a_later_attempt_on_a_type_that_the_first_did_not_name_is_refused(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    launcher.submit(order(**FALLBACKS))
    aws.end(NAME, "Failed", reason="CapacityError: x")

    with pytest.raises(LaunchRefused, match="somebody changed the tags of run run1 in MLflow"):
        launcher.submit(forged(order(attempt=2, **FALLBACKS), instance_type="ml.p5.48xlarge"))

    assert aws.count("CreateTrainingJob") == 1


def test_the_default_bucket_is_made_once_in_the_right_region(
    aws: Aws, order: Make, clock: FakeClock, package: Path
) -> None:
    launcher = SageMakerLauncher("eu-west-1", clock, {}, package=package)
    for run in ("run1", "run2"):
        launcher.submit(order(run, **{"sagemaker.s3_bucket": launcher.account.default_bucket}))

    (made,) = aws.of("CreateBucket")
    assert made.parameters["Bucket"] == f"sagemaker-eu-west-1-{ACCOUNT}"
    assert made.parameters["CreateBucketConfiguration"] == {"LocationConstraint": "eu-west-1"}
    assert launcher.location_tags() == {"account": ACCOUNT, "region": "eu-west-1"}


@pytest.mark.parametrize("refusal", ["BucketAlreadyOwnedByYou", "OperationAborted"])
def test_two_first_jobs_that_create_the_default_bucket_at_once_are_both_launched(
    aws: Aws, order: Make, clock: FakeClock, package: Path, refusal: str
) -> None:
    launcher = SageMakerLauncher("eu-west-1", clock, {}, package=package)
    own = order(**{"sagemaker.s3_bucket": launcher.account.default_bucket})
    aws.add_bucket(launcher.account.default_bucket)  # by the other job, after this one has looked for it
    aws.refuse("HeadBucket", error("404", status=404))
    aws.refuse("CreateBucket", refusal)

    assert launcher.submit(own).state() is JobState.RUNNING


def test_a_default_bucket_that_may_be_used_and_not_be_looked_at_passes_the_check_and_the_launch(
    launcher: SageMakerLauncher, order: Make, aws: Aws
) -> None:
    aws.add_bucket(f"sagemaker-us-east-1-{ACCOUNT}")
    aws.refuse("HeadBucket", "403", "Forbidden", times=9)
    own = {"sagemaker.s3_bucket": launcher.account.default_bucket}

    launcher.place(job_of(**own))

    assert launcher.submit(order(**own)).state() is JobState.RUNNING
