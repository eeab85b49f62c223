"""The command `prices`: shows the known prices of a region, and reads today's from AWS's Pricing API on request."""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from paretune.commands.command import command_of, describe_opened_run
from paretune.core.errors import LaunchRefused, refuse
from paretune.core.result import CommandOutput, Result, Row
from paretune.core.secrets import printable
from paretune.presentation.text import Columns, aligned, texts
from paretune.pricing import VARIABLE, PriceList, keep, price_remarks
from paretune.specification.catalog import instances, region_faults, unknown_type, usual_region
from paretune.specification.declaration import Parameters, Rules, parameter, split_list
from paretune.specification.price import Price, hourly
from paretune.specification.profile import read_profile

_API_REGION = "us-east-1"  # one of the API's three endpoints; each has the prices of all regions
_USAGE = re.compile(r"(?:^|-)Train:(ml\.[\w-]+\.\w+)$")  # USE1-Train:ml.m5.large; not USE1-TrainingPlanUpfrontFee:...
_LONGEST_SOURCE = 60  # limit of characters that the printed table shows
_COLUMNS: Columns = {
    "instance type": "instance_type",
    "accelerators": "accelerators",
    "USD/hour": ("price_usd_per_hour", ".3f"),
    "as of": "as_of",
    "days old": "age_days",
    "confidence": "confidence",
    "source": ("source", lambda text: text[:_LONGEST_SOURCE]),
    "remark": "remark",
}


class PricesRequest(Parameters):
    """The prices to show, and whether to refresh them first. Raises BadInput if the region is unknown."""

    region: str | None = parameter(None)
    """AWS region; by default the profile's, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1"""
    instance_type: str | None = parameter(None)
    """types to show, comma-separated; all that are known by default"""
    refresh: bool = parameter(False)
    """first read today's prices of SageMaker Training from AWS's Pricing API (pricing:GetProducts)"""

    rules: ClassVar[Rules] = (lambda request: region_faults(request.region),)


@dataclass(frozen=True, kw_only=True)
class PriceTable(Result):
    """On-demand prices of SageMaker Training in one region, None if unknown. Ages are counted up to `today`."""

    region: str
    prices: dict[str, Price | None]
    today: date

    @classmethod
    def of(cls, environment: Mapping[str, str], region: str, instance_types: Sequence[str]) -> "PriceTable":
        """Return the prices of these types; if none are given, of all types with a price in the region.

        Raises BadInput for unknown types.
        """
        priced = PriceList.read(environment).of_region(region)
        possible = list(dict.fromkeys([*instances(), *priced]))  # the smallest size first
        refuse([unknown_type(name, possible) for name in instance_types if name not in possible])
        names = instance_types or [name for name in possible if name in priced]
        return cls(region=region, prices={name: priced.get(name) for name in names}, today=date.today())

    @property
    def title(self) -> str:
        """The kind and the region of the prices."""
        return f"SageMaker Training, on demand, {self.region}"

    def rows(self) -> list[Row]:
        """Return one row per type: hardware, price, date, source and remarks."""
        return [self._row(name, price) for name, price in self.prices.items()]

    def to_dict(self) -> dict[str, object]:
        """Return region, rows and notes."""
        return {"region": self.region, "rows": self.rows(), "notes": self.notes()}

    def notes(self) -> list[str]:
        """Return sentences that say how to get the prices that are unknown."""
        if not self.prices:
            read = f"`paretune prices --refresh true --region {self.region}` reads the prices"
            none = f"no price of SageMaker Training in {self.region} is known"
            return [f"{none}: {read}, or name a CSV of your own in {VARIABLE}"]
        unknown = [name for name, price in self.prices.items() if price is None]
        return [text for name in unknown for text in price_remarks(None, name, self.region, self.today)]

    def __str__(self) -> str:
        if not self.prices:
            return "\n".join(self.notes())
        rows = self.rows()
        several = [f"{row['accelerator_count']} x {row['accelerator']}" if row["accelerator"] else "" for row in rows]
        frame = self.to_frame().assign(accelerators=several)
        return "\n".join([self.title, aligned(texts(frame, _COLUMNS)), *self.notes()])

    def _row(self, name: str, price: Price | None) -> Row:
        instance = instances().get(name)
        return {
            "instance_type": name,
            "accelerator": instance.accelerator if instance and instance.accelerator_count else None,
            "accelerator_count": instance and instance.accelerator_count,
            "price_usd_per_hour": price and price.usd_per_hour,
            "region": self.region,
            "as_of": (price and price.as_of) or None,
            "age_days": price and price.age_days(self.today),
            "confidence": price and price.confidence,
            "source": price and price.plain_source,
            "remark": "price unknown" if price is None else "; ".join(price.doubts(self.today)) or None,
        }


