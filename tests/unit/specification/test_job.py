"""A job as a checked value: what it reads, what it refuses, and how it is identified."""

import errno
import json
import math
import shlex
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.cli import read_words
from paretune.core.errors import BadInput
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec, Simulation
from paretune.specification.rules import RESERVED_TRAINING_ARGUMENTS, launch_faults

G5, P4D = "ml.g5.12xlarge", "ml.p4d.24xlarge"


def faults_of(**values: Any) -> tuple[str, ...]:
    with pytest.raises(BadInput) as refused:
        JobSpec.read(values)
    return refused.value.faults


# Any text a shell can carry: no NUL, no lone surrogate, and at least one visible character.
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    str.strip
)
nasty = st.sampled_from(
    ["it's", 'say "no"', "$HOME `id` $(id) !! \\", "Größe 文本 🎬", "a=b=c", "-x", "--option", "all"]
)


@given(
    st.builds(
        JobSpec,
        model=words | nasty,
        text_column=words | nasty,
        task=st.just("causal-lm"),
        max_train_samples=st.none() | st.integers(1, 10**12),
        learning_rate=st.floats(0, 0.1, exclude_min=True),
        training_arguments=st.dictionaries(
            words.filter(lambda name: name not in RESERVED_TRAINING_ARGUMENTS), words | st.integers() | st.booleans()
        ),
        dry_run=st.booleans(),
    )
)
def test_a_job_survives_text_json_and_the_command_line_with_what_was_given(spec: JobSpec) -> None:
    texts, faults = read_words(shlex.split(spec.command())[2:], ())

    assert faults == []
    for values in (spec.given_text(), json.loads(json.dumps(spec.given())), texts):
        again = JobSpec.read(values)
        assert (again, again.model_fields_set) == (spec, spec.model_fields_set)


def test_texts_become_values_of_the_type_of_their_field() -> None:
    spec = JobSpec.read(
        {
            "learning-rate": " 1e-4 ",
            "max_train_samples": "2e3",
            "max_eval_samples": "ALL",
            "dry_run": "Yes",
            "training_arguments": '{"lr_scheduler_type": "cosine"}',
            "training_arguments.warmup_ratio": 0.1,
            "lora.r": "4",
            "fine_tuning": "lora",
            "label_column": "none",
            "text_column": " text",
            "test_file": "",
            "fallback_instance_types": "ml.g5.xlarge, ml.g6.xlarge",
            "instance_type": G5,
            "global_batch_size": np.int64(64),
        }
    )

    assert (spec.learning_rate, spec.max_train_samples, spec.max_eval_samples, spec.dry_run) == (1e-4, 2000, None, True)
    assert spec.training_arguments == {"lr_scheduler_type": "cosine", "warmup_ratio": 0.1}
    assert (spec.lora.r, spec.lora.lora_alpha, spec.label_column, spec.text_column) == (4, 16.0, "none", " text")
    assert spec.fallback_instance_types == ("ml.g5.xlarge", "ml.g6.xlarge")
    assert (type(spec.global_batch_size), spec.plan().devices) == (int, 4)
    assert JobSpec(dataset=Path("rows.csv")).dataset == "rows.csv"
    paths = JobSpec(entry_script="t.py", training_arguments={"folder": Path("a"), "files": [Path("b")]})
    assert paths.training_arguments == {"folder": "a", "files": ["b"]}


