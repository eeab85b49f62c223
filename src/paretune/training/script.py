"""Run a user's Hugging Face style training script, unmodified, and record its metrics.

Its command line is that of specification.script_arguments. Dictionaries that the Trainer prints become events; the
numbers of printed lines and of files with results become the report (see core.script_metrics).
"""

import os
import runpy
import shutil
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from paretune.core.script_metrics import LONGEST_LINE, PrintedNumbers, dictionary_in, finite_numbers, numbers_of_files
from paretune.core.untrusted import at_home
from paretune.specification.container import JobDocument, JobFolder, JobReport
from paretune.specification.metrics import SCRIPT_METRICS
from paretune.specification.script_arguments import LOGGING_STEPS, script_arguments
from paretune.training import device, mlflow_model, processes
from paretune.training.meter import EventWriter


def run_script(document: JobDocument, folder: JobFolder) -> None:
    """Run the script in this process as `__main__` to its end; the first process writes the report.

    Raises any exception of the script, and RuntimeError if it ended with an exit code other than 0.
    """
    script = at_home(document.spec.entry_script or "").resolve()
    sys.argv = [str(script), *script_arguments(document.spec, document.plan, str(folder.model))]
    sys.path.insert(0, str(script.parent))
    os.environ.pop("PYTHONSAFEPATH", None)  # meant for imports of this process only
    streams, began, printed = (sys.stdout, sys.stderr), time.time(), PrintedNumbers(document.spec.metric_definitions)
    if processes.is_first():
        logging_steps = max(1, int(document.spec.training_arguments.get("logging_steps", LOGGING_STEPS)))
        sys.stdout = PrintedMetrics(sys.stdout, EventWriter(folder.events), printed, logging_steps)
        sys.stderr = PrintedMetrics(sys.stderr, None, printed)  # where Python's logging writes
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            reason = getattr(sys.stderr, "last_line", "")  # such as that of an argument parser
            raise RuntimeError(f"{script.name} ended with {end.code}{': ' if reason else ''}{reason}") from end
    finally:
        sys.stdout, sys.stderr = streams
    if not processes.is_first():
        return
    if document.deadline_s is not None:
        trim_model_folder(folder.model)
    # Not the files of the current folder: another job may run in it at the same time.
    files = numbers_of_files([folder.report.parent, folder.model], began)
    metrics, not_finite, sources = printed.results(files, {}, SCRIPT_METRICS)
    facts: dict[str, str | bool | int | float] = {"device": device.device_name(), "metrics_from": sources}
    model_fault = mlflow_model.describe(folder.model)  # after the files with results were read: it copies some
    report = JobReport(metrics=metrics, not_finite=tuple(not_finite), facts=facts, model_fault=model_fault)
    report.write(folder.report)


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
        self.last_line = ""  # that is not empty

    def write(self, text: str) -> int:
        """Forward `text` and parse the lines that it completes."""
        self._stream.write(text)
        *lines, self._line = (self._line + text).split("\n")
        self._line = self._line[-LONGEST_LINE:]
        for line in lines:
            self.last_line = line.strip() or self.last_line
            self._printed.read(line)
            self._parse(line.strip())
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _parse(self, line: str) -> None:
        if self._events is None or not line.startswith("{"):
            return
        numbers = finite_numbers(dictionary_in(line))
        if "train_runtime" in numbers or not numbers:
            return  # the summary, which is in train_results.json too
        is_evaluation = any(name.startswith("eval_") for name in numbers)
        if not is_evaluation:
            self._step += self._logging_steps
        curve = "eval" if is_evaluation else "train"
        metrics = {f"{curve}/{name.removeprefix('eval_')}": value for name, value in numbers.items()}
        with redirect_stdout(self._stream):  # the printed event must not be parsed again
            self._events.write(self._step, metrics)
