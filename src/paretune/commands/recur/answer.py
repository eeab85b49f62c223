"""What a night of a recurring training gives: the model it returns, what it cost, and what all nights have saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paretune.commands.recur.history import CHANCE, RETRAIN, TRY, Night, NightJob
from paretune.core.result import Result, Row, as_json
from paretune.presentation.numbers import plain, usd

_ROUNDING_USD = 0.005
COLUMNS = (
    *("night", "point", "chance_of_missing", "value", "usd", "retrain_point", "retrain_value", "retrain_usd"),
    *("returned_run_id", "returned_value", "meets_floor", "spent_usd", "default_usd", "saved_usd"),
)
"""Of nights.csv; `value`: of the try; of several retrainings the last one's point and value, and all dollars;
`saved_usd`: up to and with this night."""


def night_rows(nights: Sequence[Night], default_usd: Mapping[str, float]) -> list[Row]:
    """A row per night that has ended or spent something; `default_usd` is estimated."""
    rows: list[Row] = []
    saved = 0.0
    for night in nights:
        tried = next(iter(night.parts(TRY)), None)
        again = next(reversed(night.parts(RETRAIN)), None)
        returned = night.returned
        is_over = returned is not None or (again is not None and again.has_ended)
        saved += default_usd[night.name] - night.usd if is_over else 0.0
        rows.append(
            {
                "night": night.name,
                "point": None if tried is None else _words(tried),
                "chance_of_missing": None if tried is None else tried.said.get(CHANCE),
                "value": None if tried is None else tried.value,
                "usd": None if tried is None else tried.usd,
                "retrain_point": None if again is None else _words(again),
                "retrain_value": None if again is None else again.value,
                "retrain_usd": None if again is None else sum(job.usd or 0.0 for job in night.parts(RETRAIN)),
                "returned_run_id": None if returned is None else returned.run_id,
                "returned_value": None if returned is None else returned.value,
                "meets_floor": returned is not None if is_over else None,
                "spent_usd": night.usd,
                "default_usd": default_usd[night.name] if is_over else None,
                "saved_usd": saved if is_over else None,
            }
        )
    return rows


def _words(job: NightJob) -> str:
    return ", ".join(f"{name}={value}" for name, value in job.point.items())


_A_CENT = 0.005  # USD, rounded


@dataclass(frozen=True, kw_only=True)
class RecurResult(Result):
    """One night, and all nights so far.

    Attributes:
        metric: what the floor is about.
        night: of this command.
        is_met: whether the night has a model that meets the floor as it is now.
        nights: rows with COLUMNS, the oldest night first.
        run_id: of the run of all nights.
        registered: what came of registering the returned model; empty where that was not asked for.
    """

    name: str
    metric: str
    floor: float
    night: Night
    is_met: bool
    nights: Sequence[Row] = field(default_factory=list)
    run_id: str
    open_command: str
    registered: str = ""

    @property
    def title(self) -> str:
        """Which night of which recurring training."""
        return f"night {self.night.name} of {self.name}"

    def rows(self) -> list[Row]:
        """A row per night, see nights.csv."""
        return list(self.nights)

    def to_dict(self) -> dict[str, object]:
        """The night, its jobs, and all nights."""
        returned = self.night.returned
        jobs = [
            {
                **{
                    name: getattr(job, name)
                    for name in ("run_id", "part", "point", "state", "value", "usd", "returned")
                },
                **job.said,
                "reason": job.reason or None,
            }
            for job in self.night.jobs
        ]
        document = {
            "name": self.name,
            "night": self.night.name,
            "metric": self.metric,
            "floor": self.floor,
            "meets_floor": self.is_met,
            "returned_run_id": None if returned is None else returned.run_id,
            "returned_value": None if returned is None else returned.value,
            "spent_usd": self.night.usd,
            "jobs": jobs,
            "nights": list(self.nights),
            "run_id": self.run_id,
            "open_command": self.open_command,
            "registered": self.registered or None,
        }
        return {name: as_json(value) for name, value in document.items()}

    def notes(self) -> list[str]:
        """What was saved, what was registered, and where to look."""
        own = next((row for row in self.nights if row["night"] == self.night.name), {})
        saved, spent = own.get("saved_usd"), sum(float(str(row["spent_usd"] or 0)) for row in self.nights)
        nights = f"{len(self.nights)} night{'s' if len(self.nights) > 1 else ''}: {usd(spent)}"
        if isinstance(saved, float):
            far = f"about {usd(abs(saved))} {'less' if saved > 0 else 'more'} than"
            nights += f", {far if abs(saved) >= _A_CENT else 'as'} the default every night (estimated)"
        return [nights, *filter(None, [self.registered]), self.open_command]

    def __str__(self) -> str:
        """The jobs of the night, its model, and what all nights cost."""
        lines = ["", self.title]
        for job in self.night.jobs:
            value = f"{job.state.lower() or job.part}" if job.value is None else f"{self.metric} {plain(job.value, 4)}"
            cost = "" if job.usd is None else f", {usd(job.usd)}"
            chance = job.said.get(CHANCE)
            why = "" if chance is None else f"; its chance of missing {plain(self.floor, 4)} was {chance:.1%}"
            lines.append(f"  {job.part}: {_words(job)}: {value}{cost}{why}")
        returned = self.night.returned
        if unmeasured := [job for job in self.night.jobs if job.is_unmeasured]:
            lines.append(f"  run {unmeasured[-1].run_id} has logged no {self.metric}, which the floor is about")
        if returned is None:
            lines.append(f"  no model of this night meets {self.metric} {plain(self.floor, 4)}: none is returned")
        else:
            later = "" if self.is_met else f"; it misses {self.metric} {plain(self.floor, 4)}, the floor as it is now"
            lines.append(f"  returned: the model of run {returned.run_id}{later}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes())])
