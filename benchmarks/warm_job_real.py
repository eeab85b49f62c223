"""Seconds until the configuration that is best in the end has been trained, in a job that searches.

Two sets of trainings of MiniLM: eight LoRA learning rates, and sixteen full fine-tunings (learning rate by batch size).
All trials to their end, one after the other in one job, show which configuration is best in the end, and are counted in
CPU seconds. Then a study with `in_job: search` searches the same trials on this machine; of its job the share of those
steps counts which it has trained when the best configuration, or the best that it trains, has ended.
"""

import argparse
import importlib
import json
import math
import os
import runpy
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import arguments
import psutil
import published
import shared_job

import paretune
from paretune.specification.container import (
    EventReader,
    JobDocument,
    JobFolder,
    MemberEnd,
    TrialQueue,
    write_json,
)
from paretune.specification.job import JobSpec
from paretune.specification.metrics import F1

Settings = tuple[float, int]
"""Learning rate and batch size."""
_LOOK_EVERY_S = 0.1
_RUNG = 20
_IN_TURN = shared_job._IN_TURN
_PAUSES = """
import json, sys, time
from pathlib import Path
from paretune.specification.container import JobDocument, JobFolder
from paretune.training.shared_job import cooperative_threads, job, pausing, trials
from paretune.training.stop_signal import StopSignal
pauses, went_on, writes = [], [], []
class Thread(cooperative_threads.CooperativeThread):
    def ask(self, request):
        pauses.append(time.perf_counter())
        answer = super().ask(request)
        went_on.append(time.perf_counter())
        return answer
class Writer(pausing.CheckpointWriter):
    def _write(self, trainer):
        began = time.thread_time()
        super()._write(trainer)
        writes.append(time.thread_time() - began)
trials.CooperativeThread, job.CheckpointWriter = Thread, Writer
folder = JobFolder(Path(sys.argv[1]))
job.train_trials(JobDocument.read(folder.document), folder, StopSignal())
Path(sys.argv[2]).write_text(json.dumps([pauses[1:], went_on, writes]))
"""
"""Two trials pause by turns: moments of all pauses but the first, and of continuing; CPU seconds of checkpoints."""


