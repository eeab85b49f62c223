"""Hides interfaces that only Linux has, to run the fast tests as if on another POSIX system such as macOS.

`PARETUNE_WITHOUT_LINUX=1 python -m pytest` does so in the processes of the tests, not in those that they start. psutil
still works, because it has its own ways to ask each system.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "PARETUNE_WITHOUT_LINUX"
IS_LINUX = sys.platform == "linux" and VARIABLE not in os.environ
"""Whether tests marked `linux` can run."""
_ONLY_LINUX = ("/proc", "/sys/fs/cgroup")


def hide() -> None:
    """Make this process look like one of a system without /proc, control groups, CPU affinity and namespaces."""
    for name in ("sched_getaffinity", "sched_setaffinity", "unshare"):
        if hasattr(os, name):
            delattr(os, name)
    for name, missing in (("exists", False), ("is_file", False), ("is_dir", False)):
        _replace(name, lambda missing=missing: missing)
    for name in ("read_text", "read_bytes", "write_text", "open", "iterdir"):
        _replace(name, _refuse)
    _replace("glob", lambda: iter(()))


def _replace(name: str, answer: Any) -> None:
    original = getattr(Path, name)

    def method(self: Path, *arguments: Any, **options: Any) -> Any:
        return answer() if str(self).startswith(_ONLY_LINUX) else original(self, *arguments, **options)

    setattr(Path, name, method)


def _refuse() -> Iterator[Path]:
    raise FileNotFoundError("this system has no such interface")
