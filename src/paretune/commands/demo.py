"""The command `demo`: simulates the shipped study `demo` in a store of its own, and shows its page."""

import contextlib
import math
import os
import shutil
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from paretune.commands.command import command_of, describe_opened_run
from paretune.core.errors import BadInput
from paretune.core.file_lock import locked_file
from paretune.core.packages import install_command, missing
from paretune.core.result import CommandOutput
from paretune.core.shell import command_line
from paretune.jobs.terminal import say_on_stderr
from paretune.presentation.text import duration
from paretune.specification.declaration import Parameters, parameter
from paretune.specification.profile import FILE as PROFILE
from paretune.storage.files import find_file
from paretune.studies.definition.file import StudyFile

if TYPE_CHECKING:
    from paretune.studies.results.answer import StudyAnswer

_MARK = ".paretune-demo"  # an empty file that marks a folder that the demo created and may delete
_OURS = ("AWS_", "MLFLOW_", "PARETUNE_")
"""Prefixes of environment variables that the demo ignores: they set stores, prices and budgets of the user's jobs."""
# Means of the published runs with 100,000 rows, on 1 and on 32 V100; seconds of billed time.
_ONE_S, _ONE_USD = 65_432.0, 69.52
_MANY_F1, _MANY_USD = 0.899, 99.86
_SOURCE = "github.com/aws-samples/amazon-sagemaker-huggingface-benchmark"


class DemoRequest(Parameters):
    """The option of the command."""

    open: bool = parameter(True)
    """open the page in a browser, if this is a terminal with a display"""


def run_demo(request: DemoRequest) -> CommandOutput:
    """Run the demo in the folder `demo` of paretune's home folder, where it replaces an earlier demo."""
    from paretune.jobs.workplace import Workplaces

    folder = Workplaces.of_process().home.resolve() / "demo"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        return _played(request, folder)


def _played(request: DemoRequest, folder: Path) -> CommandOutput:
    from paretune.storage.database import without_waiting_for_the_disk
    from paretune.studies.run import run_study_file

    if (folder / _MARK).exists():
        shutil.rmtree(folder)
    elif folder.exists():
        raise BadInput([f"{folder} was not created by the demo: move it, or set PARETUNE_HOME to another folder"])
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    say_on_stderr(
        f"simulating a study of AWS's benchmark of 2021, DistilBERT on Amazon Polarity ({_SOURCE}); "
        "it takes about half a minute, and nothing is sent or spent ..."
    )
    started = time.monotonic()
    store = f"sqlite:///{folder / 'runs.db'}"  # not MLflow's default name, so that printed commands name the file
    with _isolated(folder, store), without_waiting_for_the_disk():
        study = StudyFile.read(find_file("demo"), {})
        # Only trials are printed. Warnings about prices would be noise, because the demo costs nothing.
        result = run_study_file(study, say=lambda text: say_on_stderr(text) if text.startswith("trial ") else None)
    page = folder / "pareto.html"
    shutil.copy(next(folder.glob(f"mlruns/*/{result.run_id}/artifacts/{page.name}")), page)
    describe_opened_run("demo", "\n".join([*result.answer.opening()[:2], f"Simulated. The page is {page}."]))
    is_desktop = sys.platform in {"darwin", "win32"} or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    is_opened = bool(request.open and sys.stdout.isatty() and is_desktop and webbrowser.open(page.as_uri()))
    return CommandOutput(
        text=_text(result.answer, page, result.open_command, is_opened=is_opened, took_s=time.monotonic() - started),
        document=result.to_dict() | {"page": str(page), "tracking_uri": store, "is_opened": is_opened},
    )


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder against other demos, which would begin by removing it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked_file(folder.with_name(f"{folder.name}.lock"), waits=False))
        except BlockingIOError:
            text = f"another demo is running in {folder}: wait until it ends, or set PARETUNE_HOME to another folder"
            raise BadInput([text]) from None
        yield


