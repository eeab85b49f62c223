"""`StudyRequest`: the request for a study that has no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.specification.job import JobSpec
from paretune.studies.definition.objectives import Objective


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """The request for a study that has no file, from which `proposal.propose` makes a study.

    Attributes:
        job: the specification that all jobs of the study share.
        types: instance types to search. If empty, `propose` chooses them by their estimates. If None, the study does
            not search instance types.
        terms: keys of the study from the command line, such as budget_usd and n_trials, with checked values.
        quality: the metric by which a user's own script measures its model, with its direction; None for paretune's own
            training.
    """

    job: JobSpec
    types: Sequence[str] | None = None
    terms: Mapping[str, Any]
    quality: Objective | None = None
