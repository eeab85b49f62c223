"""The settings of simulated jobs, and their random numbers, which are the same for the same seed and job."""

import hashlib
from statistics import NormalDist

from paretune.specification.parameters import Parameters, parameter


class Simulation(Parameters):
    """The parameter `simulation`. By default nothing fails and nothing is random."""

    runs: str | None = parameter(None, "CSV table of recorded runs to take results from", also="recorded_runs")
    seed: int = parameter(0, "seed of failures and noise", ge=0, le=2**32 - 1)
    startup_seconds: float = parameter(120.0, "billed seconds before the first step", ge=0)
    failure_rate: float = parameter(0.0, "share of jobs that fail while they run", ge=0, le=1)
    capacity_error_rate: float = parameter(0.0, "share of attempts without capacity", ge=0, le=1)
    seconds_noise: float = parameter(0.0, "relative standard deviation of the seconds", ge=0, le=1)
    f1_noise: float = parameter(0.0, "standard deviation of F1", ge=0, le=1)

    def share(self, *key: object) -> float:
        """A uniform number from 0 to below 1, always the same for the same seed and key."""
        return share_of("\x1f".join(map(str, (self.seed, *key))))

    def normal(self, deviation: float, *key: object) -> float:
        """A number from a normal distribution around 0."""
        return deviation * NormalDist().inv_cdf(max(self.share(*key), 1e-12)) if deviation else 0.0


def share_of(text: str) -> float:
    """A uniform number from 0 to below 1, always the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2**56
