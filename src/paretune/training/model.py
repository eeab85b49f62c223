"""Loads a model by its name, prepares it for training, and writes the trained model's folder."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers.models.auto import modeling_auto

from paretune.core.errors import BadInput, first_line
from paretune.core.hub import explain
from paretune.core.reading import at_home, exists, is_folder
from paretune.estimating.architecture import length_faults, positions_of
from paretune.estimating.formats import PLAIN_DECODERS, Formats, formats_of, is_plain, kind_of, stored_in
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL_ID
from paretune.specification.job import ALL_LINEAR, ModelArguments
from paretune.specification.parallelism import ParallelDegrees
from paretune.training import device, downloads, processes

_FEW_TOKENS, _WIDEST_TRIED = 64, 1024  # vocabulary and largest width of the model that `_padding_faults` tries
_MOST_TRIED = 500_000_000  # weights of the model that `keeps_texts_apart` tries: 2 GB
_CAUSAL = "sdpa_causal"  # name under which our attention without masks is registered in transformers
_SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.codes", "*.spm", "*.tokenizer")
"""Files of configurations and tokenizers: PhoBERT and BERTweet have *.codes, Marian *.spm, ProphetNet *.tokenizer."""
_WEIGHTS = ("*.safetensors", "*.bin")


def find_model(name: str, init: str = "pretrained", revision: str | None = None) -> Path:
    """Return the folder of a model: bundled, local, or fetched from the hub into its cache.

    `revision` is the commit to fetch from the hub, by default the newest. With `init` random, the model needs no
    weights, and none are fetched. Raises BadInput if there is no such model, or if it lacks weights.
    """
    if name.startswith(BUNDLED):
        return downloads.bundled_model(name)
    path, needs_weights = at_home(name), init != "random"
    if not is_folder(path):
        if exists(path) or name.startswith((".", "/", "~")):
            raise BadInput([f"model {name} is not a folder: give a Hugging Face model folder or a hub id"])
        patterns = [*_SMALL_FILES, _WEIGHTS[0]] if needs_weights else [*_SMALL_FILES]
        try:
            path = _fetched(name, revision, patterns)
            if needs_weights and not any(path.glob(_WEIGHTS[0])):  # the repository has only the older format
                path = _fetched(name, path.name, [_WEIGHTS[1]])
        except Exception as error:
            raise BadInput([explain("model", name, error)]) from error
    if needs_weights and not any(file for pattern in _WEIGHTS for file in path.glob(pattern)):
        expected = f"expected {' or '.join(_WEIGHTS)} in {path}"
        raise BadInput([f"model {name} has no weights: {expected}; init=random trains without them"])
    return path.resolve()


def _fetched(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Fetch the files of a repository that match `patterns` into the hub's cache, and return the commit's folder.

    Subfolders, and files in the authors' own format, are left out: they often contain all weights a second time.
    """
    left_out = ["consolidated*", "*/*"]
    return Path(snapshot_download(name, revision=revision, allow_patterns=[*patterns], ignore_patterns=left_out))


