"""Which tags a job may have, and who they say owns it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.core.errors import BadInput
from paretune.core.tags import Attribution
from paretune.specification.job import JobSpec

TAKEN = re.compile(r"[\w .:/=+\-@]{0,256}")


@given(st.text(max_size=400))
def test_whatever_the_name_aws_takes_its_value(text: str) -> None:
    tags = Attribution(user=text).aws_tags()

    assert all(TAKEN.fullmatch(value) for value in tags.values())
    assert not tags or Attribution(user=tags["paretune:user"]).aws_tags() in (tags, {})


@pytest.mark.parametrize("name", ["paretune:run", "Paretune:team", "aws:cloudformation:stack-name", "AWS:x"])
def test_tags_that_others_set_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"tags must not begin with (paretune|aws):, got .*sets those; rename it"):
        JobSpec(tags={name: "x"})


def test_the_user_is_a_tag_or_the_login_name_and_the_team_a_tag() -> None:
    spec = JobSpec(tags={"team": "nlp", "project": "search", "user": "ana"})
    typed = Attribution.of(spec.tags, {"USER": "bob"}, "my study")
    login = Attribution.of({}, {"LOGNAME": "", "USER": "bob"})

    assert typed == Attribution(study="my study", user="ana", team="nlp")
    assert login.named() == {"user": "bob"}
    assert typed.of_budgets({"project": "search", "user": "eve"}) == {
        "project": "search",
        "user": "ana",
        "study": "my study",
        "team": "nlp",
    }
