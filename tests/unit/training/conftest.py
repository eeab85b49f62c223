"""What the tests of training share: a separate cache, and a way to run the preparing process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paretune.specification.container import JobFolder
from tests.support.trainings import SPEC, give


@dataclass(frozen=True)
class Preparation:
    """The answer of `python -m paretune.training.prepare`."""

    code: int
    answer: dict[str, Any]
    output: str

    @property
    def faults(self) -> list[str]:
        return list(self.answer.get("faults", []))

    def dataset(self) -> Any:
        """Return the description of the data set that it has prepared."""
        return json.loads((Path(self.answer["dataset"]) / "dataset.json").read_text())


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache under the test's folder the data sets that this process reads, and send no telemetry about them."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)


@pytest.fixture
def run_prepare(tmp_path: Path) -> Callable[..., Preparation]:
    """Return a function that prepares a job in a process with environment variables added, or removed by None."""

    def run(environment: dict[str, str | None] | None = None, **parameters: str) -> Preparation:
        request, answer = tmp_path / "request.json", tmp_path / "answer.json"
        request.write_text(json.dumps(parameters))
        answer.unlink(missing_ok=True)
        values = dict(os.environ) | {"HF_HOME": str(tmp_path / "huggingface")} | (environment or {})
        words = [sys.executable, "-m", "paretune.training.prepare"]
        with (tmp_path / "printed").open("wb") as output:
            child = subprocess.Popen(
                [*words, str(request), str(tmp_path / "prepared"), str(answer)],
                env={name: value for name, value in values.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            code = child.wait(timeout=120)
        message = json.loads(answer.read_text()) if answer.exists() else {}
        return Preparation(code, message, (tmp_path / "printed").read_text())

    return run


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """Return a job folder with a tiny model, 24 rows to train (six steps per epoch), 8 to validate and 5 to test."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    from transformers import AutoTokenizer

    from paretune.training.rows import tokenized
    from paretune.training.rows.tokenized import Rows

    words = ["great", "warm", "dull", "cold", "the", "film"]
    random = np.random.default_rng(0)

    def rows(count: int) -> Rows:
        texts = [" ".join(random.choice(words, size=8)) for _ in range(count)]
        return Rows(texts=texts, labels=np.arange(count) % 2)

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    splits = {"train": rows(24), "validation": rows(8), "test": rows(5)}
    made = tokenized.prepare(SPEC.data_arguments, splits, ("a", "b"), tokenizer, tmp_path / "prepared")
    folder = JobFolder(tmp_path / "job")
    folder.make()
    give(folder, made, tiny_model)
    return folder
