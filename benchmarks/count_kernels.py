"""Count the kernels that a training step launches on a GPU, and how often the host waits. No GPU is needed.

    python benchmarks/count_kernels.py            # five to ten minutes

The steps run on a CPU. Each operator that autograd and autocast end up calling counts as one kernel, as on CUDA; views
and allocations do not count. Attention counts as one kernel in the forward pass and three in the backward pass,
PyTorch's RMS norm as one and two, and dropout as one in each. Under autocast, norms are computed in fp32. An operator
on a list of tensors counts as the launches that PyTorch's multi-tensor functions need. A wait is a line of Python
that reads a tensor, or that moves a tensor to the device without `non_blocking`. (This file must not be called
kernels.py, because transformers looks for a package `kernels`.)
"""

import argparse
import io
import json
import math
import operator
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import arguments
import published
import torch
import transformers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Trainer, TrainerCallback, TrainingArguments

from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder
from paretune.specification.job import JobSpec
from paretune.specification.metrics import CAUSAL_LM, CLASSIFICATION, TOKEN_CLASSIFICATION
from paretune.training import cpu, downloads, meter
from paretune.training.job import train
from paretune.training.loop import Loop
from paretune.training.model import auto_class, load_tokenizer
from paretune.training.rows.sources import read_rows
from paretune.training.rows.tokenized import TokenRows, prepare

_FREE = {"detach", "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "alias", "_unsafe_view"}
_FREE |= {"lift_fresh", "_local_scalar_dense", "is_same_size", "set_"}
_MOST_TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # number of lists to the limit of tensors per list in one launch
_CHUNK, _BLOCKS = 65_536, 320  # elements per block, and blocks per launch; multi_tensor_apply.cuh of torch 2.13
_READS = {"item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__"}
_BATCH, _COUNTED = 2, 4  # rows per step, and the number of the step that is counted
_LLAMA = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "BERT base": (CLASSIFICATION, {"model_type": "bert"}),
    "BERT base, labels of words": (TOKEN_CLASSIFICATION, {"model_type": "bert"}),
    "a Llama of 16 layers": (CAUSAL_LM, {"model_type": "llama", "num_hidden_layers": 16, **_LLAMA}),
}
Step = tuple[int, int]  # kernels, and waits


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Counts operators that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        result, name = function(*inputs, **(options or {})), function._schema.name.split("::")[1]
        aliases = any(
            each.alias_info is not None and not each.alias_info.is_write for each in function._schema.arguments
        )
        if name.startswith(("_foreach", "_fused")):
            lists = [each for each in inputs if isinstance(each, list | tuple) and each and torch.is_tensor(each[0])]
            equal = [each for each in lists if len(each) == len(lists[0])]
            self.count += _launches(equal[:4]) + name.startswith("_foreach_norm")
        elif name not in _FREE and not function.is_view and not (aliases and not function._schema.is_mutable):
            self.count += 1
        return result


