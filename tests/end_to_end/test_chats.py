"""Conversations and long texts, as a user types them: what is learned, and what is said before anything is paid."""

import json
import math
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from tests.support import chats
from tests.support.tags import tags_of

pytestmark = [pytest.mark.slow, pytest.mark.trains]  # slow first: not imported without PyTorch


def test_conversations_train_with_the_chat_template_and_the_run_says_what_was_learned(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = chats.language_model(workplace / "model")
    rows = chats.write_jsonl(workplace / "chats.jsonl", chats.conversations(40))
    words = ["train", "--task", "causal-lm", "--model", str(model), "--dataset", str(rows), "--max_seq_length", "128"]

    assert main([*words, "--dry_run"]) == 0
    shown = capsys.readouterr().out
    assert "conversations in the model's chat template: 16% of the tokens are learned" in shown
    assert main(words) == 0

    (run,) = MlflowClient().search_runs(["0"])
    learned = float(tags_of(run)["paretune.learned_share"]) * float(tags_of(run)["paretune.train_tokens"])
    # Every answer is "yes<|im_end|>\n", "no<|im_end|>\n" or "It is.<|im_end|>\n": 3 to 8 tokens
    assert 3 * 36 <= learned <= 13 * 36
    assert 1 < run.data.metrics["perplexity"] < math.inf
    trained = Path(tags_of(run)["paretune.model"].removeprefix("file://"))
    assert (trained / "chat_template.jinja").read_text() == chats.PLAIN


@pytest.mark.parametrize("where", [[], ["--instance_type", "ml.g5.xlarge"]])
def test_texts_that_are_cut_are_said_before_the_job_with_the_length_that_keeps_most(
    where: list[str], workplace: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = workplace / "rows.csv"
    texts = [("the film " * (3000 if number % 2 else 5), "good" if number % 3 else "bad") for number in range(40)]
    rows.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in texts))

    words = ["train", "--model", str(tiny_model), "--dataset", str(rows), "--max_seq_length", "64", *where]
    assert main([*words, "--dry_run", "--json"]) == 0

    warnings = "\n".join(json.loads(capsys.readouterr().out)["warnings"])
    assert re.search(
        r"max_seq_length=64 keeps 1% of the tokens: it cuts the end off [45]\d% of the 36 training rows", warnings
    )
    assert "95% would need 5,7" in warnings
    assert f"but {tiny_model} reads at most 64" in warnings
    assert not MlflowClient().search_runs(["0"])


def test_a_study_says_once_which_share_of_the_texts_is_cut(
    workplace: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = workplace / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"{'the film ' * 100},{'good' if n % 3 else 'bad'}\n" for n in range(40)))
    study = workplace / "study.yaml"
    job = {"model": str(tiny_model), "dataset": str(rows), "max_seq_length": 32}
    search = {"learning_rate": {"low": 1e-5, "high": 1e-3}}
    study.write_text(json.dumps({"name": "cut", "job": job, "search": search, "n_trials": 1}))

    assert main(["study", str(study), "--budget_usd", "1"]) == 0

    assert capsys.readouterr().err.count("max_seq_length=32 keeps") == 1


def test_conversations_without_a_chat_template_are_refused_before_a_job(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = chats.language_model(workplace / "model", template=None)
    rows = chats.write_jsonl(workplace / "chats.jsonl", chats.conversations(20))

    assert main(["train", "--task", "causal-lm", "--model", str(model), "--dataset", str(rows)]) == 2

    assert f"model {model} has no chat template" in capsys.readouterr().err
    assert not MlflowClient().search_runs(["0"])
