"""A model folder that reads texts, with its tokenizer, and the task and class names of its configuration."""

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
from paretune.specification import metrics
from paretune.specification.container import JobFolder
from paretune.training import device
from paretune.training.cpu_kernels import use_cpu_kernels
from paretune.training.model import auto_class, find_model, load_tokenizer, longest_text
from paretune.training.rows.tokenised import first_tokens, tokenise
from paretune.training.tasks.evaluation import decode

CLASSES, LABELS, NUMBER = "single_label_classification", "multi_label_classification", "regression"
"""`problem_type` of a transformers configuration: one class per row, any number of labels, or a number."""
WORD_CLASSES = "token_classification"  # kind of a model that gives each word a class
TEXTS = metrics.SEQ2SEQ  # kind of a model that writes a text for each text
_ADAPTER = "adapter_config.json"
_UNNAMED = re.compile(r"LABEL_\d+")  # names that transformers gives to classes without names
_NO_LIMIT = 1_000_000  # a tokenizer without a limit has this `model_max_length` or a larger one


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A model that gives C numbers, or a text, for each text."""

    model: Any
    tokenizer: Any
    kind: str  # CLASSES, LABELS, NUMBER, WORD_CLASSES or TEXTS
    names: tuple[str, ...]  # C names of classes or labels; empty for NUMBER and TEXTS
    limit: int  # largest number of tokens of a text; the rest is cut off
    batch_size: int

    @classmethod
    def load(cls, folder: Path, *, batch_size: int, max_seq_length: int | None = None) -> "Classifier":
        """The model of a Hugging Face folder, or of a folder with adapters, on the device of this process.

        Texts are cut at `max_seq_length`; if that is None, at the length of the model's training, if it is known.

        Raises:
            BadInput: the model has no head for classes or a number, or its classes have no names.
        """
        config = _read_config(folder)
        kind = _kind(config, folder)
        has_names = kind not in {NUMBER, TEXTS}
        names = tuple(str(config.id2label[number]) for number in range(config.num_labels)) if has_names else ()
        if names and all(_UNNAMED.fullmatch(name) for name in names):
            fault = f"model {folder} has no class names (id2label of its config.json is {', '.join(names[:3])})"
            raise BadInput([f'{fault}: write them there, such as "id2label": {{"0": "negative", "1": "positive"}}'])
        tokenizer = load_tokenizer(folder)
        model = _load_model(folder, config, kind)
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

        Of words, N arrays (W, C) of the W words of each text that were not cut off; of TEXTS, N texts.
        A batch has texts of similar length, so that it needs little padding.
        """
        firsts: list[list[int]] = []
        if self.kind == WORD_CLASSES:
            tokens, firsts, truncated = first_tokens(
                [" ".join(text.split()) for text in texts], self.tokenizer, self.limit
            )
        else:
            tokens, truncated = tokenise(texts, self.tokenizer, self.limit)
        order = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
        logits: list[np.ndarray | None] = [None] * len(tokens)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, values in zip(rows, self._batch_outputs([tokens[row] for row in rows]), strict=True):
                logits[row] = values
        if self.kind == TEXTS:
            return np.array(logits, dtype=object), truncated
        if self.kind != WORD_CLASSES:
            return np.array(logits, dtype=np.float64), truncated
        of_words = np.empty(len(logits), dtype=object)
        for number, (values, places) in enumerate(zip(logits, firsts, strict=True)):
            of_words[number] = None if values is None else values[places]
        return of_words, truncated

    def _batch_outputs(self, tokens: Sequence[Sequence[int]]) -> np.ndarray | list[str]:
        """Logits (B, C) of B rows of token ids; of words (B, T, C); of TEXTS the B texts that are written for them."""
        width = max(1, *map(len, tokens))
        ids = torch.full((len(tokens), width), self.tokenizer.pad_token_id)
        mask = torch.zeros((len(tokens), width), dtype=torch.int64)
        for row, line in enumerate(tokens):
            ids[row, : len(line)] = torch.tensor(line, dtype=torch.int64)
            mask[row, : len(line)] = 1
        target = self.model.device
        inputs = {"input_ids": ids.to(target), "attention_mask": mask.to(target)}
        precision = device.half_format(device.choose_precision("auto")) if device.has_gpu() else None
        try:
            with torch.inference_mode(), torch.autocast(target.type, dtype=precision, enabled=precision is not None):
                if self.kind == TEXTS:
                    return decode(self.tokenizer, self.model.generate(**inputs).cpu().numpy())
                logits = self.model(**inputs).logits
        except Exception as error:
            if device.is_out_of_memory(error):
                raise BadInput([f"batch_size {self.batch_size} does not fit into the memory: lower it"]) from error
            raise
        return np.asarray(logits.float().cpu().numpy())


