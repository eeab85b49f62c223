"""How a training process ends: with its parent, and on SIGTERM at the next step, with a checkpoint."""

import os
import signal
import threading
import time
from types import FrameType

GRACE_S = 60.0
"""Seconds a process may take to checkpoint after it was asked to stop; then it ends itself."""
SAGEMAKER_GRACE_S = 110.0
"""The same on SageMaker, which kills a container 120 seconds after SIGTERM (StopTrainingJob, API reference)."""
_FIRST = 1


class StopSignal:
    """Ends this process when its parent does, and remembers that it was asked to stop.

    The parent is watched once a second by a thread: that works on every system and whatever killed the parent. A parent
    that is gone counts as SIGTERM. PARETUNE_STARTER names the parent, which may be gone before this process can look;
    torchrun's workers have another one. The first process of a container has none (parent 0, for ever).

    Args:
        grace_s: seconds to end in after SIGTERM.
    """

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self.stop_requested = False
        self.grace_s = grace_s
        named = None if "LOCAL_RANK" in os.environ else os.environ.get("PARETUNE_STARTER")
        self._parent = int(named) if named else os.getppid()

    def watch_parent(self) -> None:
        """Start watching the parent; SIGTERM keeps the meaning it has.

        The kernel gives SIGTERM no meaning in the first process of a container; there it gets its usual one.
        """
        if os.getpid() == _FIRST and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end)
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def stop_at_next_step(self) -> None:
        """From now on SIGTERM sets `stop_requested`; a process still alive after its grace ends itself."""
        signal.signal(signal.SIGTERM, self._remember)
        # Ctrl-C in a terminal reaches the whole process group; the launcher decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _watch(self) -> None:
        while os.getppid() == self._parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.grace_s)
        os._exit(128 + signal.SIGTERM)

    def _remember(self, _signum: int, _frame: FrameType | None) -> None:
        if not self.stop_requested:
            self.stop_requested = True
            timer = threading.Timer(self.grace_s, os._exit, [128 + signal.SIGTERM])
            timer.daemon = True
            timer.start()


def _end(_signum: int, _frame: FrameType | None) -> None:
    os._exit(128 + signal.SIGTERM)
