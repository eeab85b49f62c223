"""Run a user's training script, unmodified, and record its metrics.

Its command line is that of specification.script_arguments. Dictionaries that the Trainer prints become events; what its
loggers record and what it prints become the report and curves (see core.script_metrics).
"""

import gc
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from paretune.core.errors import first_line, last_words
from paretune.core.own_script import read_own_script
from paretune.core.script_metrics import (
    LONGEST_LINE,
    STORE,
    PrintedNumbers,
    dictionary_in,
    finite_numbers,
    logged,
    logging_environment,
    setting_names,
    write_curves,
    written_log_file,
)
from paretune.core.shell import options
from paretune.core.untrusted import at_home
from paretune.specification.container import JobDocument, JobFolder, JobReport
from paretune.specification.metrics import SCRIPT_METRICS
from paretune.specification.script_arguments import LOGGING_STEPS, script_arguments
from paretune.training import device, mlflow_model, processes
from paretune.training.meter import EventWriter

_LAST_LINES = 20  # printed lines that are kept; a box of rich with an error has fewer


def run_script(document: JobDocument, folder: JobFolder) -> None:
    """Run the script in this process as `__main__` to its end; the first process writes the report.

    Raises any exception of the script, and ScriptEnded if it ended with an exit code other than 0.
    """
    script = at_home(document.spec.entry_script or "").resolve()
    sys.argv = [str(script), *_words_of(document, folder)]
    sys.path.insert(0, str(script.parent))
    os.environ.pop("PYTHONSAFEPATH", None)  # meant for imports of this process only
    # What other processes log is lost.
    data = folder.report.parent if processes.is_first() else Path(tempfile.mkdtemp())
    settings = read_own_script(script).settings | setting_names(document.spec.training_arguments)
    streams, began = (sys.stdout, sys.stderr), time.time()
    printed = PrintedNumbers(document.spec.metric_definitions, settings)
    if processes.is_first():
        logging_steps = max(1, int(document.spec.training_arguments.get("logging_steps", LOGGING_STEPS)))
        sys.stdout = PrintedMetrics(sys.stdout, EventWriter(folder.events), printed, logging_steps)
        sys.stderr = PrintedMetrics(sys.stderr, None, printed)  # where Python's logging writes
    is_alone = document.deadline_s is not None  # on an instance, whose current folder no other job shares
    if is_alone and not os.path.lexists("mlruns"):
        Path("mlruns").symlink_to(data / STORE / "mlruns")  # where MLflow before 3.11 puts the files of runs
    with _variables(logging_environment(data, os.environ)), _written() as written:
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptEnded(_why_ended(script.name, end.code)) from end
        finally:
            finish_loggers()
            sys.stdout, sys.stderr = streams
    if not processes.is_first():
        return
    if is_alone:
        trim_model_folder(folder.model)
    # Of the current folder of a user's machine only what this process has written: another job may run in it.
    roots = [folder.model, *([Path.cwd()] if is_alone else [])]
    gathered = printed.results(logged(data, roots, began, written, settings), SCRIPT_METRICS)
    write_curves(gathered.curves, data / STORE)
    facts: dict[str, str | bool | int | float] = {"device": device.device_name(), "metrics_from": gathered.sources}
    model_fault = mlflow_model.describe(folder.model)  # after the files with results were read: it copies some
    not_finite = tuple(gathered.not_finite)
    report = JobReport(metrics=gathered.metrics, not_finite=not_finite, facts=facts, model_fault=model_fault)
    report.write(folder.report)


class ScriptEnded(RuntimeError):
    """The script ended itself with a failing exit code and has printed why."""


def from_script(error: BaseException, script: str) -> TracebackType | None:
    """Return an error's traceback from the script's first line on, or None if Python never began to run it."""
    frames, path = error.__traceback__, str(at_home(script).resolve())
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return frames


_USAGE = re.compile(
    r"\b(?:no such (?:option|command)|unrecognized arguments|unknown (?:command.line flag|option)|missing option"
    r"|missing argument|arguments are required|could not consume|unexpected extra argument"
    r"|not used by the HfArgumentParser)",
    re.IGNORECASE,
)
"""Messages of command-line parsers about unknown and missing names."""


