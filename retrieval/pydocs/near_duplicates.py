"""Texts that nearly repeat each other: short ones by their words, long ones by runs of words they share."""

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

RUN = 5
"""Words in a run."""

KEPT_RUNS = 8
"""One run in so many is looked at; which ones depends on their words alone."""


def content_words(text: str) -> frozenset[str]:
    """The words of a text, in lower case, each once.

    >>> sorted(content_words("Sort the list, in-place."))
    ['in', 'list', 'place', 'sort', 'the']
    """
    return frozenset(words_in_order(text).split())


def words_in_order(text: str) -> str:
    """The words of a text, in lower case and separated by single spaces, with a space at either end.

    >>> words_in_order("Sort the list, in-place.")
    ' sort the list in place '
    """
    words = re.findall(r"[^\W_]+", text.lower())
    return f" {' '.join(words)} "


def similar_pairs(texts: Sequence[frozenset[str]], least: float) -> Iterator[tuple[int, int]]:
    """Pairs of word sets whose overlap (words in both / words in either) is at least `least`, by position.

    >>> list(similar_pairs([content_words("sort the list"), content_words("sort the lists"), frozenset()], 0.5))
    [(0, 1)]
    """
    frequency = Counter(word for words in texts for word in words)
    seen: dict[str, list[int]] = defaultdict(list)
    for position, words in enumerate(texts):
        rare_first = sorted(words, key=lambda word: (frequency[word], word))
        # Sets that overlap so much share one of their rarest words: of all but so many that `least` could not be met.
        rarest = rare_first[: len(words) - math.ceil(least * len(words)) + 1]
        shortest, longest = least * len(words), len(words) / least
        for other in sorted({found for word in rarest for found in seen[word]}):
            if shortest <= len(texts[other]) <= longest:
                both = len(words & texts[other])
                if both >= least * (len(words) + len(texts[other]) - both):
                    yield other, position
        for word in rarest:
            seen[word].append(position)


def repeated_texts(texts: Sequence[Sequence[str]], least: float) -> set[int]:
    """Positions of texts, given as words, that mostly repeat an earlier one that is not itself left out.

    A text is a repetition if at least the share `least` of its runs of five words, or of the other's, is in both.

    >>> repeated_texts([list("abcdefghijklmnopqrstuvwxyz") * 2, list("abcdefghijklmnopqrstuvwxyz")], 0.5)
    {1}
    """
    runs = [_some_runs(words) for words in texts]
    holders: dict[int, list[int]] = defaultdict(list)
    repeated = set()
    for position, own in enumerate(runs):
        shared = Counter(other for run in own for other in holders[run])
        if any(count >= least * min(len(own), len(runs[other])) for other, count in shared.items()):
            repeated.add(position)
            continue
        for run in own:
            holders[run].append(position)
    return repeated


def _some_runs(words: Sequence[str]) -> set[int]:
    hashes = (zlib.crc32(" ".join(words[i : i + RUN]).encode()) for i in range(len(words) - RUN + 1))
    return {value for value in hashes if value % KEPT_RUNS == 0}
