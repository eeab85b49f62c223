"""What a user types, as a checked value."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.cli import read_words
from paretune.commands.command import parameter_help
from paretune.core.commands import Spelling, parameters_of, spelled
from paretune.core.errors import BadInput
from paretune.specification.batch_size import LARGEST_BATCH_SIZE
from paretune.specification.inputs import missing_files
from paretune.specification.job import JobSpec
from paretune.specification.rules import RESERVED_TRAINING_ARGUMENTS


def faults_of(**texts: str) -> tuple[str, ...]:
    with pytest.raises(BadInput) as refused:
        JobSpec.from_text(texts)
    return refused.value.faults


# Any text a shell can carry: no NUL, no half of a surrogate pair, and something to see.
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    str.strip
)
nasty = st.sampled_from(
    [
        "two words",
        " leading and trailing ",
        "it's",
        'say "no"',
        "$HOME `id` $(id) !! \\",
        "Größe 文本 🎬",
        "line\nbreak\r\n\ttab",
        "a=b=c",
        "-x",
        "--like-an-option",
        "none",
        "all",
        "~/*;&|<>#%",
    ]
)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def specs(text: st.SearchStrategy[str]) -> st.SearchStrategy[JobSpec]:
    return st.builds(
        JobSpec,
        model=text,
        dataset=text,
        dataset_config_name=st.none() | text,
        validation_file=st.none(),
        text_column=text,
        task=st.sampled_from(["classification", "causal-lm"]),
        max_train_samples=st.none() | st.integers(1, 10**12),
        per_device_train_batch_size=st.none() | st.integers(1, 4096),
        gradient_accumulation_steps=st.none() | st.integers(1, 4096),
        learning_rate=st.floats(0, 10, exclude_min=True),
        num_train_epochs=st.floats(0, 10_000, exclude_min=True),
        seed=st.integers(0, 2**32 - 1),
        training_arguments=st.dictionaries(
            words.filter(lambda name: name not in RESERVED_TRAINING_ARGUMENTS), plain_json, max_size=3
        ),
        entry_script=st.none() | text,
        instance_count=st.integers(1, 1024),
        max_cost_usd=st.none() | st.floats(0, 1e9),
        dry_run=st.booleans(),
    )


@settings(deadline=None)  # the machine may be busy
@given(specs(words | nasty))
def test_a_specification_survives_being_written_as_text(spec: JobSpec) -> None:
    assert JobSpec.from_text(spec.as_text()) == spec


@settings(deadline=None)  # the machine may be busy
@given(specs(words | nasty))
def test_the_command_is_one_shell_line_that_says_the_same_specification(spec: JobSpec) -> None:
    with spelled(Spelling(words=("mlflow", "run", "a place"), by_mlflow=True)):
        mlflow, run, workspace, *rest = shlex.split(spec.command())

    assert (mlflow, run, workspace) == ("mlflow", "run", "a place")
    assert rest[::2] == ["-P"] * (len(rest) // 2)
    pairs = dict(item.split("=", maxsplit=1) for item in rest[1::2])  # as MLflow takes them apart
    assert JobSpec.from_text(pairs) == spec
    texts, faults = read_words(shlex.split(spec.command())[2:], ())  # as paretune takes them apart
    assert (JobSpec.from_text(texts), faults) == (spec, [])
    assert parameters_of(spec.command()) == texts


def test_the_command_of_the_defaults_is_as_short_as_can_be() -> None:
    assert JobSpec().command() == "paretune train"
    assert JobSpec(seed=7).command() == "paretune train --seed 7"


def test_defaults_are_bundled_and_need_no_account() -> None:
    spec = JobSpec()

    assert spec.model.startswith("bundled:")
    assert spec.dataset.startswith("bundled:")
    assert (spec.instance_type, spec.launcher) == ("local", "auto")


def test_a_text_becomes_a_value_of_the_field_s_type() -> None:
    spec = JobSpec.from_text(
        {
            "learning_rate": " 1e-4 ",
            "max_train_samples": "2e3",
            "seed": "1_000",
            "dry_run": "Yes",
            "training_arguments": '{"warmup_steps": 10, "lr_scheduler_type": "cosine"}',
            "text_column": " text",
        }
    )

    assert spec.learning_rate == 1e-4
    assert (spec.max_train_samples, type(spec.max_train_samples)) == (2000, int)
    assert spec.seed == 1000
    assert spec.dry_run is True
    assert spec.training_arguments == {"warmup_steps": 10, "lr_scheduler_type": "cosine"}
    assert spec.text_column == " text"


@pytest.mark.parametrize("name", [item.name for item in fields(JobSpec)])
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_value_means_the_default(name: str, text: str) -> None:
    assert JobSpec.from_text({name: text}) == JobSpec()


def test_all_rows_are_the_default_and_can_be_asked_for_by_name() -> None:
    spec = JobSpec.from_text({"max_train_samples": "all", "max_eval_samples": "ALL"})

    assert spec.max_train_samples is None
    assert spec.max_eval_samples is None


def test_a_name_that_happens_to_be_all_or_none_is_a_name() -> None:
    spec = JobSpec.from_text({"dataset_config_name": "all", "label_column": "none"})

    assert spec.dataset_config_name == "all"  # cais/mmlu has a configuration of this name
    assert spec.label_column == "none"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("learning_rat", "learning_rate"), ("epochs", "num_train_epochs"), ("batch_size", "global_batch_size")],
)
def test_an_unknown_parameter_is_answered_with_the_nearest_name(typed: str, meant: str) -> None:
    (fault,) = faults_of(**{typed: "1"})

    assert fault.startswith(f"unknown parameter {typed}: did you mean ")
    assert meant in fault


def test_an_unknown_parameter_like_no_other_is_answered_with_the_help() -> None:
    assert faults_of(zzz="1") == ("unknown parameter zzz: `paretune train --help all` lists all parameters",)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("seed", "a", "a whole number"),
        ("seed", "1.5", "a whole number"),
        ("seed", "1e400", "a whole number"),
        ("seed", "nan", "a whole number"),
        ("max_train_samples", "many", "a whole number"),
        ("learning_rate", "fast", "a number"),
        ("learning_rate", "nan", "a finite number"),
        ("learning_rate", "inf", "a finite number"),
        ("max_cost_usd", "-inf", "a finite number"),
        ("max_runtime_minutes", "1e999", "a finite number"),
        ("dry_run", "maybe", "true or false"),
        ("training_arguments", "warmup_steps=1", "a JSON object"),
        ("training_arguments", "[1]", "a JSON object"),
        ("training_arguments", '{"a": 1', "a JSON object"),
    ],
)
def test_a_text_of_the_wrong_type_is_named_with_what_is_allowed(name: str, text: str, allowed: str) -> None:
    (fault,) = faults_of(**{name: text})

    assert fault.startswith(f"{name} must be {allowed}")
    assert "got " in fault


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("learning_rate", "0"),
        ("learning_rate", "-1e-4"),
        ("learning_rate", "11"),
        ("num_train_epochs", "0"),
        ("seed", "-1"),
        ("seed", str(2**32)),
        ("max_train_samples", "0"),
        ("max_seq_length", "3"),
        ("per_device_train_batch_size", "0"),
        ("per_device_train_batch_size", str(LARGEST_BATCH_SIZE + 1)),
        ("gradient_accumulation_steps", "1" + "0" * 400),
        ("global_batch_size", str(LARGEST_BATCH_SIZE + 1)),
        ("reference_batch_size", "0"),
        ("instance_count", "0"),
        ("instance_count", "1025"),
        ("max_runtime_minutes", "0"),
        ("max_cost_usd", "-0.01"),
        ("local_price_usd_per_hour", "-1"),
    ],
)
def test_a_number_out_of_range_is_named_with_its_limits(name: str, text: str) -> None:
    (fault,) = faults_of(**{name: text})

    assert re.match(rf"{name} must be (at least|greater than) \S+( and at most \S+)?, got -?\d", fault)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("seed", "0", 0),
        ("seed", str(2**32 - 1), 2**32 - 1),
        ("max_seq_length", "4", 4),
        ("learning_rate", "10", 10.0),
        ("instance_count", "1024", 1024),
        ("max_cost_usd", "0", 0.0),
        ("global_batch_size", str(LARGEST_BATCH_SIZE), LARGEST_BATCH_SIZE),
    ],
)
def test_the_limits_themselves_are_allowed(name: str, text: str, expected: float) -> None:
    assert getattr(JobSpec.from_text({name: text}), name) == expected


def test_a_choice_that_is_none_is_answered_with_all_and_the_nearest() -> None:
    assert faults_of(learning_rate_scaling="square") == (
        "learning_rate_scaling must be one of none, sqrt, linear, got 'square'; did you mean sqrt?",
    )


@pytest.mark.parametrize("name", sorted(RESERVED_TRAINING_ARGUMENTS))
def test_a_training_argument_with_a_parameter_of_its_own_is_refused(name: str) -> None:
    (fault,) = faults_of(training_arguments=json.dumps({name: 1}))

    assert fault == f"training_arguments must not set {name}: {RESERVED_TRAINING_ARGUMENTS[name]}"


def test_every_parameter_that_a_reserved_argument_points_to_is_there() -> None:
    pointed = re.findall(r"use the parameter (\w+)", " ".join(RESERVED_TRAINING_ARGUMENTS.values()))

    assert set(pointed) <= {item.name for item in fields(JobSpec)}
    assert "learning_rate" in pointed


def test_all_faults_are_named_at_once() -> None:
    faults = faults_of(
        learning_rat="1",
        seed="a",
        learning_rate="-1",
        task="translation",
        training_arguments='{"seed": 1, "fp16": true}',
        instance_type="g5.xlarge",
        validation_file="rows.csv",
    )

    started = sorted(fault.split()[0] for fault in faults)
    assert started == sorted(
        [
            "unknown",
            "seed",
            "learning_rate",
            "task",
            "training_arguments",
            "training_arguments",
            "instance_type",
            "validation_file",
        ]
    )


def test_a_batch_that_cannot_be_made_is_refused_with_what_can() -> None:
    (fault,) = faults_of(global_batch_size="10", per_device_train_batch_size="4")

    assert fault.endswith("are 1 x 10, 2 x 5, 5 x 2, 10 x 1")
    assert JobSpec.from_text({"global_batch_size": "10", "per_device_train_batch_size": "5"}).plan() is not None


def test_a_value_made_in_python_is_checked_as_one_that_was_typed() -> None:
    with pytest.raises(BadInput, match="max_runtime_minutes must be a finite number, got inf"):
        JobSpec(max_runtime_minutes=math.inf)
    with pytest.raises(BadInput, match="learning_rate must be a finite number, got nan"):
        JobSpec(learning_rate=math.nan)
    with pytest.raises(BadInput, match="text_column must not be empty"):
        JobSpec(text_column=" ")


@pytest.mark.parametrize("kind", ["lora", "head"])
def test_random_weights_are_not_kept_as_they_are(kind: str) -> None:
    (fault,) = faults_of(init="random", fine_tuning=kind)

    assert fault.startswith(f"fine_tuning must be full with init=random, got {kind}: ")
    assert fault.endswith("or set init=pretrained")


def test_every_parameter_belongs_to_exactly_one_section() -> None:
    sections = [base for base in JobSpec.__mro__ if base not in (JobSpec, JobSpec, object)]
    names = [name for section in sections for name in section.__annotations__]

    assert len(sections) == 10
    assert sorted(names) == sorted(item.name for item in fields(JobSpec))
    assert not JobSpec.__annotations__


CHANGES: dict[str, Any] = {
    "probe_steps": 40,
    "model": "gpt2",
    "init": "random",
    "dataset": "imdb",
    "dataset_config_name": "sst2",
    "validation_file": "valid.csv",
    "test_file": "test.csv",
    "text_column": "sentence",
    "label_column": "class",
    "task": "causal-lm",
    "max_train_samples": 10,
    "max_eval_samples": 10,
    "max_seq_length": 64,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "global_batch_size": 32,
    "learning_rate": 1e-4,
    "learning_rate_scaling": "sqrt",
    "reference_batch_size": 32,
    "num_train_epochs": 2.0,
    "training_arguments.warmup_ratio": 0.1,
    "seed": 1,
    "precision": "fp32",
    "fine_tuning": "head",
    "training_arguments.gradient_checkpointing": True,
    "training_arguments.torch_compile": True,
    "training_arguments": {"weight_decay": 0.1},
    "entry_script": "train.py",
    "instance_count": 2,
}
CHANGES_OF_A_CLUSTER: dict[str, Any] = {
    "strategy": "fsdp",
    "tensor_parallel_degree": 2,
    "hybrid_shard_degree": 4,
    "activation_offloading": True,
    "instance_type": "ml.p4d.24xlarge",
    "processes_per_instance": 4,
    "instance_facts": {"ml.p4de.24xlarge": {"vcpus": 90}},
    "sagemaker.training_image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1",
}
CHANGES_OF_SHARDING: dict[str, Any] = {"pipeline_parallel_degree": 4, "micro_batches": 4, "cpu_offload": True}
CHANGES_OF_ADAPTERS: dict[str, Any] = {
    "lora.r": 16,
    "lora.lora_alpha": 32.0,
    "lora.lora_dropout": 0.1,
    "lora.target_modules": "query,value",
}
SAME_RESULT = {
    "dry_run": True,
    "force": True,
    "force": True,
    "register": "sentiment-en",
    "profile_steps": 10,
    "lora.merge": False,
    "log_model": False,
    "max_silence_minutes": 5.0,
    "max_runtime_minutes": 5.0,
    "max_cost_usd": 1.0,
    "budget": "team.yaml",
    "user": "ana",
    "tags": {"team": "search"},
    "local_price_usd_per_hour": 2.0,
}
SAME_RESULT_OF_A_CLUSTER: dict[str, Any] = {
    "spot": True,
    "fallback_instance_types": "ml.p4d.24xlarge",
    "capacity_wait_minutes": 5.0,
    "region": "eu-west-1",
    "role": "training",
    "sagemaker.s3_bucket": "mine",
    "sagemaker.volume_size_in_gb": 100,
    "sagemaker.package_index": "https://packages.example.com/simple",
    "keep_alive_minutes": 10.0,
    "sagemaker.kms_key_id": "alias/mine",
    "on_interrupt": "detach",
}
TOGETHER = {  # neither can be changed alone
    "max_wait_minutes": {"spot": True, "max_wait_minutes": 90.0},
    "sagemaker.subnets": {"sagemaker.subnets": "subnet-1", "sagemaker.security_group_ids": "sg-1"},
    "sagemaker.security_group_ids": {"sagemaker.subnets": "subnet-1", "sagemaker.security_group_ids": "sg-1"},
}
CHANGES_OF_A_PROJECT: dict[str, Any] = {
    "project": "https://example.com/other.git",
    "entry_point": "train.py",
    "project_parameters": {"alpha": 0.2},
}
OF_A_SCRIPT: dict[str, tuple[Any, bool]] = {  # value, and whether it changes the result
    "argument_names": ({"learning_rate": "lr"}, True),
    "metric_definitions": ('[{"Name": "auc", "Regex": "auc=([0-9.]+)"}]', False),
}
BASE = JobSpec(dataset="rows.csv")
PROJECT = JobSpec(project="mine", project_parameters={"alpha": 0.1})
CLUSTER = JobSpec(dataset="rows.csv", instance_type="ml.p4de.24xlarge", strategy="smp")


def test_every_parameter_is_judged_to_change_the_result_or_not() -> None:
    judged = set(CHANGES) | set(CHANGES_OF_A_CLUSTER) | set(SAME_RESULT) | set(SAME_RESULT_OF_A_CLUSTER)
    judged |= set(CHANGES_OF_SHARDING) | set(CHANGES_OF_ADAPTERS)
    judged |= set(TOGETHER) | set(CHANGES_OF_A_PROJECT) | {"launcher", "recorded_runs", "simulation", "size"}
    judged |= set(OF_A_SCRIPT)

    assert judged == {item.name for item in fields(JobSpec)}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_the_hash_changes_with_whatever_changes_the_result(name: str) -> None:
    assert replace(BASE, **{name: CHANGES[name]}).spec_hash() != BASE.spec_hash()


@pytest.mark.parametrize("name", sorted(CHANGES_OF_A_CLUSTER))
def test_the_hash_changes_with_the_cluster(name: str) -> None:
    assert replace(CLUSTER, **{name: CHANGES_OF_A_CLUSTER[name]}).spec_hash() != CLUSTER.spec_hash()


@pytest.mark.parametrize("name", sorted(OF_A_SCRIPT))
def test_the_hash_changes_with_the_names_of_a_script_s_arguments_and_not_with_what_is_read_from_it(name: str) -> None:
    script, (value, changes) = JobSpec(entry_script="train.py"), OF_A_SCRIPT[name]

    assert (replace(script, **{name: value}).spec_hash() != script.spec_hash()) is changes


@pytest.mark.parametrize("name", sorted(CHANGES_OF_A_PROJECT))
def test_the_hash_changes_with_the_project_and_its_parameters_but_not_with_its_declared_size(name: str) -> None:
    assert replace(PROJECT, **{name: CHANGES_OF_A_PROJECT[name]}).spec_hash() != PROJECT.spec_hash()
    assert replace(PROJECT, size="alpha").spec_hash() == PROJECT.spec_hash()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"project": "mine", "learning_rate": 1e-4}, "use project_parameters"),
        ({"project": "mine", "entry_script": "train.py"}, "leave one of them out"),
        ({"project": "mine", "launcher": "simulated"}, "needs a real job"),
        ({"project": "mine", "instance_count": 2}, "instance_count must be 1 for a project on this machine"),
        ({"project": "mine", "strategy": "fsdp"}, "goes without strategy"),
        ({"entry_point": "train"}, "entry_point goes with project"),
        ({"project_parameters": {"alpha": 1}}, "project_parameters goes with project"),
        ({"size": "max_train_samples"}, "size goes with project or entry_script"),
    ],
)
def test_what_does_not_go_with_a_project_or_needs_one_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        JobSpec(**changes)

    (fault,) = refused.value.faults
    assert message in fault


def test_a_project_moves_to_another_instance_type_as_it_is() -> None:
    there = replace(PROJECT, instance_type="ml.m5.large").on_instance_type("ml.p4d.24xlarge")

    assert there == replace(PROJECT, instance_type="ml.p4d.24xlarge")
    assert JobSpec.from_text(there.as_text()) == there


def test_sizes_are_the_numbers_that_size_names() -> None:
    spec = replace(PROJECT, project_parameters={"rows": 100, "depth": "6", "kind": "ridge"}, size="rows, depth, kind")

    assert spec.sizes() == {"rows": 100.0, "depth": 6.0}


@pytest.mark.parametrize("name", sorted(CHANGES_OF_SHARDING))
def test_the_hash_changes_with_sharding(name: str) -> None:
    sharded = replace(CLUSTER, strategy="fsdp", pipeline_parallel_degree=2)

    assert replace(sharded, **{name: CHANGES_OF_SHARDING[name]}).spec_hash() != sharded.spec_hash()


@pytest.mark.parametrize("name", sorted(CHANGES_OF_ADAPTERS))
def test_the_hash_changes_with_adapters(name: str) -> None:
    adapted = replace(BASE, fine_tuning="lora")

    assert replace(adapted, **{name: CHANGES_OF_ADAPTERS[name]}).spec_hash() != adapted.spec_hash()


@pytest.mark.parametrize(
    "changes", [{name: SAME_RESULT_OF_A_CLUSTER[name]} for name in sorted(SAME_RESULT_OF_A_CLUSTER)]
)
def test_the_hash_ignores_account_and_money(changes: dict[str, Any]) -> None:
    assert replace(CLUSTER, **changes).spec_hash() == CLUSTER.spec_hash()


@pytest.mark.parametrize("name", sorted(TOGETHER))
def test_the_hash_ignores_waiting_and_networks(name: str) -> None:
    assert replace(CLUSTER, **TOGETHER[name]).spec_hash() == CLUSTER.spec_hash()


def test_no_two_changes_share_a_hash() -> None:
    hashes = {replace(BASE, **{name: value}).spec_hash() for name, value in CHANGES.items()}

    assert len(hashes) == len(CHANGES)


@pytest.mark.parametrize("name", sorted(SAME_RESULT))
def test_the_hash_ignores_limits_prices_and_dry_runs(name: str) -> None:
    assert replace(BASE, **{name: SAME_RESULT[name]}).spec_hash() == BASE.spec_hash()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("instance_facts", "gpu_memory_gib"),
        ("simulation", "failure_rate"),
        ("tags", "team"),
        ("training_arguments", "weight_decay"),
    ],
)
def test_what_is_no_json_object_is_told_one_that_the_parameter_may_be(name: str, key: str) -> None:
    with pytest.raises(BadInput, match=f"{name} must be a JSON object such as ") as caught:
        JobSpec.from_text({name: "{ml.p9.48xlarge"})

    (fault,) = caught.value.faults
    example = fault.partition("such as ")[2].partition(", got '{ml.p9.48xlarge'")[0]
    assert key in example
    assert JobSpec.from_text({name: example, "launcher": "simulated"}).changed()[name]


@pytest.mark.parametrize(("fine_tuning", "rate"), [("full", 5e-5), ("head", 5e-5), ("lora", 5e-4)])
def test_the_default_learning_rate_of_adapters_is_ten_times_that_of_full_fine_tuning(
    fine_tuning: str, rate: float
) -> None:
    spec = JobSpec(fine_tuning=fine_tuning)

    assert spec.plan().learning_rate == pytest.approx(rate)
    assert spec.spec_hash() == spec.replace(learning_rate=spec.plan().learning_rate).spec_hash()
    assert JobSpec(fine_tuning=fine_tuning, learning_rate=3e-5).plan().learning_rate == 3e-5


def test_scaling_starts_from_the_default_learning_rate_of_adapters() -> None:
    spec = JobSpec(fine_tuning="lora", global_batch_size=64, learning_rate_scaling="sqrt")

    assert spec.plan().learning_rate == pytest.approx(10 * 2 * 5e-5)


def test_a_change_of_the_fine_tuning_changes_the_default_learning_rate() -> None:
    assert JobSpec().replace(fine_tuning="lora").plan().learning_rate == pytest.approx(5e-4)


def test_the_hash_depends_on_values_not_on_spelling_order_or_process() -> None:
    item = JobSpec.from_text({"learning_rate": "0.0001", "training_arguments": '{"a": 1, "b": 2}'})
    other = JobSpec.from_text({"training_arguments": '{"b":2,"a":1}', "learning_rate": "1e-4"})

    assert re.fullmatch("[0-9a-f]{12}", item.spec_hash())
    assert item.spec_hash() == other.spec_hash()


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_hash_is_the_same_in_another_process(hash_seed: str) -> None:
    program = (
        "from paretune.specification.job import JobSpec\n"
        "print(JobSpec(seed=7, training_arguments={'b': 1, 'a': 2}).spec_hash())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.strip() == JobSpec(seed=7, training_arguments={"a": 2, "b": 1}).spec_hash()


def test_help_has_a_line_with_the_default_for_every_parameter() -> None:
    lines = parameter_help()

    assert set(lines) == {item.name for item in fields(JobSpec)}
    assert lines["num_train_epochs"].endswith("(default: 1.0)")
    assert "[none | sqrt | linear]" in lines["learning_rate_scaling"]
    assert all("\n" not in line and line for line in lines.values())


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"launcher": "simulated", "instance_type": "ml.g5.xlarge"}, "goes with a job that really trains"),
        ({"entry_script": "train.py"}, "goes with paretune's own training, got entry_script=train.py"),
    ],
)
def test_what_cannot_be_profiled_is_refused(others: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as raised:
        JobSpec(profile_steps=5, **others)

    (fault,) = raised.value.faults
    assert message in fault


def test_a_device_map_is_one_instance_s_and_goes_with_adapters() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "strategy": "device_map", "fine_tuning": "qlora"}
    assert JobSpec(**job, per_device_train_batch_size=8).plan().global_batch_size == 8
    with pytest.raises(BadInput, match="on the GPUs of one instance: set instance_count=1"):
        JobSpec(**job, instance_count=2)
    with pytest.raises(BadInput, match="strategy=device_map goes with fine_tuning=lora or qlora, got full"):
        JobSpec(**job | {"fine_tuning": "full"})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": "fsdp"}, "4-bit weights cannot be sharded"),
        ({"strategy": "deepspeed"}, "4-bit weights cannot be sharded"),
        ({"training_arguments.torch_compile": True}, "no training has run with both"),
    ],
)
def test_four_bit_weights_are_refused_with_the_reason(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInput) as refused:
        JobSpec(instance_type="ml.g5.12xlarge", fine_tuning="qlora", **changes)  # type: ignore[arg-type]

    (fault,) = refused.value.faults
    assert fault.startswith("fine_tuning=qlora goes with ")
    assert reason in fault


@pytest.mark.parametrize(
    ("task", "changes", "words"),
    [
        (
            "multi-label",
            {"strategy": "fsdp", "instance_count": 2, "pipeline_parallel_degree": 2},
            "goes without pipeline",
        ),
        ("multi-label", {"training_arguments": {"label_smoothing_factor": 0.1}}, "must not set label_smoothing_factor"),
    ],
)
def test_what_a_task_cannot_be_trained_with_is_refused(task: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        JobSpec(task=task, **changes)

    assert f"task={task}" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["a", "sentiment-en", "A1--b", "9" * 57])
def test_a_registered_name_may_be_what_a_model_package_group_may_be_called(name: str) -> None:
    assert JobSpec(register=name).register == name


@pytest.mark.parametrize("name", ["-a", "a-", "a_b", "a/b", "a.b", "ä", "a b", "9" * 58, "a\n"])
def test_another_registered_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(BadInput, match="register must be at most 57 letters, digits and hyphens"):
        JobSpec(register=name)


def test_a_model_that_is_not_in_mlflow_is_not_registered() -> None:
    with pytest.raises(BadInput, match="register=a needs the model in MLflow, got log_model=false"):
        JobSpec(register="a", log_model=False)


def test_a_probe_has_no_model_to_register() -> None:
    with pytest.raises(BadInput, match="register=a needs a model, and a job with probe_steps leaves none"):
        JobSpec(register="a", probe_steps=20)


def test_a_pipe_and_a_device_are_no_inputs_of_a_job(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows")

    assert missing_files({"dataset": str(tmp_path / "rows"), "entry_script": "/dev/zero"}) == [
        f"dataset must be a file or a folder, and {tmp_path / 'rows'} is a device, a pipe or a socket",
        "entry_script must be a file or a folder, and /dev/zero is a device, a pipe or a socket",
    ]


def test_a_type_to_fall_back_on_that_cannot_share_the_batch_is_named() -> None:
    with pytest.raises(BadInput) as refused:
        JobSpec(
            instance_type="ml.g5.xlarge",
            instance_count=3,
            fallback_instance_types="ml.g5.2xlarge,ml.g5.48xlarge",
            global_batch_size=9,
            spot=True,
        )

    rule = "global_batch_size must be a multiple of the 24 devices, got 9: use 24"
    assert refused.value.faults == (f"fallback_instance_types: on ml.g5.48xlarge {rule}",)


@pytest.mark.parametrize(
    ("task", "remedy"),
    [
        ("question-answering", "give a script such as transformers' run_qa.py or"),
        ("summarization", "run_summarization.py with entry_script"),
        ("seq2seq", "it is gone: run a script of your own with entry_script"),
        ("regression", "it is gone: run a script of your own with entry_script"),
    ],
)
def test_other_names_of_tasks_are_refused_with_what_to_do_instead(task: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        JobSpec(task=task)


@pytest.mark.parametrize(
    "parameters",
    [
        {"dataset": "https://ann:hunter2@host/rows.csv"},
        {"model": "hf_hunter2hunter2hunter2"},
        {"training_arguments": {"hub_token": "hf_hunter2hunter2hunter2"}},
    ],
)
def test_a_parameter_that_holds_a_password_or_a_key_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="must hold no password or key") as refused:
        JobSpec(**parameters)

    assert "hunter2" not in str(refused.value)


def test_an_address_of_the_web_is_no_missing_file_for_another_rule_refuses_it() -> None:
    assert missing_files({"dataset": "https://host/rows.csv"}) == []


def test_an_unknown_parameter_is_refused_with_the_ones_like_it() -> None:
    with pytest.raises(BadInput, match="unknown parameter modle: did you mean model"):
        JobSpec(modle="x")


@pytest.mark.parametrize(
    ("parameters", "way"),
    [
        ({"dataset": "https://host/rows.csv"}, "download it with `curl -LO`"),
        ({"dataset": "https://huggingface.co/datasets/stanfordnlp/imdb"}, "write dataset=stanfordnlp/imdb"),
        ({"model": "https://huggingface.co/google-bert/bert-base-cased/"}, "write model=google-bert/bert-base-cased"),
        ({"text_column": "label"}, "text_column and label_column must be two columns, got 'label' for both"),
    ],
)
def test_what_is_no_data_set_is_refused_with_the_way(parameters: dict[str, str], way: str) -> None:
    with pytest.raises(BadInput, match=re.escape(way)):
        JobSpec(**parameters)


def test_a_language_model_has_no_labels_beside_its_texts() -> None:
    assert JobSpec(task="causal-lm", text_column="label").text_column == "label"


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"learning_rate": "fast"}, "learning_rate must be a number greater than 0 and at most 10 or None, got 'fast'"),
        ({"num_train_epochs": True}, "num_train_epochs must be a number greater than 0 and at most 10000, got True"),
        ({"seed": 1.5}, "seed must be a whole number at least 0 and at most 4294967295, got 1.5"),
        ({"spot": "yes"}, "spot must be True or False, got 'yes'"),
        ({"dataset": 3}, "dataset must be a text, got 3"),
        ({"precision": 16}, "precision must be one of auto, fp32, bf16, fp16, got 16"),
        ({"num_train_epochs": None}, "num_train_epochs must be a number greater than 0 and at most 10000, got None"),
        (
            {"training_arguments": [1]},
            'training_arguments must be a dict such as {"weight_decay": 0.01}, got [1]',
        ),
    ],
)
def test_a_python_value_of_another_type_is_refused_by_the_name_of_its_parameter(
    values: dict[str, Any], fault: str
) -> None:
    with pytest.raises(BadInput) as refused:
        JobSpec(**values)
    assert refused.value.faults == (fault,)


def test_values_of_numpy_and_pathlib_become_plain_ones() -> None:
    values: dict[str, Any] = {"learning_rate": np.float64(3e-5), "seed": np.int64(3)}
    spec = JobSpec(**values, **dict[str, Any](dataset=Path("rows.csv"), max_train_samples=1e5))

    assert (spec.learning_rate, spec.seed, spec.dataset, spec.max_train_samples) == (3e-5, 3, "rows.csv", 100_000)
    assert [type(value) for value in (spec.learning_rate, spec.seed, spec.max_train_samples)] == [float, int, int]
    assert spec.changed()["learning_rate"] == "3e-05"
