"""The AWS account in memory that the launcher's tests use."""

from tests.unit.launchers.sagemaker.conftest import aws, clock, nothing_of_this_machine

__all__ = ["aws", "clock", "nothing_of_this_machine"]
