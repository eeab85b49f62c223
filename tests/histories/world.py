"""Virtual time, processes and faults, all drawn from one seed.

Every request of a process to AWS, MLflow or the ledger goes through `World.call`. There the process may be killed
before or after the request, the request or its answer may be lost, come late or be repeated, and another process may
go on.
Processes are greenlets: one runs at a time, and the one that wakes first goes on.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from greenlet import greenlet
from mlflow.exceptions import MlflowException

from paretune.core.errors import LostContact
from paretune.core.interruption import Interruption
from paretune.jobs.watch import HEARTBEAT_S
from tests.unit.launchers.sagemaker.aws import error

EPOCH = 1_800_000_000.0
MOST_STEPS = 100_000
"""Requests and pauses of one history before it counts as endless."""
_OUTAGES_S = (5, 60, 400, 4000)
_JUMPS_S = (-4000, -90, 90, 4000)
_LATE_S = (1.0, 20.0, 90.0)
_ASLEEP_S = (400.0, 2000.0, 9000.0)


class Killed(BaseException):
    """SIGKILL: raised by every request of a process from its death on, so that unwinding has no effect."""


class Endless(Exception):
    """A history has taken more than MOST_STEPS steps."""


@dataclass(eq=False)
class Process:
    """A process of a simulated host.

    Attributes:
        dies_at: number of the step at which it is killed; None if it is not.
        skew_s: by how much the clock of its host is wrong.
        outcome: what its main function has returned or raised.
    """

    world: "World"
    pid: int
    host: str
    main: Callable[["Process"], Any]
    dies_at: int | None = None
    stops_at: int | None = None
    skew_s: float = 0.0
    wakes_at: float = 0.0
    steps: int = 0
    is_dead: bool = False
    outcome: Any = None
    interruption: Interruption = field(default_factory=Interruption)
    beats: list[Callable[[], None]] = field(default_factory=list)
    fiber: Any = None
    in_beat: bool = False
    is_asleep: bool = False

    def now(self) -> float:
        """Seconds since the epoch by the clock of its host."""
        return self.world.time + self.skew_s

    def monotonic(self) -> float:
        """Seconds of virtual time."""
        return self.world.time

    def sleep(self, seconds: float) -> None:
        """Sleep at least so many seconds; a busy machine wakes a process later."""
        self.step()
        self.world.pause(self, seconds + self.world.random.choice((0.5, 4.0, 15.0)))

    def step(self) -> None:
        """Count a step; die, be interrupted or have the clock set if it is time."""
        if self.is_dead:
            raise Killed
        self.steps += 1
        self.world.count()
        if self.steps == self.stops_at:
            self.world.note("interrupted")
            self.interruption.reason = "interrupted by SIGTERM"
        if self.steps == self.dies_at:
            self.world.note("killed")
            self.is_dead = True
            raise Killed

    def _run(self) -> None:
        try:
            self.outcome = self.main(self)
        except Killed as error:
            self.outcome = error
        except Exception as error:
            self.outcome = error
        self.is_dead = True


class World:
    """Everything outside the processes of one history.

    Args:
        seed: of all that is drawn.

    Attributes:
        trouble: probability that a request meets a fault; 0 once the history is to end well.
        faults: faults so far, in words.
        down: service to the time until which it does not answer.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = EPOCH + self.random.uniform(0, 40 * 86400)
        self.trouble = self.random.choice((0.0, 0.01, 0.05))
        self.faults: list[str] = []
        self.down: dict[str, float] = {}
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.steps = 0
        self.log: list[str] | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count(1)

    def note(self, fault: str) -> None:
        """Note a fault that the current process meets."""
        self.faults.append(fault)
        self.write(f"FAULT {fault}")

    def write(self, text: str) -> None:
        """Add a line to the log of a history that is played again."""
        if self.log is not None:
            pid = self.current.pid if self.current is not None else 0
            self.log.append(f"{self.time - EPOCH:12.1f} process {pid}: {text}")

    def count(self) -> None:
        """Count a step of any process."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Endless(f"no end after {MOST_STEPS} steps")

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        """Let the world act after so many seconds."""
        heapq.heappush(self._due, (self.time + delay_s, next(self._order), act))

    def begin(self, main: Callable[[Process], Any], host: str, *, delay_s: float = 0.0, has_faults: bool) -> Process:
        """A new process, which begins after `delay_s`."""
        draw = self.random
        process = Process(self, 1000 + len(self.processes), host, main, wakes_at=self.time + delay_s)
        if has_faults and draw.random() < 0.5:
            process.dies_at = draw.choice((draw.randint(1, 40), draw.randint(1, 250)))
        elif has_faults and draw.random() < 0.15:
            process.stops_at = draw.randint(1, 150)
        process.fiber = greenlet(process._run)
        self.processes.append(process)
        return process

    def run(self) -> None:
        """Let all processes go on until all have ended."""
        while waiting := [process for process in self.processes if not process.is_dead or process.fiber]:
            process = min(waiting, key=lambda each: (each.wakes_at, each.pid))
            self._advance(process.wakes_at)
            self.current = process
            process.fiber.switch()
            if process.fiber.dead:
                process.fiber, process.is_dead = None, True
                process.beats.clear()
            if isinstance(process.outcome, Endless):
                raise process.outcome

    def pass_time(self, seconds: float) -> None:
        """Let time pass while no process runs."""
        self._advance(self.time + seconds)

    def pause(self, process: Process, seconds: float) -> None:
        """Let a process wait; others, and AWS, go on meanwhile."""
        until = self.time + seconds
        if any(other.wakes_at <= until for other in self.processes if other.fiber and other is not process):
            process.wakes_at = until
            process.fiber.parent.switch()
        else:
            self._advance(until)
        self.current = process
        if process.is_dead:
            raise Killed

    def call(self, service: str, operation: str, carry_out: Callable[..., Any], *words: Any, **request: Any) -> Any:
        """A request of the current process to a service."""
        process = self.current
        assert process is not None
        if process.in_beat:
            if self.down.get(service, 0.0) > self.time:
                raise _trouble(service, is_lost=True)
            return carry_out(*words, **request)
        process.step()
        self.pause(process, 0.1)
        fault = self._fault(service, operation)
        if fault == "refused":
            raise _trouble(service, is_lost=False)
        if fault == "twice":
            carry_out(*words, **request)
        self.write(f"{service} {operation}")
        answer = carry_out(*words, **request)
        if fault == "lost":
            raise _trouble(service, is_lost=True)
        if fault == "late":
            self.pause(process, self.random.choice(_LATE_S))
        process.step()
        return answer

    def _fault(self, service: str, operation: str) -> str:
        """What happens to a request: refused, lost, late, twice, or an empty text.

        Other faults happen here: a service goes down, a clock is set, or the machine of the process sleeps.
        """
        if self.down.get(service, 0.0) > self.time:
            self.write(f"{service} is down")
            return "refused"
        if self.random.random() >= self.trouble:
            return ""
        fault = self.random.choice(("refused", "lost", "lost", "late", "twice", "down", "clock", "asleep"))
        self.note(f"{fault}: {service} {operation}")
        if fault == "down":
            self.down[service] = self.time + self.random.choice(_OUTAGES_S)
            return self.random.choice(("refused", "lost"))
        if fault == "clock" and self.current is not None:
            host, jump_s = self.current.host, self.random.choice(_JUMPS_S)
            for process in self.processes:
                process.skew_s += jump_s if process.host == host else 0.0
            return ""
        if fault == "asleep" and self.current is not None:
            self.current.is_asleep = True
            sleeper = self.current
            self.pause(sleeper, self.random.choice(_ASLEEP_S))
            sleeper.is_asleep = False
            return ""
        return fault if fault != "twice" or service == "aws" else "late"

    def _advance(self, until: float) -> None:
        current = self.current
        while self._due and self._due[0][0] <= until:
            moment, _, act = heapq.heappop(self._due)
            self.time = max(self.time, moment)
            act()
        self.time = max(self.time, until)
        self.current = current

    def start_beats(self, process: Process, beat: Callable[[], None]) -> None:
        """Call `beat` every HEARTBEAT_S seconds in a process, until it is dead or the beat was removed."""
        process.beats.append(beat)

        def repeat() -> None:
            if process.is_dead or beat not in process.beats:
                return
            self.current, process.in_beat = process, True
            try:
                if not process.is_asleep:
                    beat()
            finally:
                process.in_beat = False
            self.at(HEARTBEAT_S, repeat)

        self.at(HEARTBEAT_S, repeat)


def _trouble(service: str, *, is_lost: bool) -> Exception:
    """The error that a client of a service raises without an answer (`is_lost`), or if the service refuses."""
    if service == "mlflow":
        return MlflowException("the server does not answer")
    if service == "ledger":
        return LostContact("storage memory: does not answer (database or disk is full): try again when it does")
    if service == "optuna":
        return sa.exc.OperationalError("statement", None, Exception("the storage does not answer"))
    if is_lost:
        return ReadTimeoutError(endpoint_url="https://aws")
    return error("ThrottlingException", "Rate exceeded") if service == "aws" else ConnectTimeoutError()


class Kernel:
    """Stands for what `paretune.launchers.processes` asks the operating system."""

    world: World

    @property
    def process(self) -> Process:
        """The process that runs now."""
        assert self.world.current is not None
        return self.world.current

    def modules(self) -> dict[str, Any]:
        """Names in `paretune.launchers.processes` and what stands for them."""
        alive = {
            "socket": SimpleNamespace(gethostname=lambda: self.process.host),
            "os": SimpleNamespace(getpid=lambda: self.process.pid),
            "_namespace": lambda: (self.process.host, "1"),
        }
        kernel = self

        class SimulatedProcess:
            def __init__(self, pid: int, created: float) -> None:
                self.pid, self.created = pid, created

            @classmethod
            def of(cls, pid: int) -> "SimulatedProcess":
                return cls(pid, 0.0)

            def is_living(self) -> bool:
                return any(each.pid == self.pid and not each.is_dead for each in kernel.world.processes)

        return {**alive, "Process": SimulatedProcess}


KERNEL = Kernel()


class Heartbeat:
    """Stands for `paretune.jobs.watch.Heartbeat`, in virtual time."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = lambda: _quietly(beat)
        self._process: Process | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._process is None:
            self._process = KERNEL.process
            KERNEL.world.start_beats(self._process, self._beat)

    def stop(self) -> None:
        """End."""
        if self._process is not None and self._beat in self._process.beats:
            self._process.beats.remove(self._beat)


def _quietly(beat: Callable[[], None]) -> None:
    with suppress(LostContact):
        beat()
