"""Windows lose no text, fit the room they have, and are chosen by the document alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st

from docparade.modeling.passages import (
    fit_to_room,
    select_passages,
    sliding_windows,
    token_windows,
    unit_bounds,
)

window_and_stride = st.integers(1, 40).flatmap(lambda window: st.tuples(st.just(window), st.integers(1, window)))


@given(st.integers(0, 300), window_and_stride)
def test_windows_cover_every_unit_and_none_only_repeats(count: int, sizes: tuple[int, int]) -> None:
    window, stride = sizes
    windows = sliding_windows(count, window, stride)
    assert {unit for start, end in windows for unit in range(start, end)} == set(range(count))
    assert all(start == i * stride and end - start <= window for i, (start, end) in enumerate(windows))
    assert all(later[1] > earlier[1] for earlier, later in pairwise(windows))
    assert len(windows) >= 1


def test_a_document_one_word_over_a_window_has_a_second_passage() -> None:
    assert sliding_windows(150, 150, 75) == [(0, 150)]
    assert sliding_windows(151, 150, 75) == [(0, 150), (75, 151)]
    assert sliding_windows(225, 225, 200) == [(0, 225)]
    assert sliding_windows(226, 225, 200) == [(0, 225), (200, 226)]


def test_an_empty_document_has_one_window() -> None:
    assert sliding_windows(0, 225, 200) == [(0, 0)]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), window_and_stride, st.integers(1, 50))
def test_fitting_to_the_room_loses_no_token(unit_lengths: list[int], sizes: tuple[int, int], room: int) -> None:
    bounds = np.unique(np.concatenate([[0], np.cumsum(unit_lengths)]))
    if len(bounds) == 1:
        bounds = np.array([0, 0])
    ranges = token_windows(bounds, "word", *sizes, room)
    assert {token for start, end in ranges for token in range(start, end)} == set(range(bounds[-1]))
    assert all(0 <= end - start <= room for start, end in ranges)
    assert ranges == sorted(ranges)


@given(st.integers(0, 500), window_and_stride, st.integers(1, 60))
def test_token_windows_shrink_to_the_room(count: int, sizes: tuple[int, int], room: int) -> None:
    ranges = token_windows(np.arange(count + 1), "token", *sizes, room)
    assert {token for start, end in ranges for token in range(start, end)} == set(range(count))
    assert all(end - start <= min(room, sizes[0]) for start, end in ranges)


def test_what_the_next_window_covers_is_not_repeated() -> None:
    assert fit_to_room([(0, 10), (5, 15)], room=6) == [(0, 6), (5, 11), (11, 15)]
    assert fit_to_room([(0, 10), (10, 12)], room=4) == [(0, 4), (4, 8), (8, 10), (10, 12)]


@given(st.integers(1, 200), st.integers(1, 40), st.integers(-5, 5), st.text(max_size=20))
def test_a_sample_has_the_first_and_the_last_and_keeps_the_order(count: int, limit: int, seed: int, text: str) -> None:
    kept = select_passages(count, limit, "first_last_sample", text, seed)
    assert kept == sorted(set(kept))
    assert len(kept) == min(count, limit)
    assert kept[0] == 0
    assert limit == 1 or kept[-1] == count - 1
    assert kept == select_passages(count, limit, "first_last_sample", text, seed)


def test_the_sample_is_uniform_over_documents() -> None:
    times = np.zeros(20)
    for document in range(3000):
        times[select_passages(20, 5, "first_last_sample", f"document {document}", 42)] += 1
    assert times[0] == times[-1] == 3000
    # 3 of the 18 middle ones: 500 of 3000 times each; five standard deviations are 102.
    assert abs(times[1:-1] - 500).max() < 102


def test_the_sample_hangs_on_document_and_seed() -> None:
    def sample(text: str, seed: int) -> list[int]:
        return select_passages(100, 16, "first_last_sample", text, seed)

    assert sample("a", 1) != sample("b", 1)
    assert sample("a", 1) != sample("a", 2)
    # The one thing no machine and no version may change: a saved model's scores hang on it.
    assert sample("a", 42) == [0, 6, 9, 13, 14, 19, 35, 40, 42, 47, 69, 79, 92, 94, 95, 99]


def test_first_keeps_the_beginning() -> None:
    assert select_passages(40, 32, "first", "", 0) == list(range(32))
    assert select_passages(40, None, "first", "", 0) == list(range(40))


def test_tokens_of_white_space_go_with_the_word_that_follows() -> None:
    # "ab cd" as the tokens "ab", " ", "c", "d".
    bounds = unit_bounds("ab cd", "word", np.array([2, 3, 4, 5]), 0)
    assert bounds.tolist() == [0, 1, 4]


def test_words_without_tokens_are_no_units() -> None:
    bounds = unit_bounds("ab \x00 cd", "word", np.array([2, 7]), 0)
    assert bounds.tolist() == [0, 1, 2]
