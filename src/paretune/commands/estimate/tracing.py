"""Have the training wing trace steps for their memory, in a process of its own: torch stays out of this one."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict

from paretune.core.errors import BadInput
from paretune.core.packages import training_is_missing
from paretune.estimating.traced_step import StepSetting, TracedSteps

LIMIT = "PARETUNE_TRACE_SECONDS"
"""Environment variable: seconds that one `estimate` may spend on tracing; 0 for formulas only."""
_USUAL_LIMIT_S = 120.0


def limit_s(environment: Mapping[str, str]) -> float:
    """Seconds that may be spent; raises BadInput if the variable is no number."""
    text = environment.get(LIMIT) or str(_USUAL_LIMIT_S)
    try:
        return max(0.0, float(text))
    except ValueError:
        raise BadInput([f"{LIMIT} must be seconds, 0 for none, got {text!r}"]) from None


def trace(settings: Iterable[StepSetting], steps: TracedSteps, environment: Mapping[str, str]) -> None:
    """Trace what was not traced before and keep it, one setting after the other until the time is over.

    What is not reached, or cannot be traced, is left to formulas; everything, where PyTorch is not installed.
    """
    seconds = limit_s(environment)
    untraced = [
        setting for setting in {setting.key(): setting for setting in settings}.values() if steps.is_untried(setting)
    ]
    if not untraced or not seconds or training_is_missing():
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answers:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-m", "paretune.training.memory_tracing"],
                input=json.dumps([asdict(setting) for setting in untraced]),
                stdout=answers,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**environment, "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"},
                timeout=seconds,
                check=False,
            )
        answers.seek(0)
        for setting, line in zip(untraced, answers, strict=False):
            if line.endswith("\n"):  # the last one may have been cut off
                steps.store(setting, json.loads(line))
