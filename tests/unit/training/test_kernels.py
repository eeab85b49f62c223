"""What a step avoids: unneeded masks, searches for unused weights, and waits for the device."""

import gc
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paretune.estimating.formats import PLAIN_DECODERS, PLAIN_ENCODERS, formats_of
from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder
from paretune.specification.job import JobSpec
from paretune.training import meter
from paretune.training.device import DTYPES
from paretune.training.job import train
from paretune.training.loop import Loop
from paretune.training.meter import Meter
from paretune.training.model import needs_masks, use_causal_attention, use_fused_norms
from paretune.training.rows.tokenized import (
    MOST_LENGTHS,
    TokenRows,
    masked,
    multiple_for_few_lengths,
    padded_length,
)
from tests.support.small_models import Calls, batch_of, small
from tests.support.trainings import SPEC, report_of

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def mask_format(kind: str, precision: str) -> torch.dtype | None:
    mask = formats_of("full", JobSpec().degrees, kind, precision).mask
    return None if mask is None else DTYPES[mask]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", sorted(PLAIN_ENCODERS))
def test_a_mask_that_is_added_gives_the_logits_of_the_plain_one(kind: str, attention: str) -> None:
    model, batch = small(kind, attention=attention).eval(), batch_of([9, 4, 0])
    prepared = masked(dict(batch), mask_format(kind, "fp32"))

    assert prepared["attention_mask"].shape == (3, 1, 1, 9)
    logits = model(**prepared).logits
    assert torch.equal(logits[:2], model(**batch).logits[:2])
    assert logits.isfinite().all()  # also for a row without tokens


def test_rows_without_padding_have_no_mask_and_other_models_keep_theirs() -> None:
    assert "attention_mask" not in masked(batch_of([9, 9]), None)
    assert masked(batch_of([9, 4]), None)["attention_mask"].shape == (2, 9)
    assert mask_format("gpt2", "bf16") is None
    assert mask_format("bert", "fp16") == torch.float16


READS = torch.ops.aten._local_scalar_dense.default
"""Counts the times that Python reads a number from a tensor."""


@pytest.mark.parametrize("task", ["classification", "causal-lm"])
@pytest.mark.parametrize("kind", sorted(PLAIN_DECODERS))
def test_a_decoder_needs_no_mask_and_reads_nothing_of_a_batch(kind: str, task: str) -> None:
    model, batch = small(kind, task).eval(), batch_of([9, 4])
    inside = batch["attention_mask"].bool() if task == "causal-lm" else slice(None)
    expected = model(**batch).logits[inside]

    use_causal_attention(model, 9, formats_of("full", JobSpec().degrees, kind, "bf16"))
    assert not needs_masks(model)
    with Calls(READS) as reads:
        logits = model(**batch).logits

    assert torch.allclose(logits[inside], expected, atol=1e-6)
    assert reads.count == 0
    assert "causal" not in model.config.to_json_string().replace("ForCausalLM", "")  # and not in the model's files


@pytest.mark.parametrize("kind", sorted(PLAIN_DECODERS))
def test_fused_norms_are_those_of_the_model_and_are_saved_as_they_were(kind: str) -> None:
    model, batch = small(kind, "causal-lm").eval(), batch_of([9, 4])
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    logits, names = model(**batch).logits, list(model.state_dict())

    use_fused_norms(model)

    assert torch.allclose(model(**batch).logits, logits, atol=1e-5)
    assert list(model.state_dict()) == names
    has_norms = kind not in {"gpt2", "gpt_neox"}
    has_kernel = hasattr(torch.ops.aten, "_fused_rms_norm")  # the lowest supported PyTorch has none
    assert any(isinstance(each, torch.nn.RMSNorm) for each in model.modules()) == (has_norms and has_kernel)


def test_masks_of_windows_of_other_models_and_in_other_formats_stay() -> None:
    windowed, eager, encoder = small("mistral"), small("llama", attention="eager"), small("bert")
    windowed.config.sliding_window = 8
    sees_all, precise = small("llama"), small("llama")
    sees_all.config.is_causal = False
    for model in (windowed, eager, encoder, sees_all, precise):
        precision = "fp32" if model is precise else "bf16"
        use_causal_attention(model, 9, formats_of("full", JobSpec().degrees, model.config.model_type, precision))
        assert needs_masks(model)


