"""Designs for tests: a small one on the simulated launcher with a table of recorded runs by a formula."""

import itertools
from pathlib import Path
from typing import Any

import yaml

TYPES = ("ml.g5.xlarge", "ml.g6.xlarge")
COUNTS, RATES = (1, 2, 4), (2e-5, 4e-5, 8e-5)


def write_runs(path: Path) -> Path:
    """Runs on a grid of instance types, instances and learning rates, with the per-device batch 16."""
    header = (
        "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds,f1"
    )
    lines = [header]
    for kind, count, rate in itertools.product(TYPES, COUNTS, RATES):
        seconds = 120 + 1500 / count**0.9 * (1.2 if kind == TYPES[1] else 1.0)
        lines.append(f"{kind},{count},16,{rate},2,{seconds:.1f},{0.9 - 0.002 * count - abs(rate * 25e3 - 1) / 50:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_design(folder: Path, **changes: Any) -> str:
    """design.yaml and the runs that it is rehearsed with; its path. A change to None takes a key out."""
    runs = write_runs(folder / "runs.csv")
    design = {
        "name": "an example",
        "job": {
            "launcher": "simulated",
            "simulation.runs": str(runs),
            "num_train_epochs": 2,
            "simulation": {"f1_noise": 0.002, "seconds_noise": 0.01},
        },
        "factors": {
            "clusters": [{"instance_type": kind, "instance_count": count} for kind in TYPES for count in (1, 4)],
            "learning_rate": list(RATES),
        },
        "n_parallel": 3,
        **changes,
    }
    path = folder / "design.yaml"
    path.write_text(yaml.safe_dump({name: part for name, part in design.items() if part is not None}, sort_keys=False))
    return str(path)
