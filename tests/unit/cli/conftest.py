"""Runs commands as a user types them."""

from tests.support.typed import run

__all__ = ["run"]
