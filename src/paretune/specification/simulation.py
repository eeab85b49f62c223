"""Settings of the simulated launcher: delays, noise and failure rates, with reproducible random draws."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from paretune.core.errors import collecting, did_you_mean, refuse
from paretune.specification.parameters import annotations, check, parameter


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The entries of the parameter `simulation`. By default nothing fails and nothing is random."""

    seed: int = parameter(0, "seed of failures and noise", minimum=0, maximum=2**32 - 1)
    startup_seconds: float = parameter(120.0, "billed seconds before the first step", minimum=0)
    startup_delay_seconds: float = parameter(0.0, "mean wait for instances (exponential), not billed", minimum=0)
    failure_rate: float = parameter(0.0, "share of jobs that fail while they run", minimum=0, maximum=1)
    out_of_memory_rate: float = parameter(0.0, "share of jobs that run out of memory", minimum=0, maximum=1)
    spot_wait_seconds: float = parameter(0.0, "spot=true: mean wait for spot instances at the start", minimum=0)
    spot_interruptions_per_hour: float = parameter(0.0, "spot=true: mean interruptions per hour", minimum=0, maximum=60)
    spot_billable_share: float = parameter(1.0, "spot=true: share of the seconds that is billed", above=0, maximum=1)
    capacity_error_rate: float = parameter(0.0, "share of attempts without capacity", minimum=0, maximum=1)
    seconds_noise: float = parameter(0.0, "relative standard deviation of the seconds", minimum=0, maximum=1)
    f1_noise: float = parameter(0.0, "standard deviation of F1", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        refuse([f"simulation: {fault}" for fault in check(self)])

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Simulation":
        """The settings in a JSON object; raises BadInput with all faults at once."""
        kinds = annotations(cls)  # type: ignore[arg-type]  # a class is hashable
        faults: list[str] = []
        numbers: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                hint = did_you_mean(name, kinds) or f"it has {', '.join(kinds)}"
                faults.append(f"simulation has no {name}: {hint}")
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if is_number and (kinds[name] is float or int(value) == value):
                numbers[name] = kinds[name](value)
            else:
                kind = "a whole number" if kinds[name] is int else "a number"
                faults.append(f"simulation: {name} must be {kind}, got {value!r}")
        with collecting(faults):
            settings = cls(**numbers)
        refuse(faults)
        return settings

    def share(self, *key: object) -> float:
        """A uniform number from 0 to below 1, always the same for the same seed and key."""
        return share_of("\x1f".join(map(str, (self.seed, *key))))

    def exponential(self, mean: float, *key: object) -> float:
        """A number from an exponential distribution; 0 if its mean is 0."""
        return -mean * math.log(1 - self.share(*key))

    def normal(self, deviation: float, *key: object) -> float:
        """A number from a normal distribution around 0."""
        return deviation * NormalDist().inv_cdf(max(self.share(*key), 1e-12)) if deviation else 0.0


def share_of(text: str) -> float:
    """A uniform number from 0 to below 1, always the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2**56
