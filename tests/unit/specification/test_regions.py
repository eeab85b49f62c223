"""Regions that are taken and refused."""

import pytest

from paretune.core.errors import BadInput
from paretune.specification.regions import usual_region


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-2", "us-gov-west-1", "cn-north-1"])
def test_a_region_that_has_sagemaker_is_taken(region: str) -> None:
    assert usual_region(region, {}) == region


@pytest.mark.parametrize(("typed", "meant"), [("us-est-1", "us-east-1"), ("eu-wset-1", "eu-west-1")])
def test_a_misspelt_region_finds_the_one_that_was_meant(typed: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"got '{typed}': did you mean .*{meant}"):
        usual_region(typed, {})


def test_what_is_like_no_region_is_refused_with_an_example() -> None:
    with pytest.raises(BadInput, match="such as us-east-1"):
        usual_region("Mars", {})
