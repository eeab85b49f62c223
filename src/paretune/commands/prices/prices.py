"""The known prices of a region as a table, and today's prices from AWS's Pricing API."""

import json
import math
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from paretune.commands.command import describe_opened_run
from paretune.commands.prices.command import PricesRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, LaunchRefused
from paretune.core.result import CommandOutput, Result, Row
from paretune.core.untrusted import printable
from paretune.presentation.table import aligned, texts
from paretune.pricing.prices import VARIABLE, Price, PriceList, keep, price_remarks
from paretune.specification.catalog import instances, unknown_type, usual_region
from paretune.specification.job import JobSpec
from paretune.specification.parameters import split_list
from paretune.specification.profile import read_profile

_API_REGION = "us-east-1"  # the API has three endpoints, all with the prices of all regions
_USAGE = re.compile(r"(?:^|-)Train:(ml\.[\w-]+\.\w+)$")  # USE1-Train:ml.m5.large; not USE1-TrainingPlanUpfrontFee:...
_LONGEST_SOURCE = 60  # characters in the text
_COLUMNS: Mapping[str, Any] = {
    "instance type": "instance_type",
    "accelerators": "accelerators",
    "USD/hour": ("price_usd_per_hour", ".3f"),
    "as of": "as_of",
    "confidence": "confidence",
    "source": ("source", lambda text: text[:_LONGEST_SOURCE]),
    "remark": "remark",
}


