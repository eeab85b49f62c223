"""Which lines have been read already."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.commands.bill.seen import Seen


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.lists(st.integers(-5, 20), max_size=12), max_size=12))
def test_a_key_is_fresh_once_however_the_keys_are_cut_into_pieces(pieces: list[list[int]]) -> None:
    seen, known = Seen(), set[int]()
    for piece in pieces:
        expected = []
        for key in piece:
            expected.append(key not in known)
            known.add(key)

        assert list(seen.fresh(np.array(piece, dtype=np.int64))) == expected
