"""How a training process ends: with its parent, and on SIGTERM at the next step, with a checkpoint."""

import os
import signal
import threading
import time
from types import FrameType

GRACE_S = 60.0
"""Seconds a process may take to checkpoint after it was asked to stop; then it ends itself."""


class Lifeline:
    """Ends this process when its parent does, and remembers that it was asked to stop.

    The parent is watched once a second by a thread: that works on every system and whatever killed the parent. A parent
    that is gone counts as SIGTERM. PARETUNE_STARTER names the parent, which may be gone before this process can look;
    torchrun's workers have another one.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        named = None if "LOCAL_RANK" in os.environ else os.environ.get("PARETUNE_STARTER")
        self._parent = int(named) if named else os.getppid()

    def watch_parent(self) -> None:
        """Start watching the parent; SIGTERM keeps the meaning it has."""
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def stop_at_next_step(self) -> None:
        """From now on SIGTERM sets `stop_requested`; a process still alive after GRACE_S ends itself."""
        signal.signal(signal.SIGTERM, self._remember)
        # Ctrl-C in a terminal reaches the whole process group; the launcher decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _watch(self) -> None:
        while os.getppid() == self._parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(128 + signal.SIGTERM)

    def _remember(self, _signum: int, _frame: FrameType | None) -> None:
        if not self.stop_requested:
            self.stop_requested = True
            timer = threading.Timer(GRACE_S, os._exit, [128 + signal.SIGTERM])
            timer.daemon = True
            timer.start()
