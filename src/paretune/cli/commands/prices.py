"""The command `prices`: the prices that are known of a region, and reading them anew."""

import difflib
import os
import sys
from collections.abc import Mapping
from datetime import date

from paretune.cli.requests.prompts import PricesRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.core.text_table import text_table
from paretune.pricing.cache import changes, store
from paretune.pricing.prices import VARIABLE, Price, PriceList, price_remarks
from paretune.spec.catalog import instances
from paretune.spec.profile import read_profile
from paretune.spec.regions import usual_region

_LONGEST_SOURCE = 60  # characters of it in the table


def run(request: PricesRequest) -> int:
    """Print the known prices of a region, or read today's into the user's cache."""
    environment = dict(os.environ)
    region = request.region or usual_region(read_profile(environment).get("region"), environment)
    prices = PriceList.read(environment)
    if "MLFLOW_RUN_ID" in environment:
        _name_run(environment)
    if request.refresh:
        print(_refresh(region, request.price_source, environment, prices))
        prices = PriceList.read(environment)
    if request.instance_types() or not request.refresh:
        today = date.fromtimestamp(SystemClock().now())
        print(prices_text(prices, region, request.instance_types(), today))
    return 0


def prices_text(prices: PriceList, region: str, wanted: list[str], today: date) -> str:
    """The table of a region's prices, with what is to be said of each.

    Args:
        prices: all that are known.
        region: whose.
        wanted: types, in their order; all that have a price there, if empty.
        today: for the age of the rows.

    Raises:
        BadInput: a type is in neither catalogue nor list.
    """
    known = prices.of_region(region)
    _check(wanted, {*instances(), *known})
    if not known and not wanted:
        return (
            f"no price of SageMaker Training in {region} is known: `paretune prices --refresh true --region {region}` "
            f"reads them, or name a CSV of your own in {VARIABLE}"
        )
    rows = [_cells(name, known.get(name), today) for name in wanted or sorted(known, key=_by_family)]
    header = ("instance type", "accelerators", "USD/hour", "as of", "confidence", "source", "remark")
    unknown = [name for name in wanted if name not in known]
    return "\n".join(
        [
            f"SageMaker Training, on demand, {region}",
            text_table(header, rows, {"USD/hour"}),
            *(text for name in unknown for text in price_remarks(None, name, region, today)),
        ]
    )


def _refresh(region: str, source: str, environment: Mapping[str, str], before: PriceList) -> str:
    from paretune.launchers.sagemaker.price_list import read_prices  # boto3 takes a moment to import

    print(f"reading the prices of SageMaker Training in {region} ...", file=sys.stderr, flush=True)
    reading = read_prices(region, source, environment, SystemClock())
    for note in reading.notes:
        print(note, file=sys.stderr)
    path = store(environment, region, reading.prices)
    changed = changes(PriceList(listed=before.listed).of_region(region), reading.prices)
    lines = [f"{len(reading.prices)} prices read ({reading.source}, {region}), kept in {path}"]
    lines += [
        f"  {one.instance_type}: {one.old_usd_per_hour:g} -> {one.new_usd_per_hour:g} USD an hour ({one.share:+.1%})"
        for one in changed
    ] or ["no price that was known has changed"]
    strange = [row.instance_type for row in reading.prices if row.instance_type not in instances()]
    if strange:
        lines.append(f"{len(strange)} of them are of types that are not in the catalogue, such as {strange[0]}")
    own = {row.instance_type for row in before.own if row.region == region}
    if own:
        lines.append(f"the file of {VARIABLE} still wins for {', '.join(sorted(own))}")
    return "\n".join(lines)


def _check(wanted: list[str], known: set[str]) -> None:
    faults = []
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.7)
            hint = f": did you mean {' or '.join(near)}?" if near else ""
            faults.append(f"instance_type must be one of the {len(known)} known types, got {name!r}{hint}")
    if faults:
        raise BadInput(faults)


def _cells(name: str, price: Price | None, today: date) -> tuple[str, ...]:
    found = instances().get(name)
    accelerators = f"{found.accelerator_count} x {found.accelerator}" if found and found.accelerator_count else ""
    if price is None:
        return name, accelerators, "unknown", "", "", "", ""
    source = price.plain_source
    short = source if len(source) <= _LONGEST_SOURCE else f"{source[: _LONGEST_SOURCE - 3]}..."
    return (
        name,
        accelerators,
        f"{price.usd_per_hour:.3f}",
        price.as_of,
        price.confidence,
        short,
        "; ".join([*(["not in the catalogue"] if found is None else []), *price.doubts(today)]),
    )


def _by_family(name: str) -> tuple[str, float, str]:
    """The order of the catalogue: by family, then by size."""
    _, family, size = name.split(".", 2)
    times = size.removesuffix("xlarge")
    order = {"medium": 0.25, "large": 0.5, "xlarge": 1.0}
    return family, order.get(size, float(times) if times.isdigit() else 1e9), name


def _name_run(environment: Mapping[str, str]) -> None:
    from paretune.tracking import Tracking, schema  # MLflow takes a second to import

    run = Tracking(environment, SystemClock()).begin("prices")  # `mlflow run` shows a run for every command
    run.set_tags({schema.KIND: "prices"})
