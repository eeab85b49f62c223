"""Prices from AWS: which products count, both ways to read them, and what stands in the way."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from paretune.commands.prices.price_list import Reading, read_prices
from paretune.core.errors import BadInput, LaunchRefused
from tests.unit.launchers.sagemaker.aws import Aws, FakeClock

TODAY = date.fromtimestamp(FakeClock().now()).isoformat()


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere here, but the loopback may be asked: the public file comes from a server of the test."""
    for name in ("AWS_PROFILE", "AWS_REGION", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


def product(usd: str = "0.115", *, unit: str = "Hrs", sku: str = "S", **attributes: str) -> dict[str, Any]:
    """A product as GetProducts has it; None takes an attribute away."""
    reference: dict[str, str | None] = {
        "regionCode": "us-east-1",
        "locationType": "AWS Region",
        "component": "Training",
        "instanceName": "ml.m5.large",
        "usagetype": "USE1-Train:ml.m5.large",
        **attributes,
    }
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}, "description": "$0.115 per Training hour"}
    return {
        "product": {"sku": sku, "attributes": {name: text for name, text in reference.items() if text is not None}},
        "serviceCode": "AmazonSageMaker",
        "terms": {"OnDemand": {f"{sku}.JRTC": {"sku": sku, "priceDimensions": {f"{sku}.JRTC.6YS6": dimension}}}},
    }


def gpu(usd: str = "1.408", **attributes: str) -> dict[str, Any]:
    named = {"instanceName": "ml.g5.xlarge", "usagetype": "USE1-Train:ml.g5.xlarge", "sku": "G"}
    return product(usd, **{**named, **attributes})


def bulk_of(products: list[dict[str, Any]]) -> bytes:
    """The public file with the same products."""
    skus = {f"SKU{number}": first for number, first in enumerate(products)}
    return json.dumps(
        {
            "formatVersion": "v1.0",
            "offerCode": "AmazonSageMaker",
            "products": {sku: item["product"] for sku, item in skus.items()},
            "terms": {"OnDemand": {sku: entry["terms"]["OnDemand"] for sku, entry in skus.items()}, "SavingsPlan": {}},
        }
    ).encode()


class PublicFile:
    """A server of the public file on the loopback."""

    def __init__(self) -> None:
        self.status = 200
        self.content = bulk_of([product(), gpu()])
        self.missing_bytes = 0
        self.paths: list[str] = []
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the name that http.server asks for
                served.paths.append(self.path)
                self.send_response(served.status)
                self.send_header("Content-Length", str(len(served.content) + served.missing_bytes))
                self.end_headers()
                self.wfile.write(served.content)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def read(self, source: str = "bulk", region: str = "us-east-1") -> Reading:
        return read_prices(region, source, {"PARETUNE_PRICE_LIST_URL": self.url}, FakeClock())


@pytest.fixture
def public() -> Iterator[PublicFile]:
    file = PublicFile()
    threading.Thread(target=lambda: file.server.serve_forever(poll_interval=0.01), daemon=True).start()
    yield file
    file.server.shutdown()
    file.server.server_close()


Read = Callable[[list[dict[str, Any]]], Reading]


@pytest.fixture(params=["api", "bulk"])
def read(request: pytest.FixtureRequest, aws: Aws, public: PublicFile) -> Read:
    """Reads these products, either way."""

    def through(products: list[dict[str, Any]]) -> Reading:
        aws.pricing.products = products
        public.content = bulk_of(products)
        return public.read(request.param)

    return through


def dollars(reading: Reading) -> dict[str, float]:
    return {price.instance_type: price.usd_per_hour for price in reading.prices}


# which products count


def test_a_price_comes_with_region_day_and_usage_type(read: Read) -> None:
    (price,) = read([product("0.1150000000")]).prices

    assert (price.instance_type, price.usd_per_hour, price.region) == ("ml.m5.large", 0.115, "us-east-1")
    assert (price.as_of, price.confidence) == (TODAY, "confirmed")
    assert price.source.endswith(", USE1-Train:ml.m5.large")
    assert price.source.startswith("AWS")


