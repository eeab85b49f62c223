"""The one program inside a job of a user's own training: `python3 runner.py ML`.

ML is the job's folder, /opt/ml on SageMaker. The program installs the dependencies that the job's document lists,
provides an MLflow store for the training's records, and runs the training's command. It remains the parent of the
command: it reads the lines that the command prints, passes signals on to the command and all its descendants, ends a
command that hangs or reaches its deadline, and writes what the command has measured, however it ended. A script runs
with `child`, which writes the script's exception as data. Next to this file are child.py, code_errors.py,
model_files.py, watchdog.py, with_secrets.py and script_metrics. All of them need only the standard library of Python
3.8 or newer.

    ML/input/data/job/job.json     the document; `command` in it is the bound command (specification.container.Command)
    ML/output/data/paretune/       mlflow.db and mlruns, if the command uses MLflow; the curves of other loggers;
                                   log.txt, command.txt, versions.txt, and traceback.txt after an exception; models/
    ML/output/data/events.jsonl    while the job runs: how far the training has come, and dictionaries of a Trainer
    ML/output/data/report.json     the metrics, and where each comes from
    ML/output/data/partial.json    the same of a command that failed or was stopped
    ML/output/failure              why the job failed: its cause (`specification.ending.Cause`), a colon, one sentence

Metrics come from what the command prints and logs (see script_metrics). If several of its MLflow runs have a metric,
the last value in the first run counts. If the first run lacks the metric, the last value in the newest run that has it
counts.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from paretune.user_code.script_metrics import PrintedNumbers, ProgressReader

GRACE_S = 110.0  # seconds from SIGTERM until a command that still runs is killed
LOG, COMMAND, VERSIONS, TRACEBACK = "log.txt", "command.txt", "versions.txt", "traceback.txt"
REQUIREMENTS = ".paretune-requirements.txt"
_INSTALLER = "input/data/code/container_start.py"
_LONGEST_READ = 2**16  # bytes of the output that are read at a time
_LONGEST_LINE = 2**16  # characters of a line that are kept for reading
_LARGEST_BEGIN, _LARGEST_END = 4_000_000, 1_000_000  # bytes of the begin and the end of a log that are kept
_PROGRESS_S = (1.0, 10.0)  # seconds between two events about progress: at first, and after two minutes
_PROGRESS_SHARE = 0.01  # least share of the time so far between two of them, so that long jobs do not send too many
_MOST_NAMED = 5  # metrics that a sentence of the report names
_LAST_LINES = 200  # printed lines in which the reason of a failure is looked for
_ENDED = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|NotFound|Missing))\b(?::|$)"
)
"""The last line of a traceback."""
_ERROR_LINE = re.compile(r"^(?:\S+: )?(?:error|ERROR|Error):\s*(\S.*)$")  # of argparse, fire and others
_OF_TORCHRUN = re.compile(r"^[EWI]\d{4} .* torch/distributed/|bin/torchrun\", line|/torch/distributed/run\.py\", line")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_USAGE = re.compile(
    r"\b(?:no such (?:option|command)|unrecognized arguments|unknown (?:command.line flag|option)|missing option"
    r"|missing argument|arguments are required|could not consume|unexpected extra argument|cannot find key"
    r"|not used by the HfArgumentParser)",
    re.IGNORECASE,
)
"""Messages of command-line parsers about unknown and missing options."""


def main(ml: Path) -> int:
    """Run the job and return the exit code of the command, or of the installation if the command was not started."""
    document = json.loads((ml / "input" / "data" / "job" / "job.json").read_text(encoding="utf-8"))
    command = document["command"]
    code_folder = Path(__file__).resolve().parent
    folder = code_folder / command["folder"] if command["folder"] else Path.cwd()
    supervisor = Supervisor()
    watchdog = importlib.import_module("watchdog")
    grace_s = max(GRACE_S, document["max_seconds"] - (document.get("deadline_s") or document["max_seconds"]))
    late = partial(supervisor.end, ml, 128 + signal.SIGTERM)
    if starter := os.environ.pop("PARETUNE_STARTER", ""):  # process id of the parent: a launcher or with_secrets.py
        watchdog.end_with(int(starter), grace_s, late)
    if Cluster.read(ml).rank == 0:  # if an instance hangs, the others wait for it
        watchdog.watch(ml / "output" / "data" / "events.jsonl", partial(supervisor.end, ml, 1))
    if document.get("deadline_s") is not None:  # a job on a user's machine has no deadline here
        watchdog.stop_at(document["deadline_s"], grace_s, partial(write_failure, ml, "time_limit"), late)
    if command["requirements"]:
        code = install(command["requirements"], folder / command["requirements_folder"], ml, supervisor)
        if code or supervisor.was_stopped:
            return code
    return Training(ml, document, folder, supervisor).run(grace_s)


class Cluster(NamedTuple):
    """The instances of a job, as SageMaker's resourceconfig.json describes them; no hosts for a job on one machine."""

    hosts: list[str]
    rank: int  # index of this instance
    interface: str  # network interface between the instances

    @classmethod
    def read(cls, ml: Path) -> Cluster:
        """Read the description in the job's folder, or return a cluster without hosts if there is none."""
        path = ml / "input" / "config" / "resourceconfig.json"
        if not path.exists():
            return cls([], 0, "")
        raw = json.loads(path.read_text(encoding="utf-8"))
        hosts = sorted(raw["hosts"], key=lambda name: (len(name), name))  # algo-2 before algo-10
        return cls(hosts, hosts.index(raw["current_host"]), raw.get("network_interface_name", "eth0"))