WRONG = [  # what was typed, and the beginning of its only fault
    ({"bucket": "b"}, "unknown parameter bucket: did you mean sagemaker.s3_bucket?"),
    ({"lora.rank": 3}, "unknown parameter lora.rank: did you mean lora.r?"),
    ({"compiler": "inductor"}, "unknown parameter compiler: did you mean training_arguments?"),
    ({"zzz": 1}, "unknown parameter zzz: `paretune train --help all` lists all parameters"),
    ({"seed": "1.5"}, "seed must be a whole number at least 0 and at most 4294967295, got '1.5'"),
    ({"learning_rate": "fast"}, "learning_rate must be a number greater than 0, got 'fast'"),
    ({"learning_rate": math.nan}, "learning_rate must be a finite number, got nan"),
    ({"max_runtime_minutes": "2h"}, "max_runtime_minutes must be a number greater than 0 and at most 40320, got '2h':"),
    ({"instance_count": 1025}, "instance_count must be at least 1 and at most 1024, got 1025"),
    ({"task": "summarization"}, "task must be one of classification, multi-label, token-classification, causal-lm, go"),
    ({"training_arguments": '{"a": 1'}, "training_arguments must be a JSON object such as"),
    (
        {"training_arguments": '{"lr": NaN}'},
        "training_arguments must be a JSON object such as "
        """{"weight_decay": 0.01}, got '{"lr": NaN}' (NaN is not a number: write a number, or put text in quotes)""",
    ),
    (
        {"tags": '{"a": "x", "a": "y"}'},
        """tags must be a JSON object such as {"team": "search"}, got '{"a": "x", "a": "y"}' (a is given twice""",
    ),
    ({"training_arguments": {"lr": [1.0, math.inf]}}, "training_arguments.lr must be finite, got [1.0, inf]"),
    ({"tags": {"team": ["a"]}}, "tags.team must be text, got a"),
    ({"text_column": "a" * 5000}, "text_column must have at most 4,096 characters, got 5,000"),
    (
        {"global_batch_size": 10, "per_device_train_batch_size": 16},
        "global_batch_size 10 on 1 device is impossible wi",
    ),
    ({"learning_rate": 0.5}, "learning_rate must be at most 0.1 for full fine-tuning, got 0.5"),
    ({"init": "random", "fine_tuning": "head"}, "fine_tuning must be full with init=random, got head"),
    ({"lora": {"r": 4}}, "lora needs fine_tuning=lora or qlora, got full"),
    ({"text_column": "label"}, "text_column and label_column must be different"),
    ({"validation_file": "v.csv"}, "validation_file needs a data set of your own"),
    ({"dataset": "https://huggingface.co/datasets/imdb"}, "dataset must be a hub id, a path or s3://..., got"),
    (
        {"dataset": "d.csv", "validation_file": "https://huggingface.co/datasets/imdb"},
        "validation_file must be a path or s3://..., got https://huggingface.co/datasets/imdb: download a fi",
    ),
    ({"tensor_parallel_degree": 2}, "tensor_parallel_degree needs strategy=fsdp or smp, got strategy=ddp"),
    ({"strategy": "fsdp", "training_arguments.torch_compile": True}, "training_arguments must not set torch_compile"),
    ({"training_arguments.fsdp": True}, "training_arguments must not set a strategy"),
    ({"strategy": "smp"}, "strategy smp needs GPU instances of SageMaker"),
    ({"simulation": {"seed": 1}}, "simulation is for launcher=simulated, got launcher=auto"),
    ({"instance_type": "A100:8"}, "instance_type must be local or one of SageMaker's (ml.*), got 'A100:8': did you me"),
    ({"instance_type": "ml.trn1.2xlarge"}, "instance_type ml.trn1.2xlarge has AWS"),
    ({"instance_type": G5, "launcher": "local"}, "launcher local runs on this machine"),
    ({"instance_type": G5, "global_batch_size": 30}, "global_batch_size must be a multiple of the 4 devices, got 30"),
    ({"instance_type": G5, "strategy": "fsdp", "tensor_parallel_degree": 3}, "tensor_parallel_degree must divide"),
    ({"instance_type": G5, "region": "us-est-1"}, "region must be an AWS region that has SageMaker, got 'us-est-1'"),
    ({"instance_type": G5, "fallback_instance_types": P4D, "global_batch_size": 4}, "fallback_instance_types: on ml.p"),
    (
        {"fine_tuning": "qlora", "strategy": "deepspeed", "instance_type": G5},
        "fine_tuning=qlora needs strategy fsdp",
    ),
    ({"strategy": "device_map"}, "strategy=device_map needs fine_tuning=lora or qlora"),
    ({"register": "a_b"}, "register must be at most 57 letters, digits and hyphens"),
    ({"register": "a", "probe_steps": 20}, "register=a needs a model"),
    ({"probe_steps": 20, "entry_script": "t.py"}, "probe_steps=20 is for paretune's own training, got entry_script=t."),
    ({"profile_steps": 5, "launcher": "simulated"}, "profile_steps=5 needs a real job"),
    ({"project": "p", "learning_rate": 1e-4}, "project=p cannot be combined with learning_rate: it is for"),
    ({"project": "p", "register": "a"}, "project=p cannot be combined with register: leave it out, and register the m"),
    ({"project": "p", "launcher": "simulated"}, "project=p needs a real job"),
    ({"entry_point": "eval"}, "entry_point needs project"),
    ({"metric_definitions": [{"Name": "f1", "Regex": "("}], "entry_script": "t.py"}, "metric_definitions must be a li"),
    ({"entry_script": "train.ipynb"}, "entry_script must be a program, but train.ipynb is a notebook"),
    (
        {"entry_script": "jobs/run.sh"},
        "entry_script must be a Python script, but jobs/run.sh is a shell script: give its folder as project=jobs, and "
        "entry_point=run.sh",
    ),
    ({"metric_definitions": [{"Name": "f1", "Regex": "(.)"}]}, "metric_definitions is for project or entry_script"),
    ({"metric": ["quokka"]}, "metric is for project or entry_script: leave it out"),
    ({"model": "hf_abcdefghijklmnopqrstuvwxyz"}, "model must not contain a password or key"),
    (
        {"entry_script": "t.py", "training_arguments": {"wandb_api_key": "0123456789abcdef0123"}},
        "training_arguments must not contain secrets, but wandb_api_key looks like one: parameters are recorded; store "
        "it in AWS Secrets Manager, and give its ARN: --environment.WANDB_API_KEY secret:ARN",
    ),
    (
        {"entry_script": "t.py", "training_arguments": {"wandb.api-key": "0123456789abcdef0123"}},
        "training_arguments must not contain secrets, but wandb.api-key looks like one: parameters are recorded; store "
        "it in AWS Secrets Manager, and give its ARN: --environment.WANDB_API_KEY secret:ARN",
    ),
    (
        {"entry_script": "t.py", "training_arguments": {"log": [[{"wandb": {"api_key": "0123456789abcdef0123"}}]]}},
        "training_arguments must not contain secrets, but log.wandb.api_key looks like one",
    ),
    (
        {"entry_script": "t.py", "training_arguments": {"db_password": "Tr0ub4dor&3-horse!"}},
        "training_arguments must not contain secrets, but db_password looks like one",
    ),
    (
        {"project": "p", "training_arguments": {"password": "correct-horse-battery"}},
        "training_arguments must not contain secrets",
    ),
    ({"tags": {"password": "correct-horse-battery"}}, "tags must not contain secrets"),
    (
        {"environment": {"HF_TOKEN": "correct-horse-battery"}},
        "environment.HF_TOKEN looks like a secret, and values are",
    ),
    (
        {"environment.OTHER": "hf_abcdefghijklmnopqrstuvwxyz"},
        "environment.OTHER looks like a secret, and values are re",
    ),
    (
        {"environment.HF_TOKEN": "secret:hub"},
        "environment.HF_TOKEN must be secret:ARN of AWS Secrets Manager, got secr",
    ),
    ({"environment.LD_PRELOAD": "x.so"}, "environment.LD_PRELOAD is reserved for AWS, Python"),
    ({"environment.AWS_PROFILE": "me"}, "environment.AWS_PROFILE is reserved for AWS, Python"),
    ({"environment.RANK": "1"}, "environment.RANK is reserved for AWS, Python"),
    ({"environment.LOCAL_WORLD_SIZE": "1"}, "environment.LOCAL_WORLD_SIZE is reserved for AWS, Python"),
    ({"environment.OMPI_COMM_WORLD_RANK": "1"}, "environment.OMPI_COMM_WORLD_RANK is reserved for AWS, Python"),
    ({"environment": {"1A": "x"}}, "environment.1A must have a name of letters, digits and _"),
    ({"sagemaker": {"package_index": "https://u:p@pip"}}, "sagemaker.package_index must not contain a user"),
]


