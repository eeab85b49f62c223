"""An evaluation, on any number of processes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from paretune.estimating.formats import formats_of
from paretune.specification.job import JobSpec
from paretune.training import evaluation, processes
from paretune.training.evaluation import evaluate, evaluate_share
from paretune.training.rows import tokenized
from paretune.training.rows.tokenized import Rows, TokenRows
from paretune.training.strategies import Replicas
from paretune.training.tasks import Evaluation

TASK = "classification"


@pytest.fixture(scope="module")
def rows(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenRows:
    """Return fifty rows of many lengths."""
    random = np.random.default_rng(0)
    words = ["great", "warm", "dull", "cold", "the", "film", "story", "rather", "very"]
    texts = [" ".join(random.choice(words, size=random.integers(1, 30))) for _ in range(50)]
    split = Rows(texts=texts, labels=random.integers(0, 3, size=50))
    tokenizer, folder = AutoTokenizer.from_pretrained(tiny_model), tmp_path_factory.mktemp("prepared")
    splits = {"train": split, "validation": split}
    made = tokenized.prepare(JobSpec(max_seq_length=32).data_arguments, splits, ("a", "b", "c"), tokenizer, folder)
    return TokenRows(made.folder / "validation", pad_id=0, longest_first=True)


@pytest.fixture
def strategy(tiny_model: Path) -> Replicas:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=3)
    return Replicas(JobSpec().degrees, formats_of("full", JobSpec().degrees, "bert", "fp32"), lambda: (model, []))


def measure(strategy: Replicas, rows: TokenRows) -> dict[str, float]:
    return evaluate(strategy, rows, 8, TASK, Evaluation(TASK, "abc"))


def test_an_evaluation_does_not_depend_on_processes_and_batches(
    rows: TokenRows, strategy: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, judge, parts = measure(strategy, rows), Evaluation(TASK, "abc"), []
    for strategy.rank in range(4):  # 50 rows: 13, 13, 12 and 12
        strategy.shares = 4
        parts.append(evaluate_share(5, strategy, rows, TASK, judge))
    monkeypatch.setattr(processes, "gather", lambda _: parts)

    assert [sum(items for _, items, *_ in share) for share in parts] == [13, 13, 12, 12]
    assert measure(strategy, rows) == {**alone, "loss": pytest.approx(alone["loss"], rel=1e-6)}


@pytest.mark.parametrize(("loss", "perplexity"), [(2 * math.log(50257), 50257), (1420.0, None)])
def test_perplexity_is_the_exponential_of_the_mean_loss_and_absent_where_no_float_holds_it(
    rows: TokenRows, strategy: Replicas, monkeypatch: pytest.MonkeyPatch, loss: float, perplexity: float | None
) -> None:
    monkeypatch.setattr(evaluation, "evaluate_share", lambda size, strategy, rows, task, judge: [(loss, 2, None, None)])

    values = evaluate(strategy, rows, 8, "causal-lm", None)

    assert values.get("perplexity") == (perplexity and pytest.approx(perplexity))


def test_an_evaluation_that_does_not_fit_continues_with_smaller_batches(
    rows: TokenRows, strategy: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, forward = measure(strategy, rows), strategy.model.forward

    def logits(**inputs: Any) -> Any:
        if len(inputs["input_ids"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(**inputs)

    monkeypatch.setattr(strategy.model, "forward", logits)

    assert measure(strategy, rows)["loss"] == pytest.approx(expected["loss"], rel=1e-6)
