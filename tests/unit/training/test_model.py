"""Models: found, checked before the job, built with what is trained, and written so that transformers loads them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from bitsandbytes.nn import Linear4bit
from peft import PeftModel
from safetensors import SafetensorError, safe_open

from paretune.core.errors import BadInput
from paretune.estimating.formats import Formats, formats_of
from paretune.specification.job import JobSpec
from paretune.training.model import build_model, find_formats, find_model, load_tokenizer, model_faults, write_model

pytestmark = [
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # peft notices that GPT-2 stores its matrices transposed, and warns that it has adapted to it.
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
    pytest.mark.filterwarnings("ignore:builtin type Swig.*:DeprecationWarning"),
]

HIDDEN, LAYERS = 32, 2
LABELS = ("bad", "fair", "good")


def formats_for(spec: JobSpec, folder: Path) -> Formats:
    return find_formats(spec.model_arguments, spec.degrees, spec.precision, folder)


def build(folder: Path, **values: Any) -> Any:
    labels = () if values.get("task") == "causal-lm" else LABELS
    spec = JobSpec(**{"precision": "fp32", **values})
    return build_model(spec.model_arguments, folder, labels, load_tokenizer(folder), formats_for(spec, folder))[0]


def trainable(model: Any) -> set[str]:
    return {name for name, value in model.named_parameters() if value.requires_grad}


# --- finding


def test_a_folder_without_weights_or_a_tokenizer_that_pads_rows_is_refused(
    tiny_causal_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_causal_model, tmp_path / "model")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))

    with pytest.raises(BadInput, match="must have a tokenizer with a pad_token, eos_token or unk_token"):
        load_tokenizer(folder)
    for path in folder.glob("*"):
        if path.name != "config.json":
            path.unlink()
    with pytest.raises(BadInput, match=r"has no tokenizer: expected one of merges\.txt, tokenizer\.json"):
        load_tokenizer(folder)
    with pytest.raises(BadInput, match=r"has no weights: expected .* in .*; init=random trains without"):
        find_model(str(folder))
    assert find_model(str(folder), "random") == folder


# --- checking


def test_code_that_comes_with_a_model_is_never_run(tiny_model: Path, tmp_path: Path) -> None:
    folder, mark = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "evil.Evil", "AutoModelForSequenceClassification": "evil.Evil", "AutoTokenizer": "evil.Evil"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "evil", "auto_map": names}))
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")

    with pytest.raises(BadInput, match="has no configuration that transformers can load"):
        model_faults(JobSpec(model=str(folder)).model_arguments, folder)
    formats = formats_of("full", JobSpec().degrees, "", "fp32")
    with pytest.raises(ValueError, match="trust_remote_code"):
        build_model(JobSpec().model_arguments, folder, LABELS, load_tokenizer(tiny_model), formats)
    assert not mark.exists()


# --- building


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


def test_head_tuning_trains_a_pooler_that_the_folder_lacks(tiny_model: Path) -> None:
    trained = {name.rpartition(".")[0] for name in trainable(build(tiny_model, fine_tuning="head"))}

    assert trained == {"bert.pooler.dense", "classifier"}


# --- adapters


def test_linear_layers_have_four_bits_and_the_head_is_trained_in_fp32(tiny_model: Path) -> None:
    model = build(tiny_model, fine_tuning="qlora")

    names = (name for name, module in model.named_modules() if isinstance(module, Linear4bit))
    assert {name.removesuffix(".base_layer").rpartition(".")[2] for name in names} == {"query", "key", "value", "dense"}
    fine = [item for name, item in model.named_parameters() if "classifier" in name or "lora_" in name]
    assert {item.dtype for item in fine} == {torch.float32}
    assert all(item.dtype == torch.float32 for item in model.parameters() if item.requires_grad)
    layer = next(module for module in model.modules() if isinstance(module, Linear4bit))
    assert (layer.weight.quant_type, layer.weight.quant_state.nested) == ("nf4", True)


def test_rank_scale_dropout_and_layers_are_those_that_were_asked_for(tiny_model: Path) -> None:
    request = {
        "lora.r": 4,
        "lora.lora_alpha": 12.0,
        "lora.lora_dropout": 0.25,
        "lora.target_modules": "query, self.value",
    }
    model = build(tiny_model, fine_tuning="lora", **request)

    names = [name for name, _ in model.named_parameters()]
    assert {name.split(".lora_A")[0].rpartition(".")[2] for name in names if ".lora_A" in name} == {"query", "value"}
    layer = model.base_model.model.bert.encoder.layer[1].attention.self.query
    assert layer.lora_A["default"].weight.shape == (4, HIDDEN)
    assert layer.scaling["default"] == 12 / 4
    assert layer.lora_dropout["default"].p == 0.25
    head = HIDDEN * HIDDEN + HIDDEN + HIDDEN * len(LABELS) + len(LABELS)  # also the pooler, which the folder lacks
    assert model.num_parameters(only_trainable=True) == LAYERS * 2 * 4 * (HIDDEN + HIDDEN) + head


def test_an_unknown_layer_is_refused_with_the_layers_that_there_are(tiny_model: Path) -> None:
    def faults_of(**values: Any) -> list[str]:
        spec = JobSpec(fine_tuning="lora", model="tiny", max_seq_length=64, **values)
        return model_faults(spec.model_arguments, tiny_model)

    (fault,) = faults_of(lora={"target_modules": "query,q_proj,classifier,embeddings"})

    reference = "lora.target_modules must name linear layers of tiny: dense, key, query, value"
    assert fault == f"{reference}; got q_proj, classifier, embeddings"
    assert faults_of(lora={"target_modules": "output.dense"}) == []
    assert faults_of() == []


# --- the folder of a trained model

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
    """A model with nonzero adapters, and the folder that it is written to."""

    model: Any
    path: Path
    spec: JobSpec
    messages: list[str]

    def write(self, **options: Any) -> None:
        formats = formats_of(self.spec.fine_tuning, self.spec.degrees, "", "fp32")
        write_model(self.model, self.path, self.spec.model_arguments, formats, self.messages.append, **options)


Make = Callable[..., Trained]


def answer(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(input_ids=TOKENS).logits
    return logits.float()


@pytest.fixture
def base_of(tmp_path: Path, tiny_model: Path) -> Callable[..., Path]:
    """Return a function that makes the folder of a random model of an architecture, without a classification head."""

    def make(architecture: str = "bert", **changes: Any) -> Path:
        path = tmp_path / f"base-{architecture}"
        tokenizer = load_tokenizer(tiny_model)
        tokenizer.save_pretrained(path)
        torch.manual_seed(0)
        values = {"pad_token_id": tokenizer.pad_token_id, **ARCHITECTURES[architecture], **changes}
        config = transformers.AutoConfig.for_model(architecture, vocab_size=len(tokenizer), **values)
        transformers.AutoModel.from_config(config).save_pretrained(path)
        return path

    return make


@pytest.fixture
def make(tmp_path: Path) -> Make:

    def trained(base: Path, **values: Any) -> Trained:
        spec = JobSpec(model=str(base), **{"precision": "fp32", "fine_tuning": "lora", **values})
        labels = () if spec.task == "causal-lm" else LABELS
        model, _ = build_model(spec.model_arguments, base, labels, load_tokenizer(base), formats_for(spec, base))
        torch.manual_seed(1)
        with torch.no_grad():
            for item in model.parameters():
                if item.requires_grad:
                    item.add_(0.2 * torch.randn_like(item))
        workspace = tmp_path / "returned"
        load_tokenizer(base).save_pretrained(workspace)
        return Trained(model, workspace, spec, [])

    return trained


@pytest.mark.parametrize(
    ("architecture", "adapters", "tolerance"),
    [
        *((architecture, {}, 1e-5) for architecture in ARCHITECTURES),
        ("bert", {"fine_tuning": "qlora", "lora": {"target_modules": "all-linear"}}, 1e-3),
        ("gpt2", {"fine_tuning": "qlora", "lora": {"target_modules": "c_proj"}}, 1e-3),
    ],
)
def test_merged_adapters_answer_as_they_did_on_their_base_also_if_that_had_four_bits(
    architecture: str,
    adapters: dict[str, Any],
    tolerance: float,
    base_of: Callable[..., Path],
    make: Make,
) -> None:
    trained = make(base_of(architecture), **adapters)

    expected = answer(trained.model)
    trained.write()

    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(trained.path)
    assert torch.allclose(answer(loaded), expected, atol=tolerance)
    assert loaded.config.id2label == dict(enumerate(LABELS))
    assert not hasattr(loaded.config, "quantization_config")
    assert {item.dtype for item in loaded.parameters()} == {torch.float32}
    assert not [*trained.path.glob("adapter*")]
    (message,) = transformers.pipeline("text-classification", model=str(trained.path))("great film")
    assert message["label"] in LABELS


def test_a_decoder_classifies_a_padded_row_as_the_row_alone(base_of: Callable[..., Path]) -> None:
    folder = base_of("gpt2", pad_token_id=7)  # not the token that its tokenizer pads with
    model, pad = build(folder).eval(), load_tokenizer(folder).pad_token_id
    row = TOKENS[:1]
    padded = torch.cat([row, torch.full((1, 3), pad)], dim=1)

    with torch.no_grad():
        answers = [model(input_ids=ids, attention_mask=(ids != pad).long()).logits for ids in (row, padded)]

    assert torch.allclose(*answers, atol=1e-6)


def test_adapters_alone_name_their_base_and_keep_the_classes(base_of: Callable[..., Path], make: Make) -> None:
    base = base_of()
    trained = make(base, lora={"merge": False})

    replace(trained, spec=trained.spec.replace(model="bundled:all-MiniLM-L6-v2")).write()

    settings = json.loads((trained.path / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert not [*trained.path.glob("model*")]
    config = transformers.AutoConfig.from_pretrained(trained.path)
    assert config.id2label == dict(enumerate(LABELS))
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(base, config=config)
    assert torch.allclose(answer(PeftModel.from_pretrained(plain, trained.path)), answer(trained.model), atol=1e-5)


def test_adapters_of_a_language_model_alone_need_no_configuration(tiny_causal_model: Path, make: Make) -> None:
    trained = make(tiny_causal_model, task="causal-lm", lora={"merge": False})

    trained.write()

    assert (trained.path / "adapter_config.json").is_file()
    assert not (trained.path / "config.json").exists()


def test_a_language_model_is_written_whatever_transformers_says_of_its_generation(
    tiny_causal_model: Path, make: Make
) -> None:
    trained = make(tiny_causal_model, task="causal-lm", fine_tuning="full")
    trained.model.generation_config.temperature = 0.5  # which has an effect only with do_sample

    trained.write()

    assert [*trained.path.glob("model.safetensors")]
    assert json.loads((trained.path / "generation_config.json").read_text())["temperature"] == 0.5


@pytest.mark.parametrize(
    "error",
    [
        OSError("No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=["configuration", "weights"],
)
def test_where_merging_fails_the_adapters_stay_and_the_job_says_why(
    base_of: Callable[..., Path], make: Make, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trained = make(base_of())

    def fill(*_: object, **__: object) -> None:
        (trained.path / "model-00001-of-00002.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", fill)

    trained.write()

    assert not [*trained.path.glob("model*.safetensors")]
    with safe_open(trained.path / "adapter_model.safetensors", "pt") as adapters:
        assert len([*adapters.keys()]) > 0
    assert "No space left on device" in trained.messages[0]


def test_adapters_that_could_not_be_merged_keep_the_classes(
    base_of: Callable[..., Path], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = make(base_of())

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.Module, "set_submodule", fail)

    trained.write()

    assert "CUDA out of memory" in trained.messages[0]
    assert transformers.AutoConfig.from_pretrained(trained.path).id2label == dict(enumerate(LABELS))


@pytest.mark.parametrize("fine_tuning", ["full", "lora"])
def test_a_model_comes_back_in_the_number_format_of_its_files(
    base_of: Callable[..., Path], tmp_path: Path, fine_tuning: str
) -> None:
    base = base_of("gpt2")
    transformers.AutoModel.from_pretrained(base, dtype=torch.bfloat16).save_pretrained(base)
    spec = JobSpec(model=str(base), precision="fp32", fine_tuning=fine_tuning)
    formats = formats_for(spec, base)
    model, _ = build_model(spec.model_arguments, base, LABELS, load_tokenizer(base), formats)
    assert {item.dtype for item in model.parameters() if item.requires_grad} == {torch.float32}

    write_model(model, tmp_path / "written", spec.model_arguments, formats, [].append)

    written = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "written")
    assert written.dtype == written.config.dtype == torch.bfloat16
    (file,) = (tmp_path / "written").glob("*.safetensors")
    assert file.stat().st_size < 2.5 * sum(item.numel() for item in written.parameters())


@pytest.mark.parametrize(("kind", "is_refused"), [("xlnet", True), ("electra", False), ("mpnet", False)])
def test_a_model_whose_answers_depend_on_padding_is_refused(tmp_path: Path, kind: str, is_refused: bool) -> None:
    sizes = {"d_model": 32, "n_head": 2, "d_inner": 32} if kind == "xlnet" else {"hidden_size": 32}
    sizes |= {} if kind == "xlnet" else {"num_attention_heads": 2, "intermediate_size": 32}
    transformers.AutoConfig.for_model(kind, **sizes).save_pretrained(tmp_path)

    faults = model_faults(JobSpec(model=str(tmp_path), max_seq_length=64).model_arguments, tmp_path)

    assert bool([fault for fault in faults if "output depends on the padding after a text" in fault]) is is_refused
