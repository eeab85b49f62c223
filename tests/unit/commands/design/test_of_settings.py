"""The shipped designs that compare settings of one training: compilers, rates and batches, kinds of fine-tuning."""

import json
import shutil
from collections import Counter
from pathlib import Path

import boto3
import pytest
from mlflow import MlflowClient
from paretune.specification.placement import Placement
from transformers import GPTNeoXConfig

from paretune.cli.main import main
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.reading import read_design
from paretune.core.result import Row, read_rows
from paretune.estimating.architecture import well_known
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import JobDocument, JobInputs, PreparedDataset
from tests.stand_ins.sagemaker.operations import check_rules
from tests.stand_ins.sagemaker.validation import check
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, FakeClock

STUDIES = Path(__file__).parents[4] / "studies"
LOCAL = ("batch_and_rate.yaml", "compiler_here.yaml", "efficient.yaml")
COMPILER = "compiler.yaml"
LARGE = ("falcon_qlora.yaml", "gpt_neox_fsdp.yaml")
WAYS = "model_parallel.yaml"
OF_SETTINGS = (*LOCAL, COMPILER, WAYS, *LARGE)


@pytest.fixture
def studies(workplace: Path) -> Path:
    (workplace / "studies").symlink_to(STUDIES)
    return workplace


def plan(name: str, **typed: str) -> DesignPlan:
    return DesignPlan.of(read_design(f"studies/{name}", typed))


@pytest.mark.parametrize("name", LOCAL)
def test_a_design_of_this_machine_bills_nothing_and_runs_each_level_with_three_seeds(name: str, studies: Path) -> None:
    design = plan(name)

    assert not design.warnings()
    assert not any(row.spec.has_instances for row in design.rows)
    assert set(Counter(str(row.factors()) for row in design.rows).values()) == {3}
    assert {row.spec.seed for row in design.rows} == {42, 43, 44}
    assert len({(row.spec.max_train_samples, row.spec.num_train_epochs) for row in design.rows}) == 1


def test_each_way_of_dividing_a_model_trains_the_same_steps_on_this_machine(studies: Path) -> None:
    design = plan(WAYS)

    assert not design.warnings()
    assert not any(row.spec.has_instances for row in design.rows)
    assert {(row.spec.plan().global_batch_size, row.spec.seed) for row in design.rows} == {(16, 42), (16, 43)}
    names = ("hybrid_shard_degree", "pipeline_parallel_degree", "activation_checkpointing", "cpu_offload")
    assert all(any(getattr(row.spec, name) for row in design.rows) for name in names)
    assert Path(design.rows[0].spec.model, "tokenizer.json").is_file()


def test_the_batch_stays_on_more_processes_or_grows_with_a_rate_that_stays_or_follows_it(studies: Path) -> None:
    rows = [(row.spec.plan(), row.spec.data_parallel_devices) for row in plan("batch_and_rate.yaml").rows]

    assert {(batch.global_batch_size, devices, round(batch.learning_rate / 5e-5, 2)) for batch, devices in rows} == {
        (16, 1, 1.0),
        (16, 2, 1.0),
        (128, 1, 1.0),
        (128, 1, 2.83),
        (128, 1, 8.0),
    }


def test_adapters_train_with_ten_times_the_rate_on_the_same_rows(studies: Path) -> None:
    rates = {row.spec.fine_tuning: row.spec.learning_rate for row in plan("efficient.yaml").rows}

    assert set(rates) == {"full", "lora", "qlora", "head"}
    assert rates["lora"] == rates["qlora"] == pytest.approx(10 * rates["full"])


def test_the_comparison_of_compilers_is_the_published_one_with_inductor_in_its_place(studies: Path) -> None:
    design = plan(COMPILER)

    assert not design.warnings()
    rows = {row.spec.compiler: row.spec for row in design.rows}
    assert {name: spec.plan().global_batch_size for name, spec in rows.items()} == {"none": 40, "inductor": 80}
    for spec in rows.values():
        assert spec.plan().learning_rate == pytest.approx(5e-5 / 32 * spec.plan().global_batch_size)
        assert (spec.model, spec.init, spec.task, spec.max_seq_length) == ("gpt2", "random", "causal-lm", 512)
        assert (spec.dataset_config_name, spec.num_train_epochs) == ("sst2", 100)
        assert spec.instance_type == "ml.g4dn.12xlarge"


