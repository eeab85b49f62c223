"""The prices of a region as a table."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.core.result import Result, Row
from paretune.presentation.table import Cell, Table
from paretune.pricing.prices import VARIABLE, Price, PriceList, price_remarks
from paretune.specification.catalog import instances, unknown_type
from paretune.specification.profile import read_profile
from paretune.specification.regions import usual_region

_LONGEST_SOURCE = 60  # characters in the text


@dataclass(frozen=True, kw_only=True)
class PriceTable(Result):
    """On-demand prices of SageMaker Training in one region; None if unknown. Ages are counted to `today`."""

    region: str
    prices: dict[str, Price | None]
    today: date

    @classmethod
    def of(cls, prices: PriceList, region: str, instance_types: Sequence[str], today: date) -> "PriceTable":
        """The table of these types, or of all with a price in the region; raises BadInput for an unknown type."""
        priced = prices.of_region(region)
        possible = {*instances(), *priced}
        faults = [unknown_type(name, possible) for name in instance_types if name not in possible]
        if faults:
            raise BadInput(faults)
        names = instance_types or sorted(priced, key=_by_family)
        return cls(region=region, prices={name: priced.get(name) for name in names}, today=today)

    @property
    def title(self) -> str:
        """Kind and region of the prices."""
        return f"SageMaker Training, on demand, {self.region}"

    def rows(self) -> list[Row]:
        """One row per type: hardware, price, date, source and remarks."""
        return [self._row(name, price) for name, price in self.prices.items()]

    def to_dict(self) -> dict[str, object]:
        """Region, rows and notes."""
        return {"region": self.region, "rows": self.rows(), "notes": self.notes()}

    def notes(self) -> list[str]:
        """A sentence on how to get the unknown prices."""
        if not self.prices:
            return [
                f"no price of SageMaker Training in {self.region} is known: `paretune prices --refresh true --region "
                f"{self.region}` reads them, or name a CSV of your own in {VARIABLE}"
            ]
        unknown = [name for name, price in self.prices.items() if price is None]
        return [text for name in unknown for text in price_remarks(None, name, self.region, self.today)]

    def __str__(self) -> str:
        """The table for a terminal."""
        if not self.prices:
            return self.notes()[0]
        headers = ("instance type", "accelerators", "USD/hour", "as of", "confidence", "source", "remark")
        table = Table(headers=headers, cells=[_cells(row) for row in self.rows()])
        return "\n".join([self.title, table.text(), *self.notes()])

    def _row(self, name: str, price: Price | None) -> Row:
        instance = instances().get(name)
        unlisted = ["not in the catalogue"] if instance is None else []
        remarks = [] if price is None else [*unlisted, *price.doubts(self.today)]
        return {
            "instance_type": name,
            "accelerator": instance.accelerator if instance and instance.accelerator_count else None,
            "accelerator_count": instance.accelerator_count if instance else None,
            "price_usd_per_hour": price.usd_per_hour if price else None,
            "region": self.region,
            "as_of": (price.as_of or None) if price else None,
            "confidence": price.confidence if price else None,
            "source": price.plain_source if price else None,
            "remark": "; ".join(remarks) or None,
        }


def prices(region: str | None = None, instance_type: str | Collection[str] = ()) -> PriceTable:
    """The known on-demand prices of SageMaker Training in a region, in USD per hour and instance.

    `paretune prices --refresh true` reads today's prices from AWS.

    Args:
        region: by default the region of the profile, AWS_REGION, AWS_DEFAULT_REGION, or us-east-1.
        instance_type: one or several types; by default all with a known price.

    Raises:
        BadInput: there is no such region or type, or a file of prices cannot be read.

    Examples:
        >>> import paretune
        >>> table = paretune.prices("us-east-1", ["ml.g5.xlarge", "ml.p4d.24xlarge"])
        >>> table.to_frame()[["instance_type", "accelerator_count", "price_usd_per_hour"]].round(3).values.tolist()
        [['ml.g5.xlarge', 1, 1.408], ['ml.p4d.24xlarge', 8, 25.251]]
    """
    environment = dict(os.environ)
    name = usual_region(region or read_profile(environment).get("region"), environment)
    instance_types = [instance_type] if isinstance(instance_type, str) else list(instance_type)
    today = date.fromtimestamp(SystemClock().now())
    return PriceTable.of(PriceList.read(environment), name, instance_types, today)


def _cells(row: Row) -> list[Cell]:
    count, usd, source = row["accelerator_count"], row["price_usd_per_hour"], str(row["source"] or "")
    return [
        Cell(str(row["instance_type"])),
        Cell(f"{count} x {row['accelerator']}" if count else ""),
        Cell(f"{usd:.3f}", usd) if isinstance(usd, float) else Cell("unknown"),
        Cell(str(row["as_of"] or "")),
        Cell(str(row["confidence"] or "")),
        Cell(source if len(source) <= _LONGEST_SOURCE else f"{source[: _LONGEST_SOURCE - 3]}..."),
        Cell(str(row["remark"] or "")),
    ]


def _by_family(name: str) -> tuple[str, float, str]:
    """The order of the catalogue: by family, then by size."""
    _, family, size = name.split(".", 2)
    times = size.removesuffix("xlarge")
    order = {"medium": 0.25, "large": 0.5, "xlarge": 1.0}
    return family, order.get(size, float(times) if times.isdigit() else 1e9), name
