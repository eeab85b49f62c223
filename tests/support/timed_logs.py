"""Logs of real trainings with the time of each line, for tests of how far a training has come."""

from pathlib import Path
from typing import Any

LOGS = Path(__file__).parents[1] / "unit" / "user_code" / "progress"
"""Each line of a log has the seconds since the program's start, a tab, and what the program printed then."""
PROGRAMS: dict[str, tuple[dict[str, Any], str, float]] = {
    "bars": ({}, "epoch", 5),
    "factory_sft": ({"num_train_epochs": 6}, "epoch", 6),
    "keras_fit": ({"epochs": 6}, "epoch", 6),
    "lightgbm": ({"num_iterations": 40}, "step", 40),
    "mnist": ({"epochs": 4}, "epoch", 4),
    "nanogpt_like": ({"max_iters": 400}, "step", 400),
    "onebar": ({}, "step", 120),
    "print_loop": ({"epochs": 40}, "epoch", 40),
    "sklearn_mlp": ({"max_iter": 30}, "step", 30),
    "torch_mlp": ({"steps": 400}, "step", 400),
    "xgboost": ({"num_round": 40}, "step", 40),
}
"""Programs, with their arguments, and the kind and the total of the counter that they print."""


def log_of(name: str) -> list[tuple[float, str]]:
    """Return the lines of a program, each with the seconds since its start."""
    lines = [line.partition("\t") for line in (LOGS / f"{name}.txt").read_text().splitlines()]
    return [(float(at_s), text) for at_s, _, text in lines]
