"""A model whose layers are on several devices in turn: a training with hooks between the layers."""

import json
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, FalconConfig, FalconForCausalLM

from paretune.specification.container import JobFolder
from paretune.specification.job import JobSpec
from paretune.training import loop, model
from tests.unit.training.conftest import SPEC
from tests.unit.training.test_loop import prepared_for, report_of

FALCON = {"hidden_size": 64, "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": True}


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
    four_bits: list[int] = []  # layers of each model

    def build(*arguments: Any, **options: Any) -> Any:
        whole, drawn = model.build_model(*arguments, **options)
        four_bits.append(sum(type(part).__name__ == "Linear4bit" for part in whole.modules()))
        return whole, drawn

    load = model._load

    def load_with_hooks(job: JobSpec, *arguments: Any) -> Any:
        whole, drawn = load(job, *arguments)
        if job.strategy == "device_map":  # transformers adds none between equal devices
            layers = [f"transformer.h.{number}" for number in range(4)]
            parts = ["transformer.word_embeddings", *layers, "transformer.rotary_emb", "transformer.ln_f", "lm_head"]
            accelerate.dispatch_model(whole, device_map=dict.fromkeys(parts, "cpu"), force_hooks=True)
        return whole, drawn

    monkeypatch.setattr(loop, "build_model", build)
    monkeypatch.setattr(model, "_load", load_with_hooks)
    plain = report_of(spec, folder).metrics
    in_turn = spec.replace(strategy="device_map")
    reported = report_of(in_turn, replace_folder(folder, tmp_path / "second")).metrics

    assert four_bits == [32, 32]  # sixteen, and the adapters of peft around each
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
