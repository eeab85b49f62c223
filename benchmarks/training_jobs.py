"""Prepares and runs paretune's own training on this machine, without the command that launches it."""

import json
import subprocess
import sys
from pathlib import Path

from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder, JobReport, write_json
from paretune.specification.job import JobSpec


def prepared(spec: JobSpec, folder: Path) -> tuple[Path, Path]:
    """Return the folders of the prepared rows and of the model. Ends the benchmark with the faults if there are any."""
    request, answer = folder / "request.json", folder / "answer.json"
    write_json(request, spec.as_text())
    command = [sys.executable, "-m", "paretune.training.prepare", str(request), str(folder / "datasets"), str(answer)]
    subprocess.run(command, check=False, stdout=sys.stderr)
    made = json.loads(answer.read_text())
    if "faults" in made:
        raise SystemExit("\n".join(made["faults"]))
    return Path(made["dataset"]), Path(made["model"])


def trained(spec: JobSpec, dataset: Path, model: Path, root: Path) -> JobReport:
    """Run a training in the job folder `root` and return its report. Raises SystemExit with the end of its log."""
    folder = JobFolder(root)
    folder.make()
    write_json(folder.document, order_of(spec, job_name="benchmark").as_json())
    folder.dataset.symlink_to(dataset.resolve())
    folder.model_source.symlink_to(model.resolve())
    words = [sys.executable, "-m", "paretune.training", str(root)]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{spec.given()}: {ended.stderr[-3000:]}")
    return JobReport.model_validate_json(folder.report.read_text())