def prices(region: str | None = None, instance_type: str | Collection[str] = ()) -> PriceTable:
    """Return the known on-demand prices of SageMaker Training in a region, in USD per hour and instance.

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
    types = [instance_type] if isinstance(instance_type, str) else list(instance_type)
    return PriceTable.of(environment, _region(region, environment), types)


def run_prices(request: PricesRequest) -> CommandOutput:
    """Return the known prices of a region.

    If a refresh is requested, first read today's prices from AWS into the user's cache. In this case, prices are
    returned only if types were requested.
    """
    environment = dict(os.environ)
    region = _region(request.region, environment)
    document: dict[str, object] = {}
    if request.refresh:
        print(f"reading the prices of SageMaker Training in {region} ...", file=sys.stderr, flush=True)
        read = read_prices(region, environment, date.today())
        path = keep(environment, read)
        text = f"{len(read)} prices read (AWS Pricing API, {region}), saved to {path}"
        document["refreshed"] = {"count": len(read), "file": str(path)}
        print(printable(text))  # printed now, because the prices are kept even if the requested types are wrong
        if not request.instance_type:
            describe_opened_run("prices", text)
            return CommandOutput(document=document | {"region": region})
    table = PriceTable.of(environment, region, split_list(request.instance_type))
    unknown = sum(price is None for price in table.prices.values())
    describe_opened_run("prices", f"{table.title}: {len(table.prices)} types, {unknown} without a known price")
    return CommandOutput(text=str(table), document=document | table.to_dict())


def _region(region: str | None, environment: Mapping[str, str]) -> str:
    return usual_region(region or read_profile(environment).get("region"), environment)


def read_prices(region: str, environment: Mapping[str, str], today: date) -> list[Price]:
    """Return a region's on-demand prices of SageMaker Training from the Pricing API, the highest price of each type.

    Raises LaunchRefused if AWS does not answer, denies pricing:GetProducts, or has no such prices.
    """
    from paretune.launchers.sagemaker.account import Account  # imports boto3
    from paretune.launchers.sagemaker.aws_errors import refused_to

    fields = {"regionCode": region, "component": "Training", "locationType": "AWS Region"}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    with refused_to("read the price list (pricing:GetProducts)"):
        listing = Account(_API_REGION, environment).client("pricing").get_paginator("get_products")
        pages = listing.paginate(ServiceCode="AmazonSageMaker", Filters=filters)
        products = [json.loads(text) for page in pages for text in page["PriceList"]]
    usages: dict[str, dict[float, str]] = {}  # type to prices, each with its usage type
    for product in products:
        usage = _USAGE.search(product["product"]["attributes"].get("usagetype", ""))
        terms = product["terms"].get("OnDemand", {}).values() if usage else ()
        for dimension in (each for term in terms for each in term["priceDimensions"].values()):
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            if usage and usd > 0 and dimension["unit"].lower() in {"hrs", "hours", "hour"}:
                usages.setdefault(usage[1], {})[usd] = usage.string
    if not usages:
        raise LaunchRefused(f"the AWS Pricing API has no price of SageMaker Training in {region}")
    return [_price(name, region, prices, today) for name, prices in sorted(usages.items())]


def _price(name: str, region: str, usages: Mapping[float, str], today: date) -> Price:
    doubt = "" if len(usages) == 1 else f"uncertain: {len(usages)} prices from {hourly(min(usages))}; "
    return Price(
        usd_per_hour=max(usages),  # the highest, because budgets must not be exceeded
        region=region,
        as_of=today.isoformat(),
        source=f"{doubt}AWS Pricing API, {usages[max(usages)]}",
        instance_type=name,
        confidence="uncertain" if doubt else "confirmed",
    )


PRICES = command_of(PricesRequest, run_prices)
