"""Runs a user's Python script as its own process, and writes how it ended as data: `python3 child.py SCRIPT WORDS...`.

    python3 child.py SCRIPT WORDS...                        as `python3 SCRIPT WORDS...` does
    python3 child.py --spread GRACE ARGUMENTS... -- SCRIPT WORDS...     in one process per device, started by torchrun

`runner` starts this program, and reads what it writes:

    PARETUNE_ENDING     JSON: the exception that ended the script, written by the first process that fails
    PARETUNE_WRITTEN    a path on each line: files with results and model files that the script has written, and folders
                        that it has made, which end with /

It needs only the standard library of Python 3.8 or newer. `script_metrics`, `model_files` and `code_errors` are
next to it in a job.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import errno
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

ENDING, WRITTEN, RUNNER = "PARETUNE_ENDING", "PARETUNE_WRITTEN", "PARETUNE_RUNNER"
_LONGEST_TEXT = 100_000  # characters of a message or traceback that are kept
_LONGEST_END_S = 5.0  # exit handlers and threads may keep a failed process alive for this long


def main(words: list[str]) -> None:
    """Run the script in `words`, or start the processes that do."""
    if words[0] == "--spread":
        spread(float(words[1]), words[2 : words.index("--")], words[words.index("--") + 1 :])
        return
    script = os.path.abspath(words[0])
    if os.environ.get("RANK", "0") != "0":
        _print_into_the_log()
    _note_results()
    _end_on_sigterm()
    atexit.register(finish_loggers)  # it is called last
    _finish_before_exit()
    folder, module = module_of(script)
    sys.argv = [script, *words[1:]]
    sys.path[0] = folder
    for name in ("PYTHONSAFEPATH", WRITTEN, RUNNER):
        os.environ.pop(name, None)
    ending = os.environ.get(ENDING, "")
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            write_ending(ending, end, script)
            _leave_in_time()
        raise
    except BaseException as error:
        write_ending(ending, error, script)
        _leave_in_time()
        sys.stdout.flush()
        traceback.print_exception(type(error), error, from_script(error, script))
        sys.exit(errno.ENOSPC if classify(error)[0] == "disk_full" else 1)


def module_of(script: str) -> tuple[str, str]:
    """Return the folder from which a script's imports begin, and its name as a module; "" if it runs as a file.

    A script of a package that imports with dots, such as `from . import data`, runs as `python -m` would run it.
    """
    folder, name = os.path.split(script)
    module, is_relative = os.path.splitext(name)[0], False
    with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError), open(script, "rb") as file:
        is_relative = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(ast.parse(file.read())))
    if not is_relative or not os.path.isfile(os.path.join(folder, "__init__.py")):
        return folder, ""
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        module = f"{name}.{module}"
    return folder, module


def spread(grace_s: float, arguments: list[str], words: list[str]) -> None:
    """Run torchrun in this process. After SIGTERM, it waits `grace_s` seconds before it kills its processes."""
    run = importlib.import_module("torch.distributed.run")
    if "--shutdown-timeout" in run.get_args_parser().format_help():
        arguments = [*arguments, f"--shutdown-timeout={grace_s:.0f}"]
    else:  # torch 2.9 and older have no such option, only a default in their code
        api = importlib.import_module("torch.distributed.elastic.multiprocessing.api")
        api.PContext.close.__defaults__ = (None, int(grace_s))
    run.main([*arguments, os.path.abspath(__file__), *words])


def write_ending(path: str, error: BaseException, script: str) -> None:
    """Write the exception that ended the script, unless another process has written one."""
    with contextlib.suppress(OSError, ValueError):
        cause, sentence = classify(error)
        lines = traceback.format_exception(type(error), error, from_script(error, script))
        ending: dict[str, Any] = {
            "type": type(error).__name__,
            "module": type(error).__module__,
            "message": str(error)[:_LONGEST_TEXT],
            "cause": cause,
            "sentence": sentence[:_LONGEST_TEXT],
            "traceback": "".join(lines)[-_LONGEST_TEXT:],
        }
        if isinstance(error, SystemExit):
            ending["exit"] = error.code if isinstance(error.code, (int, str)) else str(error.code)
        with open(path, "x", encoding="utf-8") as file:
            json.dump(ending, file)


def classify(error: BaseException) -> tuple[str, str]:
    """Return the cause of a failure (a value of `Cause`), and a sentence for the user."""
    chain = [error]
    while True:
        link = chain[-1]
        before = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if before is None or before in chain:
            break
        chain.append(before)
    text = str(error)
    first = (text.strip().splitlines() or [type(error).__name__])[0]
    # The error of a library, such as transformers, may have no name, but be raised from the one that has it.
    missing = next((each.name for each in chain if isinstance(each, ModuleNotFoundError) and each.name), "")
    if isinstance(error, ModuleNotFoundError) and missing:
        return "code", f"package {missing.partition('.')[0]} is missing where the job runs: {{install}}"
    names = {kind.__name__ for kind in type(error).__mro__}
    is_memory = isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)
    if names & {"MemoryError", "OutOfMemoryError"} or is_memory:
        return "out_of_memory", first
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in text:
        return "disk_full", f"the disk is full: {first}"
    if type(error).__name__ == "CalledProcessError":  # the command itself has printed why
        command = getattr(error, "cmd", "")
        words = command if isinstance(command, str) else " ".join(map(str, command))
        shown = words if len(words) <= 100 else words[:100] + "..."
        return "silent", f"its command {shown!r} ended with exit code {getattr(error, 'returncode', '')}"
    if isinstance(error, FileNotFoundError) and error.filename and not os.path.isabs(str(error.filename)):
        first += f" (looked in {os.getcwd()})"
    if isinstance(error, EOFError) and "reading a line" in text:  # of input()
        first += " (a job has no keyboard: let the script take an argument instead of calling input)"
    if "doesn't support bf16" in text:  # of TrainingArguments
        first += " (the default of TRL's classes; give the job --precision fp32)"
    cause = chain[-1]
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    is_new = isinstance(cause, Exception) and (type(cause), reason) != (type(error), first)
    because = f", because of {type(cause).__name__}: {reason}" if len(chain) > 1 and is_new else ""
    # Read as a file: the import path is the script's by now, and the script may have a module of this name.
    in_code = runpy.run_path(str(Path(__file__).with_name("code_errors.py")))["ERRORS_IN_CODE"]
    is_code = isinstance(error, in_code) or isinstance(cause, in_code)
    return "code" if is_code else "error", f"{type(error).__name__}: {first}{because}"


def from_script(error: BaseException, script: str) -> Any:
    """Return the part of an error's traceback that begins in the script, or None if the script did not start."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    return frames


