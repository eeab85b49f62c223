"""An AWS account in memory."""

from tests.unit.launchers.sagemaker.conftest import aws, clock

__all__ = ["aws", "clock"]
