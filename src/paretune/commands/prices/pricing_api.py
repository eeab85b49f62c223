"""The products of SageMaker Training in AWS's Pricing API, with their prices."""

import json
from collections.abc import Mapping
from typing import Any

from paretune.core.errors import LaunchRefused
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import refused_to
from paretune.specification.placement import Placement

_API_REGION = "us-east-1"  # the API has three endpoints, all with the prices of all regions


def training_products(region: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The products of a region with their terms, as GetProducts describes them; raises LaunchRefused."""
    fields = {"regionCode": region, "component": "Training"}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    account = Account(Placement(region=_API_REGION), environment)
    try:
        with refused_to("read the price list (pricing:GetProducts)"):
            listing = account.client("pricing").get_paginator("get_products")
            pages = listing.paginate(ServiceCode="AmazonSageMaker", Filters=filters)
            return [json.loads(text) for page in pages for text in page["PriceList"]]
    except ValueError as error:
        reason = f"the Pricing API's answer is no JSON ({error}): try again, or price_source=bulk"
        raise LaunchRefused(reason) from error
