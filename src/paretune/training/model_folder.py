"""Writes a trained model as a Hugging Face folder, with adapters merged into the weights that they were trained on.

Adapters are added in fp32: W + alpha / r * B A, where W are the weights that the training computed with (for qlora the
values of the four-bit weights; peft's `merge_and_unload` would round the sum to four bits again). The sum is written in
the number format of the base model's own files, so a base in fp32 gives the function that was evaluated, and one in
bf16 gives it up to rounding to bf16. Weights that are divided over processes are gathered one at a time. One file of
weights is made at a time, so that this takes no more than LARGEST_FILE bytes of memory: the machine of the job may be
too small for the weights of all layers.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from paretune.core.errors import first_line
from paretune.core.untrusted import at_home
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL_ID
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.training import processes

LARGEST_FILE = 2**31  # bytes of weights in one file: 2 GiB; the names are Hugging Face's for models in several files
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_PEFT_CARD = "README.md"  # peft writes an empty card; ours is written when the cost is known
_TRAINED_WHOLE = re.compile(r"\.modules_to_save\.default(?=\.)")
_PEFT_MODULE = re.compile(r"(^|\.)(lora_\w+|original_module)\.")


Weights = Iterable[tuple[str, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """The folder `path` for the trained model of `spec`, whose base is in `source`; `tell` gets sentences."""

    path: Path
    source: Path
    spec: JobSpec
    tell: Callable[[str], None]

    def write(self, model: Any, weights: Weights | None = None) -> None:
        """Write a model whose weights may be divided over processes, which must all call it; the first one writes.

        `weights` are those of the model, in all processes, unless `model` has them. Adapters are merged, or written
        alone with merge=false in `lora`. config.json, which has the class names, is written beside weights and beside
        adapters of classifiers. If merging fails, the adapters stay, because they were paid for.
        """
        if self.spec.fine_tuning not in ADAPTERS:
            if processes.is_first():
                _write_config(model, self.path, torch.float32)
            write_weights(_as_published(model, merged_weights(model, None) if weights is None else weights), self.path)
            return
        for config in model.peft_config.values():
            config.base_model_name_or_path = base_name(self.spec.model)
        state = {name: processes.whole(item.detach()) for name, item in model.named_parameters() if item.requires_grad}
        base, dtype = model.get_base_model(), number_format(self.source)
        if processes.is_first():  # "auto" would ask the hub for the vocabulary
            model.save_pretrained(self.path, state_dict=state, save_embedding_layers=False)
            (self.path / _PEFT_CARD).unlink(missing_ok=True)
            if (
                self.spec.lora.merge or self.spec.task != "causal-lm"
            ):  # beside a config.json transformers looks for weights
                _write_config(base, self.path, dtype)
        if not self.spec.lora.merge:
            return
        try:
            write_weights(merged_weights(base, dtype), self.path)
        except (MemoryError, RuntimeError, OSError) as error:  # out of memory, or the disk is full
            for path in self.path.glob("model*.safetensors*"):
                path.unlink()
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.tell(f"the adapters could not be merged; the model folder has the adapters alone ({reason})")
            return
        for name in _ADAPTER_FILES:
            (self.path / name).unlink(missing_ok=True)


def base_name(model: str) -> str:
    """The name by which peft finds the base model: a hub id, or the path of a folder."""
    if model.startswith(BUNDLED):
        return BUNDLED_MODEL_ID
    path = at_home(model)
    return str(path.resolve()) if path.is_dir() else model


def number_format(source: Path) -> torch.dtype:
    """The number format of the weights in a model folder according to its config.json; fp32 if it names none."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    dtype = getattr(torch, str(config.get("dtype") or config.get("torch_dtype") or "float32"), None)
    return dtype if isinstance(dtype, torch.dtype) and dtype.is_floating_point else torch.float32