@dataclass
class Seen:
    """The state of one trial from the events of its job: its step, and its end."""

    step: int = 0
    total_steps: int = 0
    end: MemberEnd | None = None
    cpu: float = math.nan  # of the whole job when the trial ended


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial of a searching job; `steps` are those of all its trials until this one was trained."""

    settings: Settings
    f1: float
    steps: int


def main() -> None:
    """Run all ways and print the table."""
    options = _options()
    if options.small:
        importlib.import_module("paretune.training.shared_job.job")
        importlib.import_module("paretune.training.prepare")
    rows, overheads = [], []
    with tempfile.TemporaryDirectory(prefix="warm-job-") as name:
        for kind, specs in _sets(options).items():
            parent = Path(name) / kind
            parent.mkdir()
            inputs = _inputs(specs[0], parent)
            documents = [_document(number, spec) for number, spec in enumerate(specs)]
            documents_by_key = {document.member: _settings(document.spec) for document in documents}
            alone = _alone_cpu(documents[0], inputs, parent / "alone")
            whole = _watch(documents, inputs, parent / "all")
            scores = {key: _score(seen) for key, seen in whole.items()}
            best = max(scores, key=lambda key: scores[key])
            total = max(seen.cpu for seen in whole.values())
            for repeat in range(options.repeats):
                search = _search(specs, parent / f"search-{repeat}")
                rows.append(_row(kind, whole, search, alone=alone, total=total, best=documents_by_key[best]))
                print(f"# {rows[-1]}", flush=True)
            overheads.append((kind, *_overheads(documents[:2], inputs, parent / "pauses")))
    _print(options, rows, overheads)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--adapters", type=int, default=8, help="LoRA learning rates")
    parser.add_argument(
        "--full", type=int, default=8, help="learning rates of full fine-tunings, each at two batch sizes"
    )
    parser.add_argument("--max-train-samples", type=int, default=1024)
    parser.add_argument("--max-eval-samples", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=1, help="searches")
    few = {"adapters": 2, "full": 0, "max_train_samples": 32, "max_eval_samples": 4, "repeats": 0}
    return arguments.parse(parser, **few)


def _sets(options: argparse.Namespace) -> dict[str, list[JobSpec]]:
    """Name of a set to its trials."""
    spec = JobSpec(
        model="bundled:all-MiniLM-L6-v2",
        dataset="bundled:rotten_tomatoes",
        per_device_train_batch_size=8,
        max_train_samples=options.max_train_samples,
        max_eval_samples=options.max_eval_samples,
    )
    adapters = [replace(spec, fine_tuning="lora", learning_rate=1e-4 * 2**number) for number in range(options.adapters)]
    full = [
        replace(spec, learning_rate=2e-6 * 2**number, per_device_train_batch_size=batch)
        for number in range(options.full)
        for batch in (8, 16)
    ]
    return {f"{len(each)} {name}": each for name, each in (("LoRA", adapters), ("full", full)) if each}


def _document(number: int, spec: JobSpec) -> JobDocument:
    return JobDocument(job_name=f"job.{number}", spec=spec, plan=spec.plan())


def _alone_cpu(document: JobDocument, inputs: tuple[Path, Path], parent: Path) -> float:
    """CPU seconds of a job of its own."""
    folder = shared_job._folder(parent, replace(document, job_name="job"), inputs)
    return max(cpu for _, cpu in _events(folder, ["-m", "paretune.training"]))


def _watch(documents: Sequence[JobDocument], inputs: tuple[Path, Path], parent: Path) -> dict[str, Seen]:
    """Run all trials in one job, one after the other, to their ends."""
    trials: dict[str, Seen] = {}
    limit = len(documents) * documents[0].spec.max_runtime_minutes
    spec = replace(documents[0].spec, max_runtime_minutes=limit)
    job = replace(documents[0], job_name="job", spec=spec, members=tuple(documents))
    for event, cpu in _events(shared_job._folder(parent, job, inputs), ["-c", _IN_TURN]):
        if event is not None and event.member:
            _note(trials.setdefault(event.member, Seen()), event, cpu)
    return trials


def _note(seen: Seen, event: Any, cpu: float) -> None:
    seen.step, seen.total_steps = max(seen.step, event.step), event.total_steps or seen.total_steps
    if event.ended:
        seen.end, seen.cpu = MemberEnd.read(event.ended), cpu


def _settings(spec: JobSpec) -> Settings:
    """The learning rate and batch size of a trial."""
    return float(spec.learning_rate or 0.0), spec.plan().per_device_train_batch_size


def _search(specs: Sequence[JobSpec], parent: Path) -> list[Finished]:
    """The trials of the searching job of a study that were trained to their ends, in that order."""
    parent.mkdir()
    names = ("learning_rate", "per_device_train_batch_size")
    values = {name: sorted({getattr(spec, name) for spec in specs}) for name in names}
    searched = {name: choices for name, choices in values.items() if len(choices) > 1}
    job = {name: text for name, text in specs[0].changed().items() if name not in searched}
    os.environ |= {"PARETUNE_HOME": str(parent / "home"), "MLFLOW_TRACKING_URI": f"sqlite:///{parent / 'mlflow.db'}"}
    content: dict[str, Any] = {"job": {**job, "launcher": "local"}, "in_job": "search", "n_trials": 2 * len(specs)}
    paretune.study(parent.name, searched, quiet=True, **content)
    finished: list[Finished] = []
    for path in sorted((parent / "home" / "jobs").iterdir()):
        folder = JobFolder(path)
        if not folder.document.exists() or JobDocument.read(folder.document).queue is None:
            continue
        documents = {item.member: item for item in _members(folder)}
        steps: dict[str, int] = {}
        for event in EventReader(folder.events).new():
            steps[event.member] = max(steps.get(event.member, 0), event.step)
            end = MemberEnd.read(event.ended) if event.ended else None
            if end is not None and end.report is not None:
                settings = _settings(documents[event.member].spec)
                finished.append(Finished(settings=settings, f1=end.report.metrics[F1], steps=sum(steps.values())))
    return finished


def _members(folder: JobFolder) -> list[JobDocument]:
    """The trials of a searching job, those that have joined it included."""
    queue = folder.read_queue()
    return [*JobDocument.read(folder.document).members, *(queue.members if queue is not None else ())]


def _events(folder: JobFolder, program: Sequence[str]) -> Iterator[tuple[Any, float]]:
    """Each event of the job's process with the CPU seconds that it has used so far; None as the last event."""
    reader, cpu = EventReader(folder.events), 0.0
    job = _start([*program, str(folder.root)], folder.log)
    process = psutil.Process(job)
    while True:
        exited, status = os.waitpid(job, os.WNOHANG)
        if not exited:
            with suppress(psutil.Error):
                cpu = max(cpu, sum(process.cpu_times()[:2]))
        for event in reader.new():
            yield event, cpu
        if exited:
            break
        time.sleep(_LOOK_EVERY_S)
    if status:
        raise SystemExit(folder.log.read_text()[-3000:])
    yield None, cpu


def _start(words: Sequence[str], log: Path) -> int:
    """Process id of a Python interpreter with these words; with `--small` it is forked, with all imports done."""
    process = os.fork()
    if process:
        return process
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if "torch" not in sys.modules:
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606
    try:
        sys.argv = ["-", *words[2:]]
        if words[0] == "-m":
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            exec(words[1], {"__name__": "__main__"})  # noqa: S102  # one of the programs above
        os._exit(0)
    except BaseException as error:
        traceback.print_exc()
        os._exit(int(error.code or 0) if isinstance(error, SystemExit) else 1)


