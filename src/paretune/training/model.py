"""From a model's name to a model that trains: found, checked, built, frozen or adapted as asked."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, snapshot_download
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from paretune.core.errors import BadInput
from paretune.spec.job import BUNDLED, JobSpec
from paretune.training.rows import bundled, hub, vocabulary

LORA_RANK = 8
LORA_ALPHA = 16
_SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
_WEIGHTS = ("*.safetensors", "*.bin")

# Their positions begin after that of the padding token, so the table has pad_token_id + 1 rows that no text can use:
# the text models of transformers 5.23 that call create_position_ids_from_input_ids.
_POSITIONS_AFTER_PADDING = {
    "camembert",
    "data2vec-text",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}


def find_model(name: str) -> Path:
    """Folder with the model's files: bundled, local, or fetched from the hub into its cache.

    Raises:
        BadInput: there is no such model, it has no weights, or the hub does not answer.
    """
    if name.startswith(BUNDLED):
        return bundled.model_folder(name)
    path = Path(name).expanduser()
    if not path.is_dir():
        if path.exists() or name.startswith((".", "/", "~")):
            raise BadInput([f"model {name} is not a folder: give a Hugging Face model folder or a hub id"])
        try:
            path = Path(snapshot_download(name, allow_patterns=[*_SMALL_FILES, *_weights_of(name)]))
        except Exception as error:
            raise BadInput([hub.explain("model", name, error)]) from error
    if not any(file for pattern in _WEIGHTS for file in path.glob(pattern)):
        raise BadInput([f"model {name} holds no weights: expected {' or '.join(_WEIGHTS)} in {path}"])
    return path.resolve()


def _weights_of(name: str) -> list[str]:
    """Safetensors where the repository has them; never the same weights twice, nor other ones when offline."""
    if hub.is_offline():
        # Imported here: the versions of huggingface_hub in older training images lack them, and jobs there ask no hub.
        from huggingface_hub import get_cached_repo_tree
        from huggingface_hub.errors import CachedRepoTreeNotFoundError

        try:
            files = [file.path for file in get_cached_repo_tree(name)]
        except CachedRepoTreeNotFoundError:  # never fetched, or by a program that left no list: take what is there
            return list(_WEIGHTS)
    else:
        files = HfApi().list_repo_files(name)
    return [_WEIGHTS[0] if any(file.endswith(".safetensors") for file in files) else _WEIGHTS[1]]


def load_tokenizer(folder: Path) -> Any:
    """The model's tokenizer, with a padding token.

    Raises:
        BadInput: the folder has no usable tokenizer.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise BadInput([f"model {folder} has no tokenizer that transformers can load: {_first_line(error)}"]) from error
    files = {*tokenizer.vocab_files_names.values(), "tokenizer.json"}
    if tokenizer.vocab_files_names and not any((folder / file).is_file() for file in files):
        # transformers would go on with a tokenizer that knows no word
        raise BadInput([f"model {folder} has no tokenizer: expected one of {', '.join(sorted(files))} in that folder"])
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    # Texts are cut on purpose, and the share of cut rows is recorded: the tokenizer's warning would only repeat it.
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
    return tokenizer


def model_faults(spec: JobSpec, folder: Path) -> list[str]:
    """Why the model in `folder` cannot do the task; empty if it can."""
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:
        return [f"model {spec.model} has no configuration that transformers can load: {_first_line(error)}"]
    faults = []
    kind = config.model_type
    is_encoder = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if spec.task == "classification" and kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        faults.append(f"model {spec.model} is a {kind} model, which has no text classification head in transformers")
    if spec.task == "causal-lm" and (kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or is_encoder):
        faults.append(
            f"task causal-lm needs a causal language model such as gpt2 or llama; {spec.model} is a {kind} model: "
            "set model to another one"
        )
    longest = getattr(config, "max_position_embeddings", None)
    if isinstance(longest, int) and kind in _POSITIONS_AFTER_PADDING:
        longest -= config.pad_token_id + 1
    if isinstance(longest, int) and spec.max_seq_length > longest:
        faults.append(f"max_seq_length must be at most {longest} for {spec.model}, got {spec.max_seq_length}")
    return faults


def build_model(spec: JobSpec, folder: Path, labels: tuple[str, ...], tokenizer: Any) -> PreTrainedModel:
    """The model in fp32 with a head for `labels`, its trainable parameters as `fine_tuning` says."""
    if spec.task == "causal-lm":
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        names = dict(enumerate(labels))
        model = AutoModelForSequenceClassification.from_pretrained(
            folder,
            dtype=torch.float32,
            num_labels=len(labels),
            id2label=names,
            label2id={name: number for number, name in names.items()},
            ignore_mismatched_sizes=True,
        )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    return _adapt(model, spec)


def _adapt(model: Any, spec: JobSpec) -> Any:
    if spec.fine_tuning == "head":
        for parameter in model.base_model.parameters():
            parameter.requires_grad = False
        if spec.task == "causal-lm":  # the head may be tied to the embeddings: train it all the same
            for parameter in model.get_output_embeddings().parameters():
                parameter.requires_grad = True
    elif spec.fine_tuning == "lora":
        from peft import LoraConfig, TaskType, get_peft_model

        task = TaskType.CAUSAL_LM if spec.task == "causal-lm" else TaskType.SEQ_CLS
        model = get_peft_model(
            model, LoraConfig(task_type=task, r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules="all-linear")
        )
    return model


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a model consists of, before it is spread over devices.

    Attributes:
        name: class of the model.
        total: all parameters, those of embedding rows that are left out of the training included.
        trainable: those that train; embedding rows that are left out because nothing uses them count as training.
        matrices: weights that multiply every token.
        trained_share: share of `matrices` that trains.
    """

    name: str
    total: int
    trainable: int
    matrices: int
    trained_share: float

    @classmethod
    def of(cls, model: Any) -> "Shape":
        """The shape of `model`."""
        trainable, total = count_parameters(model)
        matrices, trained_share = matrix_parameters(model)
        unused = vocabulary.unused_parameters(model)
        return cls(
            name=type(model).__name__,
            total=total + unused,
            trainable=trainable + (unused if trainable == total else 0),
            matrices=matrices,
            trained_share=trained_share,
        )


def count_parameters(model: torch.nn.Module) -> tuple[int, int]:
    """(trainable, all) parameters."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)


def matrix_parameters(model: torch.nn.Module) -> tuple[int, float]:
    """Weights that multiply every token, and the share of them that trains: all but the embedding tables.

    An output layer tied to an embedding table does multiply, and counts.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    multiplied = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Linear)}
    weights = [item for item in model.parameters() if id(item) not in tables or id(item) in multiplied]
    total = sum(item.numel() for item in weights)
    return total, sum(item.numel() for item in weights if item.requires_grad) / total


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
