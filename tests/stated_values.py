"""Checks every front that a test of this process makes: no stated value lies outside all runs of its own point."""

from typing import Any

from paretune.specification.metrics import OF_THE_CLUSTER
from paretune.studies.results.front import StudyFront

_fronts: Any = StudyFront  # of any type, for its method is replaced
_make_front = _fronts.of


def _checked(*words: Any, **options: Any) -> StudyFront:
    front: StudyFront = _make_front(*words, **options)
    for point in front.points:
        for name in point.means.keys() - OF_THE_CLUSTER:
            values = [trial.values[name] for trial in point.trials if name in trial.values]
            is_within = not values or min(values) - 1e-12 <= point.means[name] <= max(values) + 1e-12
            assert is_within, (
                f"{name} {point.means[name]} of trial {point.number} lies outside all runs of its own point"
            )
    return front


_fronts.of = staticmethod(_checked)
