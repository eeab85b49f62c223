"""What makes two jobs the same, in three widths: the computation, the request, and the place.

- The *computation* is what a job computes: `JobSpec.spec_hash`. Two trials with the same one have the same result.
- The *request* is all that was asked for: also the time limit, the budget and the tags.
- The *place* is where jobs are recorded and run: the MLflow store, and the account and region or the machine.

The digests are part of the names, tags and documents of jobs that exist, so they must stay the same in later versions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

_OF_A_LAUNCH = ("region", "budget", "force")
"""Parameters that are resolved anew at each launch, or that may differ when the same job is launched again."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a job is recorded and runs.

    Attributes:
        store: identifies the MLflow store and experiment.
        location: the launcher's `location_tags`.
    """

    store: str
    location: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """The identity of a job, from which all names and comparisons are made.

    Attributes:
        computation: the same for jobs that compute the same thing.
        given: the parameters that were given, as JSON values; the same command gives the same ones.
        data_key: identifies the prepared rows that the job reads, if any.
        code_key: identifies the code of the user that is uploaded, if any.
    """

    computation: str
    given: Mapping[str, Any]
    data_key: str | None = None
    code_key: str | None = None

    @property
    def request(self) -> str:
        """A digest of the request, which all attempts of a job share."""
        return _digest({name: value for name, value in self.given.items() if name not in _OF_A_LAUNCH})

    @property
    def is_forced(self) -> bool:
        """Whether the job starts although an equal one runs, and records a run that has ended anew."""
        return "again" in self.given.get("force", ())

    def is_requested_by(self, given: Mapping[str, Any] | None) -> bool:
        """Return whether `given`, the parameters in the tags of a run, request this job; `force` is ignored."""
        return is_same_request(self.given, given)

    def name_at(self, place: Place) -> str:
        """Return the part of the job's name that all processes that request this job in this place agree on."""
        parts = [place.store, dict(place.location), self.computation, self.given, self.data_key, self.code_key]
        return _digest(parts)[:24]


def is_same_request(given: Mapping[str, Any], others: Mapping[str, Any] | None) -> bool:
    """Return whether these given parameters, None if they are unknown, request the same job; `force` is ignored."""
    return others is not None and {**others, "force": None} == {**given, "force": None}


def owned_request(request: str, owner: Mapping[str, str]) -> str:
    """Return a digest of a request and the tags of its owner, which all attempts of a job share."""
    return _digest([request, owner])


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
