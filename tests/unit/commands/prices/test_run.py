"""`paretune prices` as a user meets it."""

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.cli import main

Run = Callable[..., tuple[int, str, str]]
FILE = "paretune/prices/us-east-1.csv"


@pytest.fixture
def run(workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `paretune prices ...` in an empty place with an empty cache; (exit code, standard output, its error)."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "PARETUNE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["prices", *arguments])
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch, run: Run) -> Iterator[Callable[..., None]]:
    """Puts prices by type into the public file, which a server of the test has."""
    content: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server asks for
            value = content.get(self.path)
            self.send_response(200 if value is not None else 404)
            self.end_headers()
            self.wfile.write(value or b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    monkeypatch.setenv("PARETUNE_PRICE_LIST_URL", f"http://127.0.0.1:{server.server_port}")

    def put(region: str = "us-east-1", **prices: float) -> None:
        named = {name.replace("_", "."): usd for name, usd in prices.items()}
        products = {name: {"attributes": {"usagetype": f"USE1-Train:{name}"}} for name in named}
        terms = {
            name: {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": str(usd)}}}}}
            for name, usd in named.items()
        }
        content[f"/{region}/index.json"] = json.dumps({"products": products, "terms": {"OnDemand": terms}}).encode()

    yield put
    server.shutdown()
    server.server_close()


def refresh(run: Run, *more: str) -> tuple[int, str, str]:
    return run("--refresh", "true", "--price_source", "bulk", "--region", "us-east-1", *more)


def lines_of(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{name} ")]


def test_all_regions_are_read_in_one_command(run: Run, publish: Callable[..., None], workplace: Path) -> None:
    publish("eu-west-3", ml_g5_xlarge=1.6)
    publish("us-east-1", ml_g5_xlarge=1.4, ml_c6i_large=0.1)
    code, out, _ = run("--refresh", "true", "--price_source", "bulk", "--region", "all")

    assert code == 0
    assert sorted(path.name for path in (workplace / "cache/paretune/prices").iterdir()) == [
        "eu-west-3.csv",
        "us-east-1.csv",
    ]
    assert "1 prices read (AWS price list, eu-west-3)" in out
    assert "prices of 2 regions read; AWS has none of af-south-1, " in out
    assert lines_of(run("--region", "eu-west-3")[1], "ml.g5.xlarge")[0].split()[5] == "1.600"


def test_all_regions_go_with_refresh_and_end_at_a_network_that_is_away(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "region=all goes with refresh=true" in run("--region", "all")[2]
    monkeypatch.setenv("PARETUNE_PRICE_LIST_URL", "http://127.0.0.1:1")
    code, _, err = run("--refresh", "true", "--price_source", "bulk", "--region", "all")

    assert code == 2
    assert "af-south-1: the price list at http://127.0.0.1:1/af-south-1/index.json cannot be read" in err
    assert "(read and kept: none)" in err


@pytest.mark.usefixtures("no_store")
def test_the_table_has_every_known_price_of_the_region_smallest_size_first(run: Run, workplace: Path) -> None:
    code, out, err = run()

    assert (code, err) == (0, "")
    assert out.startswith("SageMaker Training, on demand, us-east-1\ninstance type ")
    (line,) = lines_of(out, "ml.g5.12xlarge")
    assert line.split()[1:7] == ["4", "x", "NVIDIA", "A10G", "7.090", "2026-08"]
    sizes = [line.split()[0] for line in out.splitlines() if line.startswith("ml.g5.")]
    assert sizes[:3] == ["ml.g5.xlarge", "ml.g5.2xlarge", "ml.g5.4xlarge"]
    assert list(workplace.iterdir()) == []  # no MLflow store, no cache


def test_types_are_shown_in_the_order_that_was_asked_and_an_unknown_price_is_said(run: Run) -> None:
    code, out, _ = run("--instance_type", "ml.p5en.48xlarge, ml.m5.large", "--region", "us-east-1")

    assert code == 0
    assert out.splitlines()[2].split() == ["ml.p5en.48xlarge", "8", "x", "NVIDIA", "H200", "unknown"]
    assert lines_of(out, "ml.m5.large")
    assert "price of ml.p5en.48xlarge in us-east-1 is not known, so cost will be absent" in out


def test_a_region_without_prices_says_how_to_get_them(run: Run) -> None:
    code, out, _ = run("--region", "eu-west-3")

    assert code == 0
    assert "no price of SageMaker Training in eu-west-3 is known" in out
    assert "`paretune prices --refresh true --region eu-west-3`" in out


@pytest.mark.parametrize(
    ("profile", "environment", "region"),
    [
        ('region = "eu-west-3"', {"AWS_REGION": "us-west-2"}, "eu-west-3"),
        ("", {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "eu-west-1"}, "us-west-2"),
        ("", {"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ("", {}, "us-east-1"),
    ],
)
def test_without_a_region_it_is_that_of_the_profile_then_of_the_environment(
    run: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch, profile: str, environment: dict[str, str], region: str
) -> None:
    (workplace / "paretune.toml").write_text(profile)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)

    assert region in run()[1].splitlines()[0]


def test_the_user_s_own_csv_is_shown_in_place_of_what_was_known(
    run: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom = workplace / "own.csv"
    custom.write_text(
        "instance_type,region,price_usd_per_hour,as_of,source\nml.m5.large,us-east-1,0.05,2026,contract\n"
    )
    monkeypatch.setenv("PARETUNE_PRICES", str(custom))

    (line,) = lines_of(run()[1], "ml.m5.large")

    assert line.split()[1:5] == ["0.050", "2026", "user", "contract"]


def test_refreshing_reads_todays_prices_and_says_what_has_changed(
    run: Run, publish: Callable[..., None], workplace: Path
) -> None:
    publish(ml_m5_large=0.115, ml_g5_xlarge=1.056, ml_zz9_large=3)
    code, out, _ = refresh(run)

    assert code == 0
    assert out.splitlines() == [
        f"3 prices read (AWS price list, us-east-1), kept in {workplace / 'cache' / FILE}",
        "  ml.g5.xlarge: 1.408 -> 1.056 USD an hour (-25.0%)",
        "1 of them are of types that are not in the catalogue, such as ml.zz9.large",
    ]
    (line,) = lines_of(run()[1], "ml.g5.xlarge")
    assert "1.056" in line
    assert "not in the catalogue" in lines_of(run()[1], "ml.zz9.large")[0]
    assert "no price that was known has changed" in refresh(run)[1]


def test_refreshing_some_types_shows_their_new_prices(run: Run, publish: Callable[..., None]) -> None:
    publish(ml_m5_large=0.2)
    _, out, _ = refresh(run, "--instance_type", "ml.m5.large")

    assert lines_of(out, "ml.m5.large")[0].split()[1] == "0.200"


def test_refreshing_says_for_which_types_the_user_s_own_csv_still_wins(
    run: Run, publish: Callable[..., None], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom = workplace / "own.csv"
    custom.write_text(
        "instance_type,region,price_usd_per_hour,as_of,source\nml.m5.large,us-east-1,0.05,2026,contract\n"
    )
    monkeypatch.setenv("PARETUNE_PRICES", str(custom))
    publish(ml_m5_large=0.115)

    out = refresh(run)[1]

    assert "no price that was known has changed" in out  # 0.115 before and after, beside the user's own
    assert out.splitlines()[-1] == "the file of PARETUNE_PRICES still wins for ml.m5.large"


def test_a_refresh_that_fails_ends_with_2_and_leaves_the_cache_as_it_was(
    run: Run, publish: Callable[..., None], workplace: Path
) -> None:
    publish(ml_m5_large=0.2)
    refresh(run)
    before = (workplace / "cache" / FILE).read_bytes()
    publish(ml_m5_large=0)  # no price is left

    code, out, err = refresh(run)

    assert (code, out) == (2, "")
    assert err.count("paretune: ") == 1
    assert "no price of SageMaker Training in us-east-1" in err
    assert (workplace / "cache" / FILE).read_bytes() == before


WRONG = {
    "region": (["--region", "us-est-1"], ["region must be an AWS region", "got 'us-est-1'", "us-east-1"]),
    "type": (["--instance_type", "ml.g5.xlage"], ["got 'ml.g5.xlage': did you mean ml.g5.xlarge"]),
    "source": (["--price_source", "bulck"], ["price_source must be one of auto, api, bulk", "did you mean bulk?"]),
    "parameter": (["--regoin", "us-east-1"], ["unknown parameter regoin", "did you mean region?"]),
    "truth": (["--refresh", "maybe"], ["refresh must be true or false"]),
    "all at once": (["--region", "mars", "--refresh", "maybe"], ["2 faults", "refresh must be", "'mars'"]),
}


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(("arguments", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_ends_with_2_and_one_message(
    run: Run, workplace: Path, arguments: list[str], expected: list[str]
) -> None:
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err.count("paretune: ") == 1
    assert not [text for text in expected if text not in err], err
    assert list(workplace.iterdir()) == []


def test_a_price_file_that_is_missing_ends_with_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARETUNE_PRICES", "nowhere.csv")

    code, _, err = run()

    assert code == 2
    assert "PARETUNE_PRICES must name a CSV of prices, but nowhere.csv does not exist" in err


def test_a_region_of_the_environment_that_is_none_ends_with_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-est-1")

    assert run()[0] == 2
