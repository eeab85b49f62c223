"""What strategies require of the image and of a model; real training runs are in end_to_end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import distributed
from torch.autograd.graph import save_on_cpu
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from paretune.estimating.formats import formats_of
from paretune.specification.job import JobSpec
from paretune.training import device, model, processes, strategies
from paretune.training.experiments.tensor import divide_matrices
from tests.support.processes import free_port
from tests.support.small_models import small

GPU = {"instance_type": "ml.p4d.24xlarge", "instance_count": 2}


def test_smddp_is_met_through_its_own_backend_and_not_through_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    imported: list[str] = []
    monkeypatch.setattr(strategies, "can_be_imported", lambda _: True)
    monkeypatch.setattr(strategies, "importlib", SimpleNamespace(import_module=imported.append))
    monkeypatch.setenv("SM_FRAMEWORK_PARAMS", '{"sagemaker_distributed_dataparallel_enabled": true}')
    request: list[str] = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **_: request.append(backend))
    monkeypatch.setattr(torch.distributed, "new_group", lambda backend: request.append(backend))
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(processes, "_objects", None)

    strategies.begin(JobSpec(strategy="smddp", **GPU).degrees)

    assert (imported, request) == (["smdistributed.dataparallel.torch.torch_smddp"], ["smddp", "gloo"])
    assert "SM_FRAMEWORK_PARAMS" not in strategies.os.environ


BACKEND = """
from torch import distributed
def start(store, rank, size, timeout):
    return distributed.ProcessGroupGloo(store, rank, size, timeout)
distributed.Backend.register_backend("smddp", start, devices=["cuda"])
"""
PROCESS = """
from paretune.specification.job import JobSpec
from paretune.training import processes, strategies
strategies.begin(JobSpec(strategy="smddp", instance_type="ml.p4d.24xlarge", instance_count=2).degrees)
rank = strategies.distributed.get_rank()
print(processes.gather({"rank": rank}), processes.of_first(rank + 7), flush=True)
"""


def test_processes_of_smddp_exchange_objects_although_its_backend_only_has_tensors_of_gpus(tmp_path: Path) -> None:
    package = tmp_path / "smdistributed" / "dataparallel" / "torch"
    package.mkdir(parents=True)
    (package / "torch_smddp.py").write_text(BACKEND)
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    alone["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo asks for the address of the host name, which may take minutes
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    ended = subprocess.run(
        [sys.executable, "-c", PROCESS],
        env={**os.environ, **alone, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.stdout == "[{'rank': 0}] 7\n", ended.stderr


@pytest.fixture
def mesh() -> Iterator[Any]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("tensor",))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_every_parameter_lies_on_the_mesh_and_a_tied_head_stays_tied(mesh: Any, kind: str, tied: bool) -> None:
    model = small(kind, "causal-lm", tie_word_embeddings=tied).eval()
    tokens = torch.arange(6)[None]
    expected = model(input_ids=tokens).logits.detach()

    divide_matrices(model, mesh)

    assert all(isinstance(item, DTensor) for item in model.parameters())
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    result = model(input_ids=tokens).logits
    assert type(result) is torch.Tensor
    assert torch.allclose(result, expected, atol=1e-6)


@pytest.fixture
def two_processes() -> Iterator[None]:
    """Start the first of two processes, whose messages nobody answers."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    torch.distributed.destroy_process_group()