@contextlib.contextmanager
def _isolated(folder: Path, store: str) -> Iterator[None]:
    """Work in `folder` with its own MLflow store and without the user's settings; restore everything at the end."""
    before = dict(os.environ)
    try:
        for name in before:
            if name.startswith(_OURS):
                del os.environ[name]
        os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": store, "PARETUNE_HOME": str(folder)}
        os.environ["PARETUNE_PRICES"] = "studies/polarity_prices.csv"
        os.environ["PARETUNE_PROFILE"] = str(folder / PROFILE)  # an empty one, instead of the user's
        (folder / PROFILE).touch()
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _text(answer: "StudyAnswer", page: Path, open_command: str, *, is_opened: bool, took_s: float) -> str:
    """Return the study's answer compared with the published figures, the places of its files, and commands to try."""
    front, picks, rows = answer.front, answer.picks, {"dataset": "reviews.csv"}
    about = "PyTorch, transformers and a small model, 2 GB, or 6 GB with CUDA"
    install = {install_command("demo"): about} if missing("train") else {}
    steps = {
        **install,
        command_line("train", rows): "one training on this machine",
        command_line("estimate", {**rows, "instance_type": "ml.g5.xlarge,ml.g6.xlarge"}): "hours and dollars on AWS",
        command_line("study", {**rows, "budget_usd": "20", "dry_run": "true"}): "the search that 20 USD would buy",
    }
    lines = [
        "Published in 2021, at one learning rate: DistilBERT on Amazon Polarity takes 18 h 11 m and 69.52 USD on one",
        "V100 (F1 0.932), 53 m and 99.86 USD on 32 (F1 0.899). On 4 to 32 V100s, according to "
        f"{len(front.trials)} simulated jobs:",
        "",
    ]
    for pick in picks:
        values = ", ".join(f"{name} {value}" for name, value in answer.figures.of(pick.point).items())
        lines += [f"  {pick.title}: trial {pick.point.number}, {pick.point.trial.setting()}", f"    {values}"]
    if picks:
        first, last = picks[0].point.means, min((pick.point.means for pick in picks), key=itemgetter("job_seconds"))
        others = len(front.best) - sum(pick.point in front.best for pick in picks)
        pays = ""
        if (saved_usd := _ONE_USD - first["cost_usd"]) > 0:
            pays = f": in dollars alone, the search has paid from {math.ceil(front.spent_usd / saved_usd):,} jobs on"
        lines += wrap(answer.cost_of_search(), 108)
        lines += wrap(
            f"Compared with one V100, the recommended one takes 1/{_ONE_S / first['job_seconds']:.0f} of the time and "
            f"costs {_percent(first['cost_usd'], _ONE_USD)}{pays}. Compared with 32, the fastest of these takes "
            f"{duration(last['job_seconds'])}, changes F1 by {last['f1'] - _MANY_F1:+.3f} and costs "
            f"{_percent(last['cost_usd'], _MANY_USD)}. Other trained configurations on the front: {others}.",
            108,
        )
    lines += [
        "",
        f"  page    {page}{' (opened in your browser)' if is_opened else ''}",
        f"  MLflow  {open_command}",
        "",
        f"Simulated in {duration(took_s)}. Nothing was trained, sent or spent: seconds and F1 come from formulas",
        f"fitted to the published runs ({_SOURCE}).",
        "The demo wrote only to the folder of its page, apart from a lock file next to that folder and an empty folder "
        f"in {tempfile.gettempdir()}.",
        "",
        "Next, try your own rows, for example in reviews.csv with the columns text and label:",
        *(f"  {command}  # {about}" for command, about in steps.items()),
    ]
    return "\n".join(["", *lines])


def _percent(value_usd: float, published_usd: float) -> str:
    change = value_usd / published_usd - 1
    return f"{abs(change):.0%} {'more' if change > 0 else 'less'}"


DEMO = command_of(DemoRequest, run_demo)
