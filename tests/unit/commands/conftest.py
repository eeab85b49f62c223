"""An AWS account in memory, and commands as a user types them."""

from tests.unit.cli.conftest import run as typed
from tests.unit.launchers.sagemaker.conftest import aws, clock

__all__ = ["aws", "clock", "typed"]
