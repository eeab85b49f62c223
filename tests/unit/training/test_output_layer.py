"""Losses and gradients of language models without their logits, compared with those of transformers."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode

from paretune.estimating.formats import formats_of
from paretune.specification.job import JobSpec
from paretune.training import output_layer, processes
from paretune.training.arguments import training_arguments
from paretune.training.evaluation import evaluate_share
from paretune.training.strategies import Replicas, Shards, begin, begin_training
from paretune.training.tasks import SummedLoss
from tests.support.processes import free_port
from tests.support.small_models import small

ROWS, TOKENS, VOCABULARY, HIDDEN = 4, 12, 61, 32
SPEC = JobSpec(task="causal-lm", precision="fp32")
PLAIN = [
    ("llama", {"tie_word_embeddings": False}),
    ("llama", {"tie_word_embeddings": True}),
    ("gpt2", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    ("phi", {"num_key_value_heads": 4, "tie_word_embeddings": False}),  # its output layer has biases
    ("gemma", {}),
    ("qwen3", {}),
]
CHANGED = [  # models that scale or cap the logits after the output layer
    ("gemma2", {"final_logit_softcapping": 1.0}),
    ("granite", {"logits_scaling": 3.0}),
    ("cohere", {"logit_scale": 0.2}),
]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_layer, "CHUNK_TOKENS", 10)  # the 44 predicted tokens of a batch are five chunks


def model_of(kind: str, sizes: dict[str, Any]) -> Any:
    """Return a small model whose logits are far apart, so that scales and caps matter."""
    model = small(kind, "causal-lm", "eager", **{"vocab_size": VOCABULARY, **sizes})
    with torch.no_grad():
        for name, item in model.named_parameters():
            item.normal_(std=0.3 if item.ndim > 1 else 0.1, generator=torch.Generator().manual_seed(len(name)))
    return model


def batch_of_rows() -> dict[str, torch.Tensor]:
    """Return rows of 12, 9, 12 and 1 tokens, with the labels of a language model."""
    inside = torch.arange(TOKENS) < torch.tensor([12, 9, 12, 1])[:, None]
    tokens = torch.randint(1, VOCABULARY, (ROWS, TOKENS), generator=torch.Generator().manual_seed(1)) * inside
    return {
        "input_ids": tokens,
        "attention_mask": inside.long(),
        "labels": tokens.where(inside, -100),
    }


def strategy_of(model: Any, spec: JobSpec = SPEC, kind: str = "llama") -> Replicas:
    arguments = training_arguments(spec, 10)
    formats = formats_of(spec.fine_tuning, spec.degrees, kind, spec.precision)
    strategy = Replicas(spec.degrees, formats, lambda: (model, []))
    begin_training(strategy, arguments, 1e-4, is_causal=True)
    return strategy


def expected_of(model: Any, batch: dict[str, torch.Tensor]) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss that transformers computes, times the number of labels, and its gradients."""
    count = int((batch["labels"][:, 1:] != -100).sum())
    loss = model.train()(**batch).loss * count
    loss.backward()
    return loss.item(), gradients_of(model)


def gradients_of(model: Any) -> dict[str, torch.Tensor]:
    """Return the gradients by name, and remove them from the model."""
    gradients = {name: item.grad for name, item in model.named_parameters() if item.grad is not None}
    model.zero_grad()
    return gradients


def assert_equal(gradients: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        largest = expected[name].abs().max().clamp(min=1e-3)
        assert (gradient - expected[name]).abs().max() <= 1e-6 * largest, name


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor with a column for each token of the vocabulary, except for weights."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        result = function(*inputs, **(options or {}))
        for item in result if isinstance(result, tuple | list) else (result,):
            if isinstance(item, torch.Tensor) and item.shape[-1:] == (VOCABULARY,) and len(item) != HIDDEN:
                self.elements = max(self.elements, item.numel())
        return result


def trained(strategy: Replicas, batch: dict[str, torch.Tensor], **options: Any) -> tuple[float, Largest]:
    """Return the loss of a micro-batch, whose gradients are added to the model, and the size of its logits."""
    with Largest() as largest:
        loss = strategy.backward(batch, SummedLoss(task="causal-lm", **options), scale=None, is_last=True)
    return loss.item(), largest


@pytest.mark.parametrize(("kind", "sizes"), PLAIN, ids=str)
def test_losses_and_gradients_are_those_of_transformers_and_all_logits_never_exist(
    kind: str, sizes: dict[str, Any]
) -> None:
    model, batch = model_of(kind, sizes), batch_of_rows()
    expected, gradients = expected_of(model, batch)

    loss, largest = trained(strategy_of(model, kind=kind), batch)

    assert loss == pytest.approx(expected, rel=1e-6)
    assert_equal(gradients_of(model), gradients)
    assert largest.elements <= 10 * VOCABULARY


@pytest.mark.parametrize(("kind", "sizes"), CHANGED, ids=str)
def test_a_model_that_changes_its_logits_computes_them_all(kind: str, sizes: dict[str, Any]) -> None:
    model, batch = model_of(kind, sizes), batch_of_rows()
    expected, gradients = expected_of(model, batch)

    loss, largest = trained(strategy_of(model, kind=kind), batch)

    assert loss == pytest.approx(expected, rel=1e-6)
    assert_equal(gradients_of(model), gradients)
    assert largest.elements >= ROWS * TOKENS * VOCABULARY


def test_with_label_smoothing_the_loss_is_that_of_pytorch() -> None:
    model, batch = model_of("llama", {}), batch_of_rows()
    logits, labels = model(input_ids=batch["input_ids"]).logits[:, :-1], batch["labels"][:, 1:]
    smooth: Any = {"reduction": "sum", "label_smoothing": 0.2}
    expected = 0.5 * torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), **smooth)
    expected.backward()  # type: ignore[no-untyped-call]
    gradients = gradients_of(model)

    loss, _ = trained(strategy_of(model), batch, smoothing=0.2, factor=0.5)

    assert loss == pytest.approx(expected.item(), rel=1e-6)
    assert_equal(gradients_of(model), gradients)