@pytest.mark.parametrize("form", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "task"),
    [(kind, task) for kind in sorted(PLAIN_ENCODERS) for task in ("classification", "token-classification")]
    + [(kind, task) for kind in sorted(PLAIN_DECODERS) for task in ("classification", "causal-lm")],
)
def test_all_weights_have_gradients_in_fp32_and_in_bf16(kind: str, task: str, form: torch.dtype) -> None:
    model = small(kind, task).to(form)

    logits = model(**masked(batch_of([9, 4]), mask_format(kind, NAMES[form]))).logits
    logits.float().sum().backward()

    assert logits.dtype == form
    assert [name for name, item in model.named_parameters() if item.grad is None] == []


def test_batches_of_a_compiled_model_have_few_lengths_and_little_padding() -> None:
    for longest in range(4, 1025):
        multiple = multiple_for_few_lengths(longest)
        lengths = [padded_length(length, longest, multiple) for length in range(1, longest + 1)]
        different = sorted(set(lengths))
        assert len(different) <= MOST_LENGTHS
        assert different.pop() == longest  # more than the model's positions would fail
        assert all(length % 8 == 0 for length in different)
        assert all(0 <= padded - length < longest / MOST_LENGTHS + 8 for length, padded in enumerate(lengths, 1))


def test_the_labels_of_a_row_are_those_of_its_batch(tmp_path: Path) -> None:
    lengths, random = np.array([3, 0, 5]), np.random.default_rng(0)
    words = random.integers(-1, 3, 8).astype(np.int32)
    words[words < 0] = -100
    for name, labels in {
        "classes": np.arange(3),
        "flags": np.ones((3, 4), np.float32),
        "words": words,
        "": None,
    }.items():
        folder = tmp_path / f"of {name}"
        folder.mkdir()
        np.save(folder / "lengths.npy", lengths)
        np.save(folder / "tokens.npy", random.integers(5, 60, 8).astype(np.int32))
        if labels is not None:
            np.save(folder / "labels.npy", labels)
        rows = TokenRows(folder, pad_id=0)

        batches = [rows.batch([number])["labels"] for number in range(3)]
        counted = [of[:, 1:] if labels is None else of for of in batches]  # the first token follows no other
        assert rows.label_counts.tolist() == [int((of != -100).sum()) for of in counted]


def test_garbage_is_collected_where_the_processes_wait_anyway_and_as_before_after_the_last_step(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections, in_steps, step_of, exchange = [], set(), Loop._step, Meter.exchange

    def step(self: Loop, number: int) -> torch.Tensor:
        in_steps.add(gc.isenabled())
        before = sum(generation["collections"] for generation in gc.get_stats())
        norm = step_of(self, number)
        collections.append(sum(generation["collections"] for generation in gc.get_stats()) - before)
        return norm

    def break_down(self: Meter, step: int, *arguments: Any, **options: Any) -> Any:
        if step == 6:
            raise RuntimeError("broken")
        return exchange(self, step, *arguments, **options)

    monkeypatch.setattr(Loop, "_step", step)
    monkeypatch.setattr(Meter, "exchange", break_down)
    with pytest.raises(RuntimeError, match="broken"):
        train(order_of(SPEC, job_name="job"), folder, lambda: False)

    assert in_steps == {False}
    assert collections == [0] * 6
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.slow
def test_a_step_reads_nothing_from_the_device(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, before, step_of = Calls(READS), dict[int, int](), Loop._step

    def count(self: Loop, step: int) -> torch.Tensor:
        before[step] = reads.count
        return step_of(self, step)

    monkeypatch.setattr(Loop, "_step", count)
    monkeypatch.setattr(meter, "AGREE_S", math.inf)
    arguments = {"logging_steps": 100, "warmup_steps": 0, "save_strategy": "no"}
    with reads:
        report_of(SPEC.replace(num_train_epochs=2.0, training_arguments=arguments), folder)

    assert reads.count > before[5]  # reads happen at the end
    assert before[2] == before[5]  # exchanges happen after steps 1 and 11