@pytest.mark.parametrize(
    "other",
    [
        {"component": "Hosting", "usagetype": "USE1-Host:ml.g5.xlarge"},
        {"component": "Processing", "usagetype": "USE1-Processing:ml.g5.xlarge"},
        {"component": "Studio-Notebook", "usagetype": "USE1-Studio:KernelGateway-ml.g5.xlarge"},
        {"component": "SpotTraining", "usagetype": "USE1-SpotTraining:ml.g5.xlarge"},
        {"component": "Placement", "usagetype": "USE1-Placement:ml.g5.xlarge"},
        {"component": "Training", "usagetype": "USE1-Host:ml.g5.xlarge"},
        {"component": None, "usagetype": "USE1-TrainingPlanUpfrontFee:ml.g5.xlarge"},
        {"component": None, "usagetype": None},
        {"locationType": "AWS Outposts"},
        {"regionCode": "us-west-2"},
        {"instanceName": None, "usagetype": None},
        {"unit": "GB-Mo"},
        {"unit": "Quantity"},
        {"usd": "0.0000000000"},
        {"usd": "free"},
    ],
    ids=str,
)
def test_only_an_hour_of_on_demand_training_in_the_region_counts(read: Read, other: dict[str, Any]) -> None:
    assert dollars(read([gpu(**other), product()])) == {"ml.m5.large": 0.115}


@pytest.mark.parametrize(
    "spelling",
    [
        {"usagetype": "Train:ml.g5.xlarge"},
        {"usagetype": "APN1-Train:ml.g5.xlarge", "instanceName": "ml.g5.xlarge-Training"},
        {"usagetype": None},
        {"usagetype": None, "instanceName": "ml.g5.xlarge-Training"},
        {"usagetype": None, "instanceName": None, "instanceType": "ml.g5.xlarge-Training"},
        {"locationType": None},
        {"unit": "Hours"},
    ],
    ids=str,
)
def test_every_spelling_that_the_list_has_seen_is_understood(read: Read, spelling: dict[str, Any]) -> None:
    assert dollars(read([gpu(**spelling)])) == {"ml.g5.xlarge": 1.408}


def test_names_with_a_hyphen_are_read_whole(read: Read) -> None:
    named = product("130.71", usagetype="USE1-Train:ml.p6-b200.48xlarge", instanceName="ml.p6-b200.48xlarge")
    unnamed = product("148.54", usagetype=None, instanceName="ml.p6-b300.48xlarge-Training", sku="B")

    assert dollars(read([named, unnamed])) == {"ml.p6-b200.48xlarge": 130.71, "ml.p6-b300.48xlarge": 148.54}


def test_of_prices_that_contradict_each_other_the_highest_is_taken_and_called_uncertain(read: Read) -> None:
    (price,) = read([gpu("1.4"), gpu("1.5", sku="H")]).prices

    assert (price.usd_per_hour, price.confidence) == (1.5, "uncertain")
    assert "2 prices from 1.4 USD" in price.source


def test_a_list_without_training_prices_is_refused(read: Read) -> None:
    with pytest.raises(LaunchRefused, match="no price of SageMaker Training in us-east-1"):
        read([gpu(component="Hosting", usagetype="USE1-Host:ml.g5.xlarge")])


# the Pricing API


def test_the_api_is_asked_page_by_page_for_training_in_the_region(aws: Aws, public: PublicFile) -> None:
    aws.pricing.page_size = 2
    names = [f"ml.m5.{size}xlarge" for size in range(1, 6)]
    aws.pricing.products = [product(usagetype=f"USE1-Train:{name}", instanceName=name) for name in names]

    assert sorted(dollars(public.read("api"))) == names
    calls = aws.of("GetProducts")
    assert len(calls) == 3
    filters = {item["Field"]: item["Value"] for item in calls[0].parameters["Filters"]}
    assert filters == {"regionCode": "us-east-1", "component": "Training"}
    assert public.paths == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AccessDeniedException", "AWS does not allow this identity to read the price list"),
        ("ThrottlingException", "AWS is throttling requests"),
        ("ExpiredTokenException", "the AWS credentials have expired"),
    ],
)
def test_a_refusal_of_the_api_is_explained(aws: Aws, public: PublicFile, code: str, message: str) -> None:
    aws.refuse("GetProducts", code, "not today")

    with pytest.raises(LaunchRefused, match=message):
        public.read("api")