@pytest.mark.parametrize(("values", "beginning"), WRONG, ids=[beginning[:40] for _, beginning in WRONG])
def test_wrong_input_is_one_sentence_with_rule_value_and_next_step(values: dict[str, Any], beginning: str) -> None:
    (fault,) = faults_of(**values)

    assert fault.startswith(beginning)


def test_all_faults_are_named_at_once_and_none_twice() -> None:
    faults = faults_of(
        learning_rat="1",
        seed="a",
        training_arguments='{"seed": 1, "fp16": true}',
        instance_type="g5.xlarge",
        validation_file="rows.csv",
    )

    assert sorted(fault.split()[0] for fault in faults) == sorted(
        ["unknown", "seed", "training_arguments", "training_arguments", "instance_type", "validation_file"]
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_token", "<|im_end|><|x|>"),
        ("token_pattern", r"(?u)\b\w\w+\b"),
        ("wandb", {"api_key": "${oc.env:WANDB_API_KEY}"}),
        ("url", {"db_password": "postgres-${oc.env:PW}"}),
        ("db_password", "$DB_PASSWORD_OF_PRODUCTION"),
        ("task", {"env": "HalfCheetah-v4"}),  # task.env is no file
        ("data.key", "sentence_text"),
    ],
)
def test_special_tokens_patterns_and_references_are_no_secrets(name: str, value: Any) -> None:
    assert JobSpec(entry_script="t.py", training_arguments={name: value}).training_arguments == {name: value}


