"""What a simulated job may meet: delays, noise, and trouble at settable rates, drawn so that they repeat."""

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
    """Settings of the simulated launcher, the entries of the parameter `simulation`. All trouble is off by default."""

    seed: int = parameter(0, "another seed draws other trouble and noise", minimum=0, maximum=2**32 - 1)
    startup_seconds: float = parameter(120.0, "billed seconds before the first step", minimum=0)
    startup_delay_seconds: float = parameter(0.0, "mean wait for instances (exponential), not billed", minimum=0)
    failure_rate: float = parameter(0.0, "share of jobs that fail on the way", minimum=0, maximum=1)
    out_of_memory_rate: float = parameter(0.0, "share of jobs that run out of memory", minimum=0, maximum=1)
    spot_interruptions_per_hour: float = parameter(0.0, "spot=true: mean interruptions an hour", minimum=0, maximum=60)
    spot_billable_share: float = parameter(1.0, "spot=true: share of the seconds that is billed", above=0, maximum=1)
    capacity_error_rate: float = parameter(0.0, "share of attempts without capacity", minimum=0, maximum=1)
    seconds_noise: float = parameter(0.0, "relative standard deviation of the seconds", minimum=0, maximum=1)
    f1_noise: float = parameter(0.0, "standard deviation of F1", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        refuse([f"simulation: {fault}" for fault in check(self)])

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Simulation":
        """The settings of a JSON object.

        Raises:
            BadInput: unknown names, wrong types, values out of range, all at once.
        """
        kinds = annotations(cls)  # type: ignore[arg-type]  # a class is hashable
        faults: list[str] = []
        good: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                hint = did_you_mean(name, kinds) or f"it has {', '.join(kinds)}"
                faults.append(f"simulation knows no {name}: {hint}")
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if is_number and (kinds[name] is float or int(value) == value):
                good[name] = kinds[name](value)
            else:
                wanted = "a whole number" if kinds[name] is int else "a number"
                faults.append(f"simulation: {name} must be {wanted}, got {value!r}")
        with collecting(faults):
            read = cls(**good)
        refuse(faults)
        return read

    def share(self, *what: object) -> float:
        """A number from 0 to below 1, always the same for the same seed and the same `what`."""
        return share_of("\x1f".join(map(str, (self.seed, *what))))

    def exponential(self, mean: float, *what: object) -> float:
        """A number from an exponential distribution; 0 where its mean is 0."""
        return -mean * math.log(1 - self.share(*what))

    def normal(self, deviation: float, *what: object) -> float:
        """A number from a normal distribution around 0."""
        return deviation * NormalDist().inv_cdf(max(self.share(*what), 1e-12)) if deviation else 0.0


def share_of(text: str) -> float:
    """A number from 0 to below 1, evenly spread over texts and always the same for the same one."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2**56