def test_auto_asks_the_api_where_there_are_credentials(aws: Aws, public: PublicFile) -> None:
    aws.pricing.products = [gpu("2")]

    assert dollars(public.read("auto")) == {"ml.g5.xlarge": 2}
    assert public.paths == []


def test_auto_reads_the_public_file_where_there_are_none(
    aws: Aws, public: PublicFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    reading = public.read("auto")

    assert len(reading.prices) == 2
    assert reading.notes == ()
    assert aws.count() == 0


def test_auto_reads_the_public_file_where_the_identity_may_not_ask_and_says_so(aws: Aws, public: PublicFile) -> None:
    aws.refuse("GetProducts", "AccessDeniedException", "not authorized to perform: pricing:GetProducts")

    reading = public.read("auto")

    assert len(reading.prices) == 2
    (note,) = reading.notes
    assert "pricing:GetProducts" in note
    assert note.endswith("the public file was read instead")


def test_when_neither_way_leads_to_prices_one_message_says_both(aws: Aws, public: PublicFile) -> None:
    aws.refuse("GetProducts", "AccessDeniedException", "no")
    public.status = 404

    with pytest.raises(LaunchRefused, match=r"does not allow .*; nor does the public file help: .*HTTP 404"):
        public.read("auto")


# the public file


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/eu-west-1/index.json"),
        ("/", "/eu-west-1/index.json"),
        ("/mirror", "/mirror/eu-west-1/index.json"),
        ("/REGION.json", "/eu-west-1.json"),
        ("/one.json", "/one.json"),
    ],
)
def test_the_file_of_the_region_is_asked_for(public: PublicFile, suffix: str, path: str) -> None:
    public.url += suffix
    public.content = bulk_of([product(regionCode="eu-west-1", usagetype="EU-Train:ml.m5.large")])

    assert dollars(public.read(region="eu-west-1")) == {"ml.m5.large": 0.115}
    assert public.paths == [path]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "AWS has no SageMaker price list of us-east-1"),
        (403, "AWS has no SageMaker price list of us-east-1"),
        (503, "AWS is throttling: try again in a minute"),
        (500, "HTTP 500.*try again later"),
    ],
)
def test_a_server_that_refuses_is_explained(public: PublicFile, status: int, message: str) -> None:
    public.status = status

    with pytest.raises(LaunchRefused, match=message):
        public.read()


@pytest.mark.parametrize(
    "content",
    [
        bulk_of([product()])[:-40],
        b"",
        b"<html>sign in to the hotel's network</html>",
        b"[]",
        b"{}",
        b'{"products": {"S": 1}, "terms": {"OnDemand": []}}',
        b'{"products": [], "terms": {"OnDemand": {}}}',
        b'{"products": {"S": {"attributes": {"usagetype": "Train:ml.a1.b"}}}, "terms": {"OnDemand": {"S": {"t": 1}}}}',
        b"\xff\xfe",
        pytest.param(b'{"products":' * 100_000, id="deep"),
    ],
)
def test_a_file_that_is_cut_off_or_is_something_else_is_refused(public: PublicFile, content: bytes) -> None:
    public.content = content

    with pytest.raises(LaunchRefused, match=r"cut off or is none|no price of SageMaker Training"):
        public.read()


def test_a_connection_that_breaks_off_is_refused(public: PublicFile) -> None:
    public.missing_bytes = 1000
    public.content = bulk_of([product()])

    with pytest.raises(LaunchRefused, match="cut off"):
        public.read()


def test_a_file_without_end_is_given_up(public: PublicFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paretune.commands.prices.price_list._LARGEST_BYTES", 100)

    with pytest.raises(LaunchRefused, match=r"is too long.*set price_source to api"):
        public.read()


def test_a_machine_that_nobody_answers_is_told_to_check_the_network(public: PublicFile) -> None:
    public.url = "http://127.0.0.1:9"  # the discard port: nobody listens

    with pytest.raises(LaunchRefused, match=r"cannot be read \(.*refused\): check the network"):
        public.read()


@pytest.mark.parametrize("address", ["file:///etc", "ftp://example.org", "index.json"])
def test_a_mirror_is_an_http_address(public: PublicFile, address: str) -> None:
    public.url = address

    with pytest.raises(BadInput, match="PARETUNE_PRICE_LIST_URL must be an http or https address"):
        public.read()