def load_tokenizer(folder: Path) -> Any:
    """Load the model's tokenizer with a padding token. Raises BadInput if the folder has no usable one."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise BadInput([f"model {folder} has no tokenizer that transformers can load: {first_line(error)}"]) from error
    files = {*tokenizer.vocab_files_names.values(), "tokenizer.json"}
    if tokenizer.vocab_files_names and not any((folder / file).is_file() for file in files):
        # transformers would return a tokenizer with an empty vocabulary
        raise BadInput([f"model {folder} has no tokenizer: expected one of {', '.join(sorted(files))} in that folder"])
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token_id is None:
        rule = "must have a tokenizer with a pad_token, eos_token or unk_token, to pad rows with"
        raise BadInput([f"model {folder} {rule}: set tokenizer.pad_token, and save the tokenizer there"])
    # No warning about long texts: they are truncated, and the share of truncated rows is recorded.
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
    return tokenizer


def load_config(name: str, folder: Path) -> Any:
    """Load the configuration of the model `name` in `folder`. Raises BadInput if transformers cannot."""
    try:
        return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        fault = f"model {name} has no configuration that transformers can load: {first_line(error)}"
        raise BadInput([fault]) from error


def model_faults(given: ModelArguments, folder: Path) -> list[str]:
    """Return reasons why the model in `folder` does not suit the job (task, row length, adapters, padding).

    The list is empty if the model suits the job. Adapters and padding are checked only if there is no other fault.
    """
    config, faults = load_config(given.model, folder), list[str]()
    kind = config.model_type
    is_encoder = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    model_classes = auto_class(given.task)._model_mapping
    if given.task != metrics.CAUSAL_LM and type(config) not in model_classes:
        head = "token" if given.task == metrics.TOKEN_CLASSIFICATION else "text"
        faults.append(f"model {given.model} is a {kind} model, which has no {head} classification head in transformers")
    if given.task == metrics.CAUSAL_LM and (kind not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or is_encoder):
        needs = "task causal-lm needs a causal language model such as gpt2 or llama"
        faults.append(f"{needs}; {given.model} is a {kind} model: set model to another one")
    faults += length_faults(given.model, positions_of(config.to_dict()), given.max_seq_length)
    faults = faults or (_adapter_faults(given, folder) if given.adapts else [])
    return faults or ([] if given.task == metrics.CAUSAL_LM else _padding_faults(given, config))


@torch.no_grad()
def _padding_faults(given: ModelArguments, config: Any) -> list[str]:
    """Return a fault if padding after a row changes the model's output for the row, as it does with XLNet.

    Each row is padded to the longest row of its batch, so the output for a row would depend on the other rows of the
    batch. To find out, this function tries a one-layer model of the same class with random weights. It returns no fault
    if that model cannot be built or would be too wide, or if the kind of model is plain (see `estimating.formats`).
    """
    if is_plain(kind_of(config.to_dict())) or (getattr(config, "hidden_size", None) or 0) > _WIDEST_TRIED:
        return []
    answers = []
    with suppress(Exception), torch.random.fork_rng(devices=[]):  # unusual architectures may fail here
        torch.manual_seed(0)
        sizes = {"num_hidden_layers": 1, "vocab_size": _FEW_TOKENS, "pad_token_id": 0}
        changed = type(config).from_dict({**config.to_dict(), **sizes})
        model = auto_class(given.task).from_config(changed).eval()
        tokens = torch.randint(1, _FEW_TOKENS, (1, 8))
        for padding in (0, 5):
            padded = torch.nn.functional.pad(tokens, (0, padding))
            mask = torch.nn.functional.pad(torch.ones_like(tokens), (0, padding))
            logits = model(input_ids=padded, attention_mask=mask).logits
            answers.append(logits[:, :8] if given.task == metrics.TOKEN_CLASSIFICATION else logits)
    if len(answers) < 2 or torch.allclose(answers[0], answers[1], rtol=1e-3, atol=1e-5):
        return []
    rule = f"model {given.model} is a {config.model_type} model, whose output depends on the padding after a text"
    return [f"{rule}: the rows of a batch would affect each other; set model to another one, such as bert-base-uncased"]


@torch.no_grad()
def keeps_texts_apart(config: Any) -> bool:
    """Return whether a decoder can compute several texts in one row as if each text were alone.

    transformers makes the masks for this from positions that start from 0 in each text (see `TokenRows.batch`). Some
    models make their own masks, such as OPT, or carry a state from token to token, such as Mamba. To find out, this
    function tries a model of the same class with random weights and one layer of each type. The answer is no if that
    model cannot be built or is too large; it is yes for plain kinds of models (see `estimating.formats`).
    """
    if kind_of(config.to_dict()) in PLAIN_DECODERS:
        return True
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "vocab_size": _FEW_TOKENS, "pad_token_id": 0, "use_cache": False}
    if types := getattr(config, "layer_types", None):
        kinds = [*dict.fromkeys(types)]
        sizes |= {"layer_types": kinds, "num_hidden_layers": len(kinds)}
    with suppress(Exception), torch.random.fork_rng(devices=[]):  # unusual architectures may fail here
        changed = type(config).from_dict({**config.to_dict(), **sizes})
        with torch.device("meta"):
            weights = transformers.AutoModelForCausalLM.from_config(changed).num_parameters()
        if weights > _MOST_TRIED:
            return False
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(changed, dtype=torch.float32).eval()
        tokens, places = torch.randint(1, _FEW_TOKENS, (1, 10)), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])
        joined = model(input_ids=tokens, position_ids=places).logits
        alone = [model(input_ids=part).logits for part in (tokens[:, :4], tokens[:, 4:])]
        return torch.allclose(joined, torch.cat(alone, dim=1), rtol=1e-3, atol=1e-5)
    return False


def _adapter_faults(given: ModelArguments, folder: Path) -> list[str]:
    layers = _linear_layers(_from_config(given, folder))
    if not layers:
        rule = f"fine_tuning={given.fine_tuning} trains adapters on linear layers"
        return [f"{rule}, and {given.model} has none below its head: set fine_tuning to full or head"]
    unknown = [name for name in given.lora.target_modules if not any(_is_target(layer, name) for layer in layers)]
    if not unknown:
        return []
    allowed = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
    return [f"lora.target_modules must name linear layers of {given.model}: {allowed}; got {', '.join(unknown)}"]


def find_formats(given: ModelArguments, degrees: ParallelDegrees, precision: str, folder: Path) -> Formats:
    """Return the number formats for training the model in `folder` on this device."""
    config = load_config(given.model, folder).to_dict()
    chosen = device.choose_precision(precision)
    return formats_of(given.fine_tuning, degrees, kind_of(config), chosen, stored_in(config))


def build_model(
    given: ModelArguments,
    folder: Path,
    labels: tuple[str, ...],
    tokenizer: Any,
    formats: Formats,
    *,
    drawn: Sequence[str] | None = None,
    packs: bool = True,
    spreads: bool = False,
) -> tuple[Any, list[str]]:
    """Build the model with a head for `labels`. The job's `fine_tuning` decides which parameters are trainable.

    Returns the model and the names of the layers whose weights were drawn at random, because the folder lacks them.
    With init=random, all weights are random, and there are no names. If the names are given as `drawn`, no weights are
    loaded: the model is on PyTorch's meta device, where its weights take no memory.

    Trained weights have the number format in which the optimizer updates them. If the model computes in another format,
    the optimizer later keeps these weights and gives the model rounded copies. With qlora, the frozen weights of linear
    layers below the head have 4 bits, unless they are loaded with `packs` false. `spreads` says whether the layers are
    loaded onto all devices of this process.
    """
    if drawn is None:
        model, missing = _load(given, folder, labels, formats, packs=packs, spreads=spreads)
    else:
        model, missing = _from_config(given, folder, labels, form=_loaded_in(given, formats)), list(drawn)
        if given.fine_tuning == "qlora":
            _give_four_bits(model, formats, missing)
    config = model.config
    if config.pad_token_id is None or config.model_type not in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        config.pad_token_id = tokenizer.pad_token_id  # decoders use it to find the last token of a padded row
    if given.fine_tuning == "head":
        model.base_model.requires_grad_(False)
        for name in missing:  # otherwise, drawn layers such as a pooler would stay random
            model.get_submodule(name).requires_grad_(True)
        if given.task == metrics.CAUSAL_LM:  # even if the output layer is tied to the embeddings
            model.get_output_embeddings().requires_grad_(True)
    if given.adapts:
        with nullcontext() if drawn is None else torch.device("meta"):
            model = _with_adapters(given, model, missing)
    return model, missing


def _load(
    given: ModelArguments, folder: Path, labels: tuple[str, ...], formats: Formats, *, packs: bool, spreads: bool
) -> tuple[Any, list[str]]:
    """Load the model with the weights in `folder`, or with random weights if init is random.

    Also return the names of the layers whose weights the folder lacks; none if all weights are random.
    """
    if given.init == "random":
        return _from_config(given, folder, labels, form=_loaded_in(given, formats), place="cpu"), []
    kind, head = auto_class(given.task), _head_settings(given.task, labels)
    options: dict[str, Any] = {"dtype": _loaded_in(given, formats)}
    if head:
        options["ignore_mismatched_sizes"] = True
    packs = packs and given.fine_tuning == "qlora"
    if packs:
        options |= _four_bits(formats, _heads(_from_config(given, folder)))
    if spreads:
        options["device_map"] = "balanced" if device.has_gpu() else "cpu"
    # transformers 5.23 does not quantize subclasses of torch.nn.Linear, such as FalconLinear, which computes the same.
    with patch("transformers.models.falcon.modeling_falcon.FalconLinear", torch.nn.Linear):
        model, loading = kind.from_pretrained(
            folder, trust_remote_code=False, output_loading_info=True, **head, **options
        )
    if packs:
        _correct_four_bits(model)
    return model, sorted({name.rpartition(".")[0] for name in loading["missing_keys"]})


def auto_class(task: str) -> Any:
    """Return the class with which transformers loads models of a task."""
    return {
        metrics.CAUSAL_LM: transformers.AutoModelForCausalLM,
        metrics.TOKEN_CLASSIFICATION: transformers.AutoModelForTokenClassification,
    }.get(task, transformers.AutoModelForSequenceClassification)


def _head_settings(task: str, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the entries of a model's configuration that describe its labels; empty for a language model."""
    if not labels:
        return {}
    numbers = {name: number for number, name in enumerate(labels)}
    # transformers' pipelines read problem_type.
    several = {"problem_type": "multi_label_classification"} if task == metrics.MULTI_LABEL else {}
    return {"num_labels": len(labels), "id2label": dict(enumerate(labels)), "label2id": numbers, **several}


