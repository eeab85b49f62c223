"""What a process may use of this machine."""

from pathlib import Path

from paretune.core.machine import usable_memory_bytes


def test_a_container_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    machine = usable_memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_memory_bytes(tmp_path) == machine

    (tmp_path / "memory.max").write_text(f"{2**20}\n")
    assert usable_memory_bytes(tmp_path) == 2**20