def _write_config(base: Any, folder: Path, dtype: torch.dtype) -> None:
    """Write config.json of the model without quantisation, and the configuration of its generation."""
    config = copy.deepcopy(base.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures, config.dtype = [type(base).__name__.removeprefix("FSDP")], dtype
    config.save_pretrained(folder)
    if base.can_generate() and base.generation_config is not None:
        base.generation_config.save_pretrained(folder)


def write_weights(weights: Weights, folder: Path, largest: int = LARGEST_FILE) -> None:
    """Write weights as safetensors, at most `largest` bytes a file; others only go through them.

    The names of the files depend on their number, so they are drafts until all are written.
    """
    drafts: list[tuple[Path, list[str]]] = []  # with the names of the weights in each
    failure: Exception | None = None
    part: dict[str, torch.Tensor] = {}
    total = part_bytes = 0

    def write() -> None:
        path = folder / f"model-{len(drafts) + 1:05d}.safetensors"
        save_file(part, path, metadata={"format": "pt"})
        drafts.append((path, [*part]))

    for name, tensor in weights:
        if failure is not None or not processes.is_first():
            continue  # the others wait for this process to go through all weights
        try:
            if part and part_bytes + tensor.nbytes > largest:
                write()
                part, part_bytes = {}, 0
        except OSError as error:
            failure = error
        part[name] = tensor
        part_bytes += tensor.nbytes
        total += tensor.nbytes
    if failure is not None:
        raise failure
    if not processes.is_first():
        return
    write()
    if len(drafts) == 1:
        drafts[0][0].rename(folder / _WEIGHTS)
        return
    file_of: dict[str, str] = {}
    for path, names in drafts:
        final = f"{path.stem}-of-{len(drafts):05d}.safetensors"
        path.rename(folder / final)
        file_of |= dict.fromkeys(names, final)
    (folder / _INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": file_of}, indent=2))


def _as_published(model: Any, weights: Weights) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights under the names of published files, where transformers has changed those of its modules."""
    for name, tensor in weights:
        entries = {name: tensor}
        # As transformers does for models whose weights are not all in memory: names of modules can be loaded, too.
        with suppress(Exception):
            entries = transformers.core_model_loading.revert_weight_conversion(model, entries)
        yield from entries.items()


@torch.no_grad()
def merged_weights(base: Any, dtype: torch.dtype | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of each weight of the plain model on the CPU, as `dtype` unless it is None; a tied weight once."""
    from peft.tuners.lora import LoraLayer

    seen: set[int] = set()
    for prefix, module in base.named_modules(remove_duplicate=False):
        if _PEFT_MODULE.search(f"{prefix}."):
            continue
        layer = module.get_base_layer() if isinstance(module, LoraLayer) else module
        if (layer is not module or _is_quantised(layer)) and id(layer.weight) not in seen:
            seen.add(id(layer.weight))
            weight = _merged_weight(module) if layer is not module else _plain_weight(layer)
            yield (
                _plain_name(f"{prefix}.weight"),
                _as_in_files(weight, layer).to(dtype or weight.dtype).cpu().contiguous(),
            )
        for name, tensor in _saved_tensors(module):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                value = processes.whole(tensor.detach())
                value = value.to(dtype) if dtype is not None and tensor.is_floating_point() else value
                yield _plain_name(f"{prefix}.{name}"), value.cpu().contiguous()


def _saved_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers of the module itself, without those of its submodules."""
    yield from module.named_parameters(recurse=False)
    for name, buffer in module.named_buffers(recurse=False):
        if name not in module._non_persistent_buffers_set:
            yield name, buffer


def _merged_weight(layer: Any) -> torch.Tensor:
    """The weight of a layer with its adapters added, in fp32."""
    weight = _plain_weight(layer.get_base_layer())
    for name in layer.active_adapters:
        weight = weight + processes.whole(layer.get_delta_weight(name)).float()
    return weight


def _plain_weight(layer: Any) -> torch.Tensor:
    """The weight of a layer in fp32; a quantised weight is dequantised."""
    weight = processes.whole(layer.weight.detach())
    if _is_quantised(layer):
        from bitsandbytes.functional import dequantize_4bit

        weight = dequantize_4bit(weight.data, layer.weight.quant_state)
    return torch.as_tensor(weight).float()


def _is_quantised(layer: Any) -> bool:
    return getattr(getattr(layer, "weight", None), "quant_state", None) is not None


def _as_in_files(weight: torch.Tensor, layer: Any) -> torch.Tensor:
    """The weight as the plain model has it: transformers transposes that of a Conv1D (GPT-2) to quantise it."""
    source = getattr(layer, "source_cls", None)
    is_transposed = source is not None and issubclass(source, transformers.pytorch_utils.Conv1D)
    return weight.T if is_transposed else weight


def _plain_name(name: str) -> str:
    """The name that a weight has without peft's layers around it."""
    return _TRAINED_WHOLE.sub("", name.replace(".base_layer.", ".").removeprefix("base_layer.")).lstrip(".")
