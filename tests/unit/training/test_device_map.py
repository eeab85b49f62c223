"""A model whose layers are on several devices in turn: the map, and a training with hooks between the layers."""

import json
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, FalconConfig, FalconForCausalLM, LlamaConfig, LlamaForCausalLM

from paretune.specification.container import JobFolder
from paretune.specification.job import JobSpec
from paretune.training import loop, model
from tests.unit.training.conftest import SPEC
from tests.unit.training.test_loop import prepared_for, report_of

FALCON = {"hidden_size": 64, "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": True}


def test_layers_are_on_the_devices_in_turn_and_a_tied_head_is_beside_its_table() -> None:
    with torch.device("meta"):
        falcon = FalconForCausalLM(FalconConfig(vocab_size=90, num_hidden_layers=5, **FALCON))
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 4}
        llama = LlamaForCausalLM(LlamaConfig(vocab_size=90, tie_word_embeddings=False, **sizes))

    chosen = model.device_map(falcon, [0, 1])
    apart = model.device_map(llama, range(4))

    assert [chosen[f"transformer.h.{number}"] for number in range(5)] == [0, 0, 0, 1, 1]
    assert (chosen["transformer.word_embeddings"], chosen["transformer.ln_f"], chosen["lm_head"]) == (0, 1, 0)
    assert [apart[f"model.layers.{number}"] for number in range(4)] == [0, 1, 2, 3]
    assert (apart["model.embed_tokens"], apart["lm_head"]) == (0, 3)
    for whole, parts in ((falcon, chosen), (llama, apart)):
        names = [name for name, _ in whole.named_parameters()]
        assert all(sum(name.startswith(f"{part}.") for part in parts) == 1 for name in names)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
def test_a_falcon_in_four_bits_trains_alike_on_one_device_and_through_the_hooks_of_two(
    folder: JobFolder, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.save_pretrained(tmp_path / "falcon")
    torch.manual_seed(0)
    config = FalconConfig(vocab_size=len(tokenizer), num_hidden_layers=4, bos_token_id=2, eos_token_id=3, **FALCON)
    FalconForCausalLM(config).save_pretrained(tmp_path / "falcon")
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["great", "warm", "the", "film"], size=9)) for _ in range(40)]
    rows = tmp_path / "texts.jsonl"
    rows.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    spec = SPEC.replace(
        task="causal-lm",
        dataset=str(rows),
        fine_tuning="qlora",
        learning_rate=0.01,
        training_arguments={"gradient_checkpointing": True},
    )
    prepared_for(spec, folder, tmp_path / "falcon")
    built: list[Any] = []

    def build(*arguments: Any, **options: Any) -> Any:
        whole, drawn = model.build_model(*arguments, **options)
        built.append(whole)
        return whole, drawn

    load = model._load

    def load_with_hooks(job: JobSpec, *arguments: Any) -> Any:
        whole, drawn = load(job, *arguments)
        if job.strategy == "device_map":  # transformers adds none between equal devices
            accelerate.dispatch_model(whole, device_map=model.device_map(whole, ["cpu", "cpu"]), force_hooks=True)
        return whole, drawn

    monkeypatch.setattr(loop, "build_model", build)
    monkeypatch.setattr(model, "_load", load_with_hooks)
    plain = report_of(spec, folder).metrics
    in_turn = spec.replace(strategy="device_map")
    reported = report_of(in_turn, replace_folder(folder, tmp_path / "second")).metrics

    four_bits = [name for name, part in built[1].named_modules() if type(part).__name__ == "Linear4bit"]
    hooked = {name for name, part in built[1].named_modules() if hasattr(part, "_hf_hook")}
    assert len([name for name in four_bits if name.endswith("base_layer")]) == 4 * 4
    assert {f"base_model.model.transformer.h.{number}" for number in range(4)} <= hooked
    assert reported["perplexity"] == plain["perplexity"] < 90
    merged = FalconForCausalLM.from_pretrained(tmp_path / "second" / "model")
    assert merged.config.num_hidden_layers == 4


def replace_folder(folder: JobFolder, root: Path) -> JobFolder:
    """Another job's folder with the same data set and model."""
    other = JobFolder(root)
    other.make()
    for link, source in ((other.dataset, folder.dataset), (other.model_source, folder.model_source)):
        if link.is_dir():
            link.rmdir()
        link.symlink_to(source.resolve())
    return other
