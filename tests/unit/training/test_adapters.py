"""Models with adapters: which layers get them, which weights are frozen in which format, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import AutoPeftModelForSequenceClassification
from safetensors.torch import load_file

from paretune.specification.job import JobSpec
from paretune.training.model import Shape, build_model, load_tokenizer, model_faults

pytestmark = [
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # peft notices that GPT-2 stores its matrices transposed, and says that it has adapted to it.
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
]

HIDDEN, WIDE, LAYERS = 32, 64, 2
LABELS = ("bad", "fair", "good")
OF_BERT = {"query", "key", "value", "dense"}


def build(folder: Path, fine_tuning: str = "qlora", **values: Any) -> Any:
    labels = () if values.get("task") == "causal-lm" else LABELS
    spec = JobSpec(**{"precision": "fp32", **values}, fine_tuning=fine_tuning)
    return build_model(spec, folder, labels, load_tokenizer(folder))[0]


def ends_of(model: Any, kind: type) -> set[str]:
    """Last names of the modules of one class."""
    names = (name for name, module in model.named_modules() if isinstance(module, kind))
    return {name.removesuffix(".base_layer").rpartition(".")[2] for name in names}


def adapted(model: Any) -> set[str]:
    """Last names of the layers that have adapters."""
    return {name.split(".lora_A")[0].rpartition(".")[2] for name, _ in model.named_parameters() if ".lora_A" in name}


def formats(model: Any, *words: str) -> set[torch.dtype]:
    return {item.dtype for name, item in model.named_parameters() if any(word in name for word in words)}


# --- four bits


def test_linear_layers_have_four_bits_and_the_head_is_trained_in_fp32(tiny_model: Path) -> None:
    model = build(tiny_model)

    assert ends_of(model, Linear4bit) == OF_BERT
    assert formats(model, "classifier", "lora_") == {torch.float32}
    assert all(item.dtype == torch.float32 for item in model.parameters() if item.requires_grad)
    layer = next(module for module in model.modules() if isinstance(module, Linear4bit))
    assert (layer.weight.quant_type, layer.weight.quant_state.nested) == ("nf4", True)


def test_steps_after_an_evaluation_have_the_gradients_of_steps_before_it(tiny_model: Path) -> None:
    model = build(tiny_model)
    batch = {"input_ids": torch.arange(5, 21).view(2, 8), "labels": torch.tensor([0, 2])}

    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model.train().zero_grad()
        model(**batch).loss.backward()
        return [item.grad.clone() for item in model.parameters() if item.requires_grad]

    before = gradients()
    with torch.no_grad():
        model.eval()(**batch)
    after = gradients()

    assert any(item.abs().sum() > 0 for item in before)
    assert all(torch.equal(first, other) for first, other in zip(before, after, strict=True))


def test_layers_that_the_folder_lacks_are_trained_and_saved_whole(tiny_model: Path, tmp_path: Path) -> None:
    model = build(tiny_model)
    with torch.no_grad():
        expected = model.eval()(input_ids=torch.arange(5, 21).view(2, 8)).logits
    model.save_pretrained(tmp_path)

    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert {name.split(".")[-2] for name in saved if "lora_" not in name} == {"dense", "classifier"}
    assert [name for name in saved if "pooler" in name and "lora_" in name] == []
    loaded = AutoPeftModelForSequenceClassification.from_pretrained(tmp_path, num_labels=len(LABELS)).eval()
    with torch.no_grad():
        result = loaded(input_ids=torch.arange(5, 21).view(2, 8)).logits
    assert (result - expected).norm() / expected.norm() < 0.2


# --- adapters


@pytest.mark.parametrize("kind", ["lora", "qlora"])
def test_rank_scale_dropout_and_layers_are_those_that_were_asked_for(tiny_model: Path, kind: str) -> None:
    request = {
        "lora.r": 4,
        "lora.lora_alpha": 12.0,
        "lora.lora_dropout": 0.25,
        "lora.target_modules": "query, self.value",
    }
    model = build(tiny_model, kind, **request)

    assert adapted(model) == {"query", "value"}
    layer = model.base_model.model.bert.encoder.layer[1].attention.self.query
    assert layer.lora_A["default"].weight.shape == (4, HIDDEN)
    assert layer.scaling["default"] == 12 / 4
    assert layer.lora_dropout["default"].p == 0.25
    head = HIDDEN * HIDDEN + HIDDEN + HIDDEN * len(LABELS) + len(LABELS)  # the pooler, which the folder lacks, too
    assert Shape.of(model).trainable == LAYERS * 2 * 4 * (HIDDEN + HIDDEN) + head


# --- faults


@pytest.mark.parametrize("kind", ["lora", "qlora"])
def test_an_unknown_layer_is_refused_with_the_layers_that_there_are(tiny_model: Path, kind: str) -> None:
    request = {"fine_tuning": kind, "model": "tiny", "max_seq_length": 64}

    (fault,) = model_faults(
        JobSpec(**request, lora={"target_modules": "query,q_proj,classifier,embeddings"}), tiny_model
    )

    reference = "lora.target_modules must name linear layers of tiny: dense, key, query, value"
    assert fault == f"{reference}; got q_proj, classifier, embeddings"
    assert model_faults(JobSpec(**request, lora={"target_modules": "output.dense"}), tiny_model) == []
    assert model_faults(JobSpec(**request), tiny_model) == []