def _loaded_in(given: ModelArguments, formats: Formats) -> torch.dtype:
    return device.DTYPES[formats.frozen if given.adapts else formats.updated]


def _from_config(
    given: ModelArguments,
    folder: Path,
    labels: tuple[str, ...] = (),
    *,
    form: torch.dtype = torch.float32,
    place: str = "meta",
) -> Any:
    """Build the model in `folder` with random weights. On PyTorch's meta device, the weights take no memory."""
    head = _head_settings(given.task, labels)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, **head)
    with torch.device(place):
        return auto_class(given.task).from_config(config, dtype=form)


def _heads(model: Any) -> list[str]:
    """Return the names of the parts with parameters on top of the base model, such as a classification head."""
    parts = [(name, part) for name, part in model.named_children() if name != model.base_model_prefix]
    return [name for name, part in parts if any(True for _ in part.parameters())]


def _linear_layers(model: Any) -> list[str]:
    """Return the names of the linear layers below the heads."""
    kinds, heads = (torch.nn.Linear, transformers.pytorch_utils.Conv1D), _heads(model)  # Conv1D is GPT-2's
    layers = (name for name, module in model.named_modules() if isinstance(module, kinds))
    return [name for name in layers if name.partition(".")[0] not in heads]


def _is_target(layer: str, *names: str) -> bool:
    return names == (ALL_LINEAR,) or any(f".{layer}".endswith(f".{name}") for name in names)


