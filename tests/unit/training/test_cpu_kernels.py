"""Dropout and attention on processors: the same as PyTorch's but for the random numbers."""

import copy
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from paretune.training.cpu_kernels import (
    LONGEST_ROWS,
    attention_by_products,
    byte_threshold,
    drop,
    use_cpu_kernels,
)


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 60}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, **changes))


def loss_and_gradients(model: Any, batch: dict[str, torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return float(loss.detach()), [item.grad.clone() for item in model.parameters() if item.grad is not None]


def batch_of(lengths: list[int], labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Rows padded on the right."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 60, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens if labels is None else labels}


@pytest.mark.parametrize("probability", [0.0, 1.0, 0.001, 0.0065])
def test_a_probability_that_no_byte_comes_close_to_is_left_to_pytorch(probability: float) -> None:
    assert byte_threshold(probability) is None
    layers = torch.nn.Sequential(torch.nn.Dropout(probability))
    model = torch.nn.ModuleDict({"layers": layers})
    model.config = None  # type: ignore[assignment]
    use_cpu_kernels(model)

    assert type(layers[0]) is torch.nn.Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1000, 251), (3,), (0,)], ids=str)
def test_as_many_elements_are_dropped_as_asked_and_the_others_keep_the_mean(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(3)
    inputs = torch.ones(shape, dtype=dtype, requires_grad=True)
    result = drop(inputs, 26)
    result.sum().backward()

    retained = float(torch.tensor(256 / 230, dtype=dtype))
    assert set(result.detach().unique().tolist()) <= {0.0, retained}
    assert torch.equal(inputs.grad, result.detach())  # type: ignore[arg-type]  # of ones, the mask
    if inputs.numel() > 1000:
        assert (result == 0).float().mean() == pytest.approx(26 / 256, abs=0.003)  # 5 standard deviations
        columns = (result == 0).float().mean(0)  # no byte of a word is drawn otherwise than the others
        assert columns.min() > 0.05
        assert columns.max() < 0.16


@pytest.mark.parametrize("lengths", [[9, 9], [9, 4, 1]], ids=str)
def test_a_decoder_with_grouped_heads_has_the_loss_and_gradients_of_pytorch_s_attention(lengths: list[int]) -> None:
    peer_result = llama()
    actual = copy.deepcopy(peer_result)
    use_cpu_kernels(actual)
    batch = batch_of(lengths)

    loss, gradients = loss_and_gradients(actual, batch)
    expected, reference = loss_and_gradients(peer_result, batch)

    assert actual.config._attn_implementation == "products"
    assert loss == pytest.approx(expected, abs=1e-6)
    for result, requested in zip(gradients, reference, strict=True):
        assert torch.allclose(result, requested, atol=1e-6)


def test_attention_drops_weights_only_while_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    query = torch.randn(2, 4, 6, 8, requires_grad=True)
    module = torch.nn.Module()
    module.is_causal = False  # type: ignore[assignment]
    whole, _ = attention_by_products(module, query, query, query, None)
    some, _ = attention_by_products(module, query, query, query, None, dropout=0.5)

    assert not torch.allclose(whole, some)
    with torch.no_grad():
        same, _ = attention_by_products(module, query, query, query, None)
    assert torch.allclose(whole, same, atol=1e-6)


@pytest.mark.parametrize(
    ("length", "others"), [(LONGEST_ROWS + 1, {}), (4, {"position_bias": torch.ones(1, 1, 4, 4)})], ids=["long", "bias"]
)
def test_longer_rows_and_unusual_models_are_left_to_transformers(
    monkeypatch: pytest.MonkeyPatch, length: int, others: dict[str, Any]
) -> None:
    request: list[dict[str, Any]] = []

    def sdpa(*_: Any, **arguments: Any) -> tuple[torch.Tensor, None]:
        request.append(arguments)
        return torch.zeros(1), None

    monkeypatch.setattr("paretune.training.cpu_kernels.sdpa_attention_forward", sdpa)
    query = torch.randn(1, 1, length, 2, requires_grad=True)
    attention_by_products(torch.nn.Module(), query, query, query, None, **others)

    assert len(request) == 1
    assert set(others) <= set(request[0])


def test_a_model_that_was_trained_so_is_saved_without_a_trace_of_it(tiny_causal_model: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_causal_model)
    use_cpu_kernels(model)
    model.save_pretrained(tmp_path / "saved")

    assert "products" not in (tmp_path / "saved" / "config.json").read_text()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "saved").config._attn_implementation == "sdpa"


FAULTS = """
import resource, sys
from paretune.training.device import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    blocks = [b"x" * 20_000_000 for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, as Debian and Ubuntu have")
def test_memory_that_is_freed_is_taken_again_without_asking_the_system() -> None:
    def faults(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults("keep") < faults("give back") / 3
