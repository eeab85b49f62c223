"""The shipped designs that compare settings of one training: compilers, rates and batches, kinds of fine-tuning."""

from collections import Counter
from pathlib import Path

import boto3
import pytest
from mlflow import MlflowClient

from paretune.cli.main import main
from paretune.core.result import read_rows
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.spec.cluster import Cluster
from paretune.spec.container import JobDocument, JobInputs, PreparedDataset
from paretune.studies.definition.design_reading import read_design
from paretune.studies.design.plan import DesignPlan
from tests.stand_ins.sagemaker.validation import check
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, FakeClock

STUDIES = Path(__file__).parents[4] / "studies"
LOCAL = ("batch_and_rate.yaml", "compiler_here.yaml", "fine_tuning.yaml")
COMPILER = "compiler.yaml"
WAYS = "model_parallel.yaml"
OF_SETTINGS = (*LOCAL, COMPILER, WAYS)


@pytest.fixture
def studies(workplace: Path) -> Path:
    (workplace / "studies").symlink_to(STUDIES)
    return workplace


def plan(name: str, **typed: str) -> DesignPlan:
    return DesignPlan.of(read_design(f"studies/{name}", typed))


@pytest.mark.parametrize("name", LOCAL)
def test_a_design_of_this_machine_bills_nothing_and_runs_each_level_with_three_seeds(name: str, studies: Path) -> None:
    found = plan(name)

    assert not found.warnings()
    assert not any(row.spec.has_instances for row in found.rows)
    assert set(Counter(str(row.factors()) for row in found.rows).values()) == {3}
    assert {row.spec.seed for row in found.rows} == {42, 43, 44}
    assert len({(row.spec.max_train_samples, row.spec.num_train_epochs) for row in found.rows}) == 1


def test_each_way_of_dividing_a_model_trains_the_same_steps_on_this_machine(studies: Path) -> None:
    found = plan(WAYS)

    assert not found.warnings()
    assert not any(row.spec.has_instances for row in found.rows)
    assert {(row.spec.plan().global_batch_size, row.spec.seed) for row in found.rows} == {(16, 42), (16, 43)}
    names = ("hybrid_shard_degree", "pipeline_parallel_degree", "activation_checkpointing", "cpu_offload")
    assert all(any(getattr(row.spec, name) for row in found.rows) for name in names)
    assert Path(found.rows[0].spec.model, "tokenizer.json").is_file()


def test_the_batch_stays_on_more_processes_or_grows_with_a_rate_that_stays_or_follows_it(studies: Path) -> None:
    rows = [(row.spec.plan(), row.spec.devices) for row in plan("batch_and_rate.yaml").rows]

    assert {(batch.global_batch_size, devices, round(batch.learning_rate / 5e-5, 2)) for batch, devices in rows} == {
        (16, 1, 1.0),
        (16, 2, 1.0),
        (128, 1, 1.0),
        (128, 1, 2.83),
        (128, 1, 8.0),
    }


def test_adapters_train_with_ten_times_the_rate_on_the_same_rows(studies: Path) -> None:
    rates = {row.spec.fine_tuning: row.spec.learning_rate for row in plan("fine_tuning.yaml").rows}

    assert set(rates) == {"full", "lora", "head"}
    assert rates["lora"] == pytest.approx(10 * rates["full"])


def test_the_comparison_of_compilers_is_the_published_one_with_inductor_in_its_place(studies: Path) -> None:
    found = plan(COMPILER)

    assert not found.warnings()
    rows = {row.spec.compiler: row.spec for row in found.rows}
    assert {name: spec.plan().global_batch_size for name, spec in rows.items()} == {"none": 40, "inductor": 80}
    for spec in rows.values():
        assert spec.plan().learning_rate == pytest.approx(5e-5 / 32 * spec.plan().global_batch_size)
        assert (spec.model, spec.init, spec.task, spec.max_seq_length) == ("gpt2", "random", "causal-lm", 512)
        assert (spec.dataset_config_name, spec.num_train_epochs) == ("sst2", 100)
        assert spec.instance_type == "ml.g4dn.12xlarge"


@pytest.mark.parametrize(
    ("typed", "programs"),
    [
        ({}, {None}),
        ({"compiler": "sagemaker-training-compiler", "entry_script": "run_clm.py"}, {'"run_clm.py"'}),
    ],
    ids=["as it is", "the published compiler"],
)
def test_its_full_size_requests_keep_the_rules_of_the_api(
    studies: Path, monkeypatch: pytest.MonkeyPatch, typed: dict[str, str], programs: set[str | None]
) -> None:
    clock = FakeClock()
    aws = Aws(clock)
    monkeypatch.setattr(boto3.Session, "client", lambda _session, service, **_: aws.client(service))
    monkeypatch.setattr(boto3.Session, "resource", lambda *_, **__: None)
    (studies / "model").mkdir()
    (studies / "run_clm.py").write_text("pass\n")
    dataset = PreparedDataset(key="0123456789abcdef", folder=studies / "model", labels=(), facts={})
    inputs = JobInputs() if typed else JobInputs(dataset=dataset, model=studies / "model")
    launcher = SageMakerLauncher(Cluster(role=ROLE, bucket=BUCKET, region="us-east-1"), clock, {})
    found = set()
    for row in plan(COMPILER, **typed).rows:
        spec = row.spec.replace(role=ROLE, bucket=BUCKET)
        document = JobDocument(job_name=f"paretune-run{row.run}-1", spec=spec, plan=spec.plan())
        request = dict(launcher.preview(document, inputs))
        check("CreateTrainingJob", request)
        found.add(request.get("HyperParameters", {}).get("sagemaker_program"))
    assert found == programs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "typed"),
    [
        *((name, ()) for name in LOCAL),
        (COMPILER, ("--max_train_samples", "1600")),  # nobody knows the rows of a data set on the hub without a hub
    ],
)
def test_a_design_of_settings_runs_to_its_end_on_the_simulated_launcher(
    name: str, typed: tuple[str, ...], studies: Path
) -> None:
    assert main(["design", "--design", f"studies/{name}", "--launcher", "simulated", "--n_parallel", "4", *typed]) == 0

    client = MlflowClient()
    (run,) = client.search_runs(["0"], "tags.`paretune.kind` = 'design'")
    rows = read_rows(Path(client.download_artifacts(run.info.run_id, "design.csv")).read_text())
    assert {row["status"] for row in rows} == {"Completed"}
    assert {row["origin"] for row in rows} == {"simulated"}
