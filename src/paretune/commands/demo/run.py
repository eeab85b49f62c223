"""Play the shipped study `demo` on the virtual clock, in a store of its own, and show its page."""

import contextlib
import os
import shutil
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from paretune.commands.command import describe_opened_run
from paretune.core.commands import command_line
from paretune.core.result import CommandOutput
from paretune.jobs.progress import say_on_stderr
from paretune.jobs.workplace import Workplaces
from paretune.storage.database import without_waiting_for_the_disk
from paretune.storage.shipped import find_file
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.run import run_study_file

_OURS = ("AWS_", "MLFLOW_", "PARETUNE_")
"""Prefixes of the environment variables that the demo ignores: stores, prices and budgets of the user's own jobs."""
_PROGRESS = "trial "


def run_demo(*, opens: bool) -> CommandOutput:
    """Play the demo; it replaces an earlier one in the folder `demo` of paretune's home folder.

    Args:
        opens: whether to open its page in a browser, if standard output is a terminal with a display.
    """
    folder = Workplaces.of_process().home.resolve() / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    say_on_stderr("simulating a study of the published benchmark of DistilBERT on Amazon Polarity ...")
    store = f"sqlite:///{folder / 'mlflow.db'}"
    with _isolated(folder, store), without_waiting_for_the_disk():
        result = run_study_file(StudyFile.read(find_file("demo"), {}), say=_print_trials)
    page = folder / "pareto.html"
    shutil.copy(next(folder.glob(f"mlruns/*/{result.run_id}/artifacts/{page.name}")), page)
    describe_opened_run("demo", "\n".join([*result.answer.opening()[:2], f"Simulated. The page is {page}."]))
    is_opened = opens and _has_display() and webbrowser.open(page.as_uri())
    return CommandOutput(
        text=_text(result.answer, page, store, is_opened=is_opened),
        document=result.to_dict() | {"page": str(page), "tracking_uri": store, "is_opened": is_opened},
    )


def _print_trials(text: str) -> None:
    """Print the progress, but no warnings about prices: nothing of the demo is paid."""
    if text.startswith(_PROGRESS):
        say_on_stderr(text)


@contextlib.contextmanager
def _isolated(folder: Path, store: str) -> Iterator[None]:
    """Work in `folder`, with its own MLflow store and nothing of the user's settings; all is restored at the end."""
    before = dict(os.environ)
    settings = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_TRACKING_URI": store,
        "PARETUNE_HOME": str(folder),
    }
    try:
        for name in before:
            if name.startswith(_OURS):
                del os.environ[name]
        os.environ |= settings
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _has_display() -> bool:
    is_desktop = sys.platform in {"darwin", "win32"} or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    return sys.stdout.isatty() and bool(is_desktop)


def _text(answer: StudyAnswer, page: Path, store: str, *, is_opened: bool) -> str:
    """The recommendation of the study, the addresses of its results, and commands to type next."""
    trials = answer.front.trials
    picks = []
    for pick in answer.picks:
        values = ", ".join(f"{name} {value}" for name, value in answer.front.figures(pick.point).items())
        picks.append(f"  {pick.title}: {pick.point.trial.setting()}\n    {values}")
    steps = {
        command_line("study", {"study": "smoke"}): "a real study, in a few minutes",
        command_line("train", {"dataset": "reviews.csv"}): "your own rows",
        command_line("estimate", {"instance_type": "ml.g5.xlarge,ml.g6.xlarge"}): "seconds and dollars on SageMaker",
    }
    lines = [
        "Published in 2021: DistilBERT on Amazon Polarity takes 18 h 17 min on one V100, and 53 min on 32 of them.",
        f"On 4 to 32 L4 of today: {len(trials)} simulated jobs, {len(answer.front.best)} configurations on the front.",
        "",
        *picks,
        "",
        *(f"  {sentence}" for sentence in answer.payoff),
        "",
        "All figures are simulated: seconds are estimates, and F1 is a formula with the effects of published runs",
        "(aws-samples/amazon-sagemaker-huggingface-benchmark, 2021). Nothing was trained, sent or spent.",
        "",
        f"  page    {page}{' (opened in your browser)' if is_opened else ''}",
        f"  MLflow  mlflow ui --backend-store-uri {store}",
        "",
        f"The demo wrote to {page.parent} only. The next demo replaces it, and your own MLflow store is as it was.",
        "",
        "Next, free and on this machine:",
        *(f"  {command}  # {about}" for command, about in steps.items()),
    ]
    return "\n".join(["", *lines])
