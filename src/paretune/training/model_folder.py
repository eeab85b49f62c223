"""Writes a trained model as a Hugging Face folder, with adapters merged into the weights that they were trained on.

Weights become W + alpha / r * B A, added in fp32 and rounded once to the number format of W. With qlora W are the
values of the four-bit weights in the format of their products, so that the folder answers as the trained model did;
peft's `merge_and_unload` would round the sum to four bits again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from paretune.core.errors import first_line
from paretune.core.untrusted import at_home
from paretune.specification.container import FILE_BYTES, write_json
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL_ID
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.specification.metrics import CAUSAL_LM
from paretune.training import processes
from paretune.training.sharding import Division

_WEIGHTS = "model.safetensors"  # the name that transformers gives a single file


def write_model(
    model: Any, folder: Path, spec: JobSpec, tell: Callable[[str], None], division: Division | None = None
) -> None:
    """Write a model that may be divided over processes, which must all call it; the first one writes.

    Adapters are merged, or written alone with merge=false in `lora`. If merging fails, the adapters stay, because they
    were paid for, and `tell` gets the reason.
    """
    if division is not None:
        division.reshard()
    if spec.fine_tuning not in ADAPTERS:
        _write(model, folder, division)
        return
    path = at_home(spec.model)
    base_name = str(path.resolve()) if path.is_dir() else spec.model
    for config in model.peft_config.values():  # by which peft finds the base model
        config.base_model_name_or_path = BUNDLED_MODEL_ID if spec.model.startswith(BUNDLED) else base_name
    state = {name: processes.whole(item.detach()) for name, item in model.named_parameters() if item.requires_grad}
    base = model.get_base_model()
    if processes.is_first():  # "auto" would ask the hub for the vocabulary
        model.save_pretrained(folder, state_dict=state, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)  # peft's empty card; ours is written when the cost is known
    base.hf_quantizer = None
    if hasattr(base.config, "quantization_config"):
        del base.config.quantization_config
    if not spec.lora.merge:
        if processes.is_first() and spec.task != CAUSAL_LM:  # it has the class names
            base.config.save_pretrained(folder)
        return
    try:
        merge_adapters(base)
        _write(base, folder, division)
    except (MemoryError, RuntimeError, OSError) as error:  # out of memory, or the disk is full
        for path in folder.glob("model*.safetensors*"):
            path.unlink()
        reason = f"{type(error).__name__}: {first_line(error)}"
        tell(f"the adapters could not be merged; the model folder has the adapters alone ({reason})")
        return
    for path in folder.glob("adapter_*") if processes.is_first() else ():  # which may have failed to write the model
        path.unlink()


def _write(model: Any, folder: Path, division: Division | None) -> None:
    """Write the weights and the configuration; a divided model in files that are gathered one after another."""
    if division is None:
        if processes.is_first():
            model.save_pretrained(folder)
        return
    written, failure = list[Path](), None
    for part in division.parts_of(model, FILE_BYTES):
        if processes.is_first() and failure is None:
            try:
                model.save_pretrained(folder, state_dict=part)
                written.append((folder / _WEIGHTS).rename(folder / f"model.part-{len(written)}.safetensors"))
            except (MemoryError, RuntimeError, OSError) as error:  # raised when the others do not wait any more
                failure = error
    if failure is not None:
        raise failure
    if len(written) == 1:
        written[0].rename(folder / _WEIGHTS)
    elif written:  # the names by which transformers finds them, and their index
        files, total = dict[str, str](), sum(path.stat().st_size for path in written)
        for number, path in enumerate(written, 1):
            name = f"model-{number:05}-of-{len(written):05}.safetensors"
            with safe_open(path.rename(folder / name), "pt") as content:
                files |= dict.fromkeys(content.keys(), name)
        write_json(folder / f"{_WEIGHTS}.index.json", {"metadata": {"total_size": total}, "weight_map": files})


@torch.no_grad()
def merge_adapters(base: Any) -> None:
    """Replace the layers of peft, and weights of four bits, in the model `base` by plain ones with merged weights."""
    from peft.tuners.lora import LoraLayer
    from peft.utils import ModulesToSaveWrapper
    from transformers.pytorch_utils import Conv1D

    for name, layer in list(base.named_modules()):
        if isinstance(layer, ModulesToSaveWrapper):
            base.set_submodule(name, layer.modules_to_save["default"])
            continue
        plain = layer.get_base_layer() if isinstance(layer, LoraLayer) else layer
        state = getattr(getattr(plain, "weight", None), "quant_state", None)
        if plain is layer and state is None:
            continue
        weight = plain.weight.detach()
        if state is not None:
            from bitsandbytes.functional import dequantize_4bit

            weight = torch.as_tensor(dequantize_4bit(weight.data, state)).to(plain.compute_dtype)
        if plain is not layer:
            weight = (weight.float() + layer.get_delta_weight("default").float()).to(weight.dtype)
            base.set_submodule(name, plain)
        if state is not None and issubclass(plain.source_cls, Conv1D):  # GPT-2's, transposed to be quantised
            weight = weight.T.contiguous()
        plain.weight = torch.nn.Parameter(weight, requires_grad=False)
