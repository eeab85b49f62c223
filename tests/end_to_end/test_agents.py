"""An agent at the other end of a pipe: `paretune mcp`, started as its clients start it."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.slow

JOB = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "max_train_samples": "4000"}
_PATIENCE_S = 120.0


def test_a_job_is_launched_within_the_budget_and_outlives_the_server(workplace: Path) -> None:
    for name, usd in (("small", 1), ("large", 2)):
        (workplace / f"{name}.yaml").write_text(f"budgets: [{{name: agents, usd_per_month: {usd}}}]\n")

    async def call(client: Client, tool: str, **arguments: Any) -> Any:
        results = await client.call_tool(tool, arguments)
        text = "".join(part.text for part in results.content)
        return text if results.is_error else json.loads(text)

    def server(budget: str) -> StdioServerParameters:
        words = ["-m", "paretune", "mcp", "--budget", f"{budget}.yaml"]
        return StdioServerParameters(command=sys.executable, args=words)

    async def act() -> tuple[Any, Any]:
        async with Client(server("small")) as client:
            refused = await call(client, "launch", parameters=JOB)
        async with Client(server("large")) as client:
            await call(client, "launch", parameters=JOB)
        async with Client(server("large")) as client:
            deadline = time.monotonic() + _PATIENCE_S
            while (status := await call(client, "status"))["launched"][0]["state"] == "running":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)
        return refused, status

    refused, status = asyncio.run(act())
    (job,) = status["launched"]

    assert "worst case 1.48 USD does not fit" in " ".join(refused.split())
    assert 0 < job["result"]["metrics"]["cost_usd"] < 1.474
