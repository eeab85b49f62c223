"""Runs a user's training script, unmodified, and records its metrics.

`specification.script_arguments` makes the script's command line. Dictionaries that a Trainer prints become events. The
report and the curves come from what the script logs and prints (see core.script_metrics).
"""

import atexit
import gc
import os
import re
import runpy
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TextIO

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

_LAST_LINES = 20  # printed lines that are kept; the box that rich draws around an error has fewer lines


def run_script(document: JobDocument, folder: JobFolder) -> None:
    """Run the script to its end, as `__main__` of this process. The first process of the job writes the report.

    Raises any exception of the script, and ScriptEnded if the script exits with a code other than 0.
    """
    script = at_home(document.spec.entry_script or "").resolve()
    sys.argv = [str(script), *_words_of(document, folder)]
    sys.path.insert(0, str(script.parent))
    os.environ.pop("PYTHONSAFEPATH", None)  # it was meant for this process, not for those that the script starts
    # Only the logs of the first process are kept.
    data = folder.report.parent if processes.is_first() else Path(tempfile.mkdtemp())
    settings = read_own_script(script).settings | setting_names(document.spec.training_arguments)
    streams, began = (sys.stdout, sys.stderr), time.time()
    printed, outputs = PrintedNumbers(document.spec.metric_definitions, settings), list[PrintedMetrics]()
    if processes.is_first():
        logging_steps = max(1, int(document.spec.training_arguments.get("logging_steps", LOGGING_STEPS)))
        outputs.append(PrintedMetrics(sys.stdout, EventWriter(folder.events), printed, logging_steps))
        outputs.append(PrintedMetrics(sys.stderr, None, printed))  # Python's logging writes to stderr
        sys.stdout, sys.stderr = outputs
    is_alone = document.deadline_s is not None  # on an instance no other job shares the current folder
    if is_alone and processes.is_first() and not os.path.lexists("mlruns"):
        Path("mlruns").symlink_to(data / STORE / "mlruns")  # where MLflow before 3.11 puts the files of runs

    def write_report() -> None:
        if is_alone:
            trim_model_folder(folder.model)
        # On a user's machine, other jobs may write into the current folder: only files of this process count.
        roots = [folder.model, *([Path.cwd()] if is_alone else [])]
        gathered = printed.results(logged(data, roots, began, written, settings), SCRIPT_METRICS)
        write_curves(gathered.curves, data / STORE)
        facts: dict[str, str | bool | int | float] = {"device": device.device_name(), "metrics_from": gathered.sources}
        facts["names_left_out"] = gathered.left_out
        model_fault = mlflow_model.describe(folder.model)  # only now: it copies files, which would be read as results
        not_finite = tuple(gathered.not_finite)
        report = JobReport(metrics=gathered.metrics, not_finite=not_finite, facts=facts, model_fault=model_fault)
        report.write(folder.report)

    def report_at_once() -> None:
        flush_mlflow()
        finish_loggers()
        for output in outputs:
            output.finish()
        sys.stdout, sys.stderr = streams
        write_report()

    is_first = processes.is_first()
    with (
        _variables(logging_environment(data, os.environ)),
        _written() as written,
        _before_exit(report_at_once) if is_first else nullcontext(),
    ):
        try:
            try:
                _run_as_main(script)
            finally:
                flush_mlflow()
            end_python()  # not after a failure: a thread may wait forever for what has failed
        finally:
            finish_loggers()
            for output in outputs:
                output.finish()
            sys.stdout, sys.stderr = streams
    if is_first:
        write_report()


class ScriptEnded(RuntimeError):
    """The script exited with a code other than 0. The message includes the script's last words."""


def from_script(error: BaseException, script: str) -> TracebackType | None:
    """Return the part of an error's traceback that begins in the script, or None if the script did not start."""
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
"""Messages of command-line parsers about unknown and missing options."""


def _why_ended(name: str, code: object) -> str:
    """Return why a script exited: its last printed words and, if these are about options, what to do."""
    words = next(filter(None, (last_words(getattr(each, "last_lines", ())) for each in (sys.stderr, sys.stdout))), "")
    if isinstance(code, str):  # sys.exit("message")
        code, words = 1, first_line(RuntimeError(code))
    sentence = f"{name} ended with exit code {code}" + f": {words}" * bool(words)
    if _USAGE.search(words):
        asked = options(ask_script="true")
        sentence += (
            f"; use --training_arguments.NAME VALUE to pass an option that `python {name} --help` lists, or add {asked}"
        )
    return sentence


