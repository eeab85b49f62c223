"""The memory that a training step needs, without weights, data or a GPU: `python -m paretune.training.memory_tracing`.

It reads a JSON list of StepSettings on standard input, runs two steps of each on fake tensors, and writes a line of
JSON with the memory in use after each operation.

Fake tensors (torch FakeTensorMode) have shapes and no contents, so a model of any size is built and trained in seconds
by its own code. `torch.distributed._tools.MemTracker` finds the same peak fifteen times more slowly (torch 2.13: 31 s
for BERT-base against 2 s) and does not give the bytes after every operation, from which peaks for other batches follow.
"""

import json
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from accelerate.utils import convert_outputs_to_fp32
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from paretune.core.errors import first_line
from paretune.estimating.traced_step import KINDS, StepSetting, TracedStep, envelope
from paretune.specification.metrics import CAUSAL_LM, WORDS
from paretune.training.cpu_kernels import use_cpu_kernels
from paretune.training.device import half_format
from paretune.training.model import auto_class, layers_of, with_trained_weights
from paretune.training.stop_signal import StopSignal
from paretune.training.tasks import token_loss

_ROWS = (2, 4)  # batches that are traced: the memory is a linear function of the rows
_GRADIENTS, _CASTS, _INPUTS, _LAYERS, _OTHER, _PASSING = range(len(KINDS))
# Operations of models that autocast computes in fp32 on CUDA and not on CPUs. Source: PyTorch 2.13, "Automatic Mixed
# Precision package", "CUDA Ops that can autocast to float32".
_IN_FP32 = (
    *((functional, name) for name in ("cross_entropy", "group_norm", "layer_norm", "log_softmax", "softmax")),
    *((torch, name) for name in ("log_softmax", "pow", "softmax")),
)


def main() -> int:
    """Exit code 0; each line is a TracedStep, or has an `error` if the model's own code cannot be traced."""
    StopSignal().watch_parent()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a model may print
    for setting in json.load(sys.stdin):
        print(json.dumps(_answer(StepSetting(**setting))), file=answers, flush=True)
    return 0


def _answer(setting: StepSetting) -> Mapping[str, Any]:
    try:
        return asdict(trace(setting))
    except Exception as error:  # of any model's own code
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


def trace(setting: StepSetting) -> TracedStep:
    """The memory of two training steps and an evaluation of the model; raises any exception of the model's own code."""
    model = _build(setting)
    with FakeTensorMode(allow_non_fake_inputs=True):
        _fake(model)
        if setting.recomputes:
            # transformers 5.23 has renamed it
            getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
        trained = [item for item in model.parameters() if item.requires_grad]
        optimizer = torch.optim.AdamW(trained, fused=True)
        runs = []
        for rows in (_ROWS[0], *_ROWS):  # the first step makes the optimiser's moments and tables of positions
            usage = _MemoryUsage(model)
            with usage, nullcontext() if setting.on_processor else _gpu_operations(half_format(setting.half)):
                _train(setting, model, usage, rows)
                optimizer.step()
                usage.record()
                optimizer.zero_grad(set_to_none=True)
                split = len(usage.history)
                _evaluate(setting, model, rows)
            runs.append((usage.table(0, split), usage.table(split, None)))
        state = _bytes(
            item for moments in optimizer.state.values() for item in moments.values() if torch.is_tensor(item)
        )
    (train, evaluated), (more, more_evaluated) = runs[1:]
    return TracedStep(
        **_weights(model, trained),
        state=state,
        train=envelope(train, more, _ROWS),
        evaluate=envelope(evaluated, more_evaluated, _ROWS),
    )


def _build(setting: StepSetting) -> Any:
    """The model of a configuration with the trainable weights of a job, on the device `meta`."""
    config = dict(setting.config)
    if setting.task != CAUSAL_LM:
        config |= {"num_labels": 2}  # more labels need hardly more memory
    auto_config = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.device("meta"):
        dtype = torch.bfloat16 if setting.frozen_in_half else torch.float32
        model = auto_class(setting.task).from_config(auto_config, dtype=dtype)
        if model.config.pad_token_id is None:
            model.config.pad_token_id = 0
        model = with_trained_weights(model, setting)
    if setting.on_processor:
        use_cpu_kernels(model)
    return model