def test_what_is_unusual_is_allowed_where_it_is_asked_for() -> None:
    assert JobSpec(learning_rate=0.5, force="learning_rate").learning_rate == 0.5
    assert JobSpec(learning_rate=0.5, fine_tuning="lora").learning_rate == 0.5
    assert JobSpec(text_column="label", task="causal-lm").text_column == "label"
    assert JobSpec(dataset="http://x", entry_script="train.py").runs_user_code


def test_what_only_some_clusters_can_run_is_refused_at_launch() -> None:
    assert "strategy smddp needs" in launch_faults(JobSpec(strategy="smddp", instance_type=G5))[0]
    assert "needs a training script" in launch_faults(JobSpec(strategy="smp", instance_type=P4D))[0]
    assert launch_faults(JobSpec(strategy="smddp", instance_type=P4D)) == []


CHANGES_THE_RESULT = """
model=gpt2 init=random dataset=rows test_file=t.csv text_column=t label_column=c
task=causal-lm max_train_samples=10 max_eval_samples=9 max_seq_length=64
per_device_train_batch_size=8 global_batch_size=32 gradient_accumulation_steps=2 learning_rate=1e-4
learning_rate_scaling=sqrt seed=1 num_train_epochs=2 precision=fp32 fine_tuning=head
training_arguments.weight_decay=0.1 entry_script=t.py instance_count=2 probe_steps=40 environment.A=b
"""
CHANGES_NOTHING = """
launcher=local max_runtime_minutes=5 max_cost_usd=1 budget=team.yaml tags.team=search
region=eu-west-1 role=R sagemaker.s3_bucket=b profile_steps=10 register=a force=again
dry_run=true sagemaker.keep_alive_minutes=5
"""


def test_the_hash_changes_with_what_changes_the_result_and_with_nothing_else() -> None:
    def hashes(words: str) -> list[str]:
        return [JobSpec.read(dict([word.split("=")])).spec_hash() for word in words.split()]

    assert len({JobSpec().spec_hash(), *hashes(CHANGES_THE_RESULT)}) == len(CHANGES_THE_RESULT.split()) + 1
    assert {*hashes(CHANGES_NOTHING)} == {JobSpec().spec_hash()} == {JobSpec(seed=42).spec_hash()}
    lora = JobSpec(fine_tuning="lora")
    small = lora.replace(lora={"r": 4})
    spelled_out = lora.replace(lora={"r": 4, "lora_alpha": 16})  # 16 is the default
    assert small.spec_hash() == spelled_out.spec_hash() != lora.spec_hash()
    assert small.key_of("memory") == spelled_out.key_of("memory") != lora.key_of("memory")
    assert JobSpec(instance_type=G5, spot=True).spec_hash() == JobSpec(instance_type=G5).spec_hash()


def test_another_instance_type_keeps_the_global_batch() -> None:
    spec = JobSpec(instance_type=G5, per_device_train_batch_size=8, fallback_instance_types="ml.g5.xlarge")
    (_, moved) = spec.clusters()

    assert (moved.instance_type, moved.plan().global_batch_size) == ("ml.g5.xlarge", 32)
    assert moved.plan().per_device_train_batch_size == 8


