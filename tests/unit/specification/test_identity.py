"""The identity of a job: what it depends on, and that jobs of earlier versions keep theirs."""

from dataclasses import replace
from typing import Any

import pytest

from paretune.specification.identity import JobIdentity, Place, owned_request
from paretune.specification.job import JobSpec

SPEC = JobSpec(
    model="distilbert-base-uncased",
    learning_rate=1e-4,
    budget="team.yaml",
    region="eu-west-1",
    launcher="sagemaker",
    instance_type="ml.g5.xlarge",
    force="again",
    max_runtime_minutes=30,
)
HERE = Place(store="0 1700000000000", location={"account": "1", "region": "eu-west-1"})


def test_a_job_is_found_under_the_same_name_tags_and_document_in_every_commit() -> None:
    identity = replace(SPEC.identity, data_key="rows")

    assert identity.computation == "728e03530de0"
    assert identity.name_at(HERE) == "e79508c048105beae1ceceaa"
    assert identity.request == "04d813195e9d093ce36a673077eba0acfc9e01cde1ea7ac2b5df7d9092d84529"
    owned = owned_request(SPEC.identity.request, {"team": "nlp"})
    assert owned == "f1fee72bbb77e31deb3cd04aaf186705638cc9b0f5a6bfd42dd3b60e3f02c2bf"


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"learning_rate": 2e-4}, ""),
        ({"max_runtime_minutes": 31}, "computation"),
        ({"tags": {"team": "nlp"}}, "computation"),
        ({"region": "us-east-1"}, "computation request"),
        ({"budget": "other.yaml"}, "computation request"),
        ({"force": None}, "computation request is_requested_by"),
    ],
)
def test_two_jobs_are_the_same_as_far_as_what_was_given_allows(changes: dict[str, Any], same: str) -> None:
    one, other = SPEC.identity, SPEC.replace(**changes).identity

    equal = {
        "computation": one.computation == other.computation,
        "request": one.request == other.request,
        "is_requested_by": one.is_requested_by(other.given),
    }
    assert {name for name, is_equal in equal.items() if is_equal} == set(same.split())


def test_a_run_without_the_parameters_of_a_job_requests_none() -> None:
    assert not SPEC.identity.is_requested_by(None)


@pytest.mark.parametrize(
    "other",
    [
        (replace(SPEC.identity, data_key="other rows"), HERE),
        (replace(SPEC.identity, data_key="rows", code_key="code"), HERE),
        (replace(SPEC.replace(seed=7).identity, data_key="rows"), HERE),
        (replace(SPEC.identity, data_key="rows"), Place(store="0 1", location=HERE.location)),
        (replace(SPEC.identity, data_key="rows"), Place(store=HERE.store, location={"account": "2"})),
    ],
)
def test_jobs_that_differ_or_are_elsewhere_have_different_names(other: tuple[JobIdentity, Place]) -> None:
    identity, place = other

    assert identity.name_at(place) != replace(SPEC.identity, data_key="rows").name_at(HERE)