def _with_adapters(given: ModelArguments, model: Any, drawn: Iterable[str]) -> Any:
    """Add low-rank adapters to `model`, and freeze the rest except the classification head and the layers `drawn`.

    The layers `drawn` are saved with the adapters, because loading the model again would draw other random weights.
    """
    from peft import LoraConfig, get_peft_model

    heads = [] if given.task == metrics.CAUSAL_LM else _heads(model)
    # Drawn layers inside a head are left out: peft would wrap them twice, and train a copy that no forward pass uses.
    whole = [*heads, *(name for name in drawn if name.partition(".")[0] not in heads)]
    layers = [name for name in _linear_layers(model) if name not in whole]
    adapters = LoraConfig(
        task_type={metrics.CAUSAL_LM: "CAUSAL_LM", metrics.TOKEN_CLASSIFICATION: "TOKEN_CLS"}.get(
            given.task, "SEQ_CLS"
        ),
        r=given.lora.r,
        lora_alpha=given.lora.lora_alpha,
        lora_dropout=given.lora.lora_dropout,
        target_modules=[layer for layer in layers if _is_target(layer, *given.lora.target_modules)],
        modules_to_save=whole or None,
    )
    adapted = get_peft_model(model, adapters)
    for item in adapted.parameters():
        if item.requires_grad:  # frozen norms stay in bf16: a 4-bit layer returns the format of its input
            item.data = item.data.float()
    return adapted


