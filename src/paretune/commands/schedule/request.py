"""Parameters of the command `schedule`."""

import re
from dataclasses import dataclass

from paretune.core.errors import refuse
from paretune.specification.parameters import check, parameter
from paretune.specification.regions import region_faults

_REQUIRED = {
    "kubernetes": ("image_uri",),
    "eventbridge": ("image_uri", "role", "scheduler_role", "secret", "bucket"),
}
"""Kind of scheduler to the parameters that its entry needs."""
_GITHUB_MINUTES = 5
"""The least interval between two runs of a workflow (GitHub's documentation of `schedule`, read 2026-11-22)."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """The scheduler, the study whose rounds it calls, and how often; raises BadInput with all faults."""

    study: str = parameter("", "the study's file, such as studies/pareto.yaml")
    kind: str = parameter(
        "cron",
        "what the entry is for; eventbridge: AWS's scheduler",
        choices=("cron", "kubernetes", "github", "eventbridge"),
    )
    every_minutes: int = parameter(10, "minutes from one round to the next", minimum=1, maximum=1440)
    storage: str | None = parameter(
        None,
        "postgresql://... (a password is not printed); by default the study's, PARETUNE_STORAGE, a file",
        choices=(),
    )
    image_uri: str | None = parameter(None, "container image with paretune, for kubernetes and eventbridge")
    role: str | None = parameter(None, "eventbridge: ARN of the role of SageMaker that the round's job has")
    scheduler_role: str | None = parameter(None, "eventbridge: ARN of the role that may create that job")
    secret: str | None = parameter(None, "eventbridge: name in AWS Secrets Manager of the storage's address")
    bucket: str | None = parameter(None, "eventbridge: bucket of S3 for the study's file")
    region: str | None = parameter(None, "AWS region; by default the profile's, else us-east-1")

    def __post_init__(self) -> None:
        faults = check(self) + region_faults(self.region)
        if not self.study:
            faults.append("study must name a study file, such as studies/pareto.yaml")
        needed = [name for name in _REQUIRED.get(self.kind, ()) if not getattr(self, name)]
        faults += [f"kind={self.kind} needs {name}: its entry would be incomplete" for name in needed]
        for name in ("role", "scheduler_role"):
            if (text := getattr(self, name)) and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", text):
                faults.append(
                    f"{name} must be the ARN of a role, such as arn:aws:iam::111122223333:role/NAME, got {text}"
                )
        if not any(text.startswith("every_minutes") for text in faults):
            faults += self._interval_faults()
        if self.kind != "cron" and self.storage is not None and self.storage.startswith("sqlite"):
            faults.append("storage must be postgresql://... for rounds in containers: a file ends with its container")
        refuse(faults)

    def _interval_faults(self) -> list[str]:
        """Faults of an interval of 1 to 1,440 minutes with this scheduler."""
        faults = []
        if self.kind == "github" and self.every_minutes < _GITHUB_MINUTES:
            faults.append(f"every_minutes must be {_GITHUB_MINUTES} or more for GitHub, got {self.every_minutes}")
        if self.kind != "eventbridge":
            try:
                cron_expression(self.every_minutes)
            except ValueError:
                faults.append(
                    f"every_minutes must divide an hour or, in whole hours, a day, for cron, got {self.every_minutes}: "
                    "5, 10, 15, 20, 30, 60, 120, 240"
                )
        return faults


def cron_expression(every_minutes: int) -> str:
    """The five fields of cron for this interval; ValueError if it divides neither an hour nor a day.

    >>> cron_expression(10), cron_expression(60), cron_expression(240), cron_expression(1440)
    ('*/10 * * * *', '0 * * * *', '0 */4 * * *', '0 0 * * *')
    """
    if every_minutes == 1:
        return "* * * * *"
    if every_minutes < 60 and 60 % every_minutes == 0:
        return f"*/{every_minutes} * * * *"
    hours, rest = divmod(every_minutes, 60)
    if rest or not hours or 24 % hours:
        raise ValueError(f"{every_minutes} minutes divide neither an hour nor a day")
    return "0 * * * *" if hours == 1 else "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"
