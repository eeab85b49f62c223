"""Which lines have been read already."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.commands.bill.reading import KeySet


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.lists(st.integers(-5, 20), max_size=12), max_size=12))
def test_a_key_is_fresh_once_however_the_keys_are_cut_into_pieces(pieces: list[list[int]]) -> None:
    key_set, added = KeySet(), set[int]()
    for piece in pieces:
        expected = []
        for key in piece:
            expected.append(key not in added)
            added.add(key)

        assert list(key_set.add(np.array(piece, dtype=np.int64))) == expected
