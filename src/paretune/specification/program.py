"""The program that trains: paretune's own training, or a script with the Trainer of some version of transformers.

    Program.read("paretune")      paretune's own training
    Program.read("trainer")       Hugging Face's Trainer, as in transformers 5
    Program.read("trainer-4.6")   the Trainer of transformers 4.6
    Program.read("trainer-4.x")   the Trainer of 2021 to 2023, before fused attention and fused optimizers

An estimate needs it, because programs differ in number formats, kernels, and in what they leave behind.
"""

import re
from dataclasses import dataclass
from typing import Self

from pydantic_core import PydanticCustomError

PARETUNE, TRAINER = "paretune", "trainer"
NEWEST = (5, 0)
"""Version of transformers whose defaults `trainer` without a version has."""
_NAME = re.compile(rf"{TRAINER}(?:-(\d+)(?:\.(\d+|x))?(?:\.\S*)?)?")


@dataclass(frozen=True, kw_only=True)
class Program:
    """The program that trains a model."""

    version: tuple[int, int] | None = None  # of transformers; None for paretune's own training

    @classmethod
    def read(cls, name: str | None) -> Self:
        """Return the program with this name; None names paretune's own.

        Raises a PydanticCustomError, which is a ValueError, for an unknown name.
        """
        if name is None or name == PARETUNE:
            return cls()
        if not (found := _NAME.fullmatch(name)):
            allowed = f"{PARETUNE}, {TRAINER}, or {TRAINER} with a version of transformers, such as {TRAINER}-4.46"
            raise PydanticCustomError("rule", "{text}", {"text": f"program must be {allowed}, got {name!r}"})
        major, minor = found.groups()
        number = 0 if minor in (None, "x") else int(minor)
        return cls(version=NEWEST if major is None else (int(major), number))

    @property
    def is_paretune(self) -> bool:
        """Whether this is paretune's own training."""
        return self.version is None

    @property
    def name(self) -> str:
        """The name of the program, as users type it."""
        if self.version is None or self.version[0] >= NEWEST[0]:
            return PARETUNE if self.version is None else TRAINER
        return f"{TRAINER}-{self.version[0]}.{self.version[1] or 'x'}"

    @property
    def title(self) -> str:
        """The program in words."""
        if self.version is None:
            return "paretune's own training"
        return f"Hugging Face's Trainer of transformers {self.name.partition('-')[2] or NEWEST[0]}"

    def is_before(self, *version: int) -> bool:
        """Return whether it is a Trainer older than this version of transformers."""
        return self.version is not None and self.version < version


def known_program(name: str | None) -> str | None:
    """Return the usual spelling of a program's name; None stays None. Raises a ValueError."""
    return None if name is None else Program.read(name.strip().lower()).name
