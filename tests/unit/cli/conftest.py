"""Runs commands in the form in which users type them."""

from tests.support.typed import run

__all__ = ["run"]
