"""Tags that name the owner of a job. Source of the limits: CreateTrainingJob, Tag (botocore 1.44.5)."""

import getpass
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields

AWS_PREFIX = "paretune:"  # prefix of the AWS tags that paretune sets
_LONGEST_VALUE = 256  # characters
USER, TEAM = "user", "team"  # keys of the parameter `tags` that name the owner of a job
_RESERVED = {AWS_PREFIX: "paretune", "aws:": "AWS"}
_FORBIDDEN = re.compile(r"[^\w .:/=+\-@]")
_LOGIN = ("LOGNAME", "USER", "LNAME", "USERNAME")


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The owner of a job: study, user and team; empty if unknown."""

    study: str = ""
    user: str = ""
    team: str = ""

    @classmethod
    def of(cls, tags: Mapping[str, str], environment: Mapping[str, str], study: str = "") -> "Attribution":
        """Return the owner of a job from tags that may name user and team. The default user is the login name."""
        return cls(study=study, user=tags.get(USER) or login_of(environment), team=tags.get(TEAM, ""))

    def named(self) -> dict[str, str]:
        """Return the parts that are not empty, by name."""
        return {item.name: text for item in fields(self) if (text := getattr(self, item.name))}

    def of_budgets(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the tags that budgets compare with their own: the job's tags, overridden by study, user and team."""
        return {**tags, **self.named()}

    def aws_tags(self) -> dict[str, str]:
        """Return AWS tags that name the owner, cut to AWS's limit, with hyphens for characters that AWS forbids."""
        values = {name: _FORBIDDEN.sub("-", text)[:_LONGEST_VALUE].strip() for name, text in self.named().items()}
        return {f"{AWS_PREFIX}{name}": value for name, value in values.items()}


def tag_faults(tags: Mapping[str, str]) -> list[str]:
    """Return a fault for each of the user's tags whose name begins with a prefix reserved for paretune or AWS."""
    return [
        f"tags must not begin with {prefix}, got {name!r}: {owner} sets those; rename it"
        for name in tags
        for prefix, owner in _RESERVED.items()
        if name.lower().startswith(prefix)
    ]


def login_of(environment: Mapping[str, str]) -> str:
    """Return the login name of the user; "" if unknown."""
    with suppress(OSError, KeyError, ImportError):  # a container may run as a user id without a name
        return next(filter(None, map(environment.get, _LOGIN)), None) or getpass.getuser()
    return ""
