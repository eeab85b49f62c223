"""Adding a parameter of a job is one visit: one line in the specification, and all that depends on it is right.

A copy of the package gets made-up parameters, one line each; the copy is then asked what it makes of them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "paretune"
MADE_UP = {
    "made_rows": '{"data", "evaluation", "quality"}',
    "made_quality": '{"quality"}',
    "made_step": '{"seconds", "memory"}',
    "made_noise": '{"noise"}',
    "made_limit": '{"stopping"}',
    "made_bill": '{"dollars"}',
    "made_account": '{"ownership"}',
}
QUESTIONS = """
import json, pathlib
from paretune.estimating import evidence
from paretune.estimating.memory_limits import Footprint
from paretune.estimating.recorded.recorded_runs import Rehearsal
from paretune.estimating.recorded.run_table import OTHERS
from paretune.jobs import preparation
from paretune.launchers.sagemaker.launcher import without_account
from paretune.specification.container import JobDocument
from paretune.commands.command import parameter_help
from paretune.specification.job import JobSpec
from paretune.studies.definition.space import NOT_SEARCHED
from paretune.studies.search import default_job, optuna_study
from paretune.studies.results.quality_model import quality_key
from paretune.studies.search.split.candidates import FREE_FOR_QUALITY, step_of
from paretune.tracking import RecordedRun

NAMES = [name for name in parameter_help() if name.startswith("made_")]
plain = JobSpec()

def telling(of):
    "Made-up parameters that make `of` two jobs another value."
    return sorted(name.removeprefix("made_") for name in NAMES if of(plain.replace(**{name: 2})) != of(plain))

def document(spec):
    return JobDocument(job_name="one", spec=spec, plan=spec.plan())

def run_of(name, f1, tags=(), **changes):
    spec = plain.replace(**changes)
    params = {key: text for key, text in spec.as_text().items() if key in changes or key not in NAMES}
    params |= {"scaled_learning_rate": "5e-05", "global_batch_size": "16"}
    return RecordedRun(name, params, {"paretune.state": "Completed", **dict(tags)}, {"f1": f1})

class Store:
    def runs(self, condition, newest=None):
        return [run_of(name, f1, **({name: 2} if name else {})) for name, f1 in F1.items()]

F1 = {"": 0.9, **{name: 0.1 * place for place, name in enumerate(NAMES)}}
rehearsal = Rehearsal(Store, {})
full = {"paretune.state": "Failed", "paretune.failure_reason": "out of memory"}
shown = {name: evidence.read([run_of(name, 0.0, full, **{name: 2})]).did_not_fit[0] for name in NAMES}
asked = evidence.read([run_of("", 0.0, full)]).did_not_fit[0]
pathlib.Path("job.json").write_text(json.dumps(document(plain.replace(made_step=2, made_limit=3)).as_json()))
print(json.dumps({
    "hash of a job that leaves them alone": plain.spec_hash(),
    "hash": telling(JobSpec.spec_hash),
    "searched": sorted(name.removeprefix("made_") for name in NAMES if name not in NOT_SEARCHED),
    "table": sorted(name.removeprefix("made_") for name in NAMES if name in OTHERS),
    "rehearsal": telling(lambda spec: rehearsal.recall_f1(document(spec))),
    "F1 of a job that leaves them alone": round(rehearsal.recall_f1(document(plain))[0], 6),
    "evidence": sorted(name.removeprefix("made_") for name in NAMES if not asked.is_no_easier(shown[name])),
    "memory": telling(lambda spec: Footprint.of(spec, spec.plan()).is_no_easier(Footprint.of(plain, plain.plan()))),
    "split, F1": telling(lambda spec: quality_key(spec, spec.plan())),
    "split, seconds": telling(lambda spec: step_of(spec, spec.plan())),
    "split, cluster": sorted(name.removeprefix("made_") for name in NAMES if name in FREE_FOR_QUALITY),
    "preparation": telling(lambda spec: preparation._path(spec, pathlib.Path())),
    "other job than the default one": telling(default_job._computed),
    "harmless": sorted(name.removeprefix("made_") for name in NAMES if name in optuna_study._HARMLESS),
    "travels": telling(lambda spec: without_account(spec).as_text()),
    "read back": [JobDocument.read(pathlib.Path("job.json")).spec.made_step, len(NAMES)],
}))
"""


def test_a_parameter_that_is_added_is_treated_right_everywhere(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "paretune", ignore=shutil.ignore_patterns("__pycache__"))
    section = tmp_path / "paretune" / "specification" / "inputs.py"
    before, line, after = section.read_text().partition("    model: str = parameter(\n")
    added = [f'    {name}: int = parameter(1, "made up", affects={effects})\n' for name, effects in MADE_UP.items()]
    section.write_text(before + "".join(added) + line + after)

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUESTIONS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "hash of a job that leaves them alone": "a307a92abec7",  # of version 0.1.0: old runs and studies are found
        "hash": ["noise", "quality", "rows", "step"],
        "searched": ["quality", "step"],
        "table": ["quality", "rows", "step"],
        "rehearsal": ["quality", "rows"],
        # The runs that differ in a step, noise, a limit, a bill or an account are as good as the one that does not.
        "F1 of a job that leaves them alone": pytest.approx((0.9 + 0.2 + 0.3 + 0.4 + 0.5 + 0.6) / 6),
        "evidence": ["step"],
        "memory": ["step"],
        "split, F1": ["quality", "rows"],
        "split, seconds": ["step"],
        "split, cluster": ["step"],
        "preparation": ["rows", "step"],
        "other job than the default one": ["noise", "quality", "rows", "step"],
        "harmless": ["limit", "noise"],
        "travels": ["bill", "limit", "noise", "quality", "rows", "step"],
        "read back": [2, len(MADE_UP)],
    }
