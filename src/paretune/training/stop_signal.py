"""Ends a training process with its parent, and on SIGTERM after the current step, with a checkpoint."""

import os
import signal
import threading
import time
from types import FrameType

GRACE_S = 60.0  # seconds from a stop request until a process that is still writing its checkpoint ends itself
SAGEMAKER_GRACE_S = 110.0  # the same on SageMaker, which kills 120 s after SIGTERM (StopTrainingJob)


class StopSignal:
    """Whether this process has been asked to stop: by SIGTERM, or by the end of its parent.

    A thread checks the parent once a second, which works on every system and for every cause of the parent's end. The
    parent's process id is in PARETUNE_STARTER, because the parent may end before this process can read its id; not for
    torchrun's workers, which have another parent. The first process of a container has parent 0, which never ends.
    `grace_s` are the seconds from SIGTERM until this process ends itself.
    """

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self.stop_requested = False
        self.grace_s = grace_s
        starter = None if "LOCAL_RANK" in os.environ else os.environ.get("PARETUNE_STARTER")
        self._parent = int(starter) if starter else os.getppid()

    def watch_parent(self) -> None:
        """Start the thread that checks the parent; the handler of SIGTERM stays as it is.

        In the first process of a container, for which Linux ignores SIGTERM, SIGTERM now ends the process.
        """
        if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
        threading.Thread(target=self._watch, name="watch-parent", daemon=True).start()

    def stop_at_next_step(self) -> None:
        """From now on SIGTERM sets `stop_requested`; after `grace_s` seconds the process ends itself."""
        signal.signal(signal.SIGTERM, self._request_stop)
        # Ctrl-C in a terminal reaches the whole process group; the launcher handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _watch(self) -> None:
        while os.getppid() == self._parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.grace_s)
        os._exit(128 + signal.SIGTERM)

    def _request_stop(self, _signum: int, _frame: FrameType | None) -> None:
        if not self.stop_requested:
            self.stop_requested = True
            timer = threading.Timer(self.grace_s, os._exit, [128 + signal.SIGTERM])
            timer.daemon = True
            timer.start()
