"""The folder of a trained model: transformers loads it without peft, and it answers as the trained model did."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors import safe_open

from paretune.specification.job import JobSpec
from paretune.training.model import build_model, load_tokenizer, write_model

pytestmark = [
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # peft notices that GPT-2 stores its matrices transposed, and says that it has adapted to it.
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
    pytest.mark.filterwarnings("ignore:builtin type Swig.*:DeprecationWarning"),
]

LABELS = ("bad", "fair", "good")
TOKENS = torch.arange(5, 25).view(2, 10)
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "bert": _SIZES,
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "deberta-v2": {**_SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
}


@dataclass(frozen=True)
class Trained:
    """A model with adapters that are not zero, and where it is to be written."""

    model: Any
    path: Path
    spec: JobSpec
    messages: list[str]

    def write(self, **options: Any) -> None:
        write_model(self.model, self.path, self.spec, self.messages.append, **options)


Make = Callable[..., Trained]


def answer(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(input_ids=TOKENS).logits
    return logits.float()


@pytest.fixture
def base_of(tmp_path: Path, tiny_model: Path) -> Callable[..., Path]:
    """A folder with a random model of an architecture, without a classification head."""

    def make(architecture: str = "bert", dtype: torch.dtype = torch.float32) -> Path:
        path = tmp_path / f"base-{architecture}"
        tokenizer = load_tokenizer(tiny_model)
        tokenizer.save_pretrained(path)
        torch.manual_seed(0)
        values = {"pad_token_id": tokenizer.pad_token_id, **ARCHITECTURES[architecture]}
        config = transformers.AutoConfig.for_model(architecture, vocab_size=len(tokenizer), **values)
        transformers.AutoModel.from_config(config, dtype=dtype).save_pretrained(path)
        return path

    return make


@pytest.fixture
def make(tmp_path: Path) -> Make:

    def trained(base: Path, **values: Any) -> Trained:
        spec = JobSpec(model=str(base), **{"precision": "fp32", "fine_tuning": "lora", **values})
        labels = () if spec.task == "causal-lm" else LABELS
        model, _ = build_model(spec, base, labels, load_tokenizer(base))
        torch.manual_seed(1)
        with torch.no_grad():
            for item in model.parameters():
                if item.requires_grad:
                    item.add_(0.2 * torch.randn_like(item))
        workspace = tmp_path / "returned"
        load_tokenizer(base).save_pretrained(workspace)
        return Trained(model, workspace, spec, [])

    return trained


def classifier(path: Path) -> Any:
    return transformers.AutoModelForSequenceClassification.from_pretrained(path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_merged_adapters_answer_as_beside_their_base(
    architecture: str, base_of: Callable[..., Path], make: Make
) -> None:
    trained = make(base_of(architecture))

    expected = answer(trained.model)
    trained.write()

    loaded = classifier(trained.path)
    assert torch.allclose(answer(loaded), expected, atol=1e-5)
    assert loaded.config.id2label == dict(enumerate(LABELS))
    assert not [*trained.path.glob("adapter*")]
    (message,) = transformers.pipeline("text-classification", model=str(trained.path))("great film")
    assert message["label"] in LABELS


@pytest.mark.parametrize(("architecture", "targets"), [("bert", "all-linear"), ("gpt2", "c_proj")])
def test_four_bit_weights_are_merged_as_what_they_stand_for(
    architecture: str, targets: str, base_of: Callable[..., Path], make: Make
) -> None:
    trained = make(base_of(architecture), fine_tuning="qlora", lora={"target_modules": targets})

    expected = answer(trained.model)
    trained.write()

    loaded = classifier(trained.path)
    assert torch.allclose(answer(loaded), expected, atol=1e-3)
    assert not hasattr(loaded.config, "quantization_config")
    assert {item.dtype for item in loaded.parameters()} == {torch.float32}


def test_a_merged_language_model_generates(tiny_causal_model: Path, make: Make) -> None:
    trained = make(tiny_causal_model, fine_tuning="qlora", task="causal-lm")

    expected = answer(trained.model)
    trained.write()

    loaded = transformers.AutoModelForCausalLM.from_pretrained(trained.path)
    assert torch.allclose(answer(loaded), expected, atol=1e-3)
    pipeline = transformers.pipeline("text-generation", model=str(trained.path))
    (message,) = pipeline("the film", max_new_tokens=3, pad_token_id=0)
    assert message["generated_text"].startswith("the film")


@pytest.mark.parametrize("model", ["folder", "bundled:all-MiniLM-L6-v2", "mine/base"])
def test_adapters_alone_name_their_base_and_keep_the_classes(
    model: str, base_of: Callable[..., Path], make: Make
) -> None:
    base = base_of()
    trained = make(base, lora={"merge": False})
    spec = trained.spec if model == "folder" else trained.spec.replace(model=model)

    replace(trained, spec=spec).write()

    settings = json.loads((trained.path / "adapter_config.json").read_text())
    expected = {"folder": str(base), "bundled:all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2"}
    assert settings["base_model_name_or_path"] == expected.get(model, model)
    assert not [*trained.path.glob("model*")]
    config = transformers.AutoConfig.from_pretrained(trained.path)
    assert config.id2label == dict(enumerate(LABELS))
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(base, config=config)
    assert torch.allclose(answer(PeftModel.from_pretrained(plain, trained.path)), answer(trained.model), atol=1e-5)


def test_a_divided_model_is_written_file_by_file(base_of: Callable[..., Path], make: Make) -> None:
    trained = make(base_of(), fine_tuning="full")
    weights = list(trained.model.state_dict().items())
    division: Any = Mock()
    division.parts_of.return_value = iter([dict(weights[::2]), dict(weights[1::2])])

    trained.write(division=division)

    assert len([*trained.path.glob("model-0000?-of-00002.safetensors")]) == 2
    loaded = classifier(trained.path).state_dict()
    assert all(torch.equal(loaded[name], item) for name, item in weights)


def test_where_merging_fails_the_adapters_stay_and_the_job_says_why(
    base_of: Callable[..., Path], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = make(base_of())

    def fill(*_: object, **__: object) -> None:
        (trained.path / "model-00001-of-00002.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", fill)

    trained.write()

    assert not [*trained.path.glob("model*.safetensors")]
    with safe_open(trained.path / "adapter_model.safetensors", "pt") as adapters:
        assert len([*adapters.keys()]) > 0
    assert "No space left on device" in trained.messages[0]
