"""The preparing process: all faults at once, exit code 2, no traceback, and no questions."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    Gemma3Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    RobertaConfig,
    RobertaModel,
)

from paretune.core.packages import install
from paretune.specification.job import JobSpec
from paretune.training import prepare
from paretune.training.prepare import main


@pytest.fixture
def faults_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Yield a function that runs the entry point in this process and returns its faults, or none if it succeeds."""
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_UPDATE_DOWNLOAD_COUNTS", "0")

    def run(**parameters: str) -> list[str]:
        request, answer = tmp_path / "request.json", tmp_path / "answer.json"
        request.write_text(json.dumps({"max_seq_length": "16", **parameters}))
        code = main([str(request), str(tmp_path / "prepared"), str(answer)])
        message: dict[str, list[str]] = json.loads(answer.read_text())
        assert code == (2 if "faults" in message else 0)
        return message.get("faults", [])

    yield run
    logging.disable(logging.NOTSET)


def test_faults_of_model_data_and_training_arguments_are_reported_at_once(
    faults_of: Callable[..., list[str]], tiny_model: Path, reviews: Path
) -> None:
    wrong = {"max_seq_length": "9999", "instance_count": "500", "training_arguments": '{"wramup_steps": 5}'}

    faults = faults_of(model=str(tiny_model), dataset=str(reviews), text_column="body", **wrong)

    expected = [
        "training_arguments does not support wramup_steps: did you mean warmup_steps",
        "instance_count must be at most",
        f"max_seq_length must be at most 64 for {tiny_model}, got 9999",
        "text_column 'body' is not in the train rows",
    ]
    assert [fault[: len(beginning)] for fault, beginning in zip(faults, expected, strict=True)] == expected


def test_a_name_that_is_too_long_for_a_file_is_a_fault(
    faults_of: Callable[..., list[str]], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    (fault,) = faults_of(model=str(tiny_model), dataset="a" * 300)

    assert fault.startswith("dataset aaa")


@pytest.mark.slow
def test_rows_and_model_are_prepared_without_the_code_that_trains(
    run_prepare: Callable[..., Any], tiny_model: Path, reviews: Path
) -> None:
    job = {"model": str(tiny_model), "dataset": str(reviews), "max_seq_length": "16"}

    prepared = run_prepare({"PYTHONPROFILEIMPORTTIME": "1"}, **job)

    imported = {line.rpartition("|")[2].strip() for line in prepared.output.splitlines() if "import time:" in line}
    assert prepared.code == 0
    assert {"torch", "transformers"} <= imported
    assert not {"transformers.modeling_utils", "accelerate", "peft"} & imported  # they take seconds of a first launch


def test_roberta_has_fewer_positions_than_its_configuration_says(
    faults_of: Callable[..., list[str]], tiny_model: Path, reviews: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = RobertaModel(RobertaConfig(**sizes, vocab_size=200, max_position_embeddings=34, pad_token_id=1))
    model.save_pretrained(folder)
    model(torch.full((1, 32), 7))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, 33), 7))

    (fault,) = faults_of(model=str(folder), dataset=str(reviews), max_seq_length="33")

    assert fault == f"max_seq_length must be at most 32 for {folder}, got 33"


def test_four_bit_weights_without_their_package_are_refused(
    faults_of: Callable[..., list[str]], tiny_model: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "can_be_imported", lambda name: False)

    assert faults_of(model=str(tiny_model), dataset=str(reviews), fine_tuning="qlora") == [
        "fine_tuning=qlora needs the package bitsandbytes, which is not installed here: "
        f"{install('quantized')}, or set fine_tuning=lora"
    ]


def test_a_language_model_is_not_evaluated_on_empty_lines(
    faults_of: Callable[..., list[str]], tiny_causal_model: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_causal_model, tmp_path / "model")
    for name, changes in {  # as GPT-2's: no tokens around a text
        "tokenizer.json": {"post_processor": None},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "[SEP]"},
    }.items():
        (model / name).write_text(json.dumps(json.loads((model / name).read_text()) | changes))
    texts = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": text}) for text in ["A film that is great.", ""] * 10]
    texts.write_text("\n".join(lines))
    (tmp_path / "validation.jsonl").write_text(json.dumps({"text": ""}))
    parameters = {"model": str(model), "dataset": str(texts), "task": "causal-lm"}

    (fault,) = faults_of(**parameters, validation_file=str(tmp_path / "validation.jsonl"))

    assert fault == f"dataset {texts} has no tokens to learn from in its validation rows"
    assert faults_of(**parameters) == []


def test_tokens_without_an_embedding_are_refused(
    faults_of: Callable[..., list[str]], tiny_model: Path, reviews: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    vocabulary = len(tokenizer)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.save_pretrained(model)

    (fault,) = faults_of(model=str(model), dataset=str(reviews))

    assert fault == (
        f"model {model} must have an embedding for each token of its tokenizer, up to {vocabulary}, but "
        f"has {vocabulary}: "
        f"call model.resize_token_embeddings({vocabulary + 1}), and save the model"
    )


# --- models that cannot be divided

LLAMA = LlamaConfig(
    hidden_size=48, intermediate_size=96, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2
)


def division_faults(config: Any, **changes: Any) -> list[str]:
    fixed = {"model": "mine", "strategy": "fsdp", "task": "causal-lm", "per_device_train_batch_size": 12}
    spec = JobSpec(**{**fixed, "instance_count": 12, **changes})
    return prepare.division_faults(spec.model_arguments, spec.degrees, spec.precision, config)


@pytest.mark.parametrize(
    ("config", "changes", "fault"),
    [
        (
            LLAMA,
            {"tensor_parallel_degree": 4},
            "6 attention heads and the 2 key/value heads of mine, and the sizes of its layers, got 4: use 1, 2",
        ),
        (LLAMA, {"pipeline_parallel_degree": 4}, "must divide the 6 layers of mine, got 4: use 1, 2, 3, 6"),
        (
            LLAMA,
            {"pipeline_parallel_degree": 2, "precision": "fp16"},
            "works only with precision bf16 or fp32, got fp16",
        ),
        (
            LLAMA,
            {"tensor_parallel_degree": 2, "fine_tuning": "lora"},
            "tensor_parallel_degree works only with fine_tuning=full, got lora: set it to 1; strategy=fsdp alone",
        ),
        (GPT2Config(), {"tensor_parallel_degree": 2}, "set strategy=fsdp without it, which shards the weights, or"),
        (BertConfig(), {"pipeline_parallel_degree": 2}, "got mine (bert): set strategy=fsdp without it"),
        (Gemma3Config(), {"pipeline_parallel_degree": 2}, "got mine (gemma3): set strategy=fsdp without it"),
    ],
)
def test_each_fault_says_what_is_possible(config: Any, changes: dict[str, Any], fault: str) -> None:
    (division_fault,) = division_faults(config, **changes)

    assert fault in division_fault


def test_what_fits_is_not_refused() -> None:
    assert not division_faults(GPTNeoXConfig(), tensor_parallel_degree=4)
    assert not division_faults(LLAMA, pipeline_parallel_degree=6)
