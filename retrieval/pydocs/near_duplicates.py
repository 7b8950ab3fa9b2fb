"""Near-duplicate texts: short ones by their words, long ones by the five-word sequences that they share."""

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

SEQUENCE = 5
"""Words in a sequence."""

SAMPLED = 8
"""One sequence in so many is compared; which ones depends on their words alone."""


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
    """Positions of pairs of word sets whose overlap (words in both / words in either) is at least `least`.

    >>> list(similar_pairs([content_words("sort the list"), content_words("sort the lists"), frozenset()], 0.5))
    [(0, 1)]
    """
    frequency = Counter(word for words in texts for word in words)
    seen: dict[str, list[int]] = defaultdict(list)
    for position, words in enumerate(texts):
        rare_first = sorted(words, key=lambda word: (frequency[word], word))
        # Two such sets share at least one of their rarest words; the others are too few to reach `least`.
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
    """Positions of texts, given as words, that mostly repeat an earlier text that is not a repetition itself.

    A text is a repetition if at least the share `least` of its five-word sequences, or of the other's, is in both.

    >>> repeated_texts([list("abcdefghijklmnopqrstuvwxyz") * 2, list("abcdefghijklmnopqrstuvwxyz")], 0.5)
    {1}
    """
    sequences = [_sampled_sequences(words) for words in texts]
    holders: dict[int, list[int]] = defaultdict(list)
    repeated = set()
    for position, own in enumerate(sequences):
        shared = Counter(other for sequence in own for other in holders[sequence])
        if any(count >= least * min(len(own), len(sequences[other])) for other, count in shared.items()):
            repeated.add(position)
            continue
        for sequence in own:
            holders[sequence].append(position)
    return repeated


def _sampled_sequences(words: Sequence[str]) -> set[int]:
    hashes = (zlib.crc32(" ".join(words[i : i + SEQUENCE]).encode()) for i in range(len(words) - SEQUENCE + 1))
    return {value for value in hashes if value % SAMPLED == 0}
