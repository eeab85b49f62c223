"""An AWS account in memory."""

from tests.unit.launchers.sagemaker.conftest import aws, clock, nothing_of_this_machine

__all__ = ["aws", "clock", "nothing_of_this_machine"]
