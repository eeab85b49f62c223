"""Today's prices of SageMaker Training, from AWS's Pricing API or from the public file that needs no account."""

import http.client
import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, LaunchRefused
from paretune.launchers.sagemaker.account import Account, has_credentials
from paretune.launchers.sagemaker.aws_errors import refused_to
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec

BULK_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/current"
"""Below it lies REGION/index.json. Source: AWS Billing guide, "Reading the price list files" (read 2026-11-20)."""
VARIABLE = "PARETUNE_PRICE_LIST_URL"
"""Environment variable with the address of a mirror; REGION in it stands for the region."""
_USAGE = re.compile(r"(?:^|-)Train:(ml\.[\w-]+\.\w+)$")  # USE1-Train:ml.m5.large; not USE1-TrainingPlanUpfrontFee:...
_TYPE = re.compile(r"ml\.[\w-]+?\.\w+(?=-|$)")  # ml.m5.large and ml.m5.large-Training are both seen
_TIMEOUT_S = 30.0  # without a byte
_LONGEST_S = 600.0
_LARGEST_BYTES = 512 * 2**20  # the file of us-east-1 has tens of MB
_CHUNK_BYTES = 2**18


class NoPrices(LaunchRefused):
    """AWS answers, but has no prices of SageMaker Training in a region."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Prices by instance type, their source, and notes on how they were read."""

    prices: tuple[Price, ...]
    source: str
    notes: tuple[str, ...] = ()


def read_prices(region: str, source: str, environment: Mapping[str, str], clock: Clock) -> Reading:
    """On-demand prices of SageMaker Training in a region, as of today.

    `source` is api (needs credentials and pricing:GetProducts), bulk (needs none), or auto: the API if there are
    credentials that allow it, else the public file, or the mirror at PARETUNE_PRICE_LIST_URL.

    Raises:
        BadInput: PARETUNE_PRICE_LIST_URL is no address.
        LaunchRefused: AWS does not answer or refuses; NoPrices if it has no such prices.
    """
    today = date.fromtimestamp(clock.now())
    if source == "bulk" or (source == "auto" and not has_credentials()):
        return _from_file(region, environment, clock, today)
    try:
        return _from_api(region, environment, today)
    except LaunchRefused as refused:
        if source == "api":
            raise
        try:
            reading = _from_file(region, environment, clock, today)
        except LaunchRefused as error:
            raise type(error)(f"{refused}; nor does the public file help: {error}") from error
        return replace(reading, notes=(f"{refused}; the public file was read instead",))


def _from_api(region: str, environment: Mapping[str, str], today: date) -> Reading:
    products = training_products(region, environment)
    offers = ((product.get("product"), product.get("terms", {}).get("OnDemand")) for product in products)
    return _reading(offers, region, "AWS Pricing API", today)


def _from_file(region: str, environment: Mapping[str, str], clock: Clock, today: date) -> Reading:
    url = _address(region, environment)
    content = _download(url, region, clock)
    try:
        document = json.loads(content, object_hook=_only_training)
        terms = document["terms"]["OnDemand"]
        offers = [(product, terms.get(sku)) for sku, product in document["products"].items()]
        return _reading(offers, region, "AWS price list", today)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise LaunchRefused(
            f"the price list at {url} is cut off or is none ({type(error).__name__}: {error}): try again"
        ) from error


def _only_training(item: dict[str, Any]) -> dict[str, Any] | None:
    """Drop products of other kinds while the file is parsed, so that tens of MB need not be kept."""
    return item if "attributes" not in item or _training_type(item["attributes"]) else None


def _address(region: str, environment: Mapping[str, str]) -> str:
    base = environment.get(VARIABLE) or BULK_URL
    if urllib.parse.urlsplit(base).scheme not in {"http", "https"}:
        raise BadInput([f"{VARIABLE} must be an http or https address, got {base!r}"])
    if "REGION" in base:
        return base.replace("REGION", region)
    return base if base.endswith(".json") else f"{base.rstrip('/')}/{region}/index.json"


