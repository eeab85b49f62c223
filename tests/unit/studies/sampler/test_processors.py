"""A study is the same on every processor: OpenBLAS has other kernels for each, which round sums differently."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
KERNELS = ("Nehalem", "Haswell", "SkylakeX")
SEARCH = """
import json, optuna
from optuna.trial import TrialState
from paretune.studies.sampler.sampler import SplitSampler
from tests.support.toy_trainings import SPACE, job, outcome

optuna.logging.set_verbosity(optuna.logging.ERROR)
sampler = SplitSampler(job(), SPACE)
study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
for _ in range(12):
    trial = study.ask(sampler.space)
    values = outcome(trial)
    study.tell(trial, values, state=TrialState.PRUNED if values is None else None)
print(json.dumps([list(trial.params.values()) for trial in study.trials]))
"""
STUDY = """
import json
from paretune.studies.run import run_study

answer = run_study("demo", quiet=True).answer
trials = [[trial.setting(), trial.is_probe, trial.repeats] for trial in answer.front.trials]
expected = [point.trial.setting() for point in answer.front.expected_best]
print(json.dumps([trials, [pick.point.number for pick in answer.picks], expected]))
"""


def printed(code: str, kernel: str, folder: Path) -> object:
    """Return the JSON that a program prints with one kernel of OpenBLAS, in a folder of its own."""
    home = folder / kernel
    home.mkdir()
    own = {"PARETUNE_HOME": str(home), "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'runs.db'}"}
    own |= {"PARETUNE_PRICES": str(ROOT / "studies" / "polarity_prices.csv"), "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment = {**os.environ, **own, "OPENBLAS_CORETYPE": kernel, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the kernels are those of x86: run it there")
@pytest.mark.parametrize("code", [SEARCH, pytest.param(STUDY, marks=pytest.mark.slow)], ids=["search", "study"])
def test_the_same_study_is_the_same_search_under_three_kernels(code: str, tmp_path: Path) -> None:
    first, *others = (printed(code, kernel, tmp_path) for kernel in KERNELS)

    assert others == [first] * (len(KERNELS) - 1)
