"""Which errors of a program show that its code is wrong or a package missing: a job with this code fails every time.

This file is also copied into jobs with a user's own training, so it needs only the standard library of Python 3.8.
"""

from __future__ import annotations

import re

ERRORS_IN_CODE: tuple[type[Exception], ...] = (
    *(ImportError, SyntaxError, NameError, TypeError, AttributeError, KeyError, IndexError, ValueError),
    *(FileNotFoundError, NotImplementedError, AssertionError),
)
"""Exceptions of Python for wrong code and missing packages. Subclasses count, too."""
_SUBCLASSES = (ModuleNotFoundError, IndentationError, UnboundLocalError)
_PRINTED = re.compile(
    rf"^(?:[\w.]+\.)?(?:{'|'.join(error.__name__ for error in (*ERRORS_IN_CODE, *_SUBCLASSES))})\b"
    r"|No matching distribution found|unrecognized arguments|arguments are required|error: argument"
)
"""How Python prints such an exception at the end of a traceback, and what pip and argparse print."""


def prints_error_in_code(line: str) -> bool:
    """Return whether a line that a program printed is the message of such an exception, of pip or of argparse."""
    return _PRINTED.search(line) is not None