class Training:
    """One run of the command: its environment, its words, what it printed, and its report."""

    def __init__(self, ml: Path, document: dict[str, Any], folder: Path, supervisor: Supervisor) -> None:
        self._ml, self._document, self._folder, self._supervisor = ml, document, folder, supervisor
        self._command = document["command"]
        self._metrics = importlib.import_module("script_metrics")
        self._cluster = Cluster.read(ml)
        self._is_first = self._cluster.rank == 0  # only the records of the first instance are kept
        self._data = ml / "output" / "data" if self._is_first else Path(tempfile.mkdtemp())
        self._store = self._data / self._metrics.STORE
        self._models = importlib.import_module("model_files")
        self._ending, self._notes = self._data / "ending.json", self._models.Notes(self._data)
        self._is_script, self._is_alone = bool(self._command["script"]), document.get("deadline_s") is not None
        settings, named = self._command["settings"], self._command["named"]
        self._printed = self._metrics.PrintedNumbers(self._command["metric_definitions"], settings, named)

    def run(self, grace_s: float) -> int:
        """Run the command, write what it has measured, and return its exit code."""
        words, began = self._words(grace_s), time.time()
        self._store.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # a full disk must not hide why the command failed
            (self._store / COMMAND).write_text(shlex.join(self._shown()) + "\n", encoding="utf-8")
            (self._store / VERSIONS).write_text(versions(), encoding="utf-8")
        with contextlib.suppress(FileNotFoundError):
            self._ending.unlink()
        self._notes.begin(self._places().shared)
        events = Events(self._data / "events.jsonl", self._document["job_name"]) if self._is_first else None
        reader = self._metrics.ProgressReader(self._command["totals"])
        output = Output(self._store / LOG, self._printed, self._trainer(), self._hidden(), reader, events)
        options = {"env": self._environment(), **({"cwd": str(self._folder)} if self._command["folder"] else {})}
        if (self._is_alone or not self._is_script) and not os.path.lexists(str(self._folder / "mlruns")):
            (self._folder / "mlruns").symlink_to(self._store / "mlruns")  # where MLflow before 3.11 puts files
        say("starting the training's command")
        if events is not None:
            threading.Thread(target=_send_progress, args=(output,), daemon=True).start()
        code = self._supervisor.run(words, output, **options)
        output.finish()
        ending = self._read_ending()
        if ending.get("traceback") and not ending.get("exit"):
            (self._store / TRACEBACK).write_text(output.masked(ending["traceback"]), encoding="utf-8")
        if code and not self._supervisor.was_stopped:
            code = self._fail(code, ending, output)
        if self._is_first:
            self._report(began, has_completed=not code and not self._supervisor.was_stopped)
        return code

    def _words(self, grace_s: float) -> list[str]:
        """Return the words that start the command: bash, or the script in one process or in one for each device."""
        words = self._filled()
        if not self._is_script:
            return ["bash", "-c", words[0]]
        child, script = str(Path(__file__).resolve().parent / "child.py"), self._command["script"]
        cluster, processes = self._cluster, int(self._command["processes"])
        if processes * len(cluster.hosts or [""]) == 1:
            return [sys.executable, child, script, *words]
        spread = ["--standalone", f"--nproc-per-node={processes}"]
        if cluster.hosts:
            spread = [
                f"--nnodes={len(cluster.hosts)}",
                f"--node-rank={cluster.rank}",
                f"--nproc-per-node={processes}",
                f"--master-addr={cluster.hosts[0]}",
                f"--master-port={os.environ.get('SM_MASTER_PORT', '7777')}",
            ]
        return [sys.executable, child, "--spread", str(grace_s), *spread, "--", script, *words]

    def _filled(self) -> list[str]:
        plan = self._document["plan"]
        batch, steps = plan["per_device_train_batch_size"], plan["gradient_accumulation_steps"]
        values = {"batch": batch, "steps": steps, "total": plan["global_batch_size"], "share": batch * steps}
        values["output"] = self._ml / "model"
        words = list(self._command["words"])
        for name, value in values.items():
            words = [word.replace(f"\0{name}\0", str(value)) for word in words]
        return words

    def _shown(self) -> list[str]:
        words = self._filled()
        return ["python", self._command["script"], *words] if self._is_script else ["bash", "-c", words[0]]

    def _environment(self) -> dict[str, str]:
        variables = dict(os.environ, **self._metrics.logging_environment(self._data, os.environ))
        variables.setdefault("HYDRA_FULL_ERROR", "1")  # otherwise Hydra prints no traceback and exits with code 1
        variables.setdefault("PYTHONUNBUFFERED", "1")
        if self._is_script:
            variables["PARETUNE_ENDING"] = str(self._ending)
            variables["PARETUNE_WRITTEN"] = str(self._data / self._models.WRITTEN)
            variables["PARETUNE_RUNNER"] = str(os.getpid())
            if self._cluster.interface:
                for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
                    variables.setdefault(name, self._cluster.interface)
        return variables

    def _trainer(self) -> TrainerLog | None:
        steps = self._command["logging_steps"]
        return TrainerLog(steps, self._metrics) if steps and self._is_first else None

    def _hidden(self) -> list[bytes]:
        """Return the forms in which the job's secrets may be printed."""
        named = (self._document.get("spec") or {}).get("environment") or {}
        secrets = [os.environ.get(name, "") for name, text in named.items() if str(text).startswith("secret:arn:")]
        lines = {line for text in secrets for line in text.splitlines()}
        if not lines:
            return []
        masks = importlib.import_module("with_secrets")
        forms = {form for line in lines if len(line) >= masks.SHORTEST for form in masks.forms(line)}
        return sorted(forms, key=len, reverse=True)

    def _read_ending(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            ending: dict[str, Any] = json.loads(self._ending.read_text(encoding="utf-8"))
            return ending
        return {}

    def _fail(self, code: int, ending: dict[str, Any], output: Output) -> int:
        """Write why the command failed, and return the exit code of the job."""
        if ending and not ending.get("exit"):
            cause, sentence = str(ending["cause"]), str(ending["sentence"])
            sentence += self._command["usage_hint"] if ending["type"] == "GetoptError" else ""
            local = f"install it for {sys.executable}"
            remedy = "list it in the job's requirements, or set sagemaker.training_image to an image that has it"
            write_failure(self._ml, cause, sentence.replace("{install}", remedy if self._is_alone else local))
            return errno.ENOSPC if cause == "disk_full" else 1
        if code - 128 in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
            return code  # the launcher says what that means, and why the system may have killed it
        name = Path(self._command["script"]).name if self._is_script else "the training's command"
        text = ending.get("exit")  # sys.exit("message") prints the message
        number, words = (1, text.strip().splitlines()[-1:]) if isinstance(text, str) and text.strip() else (code, None)
        reason = words[0] if words else output.reason()
        sentence = f"{name} ended with exit code {number}" + (f": {reason}" if reason else "")
        is_usage = _USAGE.search(reason) is not None
        if self._is_script and is_usage:
            sentence += self._command["usage_hint"]
        is_code = is_usage or importlib.import_module("code_errors").prints_error_in_code(reason)
        write_failure(self._ml, "code" if is_code else "error" if reason else "silent", sentence)
        return code

    def _places(self) -> Any:
        """Return where the command may save its model."""
        folder, words, names = self._folder.resolve(), self._filled(), self._command["saves"]
        script = [(self._folder / self._command["script"]).resolve().parent] if self._is_script else []
        folders = list(dict.fromkeys([folder, *script]))
        if self._is_alone or self._command["folder"]:  # the container, or a copy of the project
            outer = [each for each in folders if not any(other in each.parents for other in folders)]
            return self._models.Places(own=[*outer, self._ml / "model"], shared=[], words=words)
        return self._models.Places(own=[self._ml / "model"], shared=folders, names=names, words=words)

    def _report(self, began: float, *, has_completed: bool) -> None:
        """Write the metrics and curves of the command, keep its models, and describe the one that it leaves to MLflow.

        A part that fails costs that part: the report says which. A full disk must not hide why the command failed.
        """
        report: dict[str, Any] = {"metrics": {}, "not_finite": [], "facts": {"device": device_name()}}
        parts = {"metrics": partial(self._measure, report, began), "models": partial(self._keep, report, has_completed)}
        for name, part in parts.items():
            try:
                part()
            except Exception as error:  # the command has written what is read here, so anything may be wrong with it
                report["facts"][f"{name}_fault"] = f"{type(error).__name__}: {error}"
        name = "report.json" if has_completed else "partial.json"
        draft = self._data / f".{name}"
        try:
            draft.write_text(json.dumps(report), encoding="utf-8")
        except OSError:  # its models may have filled the disk
            shutil.rmtree(str(self._store / self._models.FOLDER), ignore_errors=True)
            with contextlib.suppress(OSError):
                draft.write_text(json.dumps(report), encoding="utf-8")
        with contextlib.suppress(OSError):
            draft.replace(self._data / name)
        with contextlib.suppress(OSError):
            self._ending.unlink()
        self._notes.end()

    def _measure(self, report: dict[str, Any], began: float) -> None:
        roots = [self._ml / "model", *([self._folder] if self._is_alone or not self._is_script else [])]
        files = self._notes.own().files - self._models.shared_with_others(self._notes)
        sources = self._metrics.logged(self._data, roots, began, set(map(Path, files)), self._command["settings"])
        results = self._printed.results(sources, self._command["renamed"])
        report.update(metrics=results.metrics, not_finite=results.not_finite)
        passes = [f"{name}: {phrase}" for name, phrase in results.passes.items()]
        facts = {"passes": _listed(passes), "thinned": _listed(results.thinned), "names_left_out": results.left_out}
        report["facts"].update(metrics_from=results.sources, **{name: text for name, text in facts.items() if text})
        self._metrics.write_curves(results.curves, self._store)

    def _keep(self, report: dict[str, Any], has_completed: bool) -> None:
        places = self._places()
        if has_completed and self._command["leaves_model"]:
            trim_model_folder(self._ml / "model") if self._is_alone else None
            report["model_fault"] = describe_model(self._ml / "model")
            if report["model_fault"] == "":  # MLflow gets that folder as the model of the run
                places = places._replace(own=[each for each in places.own if each != self._ml / "model"])
        if self._command["keeps_models"]:
            report["facts"].update(self._models.keep(places, self._notes, self._store))


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


class Output:
    """The output of the command: passed on as it comes, read line by line, and kept in a file of limited size."""

    def __init__(
        self,
        log: Path,
        printed: PrintedNumbers,
        trainer: TrainerLog | None,
        hidden: list[bytes],
        reader: ProgressReader,
        events: Events | None,
    ) -> None:
        self._log: IO[bytes] = log.open("wb")
        self._printed, self._trainer, self._hidden = printed, trainer, hidden
        self._reader, self._events = reader, events
        self._is_inside_line = False  # whether a line that was passed on has not ended
        self._line = self._state = b""
        self._size = 0
        self._end: deque[bytes] = deque()
        self._end_size = self._left_out = 0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._lock = threading.RLock()

    def take(self, data: bytes) -> None:
        """Pass on bytes of the output, and read the lines that they complete."""
        with self._lock:
            self._pass_on(data)
            *states, self._state = re.split(b"[\r\n]", self._state + data)  # a bar that is redrawn has many
            for state in states:
                with contextlib.suppress(Exception):  # a line of an unknown form must not end the reading of others
                    self._reader.read(state.decode(errors="replace"), time.monotonic())
            self._state = self._state[:_LONGEST_LINE]
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._read(line)
            if len(self._line) > _LONGEST_LINE:
                self._read(self._line)
                self._line = b""

    def send(self, **content: Any) -> None:
        """Write and print an event, if this is the first instance."""
        with self._lock:
            if self._events is not None:
                self._pass_on(b"\n" * self._is_inside_line + self._events.write(**content).encode())

    def _pass_on(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        self._is_inside_line = not data.endswith(b"\n")

    def progress(self) -> Any:
        """Return how far the training has come, as `ProgressReader.progress` does."""
        with self._lock:
            return self._reader.progress(time.monotonic())

    def finish(self) -> None:
        """Read the last line, if no newline follows it, and close the log."""
        with self._lock:
            if self._line:
                self._read(self._line)
                self._line = b""
            with contextlib.suppress(OSError, ValueError):
                if self._left_out:
                    self._log.write(b"... %d bytes are left out here ...\n" % self._left_out)
                self._log.writelines(self._end)
                self._log.close()

    def reason(self) -> str:
        """Return why the command failed according to its last lines: its exception, an error, or its last words."""
        lines = _before_torchrun([_COLOR.sub("", line).rstrip() for line in self._last_lines])
        while lines and not re.search(r"\w", lines[-1]):
            lines.pop()
        starts = [number for number, line in enumerate(lines) if line.lstrip().startswith("Traceback (most recent")]
        for start in reversed(starts):
            indent = len(lines[start]) - len(lines[start].lstrip())
            below = (line[indent:] for line in lines[start + 1 :] if line.strip())
            found = next((line for line in below if not line.startswith((" ", "+", "|"))), "")
            if found and not found.startswith(("subprocess.CalledProcessError", "torch.distributed.elastic")):
                return found
        last = lines[-1].strip() if lines else ""
        if not _ENDED.match(last):
            errors = [match[1] for line in lines if (match := _ERROR_LINE.match(line.strip()))]
            boxed = [line for line in lines if line.startswith("│")]
            if boxed and lines[-1].startswith(("│", "╰")):
                return " ".join(line.strip("│ ") for line in boxed)
            exceptions = [line for line in lines if _ENDED.match(line)]
            return (exceptions or errors or [last])[-1]
        return last

    def masked(self, text: str) -> str:
        """Return the text without the job's secrets."""
        data = text.encode(errors="replace")
        for secret in self._hidden:
            data = data.replace(secret, b"...")
        return data.decode(errors="replace")

    def _read(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._last_lines.extend(part for part in text.rstrip("\r").split("\r")[-1:])
        point = None if self._trainer is None else self._trainer.read(text.strip())
        if point is not None:
            self.send(**point)
            self._reader.count_step(point["step"], time.monotonic())  # which the Trainer does not print
        with contextlib.suppress(Exception):
            self._printed.read(text, has_curve=point is not None)
        for secret in self._hidden:
            line = line.replace(secret, b"...")
        self._keep(line.rpartition(b"\r")[2] + b"\n" if b"\r" in line.rstrip(b"\r") else line + b"\n")

    def _keep(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # a full disk must not end the command
            if self._size + len(line) <= _LARGEST_BEGIN:
                self._size += len(line)
                self._log.write(line)
                self._log.flush()
                return
        self._size = _LARGEST_BEGIN
        self._end.append(line)
        self._end_size += len(line)
        while self._end_size > _LARGEST_END and len(self._end) > 1:
            size = len(self._end.popleft())
            self._end_size, self._left_out = self._end_size - size, self._left_out + size


def _before_torchrun(lines: list[str]) -> list[str]:
    """Return the lines before those that torchrun prints after a failure, which say nothing of the reason."""
    first = next((at for at, line in enumerate(lines) if _OF_TORCHRUN.search(line)), len(lines))
    while first and lines[first - 1].lstrip().startswith(("File ", "Traceback (most recent", "sys.exit(", "^")):
        first -= 1
    return lines[:first] if any(re.search(r"\w", line) for line in lines[:first]) else lines


class Events:
    """Writes events of the running job. Each names the job, which tells it from what the command prints."""

    def __init__(self, path: Path, job_name: str) -> None:
        self._path, self._job_name = path, job_name

    def write(self, **content: Any) -> str:
        """Write an event, and return its line."""
        line = json.dumps({"time": time.time(), "step": 0, **content, "job": self._job_name}) + "\n"
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        return line


def _send_progress(output: Output) -> None:
    """Send how far the training has come whenever its counter has moved, at most every few seconds.

    Nothing is sent while the counter stands still, so that the job can be seen to hang.
    """
    began, sent = time.monotonic(), None
    while True:
        elapsed_s, (least_s, usual_s) = time.monotonic() - began, _PROGRESS_S
        time.sleep(max(least_s, min(usual_s, 0.1 * elapsed_s), _PROGRESS_SHARE * elapsed_s))
        counted = output.progress()
        if counted is not None and counted._replace(seconds=0.0) != sent:
            sent = counted._replace(seconds=0.0)
            output.send(progress=counted._asdict())


class TrainerLog:
    """Reads the dictionaries that Hugging Face's Trainer prints, so that MLflow shows them during the job.

    The Trainer does not print the step. Each dictionary of training metrics adds `logging_steps` to the step. That of
    an evaluation follows from its epoch, and the steps in an epoch so far; without them, it is left out here, and read
    from the Trainer's files when the job ends.
    """

    def __init__(self, logging_steps: int, metrics: Any) -> None:
        self._logging_steps, self._metrics = logging_steps, metrics  # the module script_metrics
        self._step = 0
        self._epoch = 0.0

    def read(self, line: str) -> dict[str, Any] | None:
        """Return the step and the metrics of a line that is a dictionary of metrics, or None for any other line."""
        if not line.startswith("{"):
            return None
        numbers = self._metrics.finite_numbers(self._metrics.dictionary_in(line))
        if "train_runtime" in numbers or not numbers:
            return None  # nothing, or the summary, which is also in train_results.json
        epoch = numbers.get("epoch", 0.0)
        if any(name.startswith("eval_") for name in numbers):
            step = round(epoch * self._step / self._epoch) if self._epoch and epoch else 0
        else:
            self._step, self._epoch = self._step + self._logging_steps, epoch
            step = self._step
        metrics = {name: value for name, value in numbers.items() if not self._metrics.is_setting(name)}
        return {"step": step, "metrics": metrics} if step and metrics else None


class Supervisor:
    """Runs one process after another, and passes SIGTERM on to the running process and all its descendants."""

    def __init__(self) -> None:
        self.was_stopped = False
        self._is_ending = False  # whether `end` is ending this process from another thread
        self._group: int | None = None
        signal.signal(signal.SIGTERM, self._pass_on)

    def run(self, words: list[str], output: Output | None = None, **options: Any) -> int:
        """Run a process and return its exit code, or 128 + the number of the signal that ended it.

        If SIGTERM has arrived, wait until the whole process group has ended. If `output` is given, it takes what the
        process prints.
        """
        if output is not None:
            options.update(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        process = subprocess.Popen(words, start_new_session=True, **options)
        reader = threading.Thread(target=_pass_on, args=(process.stdout, output), daemon=True)
        reader.start()
        self._group = process.pid
        if self.was_stopped:
            self._pass_on()
        code = process.wait()
        while self._is_ending:  # `end` exits from its thread, with its own code
            time.sleep(1)
        while self.was_stopped and self._has_members(process.pid):
            time.sleep(0.05)
        self._group = None
        reader.join(5.0)  # a process in the background may keep the pipe open for longer
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send a signal to the running process and all its descendants."""
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, number)

    def end(self, ml: Path, code: int, sentence: str = "") -> None:
        """Kill the command and exit with `code`. A `sentence` is recorded as the reason, unless a reason exists."""
        if sentence:
            write_failure(ml, "error", sentence)
        self._is_ending = True
        self.send(signal.SIGKILL)
        os._exit(code)

    def _pass_on(self, *_: Any) -> None:
        self.was_stopped = True
        self.send(signal.SIGTERM)

    def _has_members(self, group: int) -> bool:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # reap an orphan: orphans become children of the container's first process
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True


def _pass_on(stream: IO[bytes] | None, output: Output | None) -> None:
    while stream is not None and output is not None and (data := os.read(stream.fileno(), _LONGEST_READ)):
        output.take(data)


def install(requirements: list[str], folder: Path, ml: Path, supervisor: Supervisor) -> int:
    """Install the requirements with container_start.py, and return its exit code.

    Relative paths in the requirements are relative to `folder`.
    """
    say("installing the training's dependencies")
    path = folder / REQUIREMENTS
    path.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    try:
        words = [sys.executable, str(ml / _INSTALLER), "--install", path.name, str(ml)]
        return supervisor.run(words, cwd=str(folder))
    finally:
        path.unlink()


def versions() -> str:
    """Return the versions of Python, of the system and of all installed packages, one on each line."""
    lines = [f"python=={platform.python_version()}", f"# {platform.platform()}"]
    with contextlib.suppress(Exception):  # a broken package must not end the job
        metadata = importlib.import_module("importlib.metadata")
        names = dict(_name_and_version(each) for each in metadata.distributions())
        lines += sorted((f"{name}=={version}" for name, version in names.items()), key=str.lower)
    return "\n".join(lines) + "\n"


def _name_and_version(distribution: Any) -> tuple[str | None, str | None]:
    """Return the name and the version of an installed package, without parsing its description, which takes longer."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    fields = dict(line.partition(": ")[::2] for line in text.partition("\n\n")[0].splitlines())
    return fields.get("Name"), fields.get("Version")


def device_name() -> str:
    """Return the name of the GPU, or of the CPU if there is no GPU."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        if names := subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines():
            return names[0].strip()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def trim_model_folder(folder: Path) -> None:
    """Remove the Trainer's checkpoints from the model's folder. Keep the newest if the folder has no other model."""
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal()]
    checkpoints.sort(key=lambda path: int(path.name[11:]))
    weights = ("model*.safetensors", "pytorch_model*.bin", "adapter_model*")
    has_model = any(path for pattern in weights for path in folder.glob(pattern))
    for path in checkpoints if has_model else checkpoints[:-1]:
        shutil.rmtree(path, ignore_errors=True)


def describe_model(folder: Path) -> str:
    """Write the files that MLflow needs to load the model in `folder`. Returns why that is impossible, or ""."""
    words = [sys.executable, "-m", "paretune.training.mlflow_model", str(folder)]
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).resolve().parent), *sys.path[1:]]))
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=variables, timeout=600, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"its files could not be read ({error})"
    lines = done.stderr.strip().splitlines()
    return done.stdout.strip() if not done.returncode else f"its files could not be read ({(lines or [''])[-1]})"


def write_failure(ml: Path, cause: str, sentence: str) -> None:
    """Write why the job failed, unless a reason has been written already. `cause` is a value of `Cause`."""
    path = ml / "output" / "failure"
    with contextlib.suppress(OSError):
        if not path.exists():
            path.write_text(f"{cause}: {sentence}")


def say(sentence: str) -> None:
    """Print one line of the log; the launcher shows the log starting with the first of these lines."""
    print(f"paretune: {sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