def _why_ended(name: str, code: object) -> str:
    """Return the last words of a script that ended itself, and what to do if they are about its options."""
    words = next(filter(None, (last_words(getattr(each, "last_lines", ())) for each in (sys.stderr, sys.stdout))), "")
    if isinstance(code, str):  # sys.exit("message")
        code, words = 1, first_line(RuntimeError(code))
    sentence = f"{name} ended with exit code {code}" + f": {words}" * bool(words)
    if _USAGE.search(words):
        asked = options(ask_script="true")
        sentence += f"; give the names of `python {name} --help` as --training_arguments.NAME VALUE, or add {asked}"
    return sentence


def _words_of(document: JobDocument, folder: JobFolder) -> list[str]:
    return script_arguments(document.spec, document.plan, str(folder.model), document.script_options)


def finish_loggers() -> None:
    """Write what the script's loggers write when Python ends, which this process does not wait for."""
    with suppress(Exception):  # a logger's fault is not a fault of the training
        if (mlflow := sys.modules.get("mlflow")) is not None and not _is_missing(mlflow.get_tracking_uri()):
            mlflow.flush_async_logging()
            while mlflow.active_run() is not None:
                mlflow.end_run()
    with suppress(Exception):
        if (wandb := sys.modules.get("wandb")) is not None and wandb.run is not None:
            wandb.finish()
    with suppress(Exception):
        if (tensorboard := sys.modules.get("tensorboard.summary.writer.event_file_writer")) is not None:
            for item in gc.get_objects():
                if issubclass(type(item), tensorboard.EventFileWriter):  # isinstance asks lazy objects, which may raise
                    item.flush()


def _is_missing(store: str) -> bool:
    """Return whether a script that has imported MLflow has logged nothing: asking would make the tables, in seconds."""
    scheme, _, path = store.partition(":///")
    return scheme == "sqlite" and not Path(path.partition("?")[0]).exists()


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if text is None else {name: text})


@contextmanager
def _written() -> Iterator[set[Path]]:
    """Collect the files with logs or results that this process writes in the block."""
    written, is_open = set[Path](), True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if is_open and event in ("open", "os.rename") and (path := written_log_file(event, arguments)):
            written.add(Path(path))

    sys.addaudithook(note)  # which cannot be removed
    try:
        yield written
    finally:
        is_open = False


def trim_model_folder(folder: Path) -> None:
    """Remove the Trainer's checkpoints from the model, but the newest if there is no model."""
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal()]
    checkpoints.sort(key=lambda path: int(path.name[11:]))
    has_model = mlflow_model.has_weights(folder) or any(folder.glob("adapter_model*"))
    for path in checkpoints if has_model else checkpoints[:-1]:
        shutil.rmtree(path, ignore_errors=True)


class PrintedMetrics:
    """A stream that forwards all text, has its lines read, and writes printed dictionaries of numbers as events.

    The Trainer does not print the step. Each printed dictionary of the training counts as `logging_steps` more steps;
    an evaluation belongs to the last counted step.
    """

    def __init__(
        self, stream: TextIO, events: EventWriter | None, printed: PrintedNumbers, logging_steps: int = LOGGING_STEPS
    ) -> None:
        self._stream, self._events, self._printed, self._logging_steps = stream, events, printed, logging_steps
        self._line = ""
        self._step = 0
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    def write(self, text: str) -> int:
        """Forward `text` and parse the lines that it completes."""
        self._stream.write(text)
        *lines, self._line = (self._line + text).split("\n")
        self._line = self._line[-LONGEST_LINE:]
        for line in lines:
            self.last_lines.append(line)
            self._printed.read(line, has_curve=self._parse(line.strip()))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _parse(self, line: str) -> bool:
        """Return whether the line is a dictionary of numbers that became an event."""
        if self._events is None or not line.startswith("{"):
            return False
        numbers = finite_numbers(dictionary_in(line))
        if "train_runtime" in numbers or not numbers:
            return False  # the summary, which is in train_results.json too
        is_evaluation = any(name.startswith("eval_") for name in numbers)
        if not is_evaluation:
            self._step += self._logging_steps
        curve = "eval" if is_evaluation else "train"
        metrics = {f"{curve}/{name.removeprefix('eval_')}": value for name, value in numbers.items()}
        with redirect_stdout(self._stream):  # the printed event must not be parsed again
            self._events.write(self._step, metrics)
        return True
