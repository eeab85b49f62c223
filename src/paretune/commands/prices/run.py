"""The command `prices`: the prices that are known of a region, and reading them anew."""

import os
import sys
from collections.abc import Mapping
from datetime import date

from paretune.commands.prices.cache import changes, store
from paretune.commands.prices.request import PricesRequest
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.pricing.price_table import PriceTable
from paretune.pricing.prices import VARIABLE, PriceList
from paretune.specification.catalog import instances
from paretune.specification.parameters import split_list
from paretune.specification.profile import read_profile
from paretune.specification.regions import usual_region


def run_prices(request: PricesRequest) -> CommandOutput:
    """The known prices of a region, or today's, read into the user's cache."""
    environment = dict(os.environ)
    wanted = split_list(request.instance_type)
    region = request.region or usual_region(read_profile(environment).get("region"), environment)
    prices = PriceList.read(environment)
    if "MLFLOW_RUN_ID" in environment:
        from paretune.tracking import Tracking, schema  # MLflow takes a second to import

        run = Tracking(environment, SystemClock()).begin("prices")  # `mlflow run` shows a run for every command
        run.set_tags({schema.KIND: "prices"})
    document: dict[str, object] = {"region": region}
    if request.refresh:
        text, document["refreshed"] = _refresh(region, request.price_source, environment, prices)
        print(printable(text))  # at once: the prices are kept, whatever is wrong with the types to show
        prices = PriceList.read(environment)
    if request.refresh and not wanted:
        return CommandOutput(document=document)
    today = date.fromtimestamp(SystemClock().now())
    table = PriceTable.of(prices, region, wanted, today)
    return CommandOutput(text=str(table), document=document | table.to_dict())


def _refresh(
    region: str, source: str, environment: Mapping[str, str], before: PriceList
) -> tuple[str, dict[str, object]]:
    """What has been read, for a person and for a program."""
    from paretune.launchers.sagemaker.price_list import read_prices  # boto3 takes a moment to import

    print(f"reading the prices of SageMaker Training in {region} ...", file=sys.stderr, flush=True)
    reading = read_prices(region, source, environment, SystemClock())
    for note in reading.notes:
        print(printable(note), file=sys.stderr)
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
    own = {row.instance_type for row in before.users if row.region == region}
    if own:
        lines.append(f"the file of {VARIABLE} still wins for {', '.join(sorted(own))}")
    return "\n".join(lines), {
        "count": len(reading.prices),
        "source": reading.source,
        "file": str(path),
        "changes": [
            {"instance_type": one.instance_type, "old": one.old_usd_per_hour, "new": one.new_usd_per_hour}
            for one in changed
        ],
        "not_in_the_catalogue": strange,
        "own_prices_win_for": sorted(own),
    }