def test_adapters_get_their_gradients_and_the_frozen_output_layer_none() -> None:
    adapters = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    model, batch = get_peft_model(model_of("llama", {}), adapters), batch_of_rows()
    expected, gradients = expected_of(model, batch)

    loss, largest = trained(strategy_of(model, SPEC.replace(fine_tuning="lora")), batch)

    assert loss == pytest.approx(expected, rel=1e-6)
    assert_equal(gradients_of(model), gradients)
    assert largest.elements <= 10 * VOCABULARY


def test_an_evaluation_has_the_loss_of_transformers_without_all_logits() -> None:
    model, batch = model_of("gpt2", {}).eval(), batch_of_rows()
    count = int((batch["labels"][:, 1:] != -100).sum())
    expected = model(**batch).loss.item() * count
    strategy = strategy_of(model, kind="gpt2")

    class Rows:
        label_counts = np.array([11, 8, 11, 0])

        def __len__(self) -> int:
            return ROWS

        def batch(self, _: Any) -> dict[str, torch.Tensor]:
            return dict(batch)

    rows: Any = Rows()
    with Largest() as largest:
        ((loss, items, *_),) = evaluate_share(ROWS, strategy, rows, "causal-lm", None)

    assert (loss, items) == (pytest.approx(expected, rel=1e-6), count)
    assert largest.elements <= 10 * VOCABULARY


def test_in_bf16_the_gradients_are_no_further_from_those_of_fp32_than_with_all_logits() -> None:
    model, batch = model_of("llama", {"tie_word_embeddings": True}), batch_of_rows()
    _, exact = expected_of(model, batch)
    model = model.bfloat16()
    logits = model(input_ids=batch["input_ids"]).logits
    SummedLoss(task="causal-lm").of_logits(logits, batch["labels"]).backward()  # type: ignore[no-untyped-call]
    whole = gradients_of(model)

    trained(strategy_of(model, SPEC.replace(precision="bf16")), batch)

    def error(gradients: dict[str, torch.Tensor]) -> float:
        differences = [(gradients[name].float() - item).norm() for name, item in exact.items()]
        return float(torch.stack(differences).norm() / torch.stack([item.norm() for item in exact.values()]).norm())

    assert error(gradients_of(model)) <= 1.05 * error(whole)


def in_process(rank: int, port: int, kind: type[Replicas], precision: Any, results: Any) -> None:
    """Compute every second row of a batch, and send the loss, all gradients, and the size of the logits."""
    torch.set_num_threads(1)
    output_layer.CHUNK_TOKENS = 10  # this process is new, and has no `monkeypatch`
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    spec = SPEC.replace(instance_count=2, precision=precision, strategy="fsdp" if kind is Shards else "ddp")

    def build(drawn: Any = None, *, packs: bool = True) -> Any:
        with torch.device("cpu" if drawn is None else "meta"):
            return (model_of("llama", TIED) if drawn is None else small("llama", "causal-lm", **TIED)), []

    begin(spec.degrees)
    arguments = training_arguments(spec, 10)
    strategy = kind(spec.degrees, formats_of(spec.fine_tuning, spec.degrees, "llama", precision), build)
    begin_training(strategy, arguments, 1e-4, is_causal=True)
    batch = {name: item[rank::2] for name, item in batch_of_rows().items()}
    with Largest() as largest:
        factor = float(strategy.shares)  # gradients are averaged over the processes
        loss = strategy.backward(batch, SummedLoss(task="causal-lm", factor=factor), scale=None, is_last=True)
    gradients = {name: processes.whole(item.grad).numpy() for name, item in strategy.model.named_parameters()}
    results.put((loss.item(), gradients if rank == 0 else {}, largest.elements))
    processes.wait_for_all()


TIED = {"tie_word_embeddings": True, "vocab_size": VOCABULARY}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Replicas, Shards])
def test_two_processes_have_the_loss_and_the_gradients_of_one_without_all_logits(kind: type[Replicas]) -> None:
    expected, gradients = expected_of(model_of("llama", TIED), batch_of_rows())
    context = torch.multiprocessing.get_context("spawn")  # threads of earlier tests do not survive a fork
    results, port = context.SimpleQueue(), free_port()
    workers = [context.Process(target=in_process, args=(rank, port, kind, "fp32", results)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    parts = [results.get() for _ in workers]
    for worker in workers:
        worker.join()

    assert sum(loss for loss, *_ in parts) / 2 == pytest.approx(expected, rel=1e-6)
    (own,) = (part for _, part, _ in parts if part)
    assert_equal({name: torch.from_numpy(item) for name, item in own.items()}, gradients)
    assert max(elements for *_, elements in parts) <= 10 * VOCABULARY


def test_a_generated_text_still_gets_logits() -> None:
    model = model_of("llama", {})
    tokens = torch.arange(1, 7)[None]
    expected = model(input_ids=tokens).logits
    strategy = strategy_of(model)
    trained(strategy, batch_of_rows())

    assert torch.equal(strategy.model(input_ids=tokens).logits, expected)
