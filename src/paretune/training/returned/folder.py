"""Write a trained model as a Hugging Face folder, adapters added to the weights beside which they were trained.

Adapters are added in fp32: W + alpha / r * B A, where W are the weights that the training computed with (for qlora
those that four bits stand for). The sum is written in the number format of the base model's own files, so a base in
fp32 gives the function that was evaluated, and one in bf16 gives it but for rounding to bf16. The model in memory is
not changed: other trials may share its frozen weights. One file of weights is made at a time, so that this takes no
more than LARGEST_FILE bytes of memory: the machine of a qlora job may be too small for the weights of all layers.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from paretune.core.errors import first_line
from paretune.core.untrusted import at_home
from paretune.specification.job import ADAPTERS, BUNDLED, BUNDLED_MODEL_ID, JobSpec

LARGEST_FILE = 2**31
"""Bytes of weights in one file: 2 GiB; the names are Hugging Face's for models in several files."""
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_PEFT_CARD = "README.md"  # peft writes one about nothing; ours is written when dollars are known
_TRAINED_WHOLE = re.compile(r"\.modules_to_save\.default(?=\.)")
_OF_PEFT = re.compile(r"(^|\.)(lora_\w+|original_module)\.")

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ReturnedFolder:
    """Where the model of a job of `spec` is written; its base was read from the folder `source`.

    `tell` takes a sentence for the user.
    """

    path: Path
    source: Path
    spec: JobSpec
    tell: Tell

    @property
    def has_adapters(self) -> bool:
        """Whether the job has trained adapters, which `write` is for."""
        return self.spec.fine_tuning in ADAPTERS

    def write(self, model: Any) -> None:
        """Write a model with adapters, a peft model in one process: merged, or with `merge` off the adapters alone.

        The configuration with class names is beside merged weights and beside adapters of classifiers. Where merging
        fails, the adapters stay: they were paid for.
        """
        for config in model.peft_config.values():
            config.base_model_name_or_path = base_name(self.spec.model)
        model.save_pretrained(self.path, save_embedding_layers=False)  # auto asks the hub how large they were
        (self.path / _PEFT_CARD).unlink(missing_ok=True)
        base = model.get_base_model()
        if not self.spec.merge:
            if self.spec.task != "causal-lm":  # class names; beside a config.json transformers looks for weights
                _write_config(base, self.path, number_format(self.source))
            return
        _write_config(base, self.path, number_format(self.source))
        try:
            write_merged(base, self.path, number_format(self.source))
        except (MemoryError, RuntimeError, OSError) as error:  # out of memory, or the disk is full
            for path in self.path.glob("model*.safetensors*"):
                path.unlink()
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.tell(f"the adapters are not merged, the model folder has them as they are ({reason})")
            return
        for name in _ADAPTER_FILES:
            (self.path / name).unlink(missing_ok=True)


def base_name(model: str) -> str:
    """What peft finds the base model by: a hub id, or the path of a folder."""
    if model.startswith(BUNDLED):
        return BUNDLED_MODEL_ID
    path = at_home(model)
    return str(path.resolve()) if path.is_dir() else model


def number_format(source: Path) -> torch.dtype:
    """The number format of the weights in a model's folder, as its config.json tells; fp32 where it does not."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    found = getattr(torch, str(config.get("dtype") or config.get("torch_dtype") or "float32"), None)
    return found if isinstance(found, torch.dtype) and found.is_floating_point else torch.float32


def _write_config(base: Any, folder: Path, dtype: torch.dtype) -> None:
    """Write config.json of the model without quantisation, and the configuration of its generation."""
    config = copy.deepcopy(base.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures, config.dtype = [type(base).__name__], dtype
    config.save_pretrained(folder)
    if base.can_generate() and base.generation_config is not None:
        base.generation_config.save_pretrained(folder)


def write_merged(base: Any, folder: Path, dtype: torch.dtype, largest: int = LARGEST_FILE) -> None:
    """Write the weights of a model with peft's layers in it as safetensors, adapters added, `largest` bytes a file."""
    files: list[list[str]] = []
    part: dict[str, torch.Tensor] = {}
    total = held = 0
    for name, tensor in merged_weights(base, dtype):
        if part and held + tensor.nbytes > largest:
            _write_part(part, folder, files)
            part, held = {}, 0
        part[name] = tensor
        held += tensor.nbytes
        total += tensor.nbytes
    _write_part(part, folder, files)
    _name_parts(folder, files, total)


def _part(number: int) -> str:
    return f"model-{number:05d}.safetensors"


def _write_part(part: dict[str, torch.Tensor], folder: Path, files: list[list[str]]) -> None:
    files.append([*part])
    save_file(part, folder / _part(len(files)), metadata={"format": "pt"})


def _name_parts(folder: Path, files: list[list[str]], total: int) -> None:
    """Give the files of weights their names, and the index that says which one has which weight."""
    if len(files) == 1:
        (folder / _part(1)).rename(folder / _WEIGHTS)
        return
    where: dict[str, str] = {}
    for number, names in enumerate(files, start=1):
        final = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        (folder / _part(number)).rename(folder / final)
        where |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / _INDEX).write_text(json.dumps(index, indent=2))


@torch.no_grad()
def merged_weights(base: Any, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of each weight that the plain model has, in the machine's memory; a tied one once."""
    from peft.tuners.lora import LoraLayer

    seen: set[int] = set()
    for prefix, module in base.named_modules(remove_duplicate=False):
        if _OF_PEFT.search(f"{prefix}."):
            continue
        layer = module.get_base_layer() if isinstance(module, LoraLayer) else module
        if (layer is not module or _is_quantised(layer)) and id(layer.weight) not in seen:
            seen.add(id(layer.weight))
            whole = _sum(module) if layer is not module else _read_out(layer)
            yield _plain(f"{prefix}.weight"), _as_in_files(whole, layer).to(dtype).cpu().contiguous()
        for name, tensor in _own_tensors(module):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                kept = tensor.detach().to(dtype) if tensor.is_floating_point() else tensor.detach()
                yield _plain(f"{prefix}.{name}"), kept.cpu().contiguous()


def _own_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and saved buffers that are the module's own."""
    yield from module.named_parameters(recurse=False)
    for name, buffer in module.named_buffers(recurse=False):
        if name not in module._non_persistent_buffers_set:
            yield name, buffer


def _sum(layer: Any) -> torch.Tensor:
    """The weight of a layer with its adapters added, in fp32."""
    weight = _read_out(layer.get_base_layer())
    for name in layer.active_adapters:
        weight = weight + layer.get_delta_weight(name).float()
    return weight


def _read_out(layer: Any) -> torch.Tensor:
    """The weight of a layer in fp32; of a quantised one what its four bits stand for."""
    weight = layer.weight.detach()
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


def _plain(name: str) -> str:
    """The name that a weight has without peft's layers around it."""
    return _TRAINED_WHOLE.sub("", name.replace(".base_layer.", ".").removeprefix("base_layer.")).lstrip(".")