def _four_bits(formats: Formats, heads: Iterable[str]) -> dict[str, Any]:
    """Return arguments of `from_pretrained` for nf4 weights with double quantization (arXiv 2305.14314).

    The `heads` are not quantized, because they are trained or may be tied to the embeddings.
    """
    import bitsandbytes  # noqa: F401  # if it is missing, the job's failure names it

    quantization = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=device.DTYPES[formats.compute],
        llm_int8_skip_modules=[f"^{head}" for head in heads],  # patterns; without ^, they match the end of any name
    )
    here = int(os.environ.get("LOCAL_RANK", "0")) if device.has_gpu() else "cpu"
    return {"quantization_config": quantization, "device_map": {"": here}}


def _correct_four_bits(model: Any) -> None:
    """Correct two faults in the 4-bit layers of a newly loaded model (transformers 5.23, bitsandbytes 0.50.2).

    First, a layer whose weights the folder lacks has the 4-bit class but plain weights. It is replaced by a plain
    layer. Second, on CPUs with AVX-512 and bf16, an evaluation repacks the weights, and later steps fail or have no
    gradients. So repacking is switched off.
    """
    from bitsandbytes.nn import Linear4bit, Params4bit

    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Linear4bit)]
    if not layers:
        fault = f"fine_tuning=qlora: transformers can quantize no layer of a {model.config.model_type} model"
        raise BadInput([f"{fault}; set fine_tuning=lora"])
    for name, layer in layers:
        layer.support_avx512bf16_for_cpu = False
        if not isinstance(layer.weight, Params4bit):
            plain = torch.nn.Linear(layer.in_features, layer.out_features, device="meta")
            plain.weight, plain.bias = layer.weight, layer.bias
            model.set_submodule(name, plain)


def _give_four_bits(model: Any, formats: Formats, kept: Iterable[str]) -> None:
    """Replace linear layers below the heads with 4-bit layers that have no values yet.

    Some layers are not replaced: the layers `kept`, those that transformers keeps in fp32, and those whose size cannot
    be packed. Packed weights are stored as numbers in the format of matrix products, so that FSDP can shard and gather
    them like any weight. `pack` computes their values later.
    """
    from bitsandbytes.nn import Linear4bit, Params4bit
    from transformers.pytorch_utils import Conv1D

    form = device.DTYPES[formats.compute]
    options: dict[str, Any] = {"compress_statistics": True, "quant_type": "nf4", "quant_storage": form}
    left_out = {*kept, *(getattr(model, "_keep_in_fp32_modules", None) or ())}
    for name in _linear_layers(model):
        layer = model.get_submodule(name)
        words, rest = divmod(layer.weight.numel(), 2 * form.itemsize)
        if rest or left_out & {name, name.rpartition(".")[2]}:
            continue
        outputs, inputs = layer.weight.T.shape if isinstance(layer, Conv1D) else layer.weight.shape
        packed = Linear4bit(inputs, outputs, bias=False, compute_dtype=form, device="meta", **options)
        stored = torch.empty(words, 1, dtype=form, device="meta")
        packed.weight = Params4bit(stored, bnb_quantized=True, module=packed, **options)
        packed.bias, packed.source_cls, packed.support_avx512bf16_for_cpu = layer.bias, type(layer), False
        model.set_submodule(name, packed.requires_grad_(False))
    model.is_loaded_in_4bit = True  # for peft


