"""Archives that a stranger has packed: what is damaged or goes on for ever is refused with little memory."""

import io
import re
import tarfile
from pathlib import Path

import pytest

import paretune
from paretune.storage import archives
from paretune.storage.archives import unpack

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, content: bytes = b"", **fields: object) -> Entry:
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for field, value in fields.items():
        setattr(made, field, value)
    return made, content


def packed(folder: Path, *entries: Entry) -> Path:
    path = folder / "packed.tar"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for made, content in entries:
            archive.addfile(made, io.BytesIO(content))
    return path


def test_what_is_wanted_is_unpacked(tmp_path: Path) -> None:
    link = entry("b/link", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    path = packed(tmp_path, entry("./a/one", b"one"), link, entry("b/two", b"two"))

    unpack(path, tmp_path / "there", lambda name: name.startswith("a/"))

    assert sorted(path.name for path in (tmp_path / "there").rglob("*")) == ["a", "one"]


HARMFUL = {
    "too large": [entry("zeros", bytes(2**22))],
    "too many": [entry(str(number)) for number in range(12)],
    "a link to what is not there": [entry("copy", type=tarfile.LNKTYPE, linkname="none")],
    "headers of headers": [entry("name", b"name\0", type=tarfile.GNUTYPE_LONGNAME)] * 2_000,
    "above": [entry("../above")],
    "above by a link": [entry("folder", type=tarfile.SYMTYPE, linkname=".."), entry("folder/above", b"evil")],
    "above by a second header": [entry("harmless", b"evil", pax_headers={"path": "../above"})],
    "an absolute path": [entry("/absolute", b"evil")],
    "a named pipe": [entry("pipe", type=tarfile.FIFOTYPE)],
    "a file twice": [entry("file"), entry("file", b"evil")],
}


@pytest.mark.parametrize("kind", HARMFUL)
def test_an_archive_that_harms_or_is_damaged_is_refused_as_a_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_ALWAYS", 2**20)
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 10)
    path = packed(tmp_path, *HARMFUL[kind])

    with pytest.raises(tarfile.TarError):
        unpack(path, tmp_path / "there", lambda _: True)

    assert not any(path.is_symlink() for path in (tmp_path / "there").rglob("*"))
    assert [path for path in (tmp_path / "there").rglob("*") if path.is_file() and path.stat().st_size] == []
    assert not (tmp_path / "above").exists()


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, entry("a", bytes(range(256)) * 256))
    path.write_bytes(path.read_bytes()[:-50])

    with pytest.raises(tarfile.TarError):
        unpack(path, tmp_path / "there", lambda _: True)


def test_nothing_else_unpacks_archives() -> None:
    unpacking = re.compile(r"extractall|(?<!\.str)\.extract\(|unpack_archive|zipfile")

    modules = Path(paretune.__file__).parent.rglob("*.py")
    assert [path.name for path in modules if unpacking.search(path.read_text())] == []
