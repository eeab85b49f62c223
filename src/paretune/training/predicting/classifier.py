"""A model folder that reads texts: loaded, with its tokenizer and what its configuration says of its answers."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from paretune.core.errors import BadInput, first_line
from paretune.specification.container import JobFolder
from paretune.training import device
from paretune.training.cpu_kernels import use_cpu_kernels
from paretune.training.model import find_model, load_tokenizer, longest_text
from paretune.training.rows.tokenised import tokenise

CLASSES, LABELS, NUMBER = "single_label_classification", "multi_label_classification", "regression"
"""`problem_type` of a configuration of transformers: one class a row, any number of labels, or a number."""
_ADAPTER = "adapter_config.json"
_UNNAMED = re.compile(r"LABEL_\d+")
"""Names that transformers gives to classes without names."""
_ENDLESS = 1_000_000  # `model_max_length` from here on says that a tokenizer knows no limit


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A model that answers C numbers for each text.

    Attributes:
        kind: CLASSES, LABELS or NUMBER.
        names: C names of classes or labels; empty for NUMBER.
        limit: tokens of a text that are read; the rest is cut off.
    """

    model: Any
    tokenizer: Any
    kind: str
    names: tuple[str, ...]
    limit: int
    batch_size: int

    @classmethod
    def load(cls, folder: Path, *, batch_size: int, max_seq_length: int | None = None) -> "Classifier":
        """The model of a Hugging Face folder, or of one with adapters, on the device of this process.

        Texts are cut at `max_seq_length`; where that is None, as its training cut them, as far as that is known.

        Raises:
            BadInput: it is no model of texts with a head for classes or a number, or its classes have no names.
        """
        config = _config(folder)
        kind = _kind(config, folder)
        names = tuple(str(config.id2label[number]) for number in range(config.num_labels)) if kind != NUMBER else ()
        if names and all(_UNNAMED.fullmatch(name) for name in names):
            raise BadInput(
                [
                    f"model {folder} has no class names (id2label of its config.json is {', '.join(names[:3])}): write "
                    'them there, such as "id2label": {"0": "negative", "1": "positive"}'
                ]
            )
        tokenizer = load_tokenizer(folder)
        model = _weights(folder, config)
        if model.config.pad_token_id is None:
            model.config.pad_token_id = tokenizer.pad_token_id
        if device.has_gpu():
            model.to("cuda")
        else:
            use_cpu_kernels(model)
        limit = _limit(folder, config, tokenizer, max_seq_length)
        return cls(model=model.eval(), tokenizer=tokenizer, kind=kind, names=names, limit=limit, batch_size=batch_size)

    def outputs(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """Logits (N, C; float64) of N texts, in their order, and how many texts were cut off.

        Batches are of texts of similar length, so that little of them is padding.
        """
        tokens, truncated = tokenise(texts, self.tokenizer, self.limit)
        order = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
        found: list[np.ndarray | None] = [None] * len(tokens)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, logits in zip(rows, self._batch([tokens[row] for row in rows]), strict=True):
                found[row] = logits
        return np.array(found, dtype=np.float64), truncated

    def _batch(self, tokens: Sequence[Sequence[int]]) -> np.ndarray:
        """Logits (B, C) of B rows of token ids."""
        width = max(1, *map(len, tokens))
        ids = torch.full((len(tokens), width), self.tokenizer.pad_token_id)
        mask = torch.zeros((len(tokens), width), dtype=torch.int64)
        for row, line in enumerate(tokens):
            ids[row, : len(line)] = torch.tensor(line, dtype=torch.int64)
            mask[row, : len(line)] = 1
        place = self.model.device
        precision = device.half_format(device.choose_precision("auto")) if device.has_gpu() else None
        try:
            with torch.inference_mode(), torch.autocast(place.type, dtype=precision, enabled=precision is not None):
                logits = self.model(input_ids=ids.to(place), attention_mask=mask.to(place)).logits
        except Exception as error:
            if device.is_out_of_memory(error):
                raise BadInput([f"batch_size {self.batch_size} does not fit into the memory: lower it"]) from error
            raise
        return np.asarray(logits.float().cpu().numpy())


def _config(folder: Path) -> Any:
    """The configuration of a model folder.

    Raises:
        BadInput: it has none.
    """
    if not (folder / "config.json").is_file():
        what = "adapters without the config.json of their model, which names the classes" if _is_adapted(folder) else ""
        reason = what or "no Hugging Face model: it has no config.json"
        raise BadInput([f"model {folder} is {reason}: give the folder of a trained model, with its tokenizer"])
    try:
        return transformers.AutoConfig.from_pretrained(folder)
    except Exception as error:
        raise BadInput(
            [f"model {folder} has a config.json that transformers cannot read: {first_line(error)}"]
        ) from error


def _is_adapted(folder: Path) -> bool:
    return (folder / _ADAPTER).is_file()


def _kind(config: Any, folder: Path) -> str:
    """What the model answers.

    Raises:
        BadInput: it is a model for something else, such as a language model.
    """
    named = getattr(config, "architectures", None) or []
    if not _is_adapted(folder) and not any(str(name).endswith("ForSequenceClassification") for name in named):
        shown = ", ".join(named) or "no architecture"
        raise BadInput(
            [
                f"model {folder} is not a classification model (its config.json says {shown}): predict needs one that "
                "was trained with task=classification"
            ]
        )
    if config.problem_type in (LABELS, NUMBER):
        return str(config.problem_type)
    return NUMBER if config.num_labels == 1 else CLASSES


def _weights(folder: Path, config: Any) -> Any:
    """The model in fp32; adapters are added to the weights that they were trained beside."""
    kind = transformers.AutoModelForSequenceClassification
    try:
        if _is_adapted(folder):
            return _with_adapters(folder, config)
        model, found = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput([f"model {folder} cannot be loaded: {first_line(error)}"]) from error
    if found["missing_keys"]:
        lacking = ", ".join(sorted(found["missing_keys"])[:3])
        raise BadInput([f"model {folder} lacks weights, such as {lacking}: it was not trained to classify"])
    return model


def _with_adapters(folder: Path, config: Any) -> Any:
    """The base model with the adapters of `folder` added to its weights, so that it is as fast as without."""
    from peft import PeftModel

    described: Mapping[str, Any] = json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))
    base = find_model(str(described.get("base_model_name_or_path") or ""))
    kind = transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(base, config=config, dtype=torch.float32, ignore_mismatched_sizes=True)
    return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()


def _limit(folder: Path, config: Any, tokenizer: Any, asked: int | None) -> int:
    """Tokens of a text that are read.

    Raises:
        BadInput: more are asked for than the model has positions.
    """
    longest = longest_text(config)
    if asked is not None:
        if longest is not None and asked > longest:
            raise BadInput([f"max_seq_length must be at most {longest} for {folder}, got {asked}"])
        return asked
    trained = _of_training(folder)
    limits = [trained or int(min(tokenizer.model_max_length, _ENDLESS)), longest or _ENDLESS]
    return min(limits)


def _of_training(folder: Path) -> int | None:
    """`max_seq_length` of the job whose folder of the model this is; None where it is none."""
    with suppress(OSError, ValueError, KeyError):
        told = json.loads(JobFolder(folder.resolve().parent).document.read_text(encoding="utf-8"))
        return int(told["spec"]["max_seq_length"])
    return None