def _fake(model: Any) -> None:
    """Replace the tensors of a model by fake tensors on the CPU; shared tensors stay shared."""
    fakes: dict[int, Any] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, item in tensors.items():
                if item is None:
                    continue
                if id(item) not in fakes:
                    fake = torch.empty_like(item, device="cpu")
                    is_weight = isinstance(item, torch.nn.Parameter)
                    fakes[id(item)] = torch.nn.Parameter(fake, item.requires_grad) if is_weight else fake
                tensors[name] = fakes[id(item)]


def _train(setting: StepSetting, model: Any, usage: "_MemoryUsage", rows: int) -> None:
    """Run a forward and a backward pass of `rows` rows."""
    model.train()
    loss = _loss(setting, model, rows)
    usage.is_backward = True
    loss.backward()
    usage.is_backward = False


def _evaluate(setting: StepSetting, model: Any, rows: int) -> None:
    """Run a forward pass whose activations are not kept."""
    model.eval()
    with torch.no_grad():
        _loss(setting, model, rows, evaluates=True)


def _loss(setting: StepSetting, model: Any, rows: int, *, evaluates: bool = False) -> Any:
    """The loss of `rows` rows, computed as in the Trainer."""
    shape, half = (rows, setting.tokens), half_format(setting.half)
    tokens, mask = (make(shape, dtype=torch.int64) for make in (torch.zeros, torch.ones))
    texts = {"input_ids": tokens, "attention_mask": mask}
    is_language = setting.task == CAUSAL_LM
    labels = {"labels": torch.zeros(shape, dtype=torch.int64)} if is_language and not evaluates else {}
    with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
        outputs = model(**texts, **labels)
    if half is not None:
        outputs = convert_outputs_to_fp32(lambda: outputs)()
    if evaluates and setting.task in {CAUSAL_LM, WORDS}:  # row by row, so that one row shows what is needed at a time
        return token_loss({"logits": outputs["logits"][:1]}, tokens[:1])
    if setting.task == WORDS:  # all rows together, so that the operations do not depend on their number
        return cross_entropy(outputs["logits"].float().flatten(0, 1), tokens.flatten())
    return outputs["loss"] if is_language else cross_entropy(outputs["logits"], torch.zeros(rows, dtype=torch.int64))


