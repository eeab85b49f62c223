"""The simulated launcher. A job is one or two small files. Its state depends only on them and on the virtual time.

    HOME/simulated/clock                the virtual time (VirtualClock)
    HOME/simulated/jobs/NAME.json       the job document, the time of creation and the timeline; written once
    HOME/simulated/jobs/NAME.stop.json  the time of the first stop request; written once

So nothing is lost if a process is killed. Because the timeline is stored, existing jobs do not change if the table of
recorded runs is changed later.
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.errors import collecting, refuse
from paretune.launchers import SIMULATED
from paretune.launchers.base import Launcher, Surroundings
from paretune.launchers.offers import usual_price
from paretune.launchers.simulated.jobs import SimulatedJob, VirtualClock
from paretune.launchers.simulated.timeline import STOP_SECONDS, TIMELINE, Timeline, TimelineFactory
from paretune.pricing import PriceList
from paretune.specification.container import write_json_once
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.specification.parallelism import BatchPlan
from paretune.specification.price import Price
from paretune.specification.rules import launch_faults


class SimulatedLauncher(Launcher):
    """Creates simulated jobs on `clock`, the virtual clock of the folder `home`.

    `environment` has the variables for prices, the default region and the Hugging Face Hub. `timeline_of` returns the
    timeline of an attempt of a job with a batch. It raises BadInput if the table of recorded runs does not cover the
    job, or if the job needs an estimate and cannot be estimated.
    """

    traits = SIMULATED
    jobs_may_appear_late = False
    reads_inputs = False
    stop_s = STOP_SECONDS  # of a job without instances
    uploads_are_billed = True  # as on SageMaker

    def __init__(
        self,
        home: Path,
        clock: VirtualClock,
        environment: Mapping[str, str],
        timeline_of: Callable[[JobSpec, BatchPlan, int], Timeline],
    ) -> None:
        self._jobs = home.resolve() / "simulated" / "jobs"
        self._clock = self.virtual_clock = clock
        self._environment = environment
        self._timeline_of = timeline_of

    @classmethod
    def open(cls, surroundings: Surroundings) -> "SimulatedLauncher":
        home = surroundings.home
        return cls(home, VirtualClock(home), surroundings.environment, TimelineFactory(surroundings.predict))

    def submit(self, order: Order) -> SimulatedJob:
        if (existing := self.attach(order.job_name)) is not None:
            return existing
        timeline = self._timeline(order)  # may raise, so it comes before anything is created
        added = {"created": self._clock.now(), "timeline": timeline, "request": order.request}
        write_json_once(self._path(order.job_name), order.as_json() | added)
        return self._read(order.job_name)  # because another process may have been faster

    def attach(self, job_name: str) -> SimulatedJob | None:
        return self._read(job_name) if self._path(job_name).exists() else None

    def request_of(self, job_name: str) -> str:
        path = self._path(job_name)
        return str(json.loads(path.read_text())["request"]) if path.exists() else ""

    def price(self, spec: JobSpec) -> Price | None:
        return usual_price(spec, self._prices, self._environment)

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        """Return the timeline of the job's first attempt.

        Raises BadInput if the job cannot run, or if there is no timeline for one of its instance types.
        """
        faults, timelines = launch_faults(spec), list[Timeline]()
        for candidate in spec.clusters():
            with collecting(faults):
                timelines.append(self._timeline_of(candidate, candidate.plan(), 1))
        refuse(list(dict.fromkeys(faults)))
        return {"timeline": TIMELINE.dump_python(timelines[0], mode="json")}

    def preview(self, order: Order) -> Mapping[str, Any]:
        """Return the metrics that the job has if it does not fail by `simulation.failure_rate`."""
        report = self._timeline(order)["report"]
        spec = JobSpec.read(order.training)
        if report is None and spec.simulation.failure_rate:
            certain = spec.replace(simulation=spec.simulation.replace(failure_rate=0.0))
            completed = self._timeline_of(certain, order.batch, order.attempt).report
            report = None if completed is None else completed.model_dump()
        return {"metrics": {} if report is None else report["metrics"]}

    def _timeline(self, order: Order) -> dict[str, Any]:
        """Return the timeline of an attempt as JSON values."""
        if order.attempt == 1 and "timeline" in order.place:
            return dict(order.place["timeline"])
        timeline = self._timeline_of(JobSpec.read(order.training), order.batch, order.attempt)
        made: dict[str, Any] = TIMELINE.dump_python(timeline, mode="json")
        return made

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)

    def _read(self, job_name: str) -> SimulatedJob:
        raw = json.loads(self._path(job_name).read_text())
        timeline = TIMELINE.validate_python(raw["timeline"])
        stop_file = self._jobs / f"{job_name}.stop.json"
        return SimulatedJob(Order.from_json(raw), float(raw["created"]), stop_file, self._clock, timeline)

    def _path(self, job_name: str) -> Path:
        return self._jobs / f"{job_name}.json"
