"""What pairs are drawn, and that nothing but seed and number decides it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from support.training import world
from torch.utils.data import DataLoader

from docparade.retrieval import InputError, ranking
from docparade.trainer.data.pairs import EpochSampler, PairSampler, TrainingPair

WORLD = world()


def test_positives_were_judged_and_negatives_are_the_rest() -> None:
    sampler = WORLD.sampler()
    seen = {}
    for number in range(600):
        pair = sampler[number]
        assert (pair.number, len(pair.documents)) == (number, 2)
        seen.setdefault(pair.query, (set(), set()))
        seen[pair.query][0].add(pair.positive)
        seen[pair.query][1].add(pair.negative)
    for query, (positives, negatives) in seen.items():
        relevant = {document for document, grade in WORLD.qrels[query].items() if grade > 0}
        # Places 6 and 7 are not judged, and count as not relevant.
        assert positives == relevant
        assert negatives == set(WORLD.run[query]) - relevant
    assert seen.keys() == WORLD.queries.keys()


def test_queries_take_turns() -> None:
    sampler = WORLD.sampler()
    rounds = [[sampler[number].query for number in range(start, start + 5)] for start in range(0, 100, 5)]
    assert all(sorted(turn) == sorted(WORLD.queries) for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) > 10


def test_a_pair_depends_on_seed_and_number_alone() -> None:
    forward, backward = WORLD.sampler(), WORLD.sampler(pairs_per_epoch=99)
    numbers = list(range(40))
    expected = [forward[number] for number in numbers]
    assert [backward[number] for number in reversed(numbers)] == expected[::-1]
    loader = DataLoader(forward, batch_size=4, num_workers=2, sampler=numbers, collate_fn=list)
    assert [pair for batch in loader for pair in batch] == expected
    other = PairSampler(WORLD.run, WORLD.qrels, WORLD.queries, pairs_per_epoch=12, seed=8)
    assert [other[number] for number in numbers] != expected


def test_rank_windows() -> None:
    sampler = WORLD.sampler(negative_ranks=(4, 5), max_rank=6)
    for number in range(100):
        pair = sampler[number]
        order = ranking(WORLD.run[pair.query])
        assert 3 <= order.index(pair.negative) <= 4
        assert order.index(pair.positive) < 6
    # With the first three documents alone, place 2 is the only positive.
    assert {WORLD.sampler(max_rank=3)[number].positive[-2:] for number in range(50)} == {"d2"}


def test_several_negatives() -> None:
    for number in range(50):
        documents = WORLD.sampler(negatives=4)[number].documents
        assert len(documents) == len(set(documents)) == 5
    # Of the eight documents of a list, six are not relevant.
    assert len(set(WORLD.sampler(negatives=6)[0].documents)) == 7
    # There are only two in the window: they are drawn again.
    assert len(WORLD.sampler(negatives=4, negative_ranks=(7, 8))[0].documents) == 5


def test_queries_without_pairs(caplog: pytest.LogCaptureFixture) -> None:
    qrels = {"q0": WORLD.qrels["q0"], "q1": {"q1-d2": 0}}
    with pytest.raises(InputError, match="the 1 training queries"):
        PairSampler(WORLD.run, qrels, ["q1"], pairs_per_epoch=1, seed=0)
    with pytest.raises(InputError, match="ranks 100 to 200"):
        PairSampler(WORLD.run, qrels, ["q0"], pairs_per_epoch=1, seed=0, negative_ranks=(100, 200))
    assert PairSampler(WORLD.run, qrels, ["q0"], pairs_per_epoch=3, seed=0)[0].query == "q0"
    assert not caplog.text
    sampler = PairSampler(WORLD.run, qrels, ["q0", "q1", "q9"], pairs_per_epoch=3, seed=0)
    assert len(sampler) == 3
    assert {sampler[number].query for number in range(10)} == {"q0"}
    assert "2 of 3 training queries give no pairs" in caplog.text
    with pytest.raises(InputError, match="at least 1"):
        PairSampler(WORLD.run, qrels, ["q0"], pairs_per_epoch=0, seed=0)


@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 5))
def test_epochs_are_whole_steps_and_leave_no_pair_out(pairs: int, step: int, epochs: int) -> None:
    sampler = EpochSampler(pairs, step)
    assert next(iter(sampler)) == 0, "before Trainer sets one, it is the first epoch"
    numbers = []
    for epoch in range(epochs + 1):
        sampler.set_epoch(epoch)
        assert len(list(sampler)) == len(sampler)
        numbers += list(sampler)
    assert len(sampler) % step == 0
    assert pairs <= len(sampler) < pairs + step
    assert numbers == list(range(len(numbers)))


def test_length_grouping_keeps_pairs_and_brings_like_lengths_together() -> None:
    lengths = {number: (number * 7919) % 101 for number in range(1000)}
    sampler = EpochSampler(400, 4, lambda numbers: [lengths[number] for number in numbers])
    sampler.set_epoch(1)
    numbers = list(sampler)
    assert sorted(numbers) == list(range(400, 800))
    assert numbers == list(sampler)
    steps = [numbers[start : start + 4] for start in range(0, 400, 4)]
    spread = [max(lengths[n] for n in step) - min(lengths[n] for n in step) for step in steps]
    assert max(spread) <= 6
    # The steps of a block come in any order.
    longest = [max(lengths[n] for n in step) for step in steps[: sampler.STEPS_SORTED_TOGETHER]]
    assert longest not in (sorted(longest), sorted(longest, reverse=True))


def test_the_candidates_of_a_pair_begin_with_the_relevant_one() -> None:
    assert TrainingPair("q", "a", "b", ("c",)).documents == ("a", "b", "c")
