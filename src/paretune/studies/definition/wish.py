"""The request for a study without a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paretune.specification.job import JobSpec


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A study requested without a file.

    Attributes:
        job: what all its jobs share.
        types: instance types to search; empty to choose them by their estimates, None to search none.
        terms: keys of the study that were typed, such as budget_usd and n_trials.
        metric: the metric of a script that measures its model.
    """

    job: JobSpec
    types: Sequence[str] | None = None
    terms: Mapping[str, str]
    metric: str | None = None
