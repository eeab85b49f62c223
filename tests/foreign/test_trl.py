"""A training of conversations beside TRL's SFTTrainer: the same token ids, labels, loss and weights.

`.ci/full foreign` installs TRL and runs it. `tests/support/trl_rows.json` holds the rows, and the ids and labels that
TRL 1.16.0 made of them; `test_chats.py` compares with these wherever TRL is missing.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from paretune.specification.container import JobFolder
from paretune.specification.job import JobSpec
from paretune.training.rows.sources import read_rows
from paretune.training.rows.tokenized import TokenRows, prepare
from tests.support import chats
from tests.support.trainings import give, report_of

pytestmark = pytest.mark.foreign
trl = pytest.importorskip("trl", reason="needs TRL: run `.ci/full foreign`, or pip install trl")

RECORDED = json.loads((Path(chats.__file__).parent / "trl_rows.json").read_text())
KINDS = ("messages", "completion", "messages_of_completion")
STEPS, RATE = 4, 1e-2


def sft_trainer(kind: str, rows: list[dict[str, Any]], model: Path, output: Path) -> Any:
    """Return TRL's trainer with its defaults, for full batches and without a schedule."""
    from datasets import Dataset

    config = trl.SFTConfig(
        output_dir=str(output),
        assistant_only_loss=kind == "messages",
        max_length=RECORDED["max_length"],
        shuffle_dataset=False,
        per_device_train_batch_size=len(rows),
        per_device_eval_batch_size=len(rows),
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
    )
    data = Dataset.from_list(rows)
    return trl.SFTTrainer(str(model), args=config, train_dataset=data, eval_dataset=data)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_labels_loss_and_weights_are_those_of_trl(kind: str, tmp_path: Path) -> None:
    rows, limit = RECORDED[kind]["rows"], RECORDED["max_length"]
    model = chats.language_model(tmp_path / "model", chats.MARKED)
    trainer = sft_trainer(kind, rows, model, tmp_path / "trl")
    path = chats.write_jsonl(tmp_path / "rows.jsonl", rows)
    spec = JobSpec(
        task="causal-lm",
        dataset=str(path),
        validation_file=str(path),
        max_seq_length=limit,
        precision="fp32",
        per_device_train_batch_size=len(rows),
        learning_rate=RATE,
        training_arguments={"max_steps": STEPS, "lr_scheduler_type": "constant", "warmup_steps": 0},
    )

    read, names = read_rows(spec.data_arguments)
    prepared = prepare(spec.data_arguments, read, names, chats.tokenizer(chats.MARKED), tmp_path / "prepared")
    made = TokenRows(prepared.folder / "train", pad_id=0)
    batches = [made.batch([number]) for number in range(len(made))]
    data = trainer.train_dataset
    assert [batch["input_ids"][0].tolist() for batch in batches] == [list(ids) for ids in data["input_ids"]]
    assert [batch["labels"][0].tolist()[1:] for batch in batches] == [list(row)[1:] for row in data["labels"]]
    assert RECORDED[kind]["tokens"] == [list(ids) for ids in data["input_ids"]]

    trainer.train()
    their_loss = trainer.evaluate()["eval_loss"]  # before paretune's training, which resets accelerate
    folder = JobFolder(tmp_path / "job")
    folder.make()
    give(folder, prepared, model)
    report = report_of(spec, folder)

    assert report.metrics["eval_loss"] == pytest.approx(their_loss, rel=1e-4)
    theirs = trainer.model.state_dict()
    ours = chats.load_weights(folder.model)
    for name, weight in ours.items():
        # Adam moves a weight by up to RATE a step. If its gradient is almost 0, rounding decides how far.
        torch.testing.assert_close(weight, theirs[name], rtol=1e-3, atol=RATE / 100)
