"""Archives that a stranger has packed: what is damaged or goes on for ever is refused with little memory."""

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import paretune
from paretune.storage import archives
from paretune.storage.archives import unpack

Fill = Callable[[tarfile.TarFile], None]


def entry(name: str, size: int = 0, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def packed(folder: Path, fill: Fill, mode: str = "w:gz") -> Path:
    path = folder / "packed.tar"
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]  # a word
        fill(archive)
    return path


def test_what_is_wanted_is_unpacked(tmp_path: Path) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        archive.addfile(entry("./a/one", 3), io.BytesIO(b"one"))
        archive.addfile(entry("b/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
        archive.addfile(entry("b/two", 3), io.BytesIO(b"two"))

    unpack(packed(tmp_path, fill), tmp_path / "there", lambda name: name.startswith("a/"))

    assert sorted(path.name for path in (tmp_path / "there").rglob("*")) == ["a", "one"]


def too_large(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("zeros", 2**22), io.BytesIO(bytes(2**22)))


def many(archive: tarfile.TarFile) -> None:
    for number in range(12):
        archive.addfile(entry(str(number)))


def linked(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("copy", type=tarfile.LNKTYPE, linkname="none"))


def headers_of_headers(archive: tarfile.TarFile) -> None:
    for _ in range(2_000):
        archive.addfile(entry("name", 5, type=tarfile.GNUTYPE_LONGNAME), io.BytesIO(b"name\0"))


def above(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("../above"))


def symbolic_link(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("folder", type=tarfile.SYMTYPE, linkname=".."))
    archive.addfile(entry("folder/above", 4), io.BytesIO(b"evil"))


def twice(archive: tarfile.TarFile) -> None:
    for text in (b"", b"evil"):
        archive.addfile(entry("file", len(text)), io.BytesIO(text))


def pax_override(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("harmless", 4, pax_headers={"path": "../above"}), io.BytesIO(b"evil"))


def absolute(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("/absolute", 4), io.BytesIO(b"evil"))


def named_pipe(archive: tarfile.TarFile) -> None:
    archive.addfile(entry("pipe", type=tarfile.FIFOTYPE))


HARMFUL = [too_large, many, linked, headers_of_headers, above, symbolic_link, pax_override, absolute, named_pipe, twice]


@pytest.mark.parametrize("fill", HARMFUL, ids=lambda fill: fill.__name__)
def test_an_archive_that_harms_or_is_damaged_is_refused_as_a_whole(
    fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_ALWAYS", 2**20)
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 10)
    path = packed(tmp_path, fill)

    with pytest.raises(tarfile.TarError):
        unpack(path, tmp_path / "there", lambda _: True)

    assert not any(path.is_symlink() for path in (tmp_path / "there").rglob("*"))
    assert [path for path in (tmp_path / "there").rglob("*") if path.is_file() and path.stat().st_size] == []
    assert not (tmp_path / "above").exists()


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, lambda archive: archive.addfile(entry("a", 2**16), io.BytesIO(bytes(range(256)) * 256)))
    path.write_bytes(path.read_bytes()[:-50])

    with pytest.raises(tarfile.TarError):
        unpack(path, tmp_path / "there", lambda _: True)


def test_nothing_else_unpacks_archives() -> None:
    unpacking = re.compile(r"extractall|\.extract\(|unpack_archive|zipfile")

    modules = Path(paretune.__file__).parent.rglob("*.py")
    assert [path.name for path in modules if unpacking.search(path.read_text())] == []