class Reductions(TorchDispatchMode):
    """Counts the all-reduces between processes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        self.count += function is torch.ops.c10d.allreduce_.default
        return function(*inputs, **(options or {}))


@pytest.mark.usefixtures("two_processes")
def test_copies_of_shards_exchange_gradients_after_the_last_micro_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "wait_for_all", lambda: None)  # the second process never comes
    spec = JobSpec(strategy="fsdp", instance_count=2, hybrid_shard_degree=1)

    def build(drawn: Any = None, *, packs: bool = True) -> Any:
        assert packs is (drawn is not None)  # the shards pack what the first process read
        with torch.device("cpu" if drawn is None else "meta"):
            return small("gpt2"), []

    shards = strategies.Shards(spec.degrees, formats_of(spec.fine_tuning, spec.degrees, "gpt2", "fp32"), build)
    batch = {"input_ids": torch.ones(2, 4).long(), "attention_mask": torch.ones(2, 4).long()}
    counts = []
    for is_last in (False, False, True):
        with Reductions() as reductions:
            loss: Any = SimpleNamespace(of_logits=lambda logits, labels: logits.sum())
            shards.backward({**batch, "labels": torch.zeros(2)}, loss, scale=None, is_last=is_last)
        counts.append(reductions.count)

    assert counts[:2] == [0, 0]
    assert counts[2] > 0


@pytest.fixture
def group_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the process group that a job of one process starts to offload its weights."""
    monkeypatch.delenv("RANK", raising=False)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_shards_of_four_bit_weights_are_merged_into_a_folder_that_answers_as_they_did(
    tiny_model: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"fine_tuning": "qlora", "lora": {"r": 4}, "strategy": "fsdp", "cpu_offload": True}
    spec, messages = JobSpec(model=str(tiny_model), precision="fp32", **options), list[str]()
    given = spec.model_arguments
    strategies.begin(spec.degrees)
    formats, tokenizer = model.find_formats(given, spec.degrees, "fp32", tiny_model), model.load_tokenizer(tiny_model)

    def build(drawn: Any = None, *, packs: bool = True) -> Any:
        return model.build_model(given, tiny_model, ("bad", "good"), tokenizer, formats, drawn=drawn, packs=packs)

    shards = strategies.Shards(spec.degrees, formats, build)
    trained = shards.model.eval()
    with torch.no_grad():
        for name, weight in trained.named_parameters():
            if "lora_B" in name:  # zero at first
                weight.to_local().normal_(generator=torch.Generator().manual_seed(1))
        tokens = torch.arange(5, 13).reshape(1, 8)
        expected = trained(input_ids=tokens).logits
    shards.reshard()
    model.write_model(trained, tmp_path / "model", given, formats, messages.append, shards)

    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert model.four_bit_layers(trained)
    assert messages == []
    assert torch.allclose(loaded(input_ids=tokens).logits, expected, atol=1e-3)


def gradients(kept: list[torch.Size], *, on_cpu: bool) -> dict[str, torch.Tensor]:
    """Return the gradients of a small model after one backward pass; `kept` gets the shapes that the hooks keep."""
    torch.manual_seed(0)
    trained = small("llama", "causal-lm").train()
    strategies.checkpoint_activations(trained, on_cpu=on_cpu)

    class Noted(save_on_cpu):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            pack = self.pack_hook
            self.pack_hook = lambda tensor: (kept.append(tensor.shape), pack(tensor))[1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies, "save_on_cpu", Noted)
        tokens = torch.arange(12).reshape(2, 6)
        trained(input_ids=tokens, labels=tokens).loss.backward()
    return {name: item.grad for name, item in trained.named_parameters() if item.grad is not None}


def test_offloaded_activations_are_the_inputs_of_the_layers_and_change_no_gradient() -> None:
    none, inputs = list[torch.Size](), list[torch.Size]()

    expected = gradients(none, on_cpu=False)
    offloaded = gradients(inputs, on_cpu=True)

    assert none == []
    config = small("llama", "causal-lm").config
    whole = [shape for shape in inputs if shape == (2, 6, config.hidden_size)]
    assert len(whole) == config.num_hidden_layers  # one input of each layer, and nothing from inside a layer
    assert max(shape.numel() for shape in inputs) == 2 * 6 * config.hidden_size
    assert expected.keys() == offloaded.keys()
    assert all(torch.equal(offloaded[name], gradient) for name, gradient in expected.items())