def _run_as_main(script: Path) -> None:
    """Run the script as `__main__`. Raises its exception, or ScriptEnded if it exits with a code other than 0."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ScriptEnded(_why_ended(script.name, end.code)) from end


def _words_of(document: JobDocument, folder: JobFolder) -> list[str]:
    return script_arguments(document.spec, document.plan, str(folder.model), document.script_options)


def end_python() -> None:
    """Wait for the threads of a script that has succeeded, and call its exit handlers, as Python does when it ends.

    Afterwards, this process must not use thread pools, nor what its libraries' handlers have closed.
    """
    with suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # only this ends the idle threads of pools
    with suppress(Exception):
        atexit._run_exitfuncs()


def flush_mlflow() -> None:
    """Make MLflow write what the script has logged asynchronously, which needs MLflow's thread pools."""
    with suppress(Exception):  # an error of a logger must not fail the job
        if (mlflow := sys.modules.get("mlflow")) is not None and not _is_missing(mlflow.get_tracking_uri()):
            mlflow.flush_async_logging()


def finish_loggers() -> None:
    """Make the script's loggers write what they still hold, and end their runs."""
    with suppress(Exception):
        if (mlflow := sys.modules.get("mlflow")) is not None and not _is_missing(mlflow.get_tracking_uri()):
            while mlflow.active_run() is not None:
                mlflow.end_run()
    with suppress(Exception):
        if (wandb := sys.modules.get("wandb")) is not None and wandb.run is not None:
            wandb.finish()
    with suppress(Exception):
        if (tensorboard := sys.modules.get("tensorboard.summary.writer.event_file_writer")) is not None:
            for item in gc.get_objects():
                # isinstance would load lazy objects, which may raise
                if issubclass(type(item), tensorboard.EventFileWriter):
                    item.flush()


def _is_missing(store: str) -> bool:
    """Return whether an MLflow store is a SQLite file that does not exist, because nothing was logged.

    Opening such a store would create its tables, which takes seconds.
    """
    scheme, _, path = store.partition(":///")
    return scheme == "sqlite" and not Path(path.partition("?")[0]).exists()


@contextmanager
def _before_exit(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` if code inside the block ends this process with `os._exit(0)`, which runs no other handler.

    Scripts end like this after their work, to avoid hanging threads and crashes while libraries are unloaded. Forked
    processes end with `os._exit`, too: for them, nothing is called.
    """
    leave_now, process = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        try:
            if status == 0 and os.getpid() == process:
                act()
                sys.stdout.flush()
                sys.stderr.flush()
        except Exception:
            traceback.print_exc()
        finally:
            leave_now(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = leave_now


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, and restore them afterwards."""
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
    """Yield a set that collects the log and result files that this process writes inside the block."""
    written, is_open = set[Path](), True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if is_open and event in ("open", "os.rename") and (path := written_log_file(event, arguments)):
            written.add(Path(path))

    sys.addaudithook(note)  # a hook cannot be removed, so `is_open` switches it off
    try:
        yield written
    finally:
        is_open = False


def trim_model_folder(folder: Path) -> None:
    """Remove the Trainer's checkpoints from the model's folder. Keep the newest if the folder has no other model."""
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal()]
    checkpoints.sort(key=lambda path: int(path.name[11:]))
    has_model = mlflow_model.has_weights(folder) or any(folder.glob("adapter_model*"))
    for path in checkpoints if has_model else checkpoints[:-1]:
        shutil.rmtree(path, ignore_errors=True)


class PrintedMetrics:
    """Forwards all text to a stream, looks for metrics in its lines, and writes dictionaries of numbers as events.

    The Trainer does not print the step. So each dictionary of training metrics adds `logging_steps` to the step, and
    the metrics of an evaluation belong to the current step.
    """

    def __init__(
        self, stream: TextIO, events: EventWriter | None, printed: PrintedNumbers, logging_steps: int = LOGGING_STEPS
    ) -> None:
        self._stream, self._events, self._printed, self._logging_steps = stream, events, printed, logging_steps
        self._line = ""
        self._step = 0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last_lines(self) -> list[str]:
        """The last printed lines, including the one that has no newline yet."""
        return [*self._last_lines, self._line]

    def write(self, text: str) -> int:
        """Forward `text` and parse the lines that it completes."""
        self._stream.write(text)
        *lines, self._line = (self._line + text).split("\n")
        self._line = self._line[-LONGEST_LINE:]
        for line in lines:
            self._read(line)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of `lines`, which include their own newlines."""
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        """Parse the last line, if no newline follows it."""
        self._read(self._line)
        self._line = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _read(self, line: str) -> None:
        self._last_lines.append(line)
        self._printed.read(line, has_curve=self._parse(line.strip()))

    def _parse(self, line: str) -> bool:
        """Write an event if the line is a dictionary of metrics, and return whether it is one."""
        if self._events is None or not line.startswith("{"):
            return False
        numbers = finite_numbers(dictionary_in(line))
        if "train_runtime" in numbers or not numbers:
            return False  # nothing, or the summary, which is also in train_results.json
        is_evaluation = any(name.startswith("eval_") for name in numbers)
        if not is_evaluation:
            self._step += self._logging_steps
        curve = "eval" if is_evaluation else "train"
        metrics = {f"{curve}/{name.removeprefix('eval_')}": value for name, value in numbers.items()}
        with redirect_stdout(self._stream):  # the printed event must not be parsed again
            self._events.write(self._step, metrics)
        return True
