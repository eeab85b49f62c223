"""Which lines of a bill have been read already: eight bytes a line."""

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
"""Hashes of lines; shape (N,). Two of a million different lines have the same hash once in 30 million bills."""


class Seen:
    """Keys that have come before, in sorted pieces whose sizes at least halve."""

    def __init__(self) -> None:
        self._pieces: list[Keys] = []

    def fresh(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of `keys` come for the first time, also among themselves; they have come from now on. Shape (N,)."""
        is_fresh = np.zeros(len(keys), dtype=bool)
        is_fresh[np.unique(keys, return_index=True)[1]] = True
        for piece in self._pieces:
            places = np.minimum(np.searchsorted(piece, keys), len(piece) - 1)
            is_fresh &= piece[places] != keys
        self._add(np.sort(keys[is_fresh]))
        return is_fresh

    def _add(self, piece: Keys) -> None:
        while self._pieces and len(self._pieces[-1]) < 2 * len(piece):
            piece = np.sort(np.concatenate([self._pieces.pop(), piece]))
        if len(piece):
            self._pieces.append(piece)
