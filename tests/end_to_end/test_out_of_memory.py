"""A real lack of memory: the address space of the command and of everything it starts is limited."""

import json
import os
import resource
import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.support.cloud import spelled
from tests.support.processes import command, paretune, working_in
from tests.support.sentences import BAD, GOOD, OTHER, write_csv
from tests.support.tags import tags_of

WITHIN_S = 180.0
GIB = 2**30
# Python with torch and transformers takes 2 GiB of address space before the first row. A row of T tokens keeps four
# tensors of T x 8192 numbers for the backward pass: 2 GiB for 128 rows of 128 tokens, 1 GiB for 64.
LIMIT_FOR_64_ROWS = int(3.5 * GIB)


@pytest.fixture
def wide_model(tiny_model: Path, tmp_path: Path) -> Path:
    """Return a random two-layer BERT with few weights and many activations."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path / "wide-bert"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=BertConfig.from_pretrained(tiny_model).vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8192,
        max_position_embeddings=4096,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    return folder


def _long_texts(path: Path, words: int, count: int) -> Path:
    rows = []
    for number in range(count):
        vocabulary = (*(GOOD, BAD)[number % 2], *OTHER)
        text = " ".join(vocabulary[(number + workspace) % len(vocabulary)] for workspace in range(words))
        rows.append((text, f"class {number % 2}"))
    return write_csv(path, rows)


@pytest.mark.slow
@pytest.mark.starts_processes  # a process that is forked has no limit of its own
def test_a_job_out_of_memory_runs_again_with_half_the_batch_and_the_same_global_batch_size(
    workplace: Path, wide_model: Path
) -> None:
    reviews = _long_texts(workplace / "reviews.csv", words=130, count=180)
    job = {"model": wide_model, "dataset": reviews, "max_seq_length": 128, "precision": "fp32"}
    with command(
        paretune("train", *spelled(job | {"per_device_train_batch_size": 128})),
        cwd=workplace,
        environment=dict(os.environ) | {"CUDA_VISIBLE_DEVICES": "", "MALLOC_ARENA_MAX": "2"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT_FOR_64_ROWS, LIMIT_FOR_64_ROWS)),
    ) as running:
        assert running.wait(WITHIN_S) == 0, running.text
        assert working_in(workplace / ".paretune") == []

    (run,) = MlflowClient().search_runs(["0"])
    assert run.info.status == "FINISHED"
    tags, params = tags_of(run), run.data.params
    assert tags["paretune.out_of_memory_retries"] == "1"
    assert tags["paretune.used_per_device_train_batch_size"] == "64"
    assert tags["paretune.used_gradient_accumulation_steps"] == "2"
    assert tags["paretune.state"] == "Completed"
    assert tags["paretune.job_name"] == f"paretune-{run.info.run_id}-2"
    assert params["global_batch_size"] == params["per_device_train_batch_size"] == "128"
    assert params["gradient_accumulation_steps"] == "1"
    assert "retrying with per-device batch 64 x 2 accumulation steps (global batch size stays 128)" in running.text
    seconds = [_seconds(path) for path in (workplace / ".paretune" / "launched").iterdir()]
    assert len(seconds) == 2
    assert run.data.metrics["job_seconds"] == pytest.approx(sum(seconds), abs=0.5)


def _seconds(record: Path) -> float:
    started, finished = (json.loads((record / name).read_text()) for name in ("process.json", "end.json"))
    return float(finished["time"] - started["started"])
