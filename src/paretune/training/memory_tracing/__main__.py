"""Traces the training steps that a JSON list of StepSettings on standard input describes; one line of JSON for each."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from paretune.core.errors import first_line
from paretune.estimating.traced_step import StepSetting
from paretune.training.stop_signal import StopSignal


def main() -> int:
    """Exit code 0; each line is a TracedStep, or has an `error` if the model's own code cannot be traced."""
    StopSignal().watch_parent()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a model may print
    for setting in json.load(sys.stdin):
        print(json.dumps(_answer(StepSetting(**setting))), file=answers, flush=True)
    return 0


def _answer(setting: StepSetting) -> Mapping[str, Any]:
    from paretune.training.memory_tracing.step import trace  # transformers reads the level of `logging` at import

    try:
        return asdict(trace(setting))
    except Exception as error:  # of any model's own code
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


if __name__ == "__main__":
    sys.exit(main())
