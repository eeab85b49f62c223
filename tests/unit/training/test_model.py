"""Models: found, checked before the job, and built with the parameters that are to train."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.training.model import (
    Shape,
    build_model,
    find_model,
    load_tokenizer,
    model_faults,
)

pytestmark = [
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # peft notices that GPT-2 stores its matrices transposed, and says that it has adapted to it.
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
]

HIDDEN, WIDE, LAYERS = 32, 64, 2
LABELS = ("bad", "fair", "good")


def build(folder: Path, **values: Any) -> Any:
    labels = () if values.get("task") == "causal-lm" else LABELS
    return build_model(JobSpec(**values), folder, labels, load_tokenizer(folder))[0]


def trainable(model: Any) -> set[str]:
    return {name for name, value in model.named_parameters() if value.requires_grad}


def fault_of(name: str) -> str:
    with pytest.raises(BadInput) as refused:
        find_model(name)
    (fault,) = refused.value.faults
    return fault


# --- finding


def test_a_folder_without_weights_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))

    fault = fault_of(str(folder))
    assert fault.startswith(f"model {folder} holds no weights: expected *.safetensors or *.bin in ")
    assert fault.endswith("; init=random trains without")
    assert find_model(str(folder), "random") == folder


def test_a_folder_without_a_tokenizer_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_model / name, folder)

    with pytest.raises(BadInput, match=r"has no tokenizer: expected one of tokenizer\.json, vocab\.txt"):
        load_tokenizer(folder)


# --- checking


def test_code_that_comes_with_a_model_is_never_run(tiny_model: Path, tmp_path: Path) -> None:
    folder, mark = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "evil.Evil", "AutoModelForSequenceClassification": "evil.Evil", "AutoTokenizer": "evil.Evil"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "evil", "auto_map": names}))
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")

    assert model_faults(JobSpec(model=str(folder)), folder)
    with pytest.raises(ValueError, match="trust_remote_code"):
        build(folder)
    assert not mark.exists()


# --- building


def test_a_classifier_has_the_labels_fp32_weights_and_a_pad_token(tiny_model: Path) -> None:
    model = build(tiny_model)

    assert model.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert model.config.label2id == {"bad": 0, "fair": 1, "good": 2}
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert Shape.of(model).trainable == Shape.of(model).total


@pytest.mark.parametrize("task", ["classification", "causal-lm"])
def test_random_weights_need_no_file_follow_the_seed_and_are_all_trained(
    tiny_model: Path, tiny_causal_model: Path, tmp_path: Path, task: str
) -> None:
    whole = tiny_model if task == "classification" else tiny_causal_model
    folder = shutil.copytree(whole, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    pretrained = build(whole, task=task)

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        model = build(folder, task=task, init="random")
        assert trainable(model) == trainable(pretrained)
        assert model.dtype == torch.float32
        assert model.config.id2label == pretrained.config.id2label
        return model.get_input_embeddings().weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.allclose(weights(1), weights(2))
    assert not torch.allclose(weights(1), pretrained.get_input_embeddings().weight)