def _inputs(spec: JobSpec, parent: Path) -> tuple[Path, Path]:
    """(Prepared data set, model folder)."""
    request, answer = parent / "request.json", parent / "answer.json"
    write_json(request, spec.as_text())
    words = ["-m", "paretune.training.prepare", str(request), str(parent / "datasets"), str(answer)]
    os.waitpid(_start(words, parent / "prepare.log"), 0)
    prepared = json.loads(answer.read_text())
    if "faults" in prepared:
        raise SystemExit("\n".join(prepared["faults"]))
    return Path(prepared["dataset"]), Path(prepared["model"])


def _score(seen: Seen) -> float:
    report = None if seen.end is None else seen.end.report
    return -math.inf if report is None else report.metrics[F1]


def _row(
    kind: str, whole: Mapping[str, Seen], search: Sequence[Finished], *, alone: float, total: float, best: Settings
) -> dict[str, Any]:
    """CPU seconds of each way, and what the search has trained: until the best of all, or until its own best."""
    steps = sum(seen.step for seen in whole.values())
    at_best = next((item for item in search if item.settings == best), None)
    top = max(search, key=lambda item: item.f1, default=None)
    return {
        "kind": kind,
        "alone": alone * len(whole),
        "in turn": total,
        "to best": at_best.steps / steps if at_best else math.nan,
        "to own best": top.steps / steps if top else math.nan,
        "trained": len(search),
        "f1 best": max(map(_score, whole.values())),
        "f1 search": top.f1 if top else math.nan,
    }


def _overheads(documents: Sequence[JobDocument], inputs: tuple[Path, Path], parent: Path) -> tuple[float, ...]:
    """Median seconds of a rung, of pausing one trial and continuing the other, and CPU seconds of a checkpoint."""
    rows = documents[0].spec.max_train_samples or 0
    total = max(1, rows // documents[0].plan.global_batch_size)
    rung = min(_RUNG, max(1, total // 4))
    same = [replace(document, spec=documents[0].spec, plan=documents[0].plan) for document in documents]
    order = tuple((document.member, rung * number) for number in range(1, 4) for document in same)
    queue = TrialQueue(order=order, is_complete=True)
    folder = shared_job._folder(parent, replace(same[0], job_name="job", members=tuple(same), queue=queue), inputs)
    answer = parent / "pauses.json"
    if os.waitpid(_start(["-c", _PAUSES, str(folder.root), str(answer)], folder.log), 0)[1]:
        raise SystemExit(folder.log.read_text()[-3000:])
    paused, went_on, writes = json.loads(answer.read_text())
    went_on = [moment for moment in went_on if moment > paused[0]]
    pauses = [min(moment for moment in went_on if moment > begin) - begin for begin in paused if begin < went_on[-1]]
    rungs = [min(moment for moment in paused if moment > begin) - begin for begin in went_on if begin < paused[-1]]
    return rung, statistics.median(rungs), statistics.median(pauses), statistics.median(writes)


def _share(share: float) -> str:
    return "not trained" if math.isnan(share) else f"{share:.0%}"


def _print(options: argparse.Namespace, rows: Sequence[Mapping[str, Any]], overheads: Sequence[Any]) -> None:
    conditions = [published.conditions("torch", "transformers", "peft")]
    conditions.append(f"bundled MiniLM on {options.max_train_samples} rows, {options.max_eval_samples} to evaluate")
    lines = [f"Measured {', '.join(conditions)}:", ""]
    head = ["trials", "CPU s, a job each", "one job, in turn", "search: steps to the best", "CPU s of a job each"]
    head += ["steps to its own best", "trained to the end", "F1 of the best", "best F1 of the search"]
    table = [
        (
            row["kind"],
            *(f"{row[name]:.0f}" for name in ("alone", "in turn")),
            *map(_share, (row["to best"], row["to best"] * row["in turn"] / row["alone"], row["to own best"])),
            str(row["trained"]),
            *(f"{row[name]:.3f}" for name in ("f1 best", "f1 search")),
        )
        for row in rows
    ]
    lines += published.table(head, table)
    lines.append("")
    for kind, rung, seconds, pause, write in overheads:
        name = kind.split()[1]
        lines.append(f"{name}: a rung of {rung} steps takes {seconds:.2f} s.")
        lines.append(f"Pausing one trial and continuing another takes {1000 * pause:.1f} ms ({pause / seconds:.1%}).")
        lines.append(f"A checkpoint, written meanwhile, takes {1000 * write:.0f} ms of CPU ({write / seconds:.1%}).")
    print(published.block("warm_job_real", lines))


if __name__ == "__main__":
    main()