def pack(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    """Quantize the full `weight` of a 4-bit layer and return it in packed form. The layer keeps the scales."""
    from bitsandbytes.functional import quantize_4bit
    from transformers.pytorch_utils import Conv1D

    whole = weight.T if issubclass(layer.source_cls, Conv1D) else weight
    stored, layer.quant_state = quantize_4bit(
        whole.contiguous(), compress_statistics=True, quant_type="nf4", quant_storage=layer.quant_storage
    )
    return torch.as_tensor(stored)


def four_bit_layers(model: torch.nn.Module) -> dict[str, Any]:
    """Return the 4-bit layers by the names of their weights."""
    if "bitsandbytes" not in sys.modules:
        return {}
    from bitsandbytes.nn import Linear4bit

    return {f"{name}.weight": layer for name, layer in model.named_modules() if isinstance(layer, Linear4bit)}


def use_causal_attention(model: Any, longest: int, formats: Formats, *, has_joined_texts: bool = False) -> None:
    """Let a plain decoder in bf16 attend without masks, unless its sliding window is shorter than the `longest` row.

    Rows with several texts (`has_joined_texts`) need masks. For others, this is correct because padding is at the end
    of a row, where no earlier token sees it. Given masks, transformers reads each of them, which makes the host wait,
    and uses a slower kernel for padded rows. transformers makes no masks for an attention function that other code has
    registered, so its own sdpa function is registered under a new name. In fp32 and fp16, masks are kept: if heads
    share keys, PyTorch runs its fast kernels only with masks.
    """
    config = model.config
    is_causal = config.model_type in PLAIN_DECODERS and getattr(config, "is_causal", True)
    is_whole = longest <= (getattr(config, "sliding_window", None) or longest) and not has_joined_texts
    if is_causal and is_whole and formats.compute == "bf16" and config._attn_implementation == "sdpa":
        # Imported here because these imports take as long as torch's, and preparing a job does not need them.
        from transformers import AttentionInterface
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        AttentionInterface.register(_CAUSAL, sdpa_attention_forward)
        model.set_attn_implementation(_CAUSAL)


def needs_masks(model: Any) -> bool:
    """Return whether the model must know which tokens are padding."""
    return getattr(model.config, "_attn_implementation", None) != _CAUSAL


def use_fused_norms(model: Any) -> None:
    """Replace the RMS norms of plain decoders with PyTorch's, which run one kernel instead of seven.

    The results differ only by rounding. This is for full fine-tuning only: there, norms have the number format of their
    inputs, as the kernel requires.
    """
    has_kernel = hasattr(torch.ops.aten, "_fused_rms_norm")  # since PyTorch 2.9
    if model.config.model_type not in PLAIN_DECODERS or not has_kernel:
        return
    for name, norm in list(model.named_modules()):
        if type(norm).__name__.endswith("RMSNorm"):
            fused = torch.nn.RMSNorm(norm.weight.shape, norm.variance_epsilon, device="meta")
            fused.weight = norm.weight
            model.set_submodule(name, fused)


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the repeated layers of a model: entries of its outermost module lists that have submodules."""
    layers: list[torch.nn.Module] = []
    for child in model.children():
        if isinstance(child, torch.nn.ModuleList):
            layers += [entry for entry in child if any(True for _ in entry.children())]
        else:
            layers += layers_of(child)
    return layers


def write_model(
    model: Any,
    folder: Path,
    given: ModelArguments,
    formats: Formats,
    say: Callable[[str], None],
    division: Any = None,
) -> None:
    """Write the trained model into `folder`. Only the first process writes.

    If the model is divided over processes, all of them must call this, with the model's strategy as `division`.
    Adapters are merged into the model, or written alone if `lora` has merge=false. If merging fails, the folder keeps
    the adapters, because the user has paid for them, and `say` is called with the reason.
    """
    if not given.adapts:
        _write(model, folder, formats, division)
        return
    path = at_home(given.model)
    base_name = str(path.resolve()) if path.is_dir() else given.model
    for config in model.peft_config.values():  # peft finds the base model by this name
        config.base_model_name_or_path = BUNDLED_MODEL_ID if given.model.startswith(BUNDLED) else base_name
    state = {name: processes.whole(item.detach()) for name, item in model.named_parameters() if item.requires_grad}
    base = model.get_base_model()
    if processes.is_first():  # save_embedding_layers="auto" would ask the hub for the vocabulary
        model.save_pretrained(folder, state_dict=state, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)  # peft's empty card
    base.hf_quantizer = None
    if hasattr(base.config, "quantization_config"):
        del base.config.quantization_config
    if not given.lora.merge:
        _write_class_names(base, folder, given.task)
        return
    try:
        _merge_adapters(base)
        _write(base, folder, formats, division)
    except (MemoryError, RuntimeError, OSError, SafetensorError) as error:  # out of memory, or the disk is full
        for path in folder.glob("model*.safetensors*"):
            path.unlink()
        _write_class_names(base, folder, given.task)
        reason = f"{type(error).__name__}: {first_line(error)}"
        say(f"the adapters could not be merged; the model folder has only the adapters ({reason})")
        return
    for path in folder.glob("adapter_*") if processes.is_first() else ():  # only this process wrote the model
        path.unlink()


def _write_class_names(base: Any, folder: Path, task: str) -> None:
    """Write the configuration of a classifier, which has the class names, next to its adapters."""
    if processes.is_first() and task != metrics.CAUSAL_LM:
        base.config.save_pretrained(folder)


def _write(model: Any, folder: Path, formats: Formats, division: Any) -> None:
    """Write weights and configuration. The weights of a divided model are gathered first.

    The files have the number format of the original model's files. So a model with 7 billion bf16 weights takes 14 GB
    again, not the 28 GB that its fp32 weights take in training.
    """
    for weight in model.parameters():
        if weight.is_floating_point():
            weight.data = weight.data.to(device.DTYPES[formats.saved])
    weights = None if division is None else division.gather_weights(model)
    if processes.is_first():
        # transformers 5.3 refuses to write generation settings that it would warn about.
        with patch.object(transformers.GenerationConfig, "validate"):
            model.save_pretrained(folder, state_dict=weights)


@torch.no_grad()
def _merge_adapters(base: Any) -> None:
    """Replace peft's layers and 4-bit layers in the model `base` with plain layers that have merged weights.

    A weight W becomes W + lora_alpha / r * B A, where A and B are the adapter's matrices of rank r. The sum is computed
    in fp32 and rounded once to the number format of W. With qlora, W is the dequantized 4-bit weight in the format of
    matrix products, so the written model predicts the same as the trained one. peft's `merge_and_unload` would round
    the sum to 4 bits again.
    """
    from peft.tuners.lora import LoraLayer
    from peft.utils import ModulesToSaveWrapper
    from transformers.pytorch_utils import Conv1D

    for name, layer in list(base.named_modules()):
        if isinstance(layer, ModulesToSaveWrapper):
            base.set_submodule(name, layer.modules_to_save["default"])
            continue
        plain = layer.get_base_layer() if isinstance(layer, LoraLayer) else layer
        state = getattr(plain, "quant_state", None)
        if plain is layer and state is None:
            continue
        weight = plain.weight.data
        is_sharded = hasattr(weight, "full_tensor")
        change = layer.get_delta_weight("default") if plain is not layer else None
        if state is not None:
            from bitsandbytes.functional import dequantize_4bit

            stored = processes.whole(weight)
            if stored.device != state.absmax.device:  # offloaded; `to` may quantize any other weight twice
                stored = stored.to(state.absmax.device)
            weight = torch.as_tensor(dequantize_4bit(stored, state)).to(plain.compute_dtype)
            change = None if change is None else processes.whole(change).to(weight.device)
        if change is not None:
            weight = (weight.float() + change.float()).to(weight.dtype)
            base.set_submodule(name, plain)
        if state is not None and issubclass(plain.source_cls, Conv1D):  # GPT-2's layers, transposed for quantization
            weight = weight.T.contiguous()
        if state is not None and is_sharded:  # the full weights of all layers may be too large for one GPU
            weight = weight.cpu() if processes.is_first() else weight.new_empty(0, device="cpu")
        plain.weight, plain.quant_state = torch.nn.Parameter(weight, requires_grad=False), None