def _launches(lists: list[Any]) -> int:
    most, count, blocks, tensors = _MOST_TENSORS.get(len(lists), 30), 0, 0, 0
    for tensor in lists[0]:
        tensors += 1
        chunks = max(1, -(-tensor.numel() // _CHUNK))
        for chunk in range(chunks):
            blocks, is_last = blocks + 1, chunk == chunks - 1
            if (tensors == most and is_last) or blocks == _BLOCKS:
                count, blocks, tensors = count + 1, 0, 0 if is_last else 1
    return count + bool(blocks)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        context.heads = key.shape[1]  # fewer than query heads if several of these share a key
        return query * 1

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        shared = gradients[0][:, : context.heads]
        return gradients[0] * 1, shared * 1, shared * 1


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(rows, weight)
        return rows * 1

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        _, weight = context.saved_tensors
        return gradients[0] * 1, weight * 1


class _Cuda(TorchFunctionMode):
    """Imitates what CUDA does differently from a CPU, and counts the lines that wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def __torch_function__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        options, functional, name = dict(options or {}), torch.nn.functional, getattr(function, "__name__", "")
        if name in _READS or (name == "to" and _moves(inputs, options)):
            file = sys._getframe(1).f_code.co_filename
            # Lines in torch do not wait, because the tensors are on the device already; batches are in host memory.
            self.waits += "/torch/" not in file and not file.endswith("tokenized.py")
        is_half = torch.is_autocast_enabled("cpu")
        if function is functional.layer_norm and is_half:
            inputs = (inputs[0].float(), *inputs[1:])
        if function is functional.rms_norm:
            return _Norm.apply(inputs[0], options["weight"] if "weight" in options else inputs[2])  # type: ignore[no-untyped-call]
        if function is functional.dropout and options.get("training", True):
            return inputs[0] * 1  # one kernel forward, and one backward
        if function is functional.scaled_dot_product_attention:
            mask = options.get("attn_mask")
            query, key, value = (each.to(torch.bfloat16) if is_half else each for each in inputs[:3])
            if mask is not None and mask.dtype == torch.bool:  # each layer converts it to numbers
                torch.where(mask, torch.full((), 0.0), torch.full((), float("-inf")))
            return _Attention.apply(query, key, value)  # type: ignore[no-untyped-call]
        return function(*inputs, **options)


def _moves(inputs: Any, options: Mapping[str, Any]) -> bool:
    given = [*inputs[1:], *options.values()]
    return not options.get("non_blocking") and any(isinstance(each, str | torch.device) for each in given)


@contextmanager
def _counted() -> Iterator[tuple[Callable[[], None], list[Step]]]:
    """Yield a function to call at the start of each step, and the list of counts that it fills."""
    kernels, cuda, notes = _Kernels(), _Cuda(), list[Step]()
    with kernels, cuda:
        yield lambda: notes.append((kernels.count, cuda.waits)), notes


def _of_step(notes: list[Step]) -> Step:
    (before, waited), (after, waits) = notes[_COUNTED - 1 : _COUNTED + 1]
    return after - before, waits - waited


class Case:
    """Makes a model with random weights, and rows of random words of different lengths."""

    def __init__(self, name: str, folder: Path, *, is_small: bool) -> None:
        self.task, values = CASES[name]
        self.folder, self.model_folder = JobFolder(folder / "job"), folder / "model"
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4}
        labels = {} if self.task == CAUSAL_LM else {"num_labels": 2}
        tokenizer = load_tokenizer(downloads.bundled_model("bundled:all-MiniLM-L6-v2"))
        values = {**values, **(sizes if is_small else {}), **labels, "vocab_size": len(tokenizer), "pad_token_id": 0}
        config = transformers.AutoConfig.for_model(**values)
        auto_class(self.task).from_config(config).save_pretrained(self.model_folder)
        tokenizer.save_pretrained(self.model_folder)
        words = ["great", "warm", "dull", "cold", "the", "film"]
        texts = [random.choices(words, k=random.randint(4, 20)) for _ in range(200)]
        rows: list[dict[str, Any]]
        rows = [{"text": " ".join(text), "label": ["a", "b"][number % 2]} for number, text in enumerate(texts)]
        if self.task == TOKEN_CLASSIFICATION:
            rows = [{"text": text, "label": random.choices("ab", k=len(text))} for text in texts]
        (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        self.spec = JobSpec(
            model=str(self.model_folder),
            dataset=str(folder / "rows.jsonl"),
            task=self.task,  # type: ignore[arg-type]  # one of CASES
            max_seq_length=32,
            per_device_train_batch_size=_BATCH,
            probe_steps=10,
            training_arguments={"logging_steps": 100},
        )
        data = self.spec.data_arguments
        prepared = prepare(data, *read_rows(data), tokenizer, folder / "prepared")
        self.folder.make()
        for link, target in ((self.folder.dataset, prepared.folder), (self.folder.model_source, self.model_folder)):
            if link.is_dir():
                link.rmdir()
            link.symlink_to(target)
        self._rows = TokenRows(prepared.folder / "train", pad_id=0)

    def model(self) -> Any:
        """Return the model with its initial weights."""
        return auto_class(self.task).from_pretrained(self.model_folder, dtype=torch.float32)

    def batches(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield batches of rows, which are padded if the rows differ in length."""
        for number in range(_COUNTED + 2):
            yield self._rows.batch([number * _BATCH + row for row in range(_BATCH)])


def of_paretune(case: Case, precision: str) -> Step:
    """Count the kernels and waits of a step of paretune's own training, as it runs on a GPU."""
    spec, step_of = case.spec.replace(precision=precision), Loop._step
    with (
        patch.object(cpu, "use_cpu_kernels", lambda *_: None),
        patch.object(cpu, "keep_freed_memory", lambda: None),
        patch.object(meter, "AGREE_S", math.inf),
        redirect_stdout(io.StringIO()),
        _counted() as (note, notes),
        patch.object(Loop, "_step", lambda self, step: (note(), step_of(self, step))[1]),
    ):
        train(order_of(spec, job_name="job"), case.folder, lambda: False)
    return _of_step(notes)


class _Begin(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._note()


def of_trainer(case: Case, precision: str) -> Step:
    """Count the kernels and waits of a step of the Trainer with its defaults."""
    options = {"use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_steps": 100}
    arguments = TrainingArguments(
        output_dir=str(case.folder.root / "trainer"),
        max_steps=_COUNTED + 2,
        per_device_train_batch_size=1,  # each item of the data set is a whole batch
        bf16=precision == "bf16",
        **options,
    )
    with _counted() as (note, notes):
        Trainer(
            model=case.model(),
            args=arguments,
            train_dataset=list(case.batches()),
            data_collator=operator.itemgetter(0),
            callbacks=[_Begin(note)],
        ).train()
    return _of_step(notes)


def of_loop(case: Case, precision: str) -> Step:
    """Count the kernels and waits of a step of a bare loop: fp32, bf16 with autocast, or weights in bf16."""
    model = case.model().train()
    if precision == "bf16 weights":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    with _counted() as (note, notes):
        for batch in case.batches():
            note()
            batch = {name: value.to("cpu", non_blocking=True) for name, value in batch.items()}
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return _of_step(notes)


VARIANTS: Mapping[str, tuple[Callable[[Case, str], Step], str]] = {
    "paretune, bf16": (of_paretune, "bf16"),
    "paretune, fp32": (of_paretune, "fp32"),
    "Trainer defaults, bf16": (of_trainer, "bf16"),
    "Trainer defaults, fp32": (of_trainer, "fp32"),
    "a bare loop, bf16 with autocast": (of_loop, "bf16"),
    "a bare loop, bf16 weights": (of_loop, "bf16 weights"),
}


def main() -> None:
    """Print a line for each variant, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--narrow", action="store_true", help="models of width 32, whose counts differ only in optimizers"
    )
    options = arguments.parse(parser, narrow=True)
    transformers.logging.set_verbosity_error()
    random.seed(0)
    made, counts = published.conditions("torch", "transformers"), dict[str, list[Step]]()
    for name in CASES:
        with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
            case = Case(name, Path(folder), is_small=options.narrow)
            for variant, (count, precision) in VARIANTS.items():
                counts.setdefault(variant, []).append(count(case, precision))
                print(f"# {name}, {variant}: {counts[variant][-1]}", file=sys.stderr, flush=True)
    head = ("kernels of a step, and waits of the host", *CASES)
    lines = [(name, *(f"{kernels:,}, {waits}" for kernels, waits in steps)) for name, steps in counts.items()]
    body = [f"Counted {made}, {_BATCH} rows a step:", "", *published.table(head, lines)]
    print("\n".join(body))


if __name__ == "__main__":
    main()
