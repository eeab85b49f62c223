"""Runs `import`: brings runs of other teams from a table into MLflow."""

import os
from functools import partial

from paretune.commands.command import describe_opened_run
from paretune.commands.imports.command import ImportRequest
from paretune.commands.imports.importing import import_runs
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput
from paretune.pricing.prices import PriceList, usual_price
from paretune.tracking import Tracking


def run_import(request: ImportRequest) -> CommandOutput:
    """Create a run for every row that has none yet."""
    clock, environment = SystemClock(), dict(os.environ)
    price_of = partial(usual_price, prices=PriceList.read(environment), environment=environment)
    tracking = Tracking(environment, clock)
    imported = import_runs(request, tracking, price_of, clock.now())
    table = request.table
    lines = [
        f"{table.name}: {len(imported.added)} runs imported as published, {imported.already_there} were there already"
    ]
    if table.ignored:
        lines.append(f"columns that mean nothing here were left out: {', '.join(table.ignored)}")
    if imported.unpriced:
        lines.append(f"no price is known of {', '.join(imported.unpriced)}: the cost of these runs is absent")
    lines += [f"{count} runs teach estimates nothing: {reason}" for reason, count in imported.untaught.items()]
    if imported.deviating_lines:
        lines.append(
            "cost_usd is kept as it was given, and differs from seconds x instances x hourly price by more than 1 % "
            f"in {len(imported.deviating_lines)} runs, such as line {imported.deviating_lines[0]}: it may contain "
            "storage or a discount"
        )
    describe_opened_run("import", "\n".join(lines))
    return CommandOutput(
        text="\n".join(lines),
        document={
            "table": table.name,
            "run_ids": list(imported.added),
            "known": imported.already_there,
            "ignored_columns": list(table.ignored),
            "unpriced_instance_types": list(imported.unpriced),
        },
    )