def _read_config(folder: Path) -> Any:
    """The configuration of a model folder; raises BadInput if it has none."""
    if not (folder / "config.json").is_file():
        if _has_adapters(folder):
            reason = "adapters without the config.json of their model, which names the classes"
        else:
            reason = "no Hugging Face model: it has no config.json"
        raise BadInput([f"model {folder} is {reason}: give the folder of a trained model, with its tokenizer"])
    try:
        return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        fault = f"model {folder} has a config.json that transformers cannot read: {first_line(error)}"
        raise BadInput([fault]) from error


def _has_adapters(folder: Path) -> bool:
    return (folder / _ADAPTER).is_file()


def _kind(config: Any, folder: Path) -> str:
    """The kind of the model's outputs; raises BadInput for other models, such as language models."""
    architectures = getattr(config, "architectures", None) or []
    if any(str(name).endswith("ForTokenClassification") for name in architectures):
        return WORD_CLASSES
    writers = auto_class(metrics.SEQ2SEQ)._model_mapping
    if type(config) in writers and writers[type(config)].__name__ in architectures:
        return TEXTS
    if not _has_adapters(folder) and not any(str(name).endswith("ForSequenceClassification") for name in architectures):
        named = ", ".join(architectures) or "no architecture"
        fault = f"model {folder} is not a classification model (its config.json says {named})"
        raise BadInput([f"{fault}: predict needs one that was trained with a task other than causal-lm"])
    if config.problem_type in (LABELS, NUMBER):
        return str(config.problem_type)
    return NUMBER if config.num_labels == 1 else CLASSES


def _load_model(folder: Path, config: Any, kind: str) -> Any:
    """The model in fp32, adapters merged into their weights; raises BadInput if it cannot be loaded as a whole."""
    model_class = auto_class({WORD_CLASSES: metrics.WORDS, TEXTS: metrics.SEQ2SEQ}.get(kind, metrics.CLASSIFICATION))
    try:
        if _has_adapters(folder):
            from peft import PeftModel

            described: Mapping[str, Any] = json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))
            base = find_model(str(described.get("base_model_name_or_path") or ""))
            plain = model_class.from_pretrained(base, config=config, dtype=torch.float32, ignore_mismatched_sizes=True)
            return PeftModel.from_pretrained(plain, str(folder)).merge_and_unload()
        model, loading = model_class.from_pretrained(
            folder, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    except BadInput:
        raise
    except Exception as error:
        raise BadInput([f"model {folder} cannot be loaded: {first_line(error)}"]) from error
    if loading["missing_keys"]:
        missing = ", ".join(sorted(loading["missing_keys"])[:3])
        raise BadInput([f"model {folder} lacks weights, such as {missing}: it was not trained for its task"])
    return model


def _limit(folder: Path, config: Any, tokenizer: Any, max_seq_length: int | None) -> int:
    """Largest number of tokens of a text; raises BadInput if `max_seq_length` exceeds the model's positions."""
    longest = longest_text(config)
    if max_seq_length is not None:
        if longest is not None and max_seq_length > longest:
            raise BadInput([f"max_seq_length must be at most {longest} for {folder}, got {max_seq_length}"])
        return max_seq_length
    trained = int(min(tokenizer.model_max_length, _NO_LIMIT))
    with suppress(OSError, ValueError, KeyError):  # if it is not the model folder of a job
        document = json.loads(JobFolder(folder.resolve().parent).document.read_text(encoding="utf-8"))
        trained = int(document["spec"]["max_seq_length"]) or trained
    return min(trained, longest or _NO_LIMIT)
