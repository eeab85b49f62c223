"""An AWS account in memory, and commands in the form in which users type them."""

from tests.support.aws_account import aws, clock
from tests.support.typed import run as typed

__all__ = ["aws", "clock", "typed"]
