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


def test_an_agent_quotes_launches_and_follows_a_job_and_cannot_launch_a_second_one(workplace: Path) -> None:
    async def act() -> dict[str, Any]:
        words = ["-m", "paretune", "mcp", "--session_budget_usd", "2"]
        async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                results = await client.call_tool(tool, arguments)
                text = "".join(part.text for part in results.content)
                return text if results.is_error else json.loads(text)

            tools = {tool.name for tool in (await client.list_tools()).tools}
            quoted = [(await call("quote", parameters=JOB | {"seed": seed}))["quote"] for seed in ("1", "2")]
            await call("launch", quote=quoted[0])
            refused = await call("launch", quote=quoted[1])
            deadline = time.monotonic() + _PATIENCE_S
            while (status := await call("status"))["launched"][0]["state"] == "running":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)
            return {"tools": tools, "refused": refused, "status": status, "then": await call("launch", quote=quoted[1])}

    result = asyncio.run(act())
    job = result["status"]["launched"][0]

    assert result["tools"] == {"parameters", "estimate", "quote", "launch", "status", "stop", "front"}
    assert "of the session's 2 USD are left" in result["refused"]
    assert job["state"] == "completed", job
    assert 0 < job["cost_usd"] < job["worst_case_usd"]
    assert result["status"]["booked_usd"] == job["cost_usd"]
    assert result["then"]["name"] == "main-2"  # what the first one did not cost is free again
