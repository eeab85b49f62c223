"""Tags of a job: which ones there may be, and those that say whose job it is.

Source of the limits: CreateTrainingJob, Tag and TagList (botocore 1.44.5).
"""

import getpass
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields

AWS_PREFIX = "paretune:"
"""Begins the names of the AWS tags that paretune sets."""
MOST_TAGS = 45
"""Of a user's own on one job: 50 of AWS, less five of paretune's own."""
LONGEST_TAG_NAME, LONGEST_TAG_VALUE = 128, 256
"""Characters."""
TEAM = "team"
"""The name in the parameter `tags` whose value is the team."""
_RESERVED = {AWS_PREFIX: "paretune", "aws:": "AWS"}
_TAKEN = re.compile(r"[\w .:/=+\-@]*")
_NOT_TAKEN = re.compile(r"[^\w .:/=+\-@]")
_LOGIN = ("LOGNAME", "USER", "LNAME", "USERNAME")


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Whose job it is: a study, a design or a recurring training, a user, a team; empty where that is not known."""

    study: str = ""
    user: str = ""
    team: str = ""

    @classmethod
    def of(
        cls, user: str | None, tags: Mapping[str, str], environment: Mapping[str, str], study: str = ""
    ) -> "Attribution":
        """That of a job with these parameters: without a `user` it is the login name, `tags` may name the team."""
        return cls(study=study, user=user or _login(environment), team=tags.get(TEAM, ""))

    def named(self) -> dict[str, str]:
        """Names to texts, without those that are not known."""
        return {item.name: text for item in fields(self) if (text := getattr(self, item.name))}

    def of_budgets(self, own: Mapping[str, str]) -> dict[str, str]:
        """The tags by which budgets choose jobs: the job's own, and these, which win."""
        return {**own, **self.named()}

    def aws_tags(self) -> dict[str, str]:
        """The AWS tags that say so."""
        return {f"{AWS_PREFIX}{name}": aws_tag_value(text) for name, text in self.named().items()}


def aws_tag_value(text: str) -> str:
    """The text as AWS takes it for the value of a tag: other characters become hyphens, and its end is cut off."""
    return _NOT_TAKEN.sub("-", text)[:LONGEST_TAG_VALUE].strip()


def tag_faults(tags: Mapping[str, str]) -> list[str]:
    """What AWS does not take of a user's own tags, and what paretune sets itself; all values are texts."""
    faults = [] if len(tags) <= MOST_TAGS else [f"tags must be at most {MOST_TAGS}, got {len(tags)}"]
    for name, value in tags.items():
        for prefix, owner in _RESERVED.items():
            if name.lower().startswith(prefix):
                faults.append(f"tags must not begin with {prefix}, got {name!r}: {owner} sets those; rename it")
        for what, text, least, most in (("name", name, 1, LONGEST_TAG_NAME), ("value", value, 0, LONGEST_TAG_VALUE)):
            if not least <= len(text) <= most or not _TAKEN.fullmatch(text):
                rule = f"the {what} of a tag must be {least} to {most} letters, digits, spaces and _.:/=+-@"
                faults.append(f"{rule}, as AWS takes it, got {text[:60]!r} in tags")
    return faults


def _login(environment: Mapping[str, str]) -> str:
    """The name of who runs this process; empty where the system has none."""
    for name in _LOGIN:
        if environment.get(name):
            return environment[name]
    with suppress(OSError, KeyError, ImportError):  # a container may run as a number without a name
        return getpass.getuser()
    return ""
