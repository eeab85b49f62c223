"""An agent at the other end of a pipe: `paretune mcp`, as its clients start it."""

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


def test_the_dollars_of_a_session_outlive_the_server_that_launched_a_job(workplace: Path) -> None:
    async def act() -> dict[str, Any]:
        words = ["-m", "paretune", "mcp", "--session_budget_usd", "2"]
        server = StdioServerParameters(command=sys.executable, args=words)

        async def call(client: Client, tool: str, **arguments: Any) -> Any:
            results = await client.call_tool(tool, arguments)
            text = "".join(part.text for part in results.content)
            return text if results.is_error else json.loads(text)

        async with Client(server) as first:
            quoted = [(await call(first, "quote", parameters=JOB | {"seed": seed}))["quote"] for seed in (1, 2)]
            await call(first, "launch", quote=quoted[0])
            refused = await call(first, "launch", quote=quoted[1])
        async with Client(server) as again:
            deadline = time.monotonic() + _PATIENCE_S
            while (status := await call(again, "status"))["launched"][0]["state"] == "running":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)
            foreign = await call(again, "launch", quote=quoted[1])
            quote = (await call(again, "quote", parameters=JOB | {"seed": 2}))["quote"]
            launched = await call(again, "launch", quote=quote)
        return {"refused": refused, "status": status, "foreign": foreign, "then": launched}

    result = asyncio.run(act())
    job = result["status"]["launched"][0]

    assert "of 2 USD 0 are spent and 1.478 promised" in result["refused"]
    assert job["state"] == "completed", job
    assert 0 < job["booked_usd"] == job["result"]["metrics"]["cost_usd"] < job["worst_case_usd"]
    assert result["status"]["spent_usd"] == job["booked_usd"]
    assert "was not signed by this server" in result["foreign"]
    assert result["then"]["state"] == "running"  # what the first one did not cost is free again
