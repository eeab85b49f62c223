"""The tutorial runs from its first command to its last, in order, and prints what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paretune.specification.inputs import BUNDLED_MODEL
from paretune.training.downloads import bundled_model

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
FIGURE = re.compile(
    r"[0-9a-f]{32}|\d+ m\b(?: \d+ s)?|\d+(?:\.\d+)?(?:e-?\d+)?(?: s\b)?"
)  # 48.2 s may be 1 m 7 s elsewhere

pytestmark = pytest.mark.slow


def without_figures(line: str) -> str:
    return " ".join(FIGURE.sub("N", line).split())


def test_the_tutorial_runs_and_prints_what_it_shows(workplace: Path) -> None:
    environment = {
        name: text for name, text in os.environ.items() if name != "PARETUNE_HOME"
    }  # so that paretune's home is in the current folder
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    printed = ""
    for language, text in blocks:
        if language == "python":
            (name,) = re.findall(r"^# (\w+\.py)$", text, re.MULTILINE)
            # The hub is unavailable here. Fewer rows here, and fewer trials below, are enough to check that it runs.
            quick = text.replace("sentence-transformers/all-MiniLM-L6-v2", str(bundled_model(BUNDLED_MODEL)))
            (workplace / name).write_text(quick.replace("sample(2500", "sample(300").replace("2000", "200"))
        elif language == "yaml":
            assert (workplace / "study.yaml").read_text() == text
        elif language == "bash" and "--role" not in text:  # test_pages.py has an account
            words = ["bash", "-euc", text.replace("--n_trials 8", "--n_trials 3")]
            job = subprocess.run(words, cwd=workplace, env=environment, capture_output=True, text=True, check=False)
            assert job.returncode == 0, job.stderr[-3000:]
            printed = job.stdout + job.stderr
        elif language == "text":
            lines = {without_figures(line) for line in printed.splitlines()}
            assert [line for line in text.splitlines() if line and without_figures(line) not in lines] == []
        elif language == "txt":  # which trial it is depends on random numbers
            assert "\nTake trial " in printed
            assert "of 20.00 USD" in printed
