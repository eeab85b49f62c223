"""What runs in the job: `python3 inside.py /opt/ml`, in the folder where the code was unpacked.

It installs what the project depends on, opens a store for what the command will record, and runs the command as
`mlflow run` does on a laptop. It stays its parent: a signal reaches the command and everything that it has started,
and a failure leaves a reason. Beside it lies silence.py; both need the standard library only, of Python 3.8 or newer.

    ML/input/data/job/job.json     what to do: command, requirements, folder, run_id, experiment, collect,
                                   max_silence_minutes
    ML/output/data/paretune/       the store: mlflow.db and mlruns
    ML/output/failure              why it failed: kind, colon, one sentence
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

STORE = "paretune"
RUN_NAME = "in the job"
REQUIREMENTS = ".paretune-requirements.txt"
_INSTALLER = "input/data/sm_drivers/scripts/install_requirements.py"


class Supervisor:
    """Runs one process after the other and passes SIGTERM on to the one that runs, with all that it has started."""

    def __init__(self) -> None:
        self.was_stopped = False
        self._group: int | None = None
        signal.signal(signal.SIGTERM, self._pass_on)

    def run(self, words: list[str], **options: Any) -> int:
        """Exit code of a process; 128 + signal when one has ended it. After a SIGTERM, waits for its whole group."""
        process = subprocess.Popen(words, start_new_session=True, **options)
        self._group = process.pid
        if self.was_stopped:
            self._pass_on()
        code = process.wait()
        while self.was_stopped and self._has_members(process.pid):
            time.sleep(0.05)
        self._group = None
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """Send SIGKILL to the process that runs and all that it has started."""
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGKILL)

    def _pass_on(self, *_: Any) -> None:
        self.was_stopped = True
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGTERM)

    def _has_members(self, group: int) -> bool:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # orphans become children of the container's first process
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True


def main(ml: Path) -> int:
    """Exit code of the command."""
    document = json.loads((ml / "input" / "data" / "job" / "job.json").read_text(encoding="utf-8"))
    project = Path.cwd() / "project"
    supervisor = Supervisor()
    if is_first(ml):
        silence = importlib.import_module("silence")  # which lies beside this file in the job
        silence.watch(60 * document["max_silence_minutes"], None, partial(end_hang, ml, supervisor))
    if document["requirements"]:
        code = install(document["requirements"], project / document["folder"], ml, supervisor)
        if code and not supervisor.was_stopped:
            write_failure(ml, f"bad_input: pip could not install what the project depends on (exit code {code})")
        if code or supervisor.was_stopped:
            return code
    environment = dict(os.environ)
    if document["collect"] and importlib.util.find_spec("mlflow") is not None:
        environment.update(open_store(document, ml, project, supervisor))
    say("the project's command starts")
    code = supervisor.run(["bash", "-c", document["command"]], cwd=str(project), env=environment)
    if code and not supervisor.was_stopped:
        write_failure(ml, f"error: the project's command ended with exit code {code}")
    return code


def end_hang(ml: Path, supervisor: Supervisor, sentence: str) -> None:
    """End the command and this process, with the reason."""
    write_failure(ml, f"error: {sentence}")
    supervisor.kill()
    os._exit(1)


def install(requirements: list[str], folder: Path, ml: Path, supervisor: Supervisor) -> int:
    """Exit code of pip, run by the SageMaker SDK's installer, which knows CodeArtifact.

    The list lies in the folder where its relative paths begin, for pip resolves `-r other.txt` from there.
    """
    say("installing what the project depends on")
    path = folder / REQUIREMENTS
    path.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    installer = ml / _INSTALLER
    known = [sys.executable, str(installer), path.name]
    plain = [sys.executable, "-m", "pip", "install", "-r", path.name]
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    try:
        return supervisor.run(known if installer.is_file() else plain, cwd=str(folder), env=environment)
    finally:
        path.unlink()


def open_store(document: dict[str, Any], ml: Path, project: Path, supervisor: Supervisor) -> dict[str, str]:
    """Variables with which the command records into a store in the job; empty when MLflow cannot open one.

    The store of the first instance lies where SageMaker keeps results; those of the others go with their instance.
    """
    place = ml / "output" / "data" / STORE if is_first(ml) else Path(tempfile.mkdtemp()) / STORE
    (place / "mlruns").mkdir(parents=True)
    if not (project / "mlruns").exists():
        (project / "mlruns").symlink_to(place / "mlruns")  # where MLflow puts the files of further experiments
    words = [sys.executable, str(Path(__file__).resolve()), "store", str(place)]
    words += [document["run_id"], document["experiment"]]
    if supervisor.run(words, cwd=str(project)) != 0:
        say("MLflow cannot open a store here: what the command records will be lost")
        return {}
    return {
        "MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}",
        "MLFLOW_RUN_ID": document["run_id"],
        "MLFLOW_EXPERIMENT_ID": (place / "experiment").read_text(),
    }


def make_store(place: Path, run_id: str, experiment: str) -> None:
    """A store with one run in it, which has the id that the run has outside; MLflow itself would give it another."""
    import logging
    import sqlite3

    logging.disable(logging.INFO)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    found = client.get_experiment_by_name(experiment)
    experiment_id = client.create_experiment(experiment) if found is None else found.experiment_id
    own = client.create_run(experiment_id, run_name=RUN_NAME).info.run_id
    with sqlite3.connect(str(place / "mlflow.db")) as database:
        renamed = "UPDATE runs SET run_uuid = ?, artifact_uri = replace(artifact_uri, ?, ?) WHERE run_uuid = ?"
        database.execute(renamed, (run_id, own, run_id, own))
        database.execute("UPDATE tags SET run_uuid = ? WHERE run_uuid = ?", (run_id, own))
    (place / "experiment").write_text(str(experiment_id))


def is_first(ml: Path) -> bool:
    """Whether this is the cluster's first instance."""
    raw = json.loads((ml / "input" / "config" / "resourceconfig.json").read_text())
    return bool(raw["current_host"] == min(raw["hosts"], key=lambda name: (len(name), name)))


def write_failure(ml: Path, sentence: str) -> None:
    """Say why the job failed, unless the command has said it itself."""
    path = ml / "output" / "failure"
    if not path.exists():
        path.write_text(sentence)


def say(sentence: str) -> None:
    """One line of the log; the first of them is where the launcher begins to show it."""
    print(f"paretune: {sentence}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "store":
        make_store(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        sys.exit(main(Path(sys.argv[1])))