def _download(url: str, region: str, clock: Clock) -> bytes:
    """The file's content; raises NoPrices if AWS has none, LaunchRefused if it cannot be downloaded."""
    until = clock.monotonic() + _LONGEST_S
    content = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # http or https, see _address
            whole = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(_CHUNK_BYTES):
                content += chunk
                if len(content) > _LARGEST_BYTES or clock.monotonic() > until:
                    raise LaunchRefused(
                        f"the price list at {url} is too long: more than {_LARGEST_BYTES >> 20} MiB or "
                        f"{_LONGEST_S:g} s: set price_source to api, or {VARIABLE} to a mirror"
                    )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in {403, 404}:  # S3 answers 403 for a missing file
            raise NoPrices(f"AWS has no SageMaker price list of {region} at {url} (HTTP {error.code})") from error
        hint = "AWS is throttling: try again in a minute" if error.code in {429, 503} else "try again later"
        raise LaunchRefused(f"the price list at {url} cannot be read (HTTP {error.code}): {hint}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError and time-outs are OSErrors
        reason = getattr(error, "reason", None) or error
        raise LaunchRefused(f"the price list at {url} cannot be read ({reason}): check the network") from error
    if len(content) < whole:
        raise LaunchRefused(f"the price list at {url} is cut off ({len(content)} of {whole} bytes): try again")
    return bytes(content)


def _reading(offers: Iterable[tuple[Any, Any]], region: str, source: str, today: date) -> Reading:
    """One price for each instance type, from products and their on-demand terms; raises NoPrices if there is none."""
    amounts_of: dict[str, set[float]] = {}
    usages: dict[str, str] = {}
    for product, terms in offers:
        attributes = product.get("attributes", {}) if isinstance(product, Mapping) else {}
        instance_type = _training_type(attributes)
        if instance_type is None or attributes.get("regionCode", region) != region:
            continue
        for usd in _hourly_prices(terms):
            amounts_of.setdefault(instance_type, set()).add(usd)
            usages[instance_type] = str(attributes.get("usagetype") or "component Training")
    if not amounts_of:
        raise NoPrices(f"{source} has no price of SageMaker Training in {region}")
    prices = []
    for name, amounts in sorted(amounts_of.items()):
        doubt = "" if len(amounts) == 1 else f"uncertain: {len(amounts)} prices from {min(amounts):g} USD; "
        prices.append(
            Price(
                usd_per_hour=max(amounts),  # the highest of several, because budgets must hold
                region=region,
                as_of=today.isoformat(),
                source=f"{doubt}{source}, {usages[name]}",
                instance_type=name,
                confidence="uncertain" if doubt else "confirmed",
            )
        )
    return Reading(prices=tuple(prices), source=source)


def _training_type(attributes: Any) -> str | None:
    """The instance type of a product that is an hour of on-demand training; None for anything else.

    The usage type says what is billed, if the product has one. The component alone would include one-off fees.
    """
    if not isinstance(attributes, Mapping) or str(attributes.get("locationType", "AWS Region")) != "AWS Region":
        return None
    if str(attributes.get("component", "Training")).lower() != "training":
        return None
    if attributes.get("usagetype"):
        usage = _USAGE.search(str(attributes["usagetype"]))
        return usage[1] if usage else None
    if "component" not in attributes:
        return None
    match = _TYPE.match(str(attributes.get("instanceName") or attributes.get("instanceType") or ""))
    return match.group() if match else None


def _hourly_prices(terms: Any) -> Iterator[float]:
    """The prices in USD per hour in the on-demand terms of one product, without free tiers and other units."""
    for term in terms.values() if isinstance(terms, Mapping) else []:
        for dimension in term.get("priceDimensions", {}).values():
            try:
                usd = float(dimension.get("pricePerUnit", {}).get("USD", "nan"))
            except ValueError:
                continue
            if str(dimension.get("unit", "Hrs")).lower() in {"hrs", "hours", "hour"} and 0 < usd < math.inf:
                yield usd


_API_REGION = "us-east-1"  # the API has three endpoints, all with the prices of all regions


def training_products(region: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The products of a region with their terms, as GetProducts describes them; raises LaunchRefused."""
    fields = {"regionCode": region, "component": "Training"}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    account = Account(JobSpec(region=_API_REGION), environment)
    try:
        with refused_to("read the price list (pricing:GetProducts)"):
            listing = account.client("pricing").get_paginator("get_products")
            pages = listing.paginate(ServiceCode="AmazonSageMaker", Filters=filters)
            return [json.loads(text) for page in pages for text in page["PriceList"]]
    except ValueError as error:
        reason = f"the Pricing API's answer is no JSON ({error}): try again, or price_source=bulk"
        raise LaunchRefused(reason) from error
