"""Runs `prices`: shows the known prices of a region, or reads today's from AWS."""

import os
import sys
from collections.abc import Mapping
from datetime import date

from paretune.commands.command import describe_opened_run
from paretune.commands.prices.cache import changes, store
from paretune.commands.prices.command import ALL, PricesRequest
from paretune.commands.prices.table import PriceTable
from paretune.core.clock import SystemClock
from paretune.core.errors import LaunchRefused
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.pricing.prices import VARIABLE, PriceList
from paretune.specification.catalog import instances
from paretune.specification.parameters import split_list
from paretune.specification.profile import read_profile
from paretune.specification.regions import REGIONS, usual_region


def run_prices(request: PricesRequest) -> CommandOutput:
    """Return the known prices of a region, after reading today's into the user's cache if asked for."""
    environment = dict(os.environ)
    instance_types = split_list(request.instance_type)
    region = request.region or usual_region(read_profile(environment).get("region"), environment)
    if region == ALL:
        return _refresh_all(request.price_source, environment)
    prices = PriceList.read(environment)
    document: dict[str, object] = {"region": region}
    if request.refresh:
        text, document["refreshed"] = _refresh(region, request.price_source, environment, prices)
        print(printable(text))  # at once: the prices are kept, whatever is wrong with the types to show
        prices = PriceList.read(environment)
    if request.refresh and not instance_types:
        describe_opened_run("prices", text)
        return CommandOutput(document=document)
    today = date.fromtimestamp(SystemClock().now())
    table = PriceTable.of(prices, region, instance_types, today)
    unknown = sum(price is None for price in table.prices.values())
    describe_opened_run("prices", f"{table.title}: {len(table.prices)} types, {unknown} without a known price")
    return CommandOutput(text=str(table), document=document | table.to_dict())


def _refresh_all(source: str, environment: Mapping[str, str]) -> CommandOutput:
    """Read today's prices of every region; raises LaunchRefused, and keeps what it has read until then."""
    from paretune.commands.prices.price_list import NoPrices  # boto3 takes a moment to import

    prices, documents, without = PriceList.read(environment), dict[str, object](), list[str]()
    for region in sorted(REGIONS):
        try:
            text, documents[region] = _refresh(region, source, environment, prices)
        except NoPrices:
            without.append(region)
            continue
        except LaunchRefused as error:
            raise LaunchRefused(f"{region}: {error} (read and kept: {', '.join(documents) or 'none'})") from error
        print(printable(text))
    if not documents:
        raise LaunchRefused("AWS has no price of SageMaker Training in any region: try again later")
    text = f"prices of {len(documents)} regions read; AWS has none of {', '.join(without) or 'no other one'}"
    return CommandOutput(text=text, document={"region": ALL, "refreshed": documents, "without_prices": without})


def _refresh(
    region: str, source: str, environment: Mapping[str, str], before: PriceList
) -> tuple[str, dict[str, object]]:
    """Read today's prices; return the result as text and as a document."""
    from paretune.commands.prices.price_list import read_prices  # boto3 takes a moment to import

    print(f"reading the prices of SageMaker Training in {region} ...", file=sys.stderr, flush=True)
    reading = read_prices(region, source, environment, SystemClock())
    for note in reading.notes:
        print(printable(note), file=sys.stderr)
    path = store(environment, region, reading.prices)
    changed = changes(PriceList(listed=before.listed).of_region(region), reading.prices)
    lines = [f"{len(reading.prices)} prices read ({reading.source}, {region}), kept in {path}"]
    lines += [
        f"  {change.instance_type}: {change.old_usd_per_hour:g} -> {change.new_usd_per_hour:g} USD an hour "
        f"({change.share:+.1%})"
        for change in changed
    ] or ["no price that was known has changed"]
    unlisted = [row.instance_type for row in reading.prices if row.instance_type not in instances()]
    if unlisted:
        lines.append(f"{len(unlisted)} of them are of types that are not in the catalogue, such as {unlisted[0]}")
    own_types = {row.instance_type for row in before.users if row.region == region}
    if own_types:
        lines.append(f"the file of {VARIABLE} still wins for {', '.join(sorted(own_types))}")
    return "\n".join(lines), {
        "count": len(reading.prices),
        "source": reading.source,
        "file": str(path),
        "changes": [
            {"instance_type": change.instance_type, "old": change.old_usd_per_hour, "new": change.new_usd_per_hour}
            for change in changed
        ],
        "not_in_the_catalogue": unlisted,
        "own_prices_win_for": sorted(own_types),
    }
