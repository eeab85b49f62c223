"""What a model cannot be divided into is said with what it can."""

from typing import Any

import pytest
from transformers import BertConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, Qwen3Config

from paretune.specification.job import JobSpec
from paretune.training.prepare import division_faults

LLAMA = LlamaConfig(
    hidden_size=48, intermediate_size=96, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2
)


def spec_of(**changes: Any) -> JobSpec:
    fixed = {"model": "mine", "strategy": "fsdp", "task": "causal-lm", "per_device_train_batch_size": 12}
    return JobSpec(**{**fixed, "instance_count": 12, **changes})


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
            {"pipeline_parallel_degree": 3, "micro_batches": 2},
            "divide per_device_train_batch_size 12 and be at least the 3 stages, got 2: use 3, 4, 6, 12",
        ),
        (
            LLAMA,
            {"pipeline_parallel_degree": 2, "per_device_train_batch_size": 1},
            "at least the 2 stages, got 2: raise per_device_train_batch_size",
        ),
        (LLAMA, {"pipeline_parallel_degree": 2, "precision": "fp16"}, "goes with precision bf16 or fp32, got fp16"),
        (
            LLAMA,
            {"pipeline_parallel_degree": 2, "training_arguments": {"label_smoothing_factor": 0.1}},
            "training_arguments must not set label_smoothing_factor in a pipeline: leave it out",
        ),
        (
            LLAMA,
            {"tensor_parallel_degree": 2, "fine_tuning": "lora"},
            "tensor_parallel_degree goes with fine_tuning=full, got lora: set it to 1; strategy=fsdp alone shards",
        ),
        (GPT2Config(), {"tensor_parallel_degree": 2}, "set strategy=fsdp without it, which shards the weights, or"),
        (
            Qwen3Config(),
            {"tensor_parallel_degree": 2},
            "with a plain plan in transformers, such as llama or gpt_neox, got mine (qwen3)",
        ),
        (BertConfig(), {"pipeline_parallel_degree": 2}, "got mine (bert): set strategy=fsdp without it"),
    ],
)
def test_each_fault_says_what_is_possible(config: Any, changes: dict[str, Any], fault: str) -> None:
    (division_fault,) = division_faults(spec_of(**changes), config)

    assert fault in division_fault


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (LLAMA, {"tensor_parallel_degree": 2}),
        (GPTNeoXConfig(), {"tensor_parallel_degree": 4}),
        (LLAMA, {"pipeline_parallel_degree": 6}),
        (GPT2Config(), {"fine_tuning": "lora", "training_arguments.gradient_checkpointing": True}),
    ],
)
def test_what_fits_is_not_refused(config: Any, changes: dict[str, Any]) -> None:
    assert not division_faults(spec_of(**changes), config)
