"""Worlds with formulas that were written after the search, and that no belief of the search resembles.

Each seed draws a script's training: a learning curve that saturates, a threshold beyond which training is unstable, and
seconds with waves and serial parts. With w waves of at most `lanes` rows, `cores` from 1 to 8:

    steps        epochs x rows / batch
    progress     1 - exp(-steps x min(rate, ceiling) / tau)       only the product of steps and rate counts
    ceiling      c / sqrt(width) for sgd, another constant for adam and for lion
    quality      floor + (top(width) - floor) x progress, and only `fallback` of the rise if rate > 2 x ceiling
    top(width)   t - gap / (1 + width / half)
    seconds      start + steps x (ceil(batch / lanes) x wave x (serial + (1 - serial) / cores) + host)

    saturating   as above
    plateaus     quality in steps of a fiftieth (a metric on few rows), and a start that takes most of the seconds
    divided      each optimizer is good with another half of the widths, and one of them fails to learn at all
"""

import itertools
import math
import random
from pathlib import Path
from typing import Any

from search.grids import Grid

KINDS = ("saturating", "plateaus", "divided")
_AXES: dict[str, tuple[Any, ...]] = {
    "instance_type": ("ml.m5.large", "ml.m5.xlarge", "ml.m5.2xlarge", "ml.m5.4xlarge"),
    "learning_rate": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
    "batch_size": (16, 48, 144, 432),
    "width": (32, 96, 288),
    "optimizer": ("sgd", "adam", "lion"),
}
_CORES = {name: 2**power for power, name in enumerate(_AXES["instance_type"])}
_USD_PER_HOUR = {name: 0.096 * cores**0.9 for name, cores in _CORES.items()}


def world(kind: str, seed: int, work: Path) -> Grid:
    """Return the table of a kind and a seed. The same kind and seed always give the same table."""
    draw = random.Random(f"{kind}/{seed}")
    rows, epochs = draw.choice((8_000, 30_000)), 3
    tau, top, gap, half = (
        10 ** draw.uniform(-0.6, 0.6),
        draw.uniform(0.8, 0.95),
        draw.uniform(0.1, 0.4),
        draw.uniform(30, 200),
    )
    ceilings = {name: 10 ** draw.uniform(-1.8, 0.2) for name in _AXES["optimizer"]}
    lanes, wave, host = draw.choice((32, 96, 200)), draw.uniform(0.02, 0.1), draw.uniform(0.002, 0.02)
    serial, fallback, floor = draw.uniform(0.05, 0.5), draw.uniform(0.0, 0.4), draw.uniform(0.2, 0.5)
    start_s = draw.uniform(20, 60) * (20.0 if kind == "plateaus" else 1.0)
    broken, wide_only = draw.sample(_AXES["optimizer"], 2)

    def run(name: str, rate: float, batch: int, width: int, optimizer: str) -> tuple[float, float]:
        steps = epochs * rows / batch
        ceiling = ceilings[optimizer] / math.sqrt(width / 32)
        reached = 1.0 - math.exp(-steps * min(rate, ceiling) / tau)
        if rate > 2.0 * ceiling:
            reached *= fallback
        if kind == "divided":
            reached *= 0.1 if optimizer == broken else 0.6 if (optimizer == wide_only) == (width < 100) else 1.0
        quality = floor + (top - gap / (1.0 + width / half) - floor) * reached
        busy = math.ceil(batch / lanes) * wave * (1.0 + width / 300) * (serial + (1.0 - serial) / _CORES[name])
        quality = round(quality * 50) / 50 if kind == "plateaus" else quality
        return start_s + steps * (busy + host), quality

    script = work / f"other-{kind}-{seed}.py"
    names = [name for name in _AXES if name != "instance_type"]
    script.write_text("p.add_argument('--seed')\n" + "".join(f"p.add_argument('--{each}')\n" for each in names))
    runs = {key: [run(*key)] for key in itertools.product(*_AXES.values())}
    return Grid(script, _AXES, runs, lambda point: _USD_PER_HOUR[point["instance_type"]] / 3600)
