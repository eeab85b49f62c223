"""What the text of a script with Hugging Face's Trainer says of its training."""

from pathlib import Path
from typing import Any

import pytest

from paretune.estimating.forecast import described_by
from paretune.specification.job import JobSpec
from paretune.specification.user_code import MODEL_FOLDER
from paretune.user_code.script import Script
from paretune.user_code.trainer_script import training_in, training_of

SCRIPT = """
import argparse, os
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--train-batch-size", type=int, default=32)
parser.add_argument("--model_name", default="distilbert-base-uncased")
parser.add_argument("--model_dir", default=os.environ["SM_MODEL_DIR"])
args = parser.parse_args()
RATE = 1e-5
model = AutoModelForSequenceClassification.from_pretrained(args.model_name)
tokens = AutoTokenizer.from_pretrained("other")("a text", max_length=384, truncation=True)
arguments = TrainingArguments(
    output_dir=args.model_dir, num_train_epochs=args.epochs, per_device_train_batch_size=args.train_batch_size,
    evaluation_strategy="epoch", save_total_limit=2, learning_rate=float(RATE), fp16=True, optim=unknown(),
)
Trainer(model=model, args=arguments).train()
"""
SFT = """
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from peft import LoraConfig
import trl
packed = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", quantization_config=packed)
config = trl.SFTConfig(output_dir="out", bf16=True, gradient_checkpointing=True, max_length=2048)
trl.SFTTrainer(model, args=config, peft_config=LoraConfig(r=16, lora_alpha=32)).train()
"""


def test_values_are_followed_from_the_arguments_to_the_options_and_constants_of_the_script() -> None:
    training = training_in(SCRIPT, "datasets\ntransformers==4.6.1\n")

    assert training is not None
    assert (training.program, training.model, training.task) == (
        "trainer-4.6",
        "distilbert-base-uncased",
        "classification",
    )
    assert (training.fine_tuning, training.max_seq_length) == ("full", 384)
    assert training.arguments == {
        "output_dir": MODEL_FOLDER,
        "num_train_epochs": 4,
        "per_device_train_batch_size": 32,
        "evaluation_strategy": "epoch",
        "save_total_limit": 2,
        "learning_rate": 1e-5,
        "fp16": True,
    }


def test_options_that_are_given_replace_the_defaults_of_the_script() -> None:
    training = training_in(SCRIPT, "", {"epochs": 7, "train-batch-size": 8})

    assert training is not None
    assert training.program == "trainer"  # the newest, because no version is required
    assert (training.arguments["num_train_epochs"], training.arguments["per_device_train_batch_size"]) == (7, 8)


def test_adapters_and_decoders_are_recognized() -> None:
    training = training_in(SFT + 'check_min_version("4.46.0")')

    assert training is not None
    assert (training.program, training.task, training.fine_tuning) == ("trainer-4.46", "causal-lm", "qlora")
    assert (training.lora_rank, training.max_seq_length) == (16, 2048)


@pytest.mark.parametrize("text", ["import torch\nmodel.fit()", "from lightning import Trainer\n", "not python ("])
def test_other_scripts_say_nothing(text: str) -> None:
    assert training_in(text) is None


def test_a_job_of_a_script_is_described_and_what_the_user_gave_goes_first(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "requirements.txt").write_text("transformers==4.6.1")
    job: dict[str, Any] = {"entry_script": str(tmp_path / "train.py"), "max_train_samples": 1000}

    script = Script.read(tmp_path / "train.py")
    typed = JobSpec(**job, model="bert-base-uncased", max_seq_length=128)

    read, given = described(JobSpec(**job), script), described(typed, script)

    assert read is not None
    assert given is not None
    assert (read.program, read.model, read.precision, read.max_seq_length) == (
        "trainer-4.6",
        "distilbert-base-uncased",
        "fp16",
        384,
    )
    assert (read.plan().per_device_train_batch_size, read.num_train_epochs) == (32, 4)
    assert read.training_arguments == {"evaluation_strategy": "epoch", "save_total_limit": 2}
    assert (given.model, given.max_seq_length) == ("bert-base-uncased", 128)


def test_checkpoints_outside_the_model_folder_are_not_uploaded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SFT)
    spec = JobSpec(entry_script=str(tmp_path / "train.py"), max_train_samples=1000)
    read = described(spec, Script.read(tmp_path / "train.py"))

    assert read is not None
    assert read.training_arguments["save_strategy"] == "no"
    assert (read.lora.r, read.fine_tuning, read.checkpoints_activations) == (16, "qlora", True)


@pytest.mark.parametrize(
    ("loading", "arguments", "precision"),
    [
        ("torch_dtype=torch.bfloat16", "", "bf16-true"),
        ("dtype='bfloat16'", "bf16=True", "bf16-true"),  # no fp32 copy of any weight
        ("torch_dtype=args.torch_dtype", "", "bf16-true"),
        ("torch_dtype=torch.float32", "bf16=True", "bf16"),
        ("", "model_init_kwargs={'torch_dtype': torch.bfloat16}", "bf16-true"),
        ("attn_implementation='sdpa'", "", "auto"),
    ],
)
def test_a_model_that_is_loaded_in_bf16_is_trained_in_bf16(
    tmp_path: Path, loading: str, arguments: str, precision: str
) -> None:
    """Without this, the weights, gradients and moments of transformers 4 are counted as fp32: twice the memory."""
    (tmp_path / "train.py").write_text(f"""
import argparse, torch
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--torch_dtype", default="bfloat16")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-3B", {loading})
SFTTrainer(model, args=SFTConfig(output_dir="/opt/ml/model", {arguments})).train()
""")
    (tmp_path / "requirements.txt").write_text("transformers==4.46.3")
    job = JobSpec(entry_script=str(tmp_path / "train.py"), max_train_samples=1000)

    read = described(job, Script.read(tmp_path / "train.py"))

    assert read is not None
    assert read.precision == precision


def described(spec: JobSpec, script: Script) -> JobSpec | None:
    return described_by(spec, training_of(spec.code_request, script))