def test_adapters_begin_with_ten_times_the_rate() -> None:
    rates = [JobSpec(fine_tuning=kind).plan().learning_rate for kind in ("full", "head", "lora", "qlora")]
    assert rates == [5e-5, 5e-5, 5e-4, 5e-4]


def test_files_that_are_missing_are_named_and_those_of_the_web_and_s3_are_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    texts = {"dataset": "s3://b/k.csv", "model": "https://x", "validation_file": "v.csv", "entry_script": str(tmp_path)}

    assert [fault.split()[0] for fault in missing_files(texts)] == ["validation_file", "entry_script"]


@pytest.mark.parametrize(("missing_rows", "fault"), [("drop", ""), ("refuse", "'label' is missing or blank in 1 of 3")])
def test_the_columns_of_json_lines_are_those_of_all_lines(tmp_path: Path, missing_rows: str, fault: str) -> None:
    rows = ['{"text": "no label yet"}', '{"text": "a", "label": "x"}', '{"text": "b", "label": "y"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")

    found = data_faults(JobSpec(dataset=str(tmp_path / "rows.jsonl"), missing_rows=missing_rows).data_arguments)

    assert [text.startswith(fault) for text in found] == ([True] if fault else [])


def test_draws_have_the_distributions_they_are_named_for() -> None:
    simulation = Simulation()
    shares = [simulation.share("share", number) for number in range(4000)]
    errors = [simulation.normal(0.5, "error", number) for number in range(4000)]

    assert shares[7] == simulation.share("share", 7) != Simulation(seed=1).share("share", 7)
    assert statistics.mean(shares) == pytest.approx(0.5, abs=0.02)
    assert statistics.stdev(errors) == pytest.approx(0.5, rel=0.05)


def test_an_environment_variable_may_be_empty() -> None:
    assert JobSpec.read({"environment.CUDA_VISIBLE_DEVICES": ""}).environment == {"CUDA_VISIBLE_DEVICES": ""}


def test_only_a_rank_of_processes_is_a_reserved_variable() -> None:
    environment = {"LORA_RANK": "16", "PAGERANK": "on"}
    assert JobSpec(entry_script="t.py", environment=environment).environment == environment


def test_a_text_of_a_json_line_may_contain_any_separator_of_lines(tmp_path: Path) -> None:
    rows = [
        json.dumps({"text": f"film\u2028{number}\x85", "label": number % 2}, ensure_ascii=False) for number in range(9)
    ]
    (tmp_path / "rows.jsonl").write_text("\r\n".join(rows), encoding="utf-8")

    assert data_faults(JobSpec(dataset=str(tmp_path / "rows.jsonl")).data_arguments) == []


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl"])
def test_the_command_that_converts_a_file_keeps_its_suffix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes('{"text": "café", "label": 1}'.encode("latin-1"))

    (fault,) = data_faults(JobSpec(dataset=str(tmp_path / name)).data_arguments)

    assert f"{name} > utf8{Path(name).suffix}` converts it" in fault


def test_each_data_file_and_folder_that_may_not_be_read_is_one_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "rows").mkdir()
    (tmp_path / "rows.csv").write_text("text,label\na,x\n")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    paths = {
        "dataset": str(tmp_path / "rows"),
        "validation_file": str(tmp_path / "rows.csv"),
        "test_file": str(tmp_path / "rows.parquet"),
    }
    spec = JobSpec(**paths)
    for function in ("open", "iterdir"):  # root, who may run the tests, can read every file
        monkeypatch.setattr(Path, function, refuse)

    found = data_faults(spec.data_arguments)

    way = "change its permissions, or name another file"
    assert found == [f"{name} {path} cannot be read (Permission denied): {way}" for name, path in paths.items()]


def test_two_stages_of_a_pipeline_are_refused_for_a_task_that_cannot_be_divided() -> None:
    with pytest.raises(BadInput, match="task=token-classification cannot be trained with pipeline_parallel_degree"):
        JobSpec(task="token-classification", instance_type="ml.g5.12xlarge", pipeline_parallel_degree=2).plan()