@dataclass(frozen=True, kw_only=True)
class PriceTable(Result):
    """On-demand prices of SageMaker Training in one region; None if unknown. Ages are counted to `today`."""

    region: str
    prices: dict[str, Price | None]
    today: date

    @classmethod
    def of(cls, prices: PriceList, region: str, instance_types: Sequence[str]) -> "PriceTable":
        """The table of these types, or of all with a price in the region; raises BadInput for an unknown type."""
        priced = prices.of_region(region)
        possible = {*instances(), *priced}
        faults = [unknown_type(name, possible) for name in instance_types if name not in possible]
        if faults:
            raise BadInput(faults)
        order = {name: place for place, name in enumerate(instances())}
        names = instance_types or sorted(priced, key=lambda name: (order.get(name, len(order)), name))
        return cls(region=region, prices={name: priced.get(name) for name in names}, today=_today())

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
            read = f"`paretune prices --refresh true --region {self.region}` reads them"
            none = f"no price of SageMaker Training in {self.region} is known"
            return [f"{none}: {read}, or name a CSV of your own in {VARIABLE}"]
        unknown = [name for name, price in self.prices.items() if price is None]
        return [text for name in unknown for text in price_remarks(None, name, self.region, self.today)]

    def __str__(self) -> str:
        """The table for a terminal."""
        if not self.prices:
            return "\n".join(self.notes())
        several = [row["accelerator"] and f"{row['accelerator_count']} x {row['accelerator']}" for row in self.rows()]
        frame = self.to_frame().assign(accelerators=several)
        return "\n".join([self.title, aligned(texts(frame, _COLUMNS)), *self.notes()])

    def _row(self, name: str, price: Price | None) -> Row:
        instance = instances().get(name)
        count = instance.accelerator_count if instance else None
        return {
            "instance_type": name,
            "accelerator": instance.accelerator if instance and count else None,
            "accelerator_count": count,
            "price_usd_per_hour": price and price.usd_per_hour,
            "region": self.region,
            "as_of": (price and price.as_of) or None,
            "confidence": price and price.confidence,
            "source": price and price.plain_source,
            "remark": "price unknown" if price is None else "; ".join(price.doubts(self.today)) or None,
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
    return PriceTable.of(
        PriceList.read(environment), name, [instance_type] if isinstance(instance_type, str) else list(instance_type)
    )


def run_prices(request: PricesRequest) -> CommandOutput:
    """Return the known prices of a region, after reading today's into the user's cache if asked for."""
    environment = dict(os.environ)
    region = usual_region(request.region or read_profile(environment).get("region"), environment)
    document: dict[str, object] = {}
    if request.refresh:
        text, document["refreshed"] = _refresh(region, environment)
        print(printable(text))  # at once: the prices are kept, whatever is wrong with the types to show
        if not request.instance_type:
            describe_opened_run("prices", text)
            return CommandOutput(document=document | {"region": region})
    table = PriceTable.of(PriceList.read(environment), region, split_list(request.instance_type))
    unknown = sum(price is None for price in table.prices.values())
    describe_opened_run("prices", f"{table.title}: {len(table.prices)} types, {unknown} without a known price")
    return CommandOutput(text=str(table), document=document | table.to_dict())


def _refresh(region: str, environment: Mapping[str, str]) -> tuple[str, dict[str, object]]:
    """Read today's prices and keep them; return what has changed as text and as a document."""
    print(f"reading the prices of SageMaker Training in {region} ...", file=sys.stderr, flush=True)
    known = PriceList(listed=PriceList.read(environment).listed).of_region(region)
    read = read_prices(region, environment, _today())
    path = keep(environment, read)
    pairs = [(known[new.instance_type].usd_per_hour, new) for new in read if new.instance_type in known]
    changes = [(old, new) for old, new in pairs if old != new.usd_per_hour]
    lines = [f"{len(read)} prices read (AWS Pricing API, {region}), kept in {path}"]
    lines += [f"  {new.instance_type}: {old:g} -> {new.usd_per_hour:g} USD an hour" for old, new in changes]
    lines += [] if changes else ["no price that was known has changed"]
    document = [{"instance_type": new.instance_type, "old": old, "new": new.usd_per_hour} for old, new in changes]
    return "\n".join(lines), {"count": len(read), "file": str(path), "changes": document}


def read_prices(region: str, environment: Mapping[str, str], today: date) -> list[Price]:
    """On-demand prices of SageMaker Training in a region from the Pricing API, the highest of several of a type.

    Raises:
        LaunchRefused: AWS does not answer or refuses (pricing:GetProducts), or it has no such prices.
    """
    from paretune.launchers.sagemaker.account import Account  # imports boto3
    from paretune.launchers.sagemaker.aws_errors import refused_to

    fields = {"regionCode": region, "component": "Training"}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    with refused_to("read the price list (pricing:GetProducts)"):
        listing = Account(JobSpec(region=_API_REGION), environment).client("pricing").get_paginator("get_products")
        pages = listing.paginate(ServiceCode="AmazonSageMaker", Filters=filters)
        products = [json.loads(text) for page in pages for text in page["PriceList"]]
    found: dict[str, dict[float, str]] = {}  # type to prices, each with its usage type
    for product in products:
        attributes = product["product"]["attributes"]
        usage = _USAGE.search(attributes.get("usagetype", ""))
        is_here = attributes.get("regionCode", region) == region
        if usage is None or not is_here or attributes.get("locationType", "AWS Region") != "AWS Region":
            continue
        for term in product["terms"].get("OnDemand", {}).values():
            for dimension in term.get("priceDimensions", {}).values():
                usd = float(dimension.get("pricePerUnit", {}).get("USD") or "nan")
                if dimension.get("unit", "").lower() in {"hrs", "hours", "hour"} and 0 < usd < math.inf:
                    found.setdefault(usage[1], {})[usd] = usage.string
    if not found:
        raise LaunchRefused(f"the AWS Pricing API has no price of SageMaker Training in {region}")
    return [_price(name, region, usages, today) for name, usages in sorted(found.items())]


def _price(name: str, region: str, usages: Mapping[float, str], today: date) -> Price:
    doubt = "" if len(usages) == 1 else f"uncertain: {len(usages)} prices from {min(usages):g} USD; "
    return Price(
        usd_per_hour=max(usages),  # because budgets must hold
        region=region,
        as_of=today.isoformat(),
        source=f"{doubt}AWS Pricing API, {usages[max(usages)]}",
        instance_type=name,
        confidence="uncertain" if doubt else "confirmed",
    )


def _today() -> date:
    return date.fromtimestamp(SystemClock().now())