class _MemoryUsage(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes in use beside weights and optimiser state, by kind, recorded after every operation."""

    def __init__(self, model: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_backward = False
        self.history: list[tuple[int, ...]] = []
        self._now = [0] * len(KINDS)
        self._kind: dict[int, tuple[int, int]] = {}  # storage to its kind and bytes
        self._weights = {item.untyped_storage()._cdata for item in (*model.parameters(), *model.buffers())}
        self._depth = 0
        self._hooks: list[Any] = []
        self._model = model

    def __enter__(self) -> "_MemoryUsage":
        """Start recording, with hooks in the model."""
        for layer in layers_of(self._model):
            self._hooks.append(layer.register_forward_pre_hook(self._enter_layer, with_kwargs=True))
            self._hooks.append(layer.register_forward_hook(self._leave_layer, always_call=True))
        for item in self._model.parameters():
            if item.requires_grad:
                self._hooks.append(item.register_post_accumulate_grad_hook(self._has_gradient))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Remove the hooks from the model."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and count the tensors that it has made."""
        result = function(*args, **(kwargs or {}))
        is_cast = function is torch.ops.aten._to_copy.default and args[0].untyped_storage()._cdata in self._weights
        kind = _CASTS if is_cast else _PASSING if self.is_backward else _LAYERS if self._depth else _OTHER
        for item in tree_iter(result):
            if isinstance(item, torch.Tensor):
                self._count(item.untyped_storage(), kind)
        self.record()
        return result

    def record(self) -> None:
        """Record the bytes in use now."""
        self.history.append(tuple(self._now))

    def table(self, start: int, stop: int | None) -> np.ndarray:
        """The records from `start` to `stop`: bytes (operations, kinds)."""
        return np.array(self.history[start:stop], dtype=np.float64)

    def _count(self, storage: Any, kind: int) -> None:
        address = storage._cdata
        if address in self._kind or address in self._weights:
            return
        self._kind[address] = (kind, storage.nbytes())
        self._now[kind] += storage.nbytes()
        weakref.finalize(storage, self._release, address)

    def _release(self, address: int) -> None:
        kind, size = self._kind.pop(address, (0, 0))
        self._now[kind] -= size

    def _change_kind(self, tensor: Any, kind: int) -> None:
        address = tensor.untyped_storage()._cdata
        if address in self._kind:
            previous, size = self._kind[address]
            self._kind[address] = (kind, size)
            self._now[previous] -= size
            self._now[kind] += size

    def _has_gradient(self, weight: Any) -> None:
        self._change_kind(weight.grad, _GRADIENTS)

    def _enter_layer(self, layer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        hidden = args[0] if args else kwargs.get("hidden_states")
        if self._depth == 0 and not self.is_backward and isinstance(hidden, torch.Tensor):
            self._change_kind(hidden, _INPUTS)
        self._depth += 1

    def _leave_layer(self, layer: Any, args: Any, result: Any) -> None:
        self._depth -= 1


def _bytes(tensors: Any) -> float:
    """Bytes of tensors; those that share their memory count once."""
    storages = (item.untyped_storage() for item in tensors)
    return float(sum({storage._cdata: storage.nbytes() for storage in storages}.values()))


def _weights(model: Any, trained: Sequence[Any]) -> dict[str, float]:
    """Bytes of weights and of their gradients, inside the repeated layers and outside."""
    layers = layers_of(model)
    inside = {id(item) for layer in layers for item in layer.parameters()}
    frozen_linear = [
        module.weight
        for layer in layers
        for module in layer.modules()
        if isinstance(module, torch.nn.Linear) and not module.weight.requires_grad
    ]
    whole = list(model.parameters())
    return {
        "layers": float(len(layers)),
        "layer_weights": _bytes(item for item in whole if id(item) in inside),
        "other_weights": _bytes(item for item in whole if id(item) not in inside),
        "input_weights": _bytes(model.get_input_embeddings().parameters()),
        "largest_layer": max((_bytes(layer.parameters()) for layer in layers), default=0.0),
        "quantisable": float(sum(item.numel() for item in frozen_linear)),
        "quantisable_bytes": _bytes(frozen_linear),
        "layer_gradients": _bytes(item for item in trained if id(item) in inside),
        "other_gradients": _bytes(item for item in trained if id(item) not in inside),
    }


@contextmanager
def _gpu_operations(half: torch.dtype | None) -> Iterator[None]:
    """Make attention, dropout and, if `half` is given, autocast behave as on a GPU.

    Python functions are replaced, because a `TorchFunctionMode` is off where a backward pass computes a layer again
    (torch 2.13).
    """

    def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **options: Any) -> Any:
        return _attention(half, query, key, value, attn_mask, repeats=bool(options.get("enable_gqa")))

    with ExitStack() as replaced:
        replaced.enter_context(patch.object(functional, "scaled_dot_product_attention", attention))
        replaced.enter_context(patch.object(functional, "dropout", _dropout))
        for owner, name in _IN_FP32 if half is not None else ():
            precise = _in_fp32(getattr(owner, name), half)
            replaced.enter_context(patch.object(owner, name, precise))
        yield


def _in_fp32(function: Callable[..., Any], half: torch.dtype | None) -> Callable[..., Any]:
    def precise(*args: Any, **options: Any) -> Any:
        return function(*map(as_fp32, args), **{name: as_fp32(item) for name, item in options.items()})

    def as_fp32(item: Any) -> Any:
        return item.float() if isinstance(item, torch.Tensor) and item.dtype == half else item

    return precise


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout that keeps a mask of one byte per element, as on a GPU; on CPUs PyTorch keeps numbers."""
    return torch.native_dropout(input, p, True)[0] if training and p else input


def _attention(half: torch.dtype | None, query: Any, key: Any, value: Any, mask: Any, *, repeats: bool) -> Any:
    """Attention that keeps query, key, value, output and the sums of its rows, but no attention matrix.

    This is the kernel for CPUs, which does so without dropout; those for GPUs also do so with dropout (Dao et al.,
    arXiv 2205.14135, algorithm 2).
    """
    query, key, value = (item.to(half) if half is not None else item for item in (query, key, value))
    if repeats:
        times = query.shape[1] // key.shape[1]
        key, value = (item.repeat_interleave(times, dim=1) for item in (key, value))
    if mask is not None:  # the kernels take it as numbers, made in every layer
        mask = torch.empty_like(mask, dtype=query.dtype)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=mask is None, attn_mask=mask
    )[0]


if __name__ == "__main__":
    sys.exit(main())