def finish_loggers() -> None:
    """Make the script's loggers write what they still hold, and end their runs. Errors of loggers fail no job."""
    with contextlib.suppress(Exception):
        mlflow = sys.modules.get("mlflow")
        if mlflow is not None and not _is_missing(mlflow.get_tracking_uri()):
            mlflow.flush_async_logging()
            while mlflow.active_run() is not None:
                mlflow.end_run()
    with contextlib.suppress(Exception):
        wandb = sys.modules.get("wandb")
        if wandb is not None and wandb.run is not None:
            wandb.finish()
    with contextlib.suppress(Exception):
        tensorboard = sys.modules.get("tensorboard.summary.writer.event_file_writer")
        if tensorboard is not None:
            for item in gc.get_objects():
                if issubclass(type(item), tensorboard.EventFileWriter):  # isinstance would load lazy objects
                    item.flush()


def _finish_before_exit() -> None:
    """Let `os._exit(0)`, which runs no exit handler, first write what the loggers and streams hold.

    Scripts end like this after their work, to avoid hanging threads and crashes while libraries are unloaded. Forked
    processes end with `os._exit`, too: they write nothing.
    """
    leave_now, process = os._exit, os.getpid()

    def leave(status: int) -> Any:
        if status == 0 and os.getpid() == process:
            finish_loggers()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
        leave_now(status)

    os._exit = leave


def _is_missing(store: str) -> bool:
    """Return whether an MLflow store is a SQLite file that does not exist, because nothing was logged.

    Opening such a store would create its tables, which takes seconds.
    """
    scheme, _, path = store.partition(":///")
    return scheme == "sqlite" and not Path(path.partition("?")[0]).exists()


def _note_results() -> None:
    """Append the path of each result or model file that this process writes to the file of PARETUNE_WRITTEN.

    The folders that it makes are noted, too, because files that libraries in C++ write there are seen by no hook.
    """
    path = os.environ.get(WRITTEN)
    if not path:
        return
    loggers, models = importlib.import_module("script_metrics.loggers"), importlib.import_module("model_files")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("script_metrics", "model_files")]:
        del sys.modules[name]  # the script may have a module of this name
    seen: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename", "os.mkdir") and len(seen) < 10_000:
            written = loggers.written_file(event, arguments)
            is_noted = written and (event == "os.mkdir" or loggers.is_log_file(written) or models.may_be_model(written))
            if written and is_noted and written not in seen:
                seen.add(written)
                with contextlib.suppress(OSError), open(str(path), "a", encoding="utf-8") as file:
                    file.write(written + "\n")

    sys.addaudithook(note)


def _end_on_sigterm() -> None:
    """Let SIGTERM end the script as `sys.exit` does, so that its loggers write what they hold."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        process = os.getpid()

        def end(number: int, _: Any) -> None:
            if os.getpid() != process:  # a process that the script has forked
                os._exit(128 + number)
            sys.exit(128 + number)

        signal.signal(signal.SIGTERM, end)


def _leave_in_time() -> None:
    """Write what the loggers hold, and let this process end soon, even if a thread waits for what has failed."""
    finish_loggers()

    def leave() -> None:
        sys.stdout.flush()
        os._exit(1)

    timer = threading.Timer(_LONGEST_END_S, leave)
    timer.daemon = True
    timer.start()


def _print_into_the_log() -> None:
    """Print into the job's log, past `runner`, which reads the lines of the first process only."""
    with contextlib.suppress(OSError):
        log = os.open(f"/proc/{os.environ[RUNNER]}/fd/1", os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)


if __name__ == "__main__":
    main(sys.argv[1:])