def test_a_model_that_fits_no_gpu_is_shared_by_all_of_them_and_by_tensor_groups_with_the_same_batch(
    studies: Path,
) -> None:
    design = plan("gpt_neox_fsdp.yaml")

    assert not design.warnings()
    jobs = {row.spec.tensor_parallel_degree: row.spec for row in design.rows}
    assert {degree: (job.degrees.data, job.degrees.sharers) for degree, job in jobs.items()} == {1: (16, 16), 8: (2, 2)}
    for job in jobs.values():
        assert (job.instance_type, job.instance_count) == ("ml.p4d.24xlarge", 2)
        assert (job.strategy, job.activation_checkpointing) == ("fsdp", True)
        assert job.plan().global_batch_size == 256
        built = well_known(job.model)
        assert built is not None
        assert built.parameters == pytest.approx(20.55e9, rel=1e-3)


def test_forty_billion_parameters_are_tuned_in_four_bits_on_one_instance(studies: Path) -> None:
    design = plan("falcon_qlora.yaml")

    assert not design.warnings()
    assert {row.spec.lora_rank for row in design.rows} == {8, 64}
    for row in design.rows:
        job = row.spec
        assert (job.fine_tuning, job.strategy, job.instance_type) == ("qlora", "device_map", "ml.g5.12xlarge")
        assert (job.degrees.data, job.degrees.pipeline, job.plan().global_batch_size) == (1, 4, 16)
        assert well_known(row.spec.model) is not None


@pytest.mark.parametrize("name", [COMPILER, *LARGE])
def test_full_size_requests_keep_the_rules_of_the_api(
    studies: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    clock = FakeClock()
    aws = Aws(clock)
    monkeypatch.setattr(boto3.Session, "client", lambda _session, service, **_: aws.client(service))
    monkeypatch.setattr(boto3.Session, "resource", lambda *_, **__: None)
    (studies / "model").mkdir()
    dataset = PreparedDataset(key="0123456789abcdef", folder=studies / "model", labels=(), facts={})
    inputs = JobInputs(dataset=dataset, model=studies / "model")
    launcher = SageMakerLauncher(Placement(role=ROLE, bucket=BUCKET, region="us-east-1"), clock, {})
    for row in plan(name).rows:
        spec = row.spec.replace(role=ROLE, bucket=BUCKET)
        document = JobDocument(job_name=f"paretune-run{row.run}-1", spec=spec, plan=spec.plan())
        request = dict(launcher.preview(document, inputs))
        check("CreateTrainingJob", request)
        check_rules(request)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "typed"),
    [
        *((name, ()) for name in LOCAL),
        # Nobody knows the rows of a data set on the hub without a hub.
        (COMPILER, ("--max_train_samples", "1600")),
        ("gpt_neox_fsdp.yaml", ("--max_train_samples", "57000")),
    ],
)
def test_a_design_of_settings_runs_to_its_end_on_the_simulated_launcher(
    name: str, typed: tuple[str, ...], studies: Path
) -> None:
    assert main(["design", "--design", f"studies/{name}", "--launcher", "simulated", "--n_parallel", "4", *typed]) == 0

    rows = rows_of_the_design()
    assert {row["status"] for row in rows} == {"Completed"}
    assert {row["origin"] for row in rows} == {"simulated"}


def rows_of_the_design() -> list[Row]:
    """design.csv of the only design that was run."""
    client = MlflowClient()
    (run,) = client.search_runs(["0"], "tags.`paretune.kind` = 'design'")
    return read_rows(Path(client.download_artifacts(run.info.run_id, "design.csv")).read_text())


@pytest.mark.slow
def test_a_tiny_gpt_neox_is_shared_by_two_processes_here(studies: Path, tiny_causal_model: Path, reviews: Path) -> None:
    shutil.copytree(tiny_causal_model, studies / "neox", ignore=shutil.ignore_patterns("*.safetensors"))
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = json.loads((tiny_causal_model / "config.json").read_text())["vocab_size"]
    GPTNeoXConfig(vocab_size=tokens, max_position_embeddings=64, **size).save_pretrained(studies / "neox")
    (row, *_) = plan("gpt_neox_fsdp.yaml").rows
    here = row.spec.replace(
        instance_type="local",
        tensor_parallel_degree=None,
        model="neox",
        init="random",
        dataset=str(reviews),
        dataset_config_name=None,
        max_seq_length=32,
        per_device_train_batch_size=2,
        global_batch_size=8,
        precision="fp32",
    )
    words = [word for name, text in here.changed().items() for word in (f"--{name}", text)]

    assert main(["main", *words]) == 0

    (run,) = MlflowClient().search_runs(["0"])
    assert (run.data.params["strategy"], run.data.params["activation_checkpointing"]) == ("fsdp", "true")
    assert run.data.tags["paretune.origin"] == "measured"
    assert 1 < run.data.metrics["perplexity"] < 2 * tokens  # random weights know nothing
