"""Profiles some optimizer steps, to show where their time goes."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch.autograd import DeviceType  # type: ignore[attr-defined]  # documented there
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from paretune.core.errors import first_line
from paretune.specification.container import PROFILE_JSON, write_json
from paretune.training import device
from paretune.training.meter import NOT_TRAINING, EventWriter, Stopwatch

BATCH = "paretune: batch"  # name of blocks in a profile that read rows
_STEP = "ProfilerStep"  # prefix of torch's names for blocks of one optimizer step, from reading its rows to logging
_COMMUNICATION = ("c10d::", "_c10d_functional::", "record_param_comms", "gloo:", "nccl")
_LISTED_OPERATORS = 20  # the slowest ones, in profile.md


class Profile:
    """Profiles `steps` optimizer steps, beginning with step `first`, and writes their trace and table into `folder`.

    The stopwatch is paused during these steps and while the files are written, so neither counts as training.
    """

    def __init__(self, first: int, steps: int, folder: Path, stopwatch: Stopwatch, events: EventWriter) -> None:
        self._first, self._steps, self._folder = first, steps, folder
        self._stopwatch, self._events = stopwatch, events
        self._profiler: Any = None

    def after(self, step: int, total: int) -> None:
        """Begin the profile before its first step, and write it after its last step. Call this after each `step`."""
        last = min(self._first + self._steps - 1, total)
        if self._profiler is not None:
            device.synchronize()
            if step < last:
                self._profiler.step()
            else:
                self._profiler.stop()
                self._write(self._profiler, last - self._first + 1)
                self._stopwatch.start()
                self._profiler = None
        elif step + 1 == self._first <= last:
            self._stopwatch.stop()
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.has_gpu() else [])]
            self._profiler = profile(activities=activities, schedule=lambda _: ProfilerAction.RECORD)
            self._profiler.start()

    def _write(self, profiler: Any, steps: int) -> None:
        """Write the files of the profile. If this fails, for example on a full disk, the training continues."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(self._folder / "trace.json.gz"))
            averages = profiler.key_averages()
            total_us, shares = shares_of(averages)
            step_ms = total_us / steps / 1000
            parts = ", ".join(f"{name} {share:g} %" for name, share in shares.items() if share)
            summary = f"{parts} of {step_ms:,.1f} ms per step"
            described = {"first_step": self._first, "steps": steps, "step_ms": step_ms, "shares_percent": shares}
            write_json(self._folder / PROFILE_JSON, {"summary": summary, **described})
            by = f"self_{'device' if device.has_gpu() else 'cpu'}_time_total"
            table = averages.table(sort_by=by, row_limit=_LISTED_OPERATORS, max_name_column_width=60)
            page = f"# Profile\n\n{summary}. Open trace.json.gz in https://ui.perfetto.dev.\n\n```text\n{table}\n```\n"
            (self._folder / "profile.md").write_text(page)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._events.write(0, {}, message=f"the profile could not be written: {first_line(error)}")


def shares_of(averages: Iterable[Any]) -> tuple[float, dict[str, float]]:
    """Return the microseconds of all steps in torch's `key_averages`, and each part's share of them in percent.

    Evaluations and checkpoints are excluded. If a GPU has run kernels, `compute`, `optimizer` and `communication` count
    the time of its kernels. Otherwise, they count the time of operators on the CPU. `data` is always CPU time. `idle`
    is the rest: Python code between operators, and waiting.
    """
    items = list(averages)
    here = [item for item in items if item.device_type == DeviceType.CPU]
    kernels = [item for item in items if item not in here and not getattr(item, "is_user_annotation", False)]

    def total(beginning: str, column: str = "device_time_total" if kernels else "cpu_time_total") -> float:
        return float(sum(getattr(item, column) for item in here if item.key.startswith(beginning)))

    whole = total(_STEP, "cpu_time_total") - total(NOT_TRAINING, "cpu_time_total")
    data, optimizer = total(BATCH, "cpu_time_total"), total("Optimizer.")
    if kernels:
        times = {item.key: float(item.self_device_time_total) for item in kernels}
        busy = sum(times.values()) - total(NOT_TRAINING)
        idle = whole - busy - data
    else:
        times = {item.key: float(item.self_cpu_time_total) for item in here}
        idle = total(_STEP, "self_cpu_time_total")
        busy = whole - data - idle
    communication = sum(time for key, time in times.items() if key.startswith(_COMMUNICATION))
    compute = busy - optimizer - communication
    parts = {"compute": compute, "optimizer": optimizer, "communication": communication, "data": data, "idle": idle}
    return whole, {name: round(100 * max(0.0, time) / whole, 1) for name, time in parts.items()}
