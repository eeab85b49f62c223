"""Dropout and attention on CPUs: the same as PyTorch's except for the random numbers."""

import copy
from typing import Any

import pytest
import torch

from paretune.training.cpu import dropout, use_cpu_kernels
from tests.support.small_models import batch_of, small


@pytest.fixture(autouse=True)
def _pytorch_s_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore PyTorch's own dropout after a test."""
    monkeypatch.setattr(torch.nn.functional, "dropout", torch.nn.functional.dropout)


def loss_and_gradients(model: Any, batch: dict[str, torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return float(loss.detach()), [item.grad.clone() for item in model.parameters() if item.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_many_elements_are_dropped_as_asked_and_the_others_keep_the_mean(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    inputs = torch.ones(1000, 251, dtype=dtype, requires_grad=True)
    result = dropout(inputs, 0.1)
    result.sum().backward()

    retained = float(torch.tensor(256 / 230, dtype=dtype))
    assert set(result.detach().unique().tolist()) <= {0.0, retained}
    assert torch.equal(inputs.grad, result.detach())  # type: ignore[arg-type]  # both are the scaled mask
    assert (result == 0).float().mean() == pytest.approx(26 / 256, abs=0.003)  # 5 standard deviations
    columns = (result == 0).float().mean(0)  # all bytes of a word are drawn in the same way
    assert columns.min() > 0.05
    assert columns.max() < 0.16


@pytest.mark.parametrize("lengths", [[9, 9], [9, 4, 1]], ids=str)
def test_a_decoder_with_grouped_heads_has_the_loss_and_gradients_of_pytorch_s_attention(lengths: list[int]) -> None:
    plain = small("llama", "causal-lm")
    actual = copy.deepcopy(plain)
    use_cpu_kernels(actual, 9)
    batch = batch_of(lengths)
    batch["labels"] = batch["input_ids"]

    loss, gradients = loss_and_gradients(actual, batch)
    expected, reference = loss_and_gradients(plain, batch)

    assert actual.config._attn_implementation == "eager"
    assert loss == pytest.approx(expected, abs=1e-6)
    for result, requested in zip(gradients, reference, strict=True):
        assert torch.allclose(result, requested, atol=1e-6)
