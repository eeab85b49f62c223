"""The code in docs/sagemaker.md deploys a model to an endpoint and removes it, in an AWS account of moto."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

PAGE = Path(__file__).parents[2] / "docs" / "sagemaker.md"
DIMENSIONS = [{"Name": "EndpointName", "Value": "sentiment-en"}, {"Name": "VariantName", "Value": "all"}]


def test_the_code_of_the_page_makes_an_endpoint_asks_it_watches_it_and_removes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, asked, watched, removed = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}

    with mock_aws():
        exec(made, names)  # noqa: S102
        client = boto3.client("sagemaker", region_name="us-east-1")
        assert [each["EndpointName"] for each in client.list_endpoints()["Endpoints"]] == ["sentiment-en"]
        container = client.describe_model(ModelName="sentiment-en")["PrimaryContainer"]
        assert container["Image"].endswith(
            "huggingface-pytorch-inference:2.6.0-transformers5.5.3-gpu-py312-cu124-ubuntu22.04"
        )
        exec(asked.replace('print(json.load(answer["Body"]))', 'answered = answer["Body"].read()'), names)  # noqa: S102
        assert names["answered"]
        earlier = datetime.now(UTC) - timedelta(minutes=10)
        metric = {"MetricName": "Invocations", "Dimensions": DIMENSIONS, "Value": 2.0, "Timestamp": earlier}
        boto3.client("cloudwatch", region_name="us-east-1").put_metric_data(
            Namespace="AWS/SageMaker", MetricData=[metric]
        )
        exec(watched, names)  # noqa: S102
        assert "Invocations [2.0]" in capsys.readouterr().out
        exec(removed, names)  # noqa: S102
        assert client.list_endpoints()["Endpoints"] == []
        assert client.list_models()["Models"] == []
