"""`Gains`: what each grade of the judgments counts in the measures, and which grades are taken out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import HIGHEST_GRADE, Qrels, Run, whole_number

ByGrade: TypeAlias = Mapping[int, int | None]
"""grade -> gain; None takes documents of this grade out"""

OUT = "out"

LOWEST_IS_BEST = ("cranfield",)
"""Collections of ir_datasets whose grades are codes: the best is 1, and the weakest the highest."""


@dataclass(frozen=True)
class Gains:
    """The gain of each grade. Grades that are not named keep their number; with `binary`, all gains above 0 become 1.

    >>> qrels = {"1": {"a": 1, "b": 4, "c": -1}}
    >>> Gains.of("1=4,4=1").judge(qrels)
    {'1': {'a': 4, 'b': 1, 'c': -1}}
    >>> Gains.of("-1=out", binary=True).judge(qrels)
    {'1': {'a': 1, 'b': 1}}
    """

    by_grade: ByGrade = field(default_factory=dict)
    binary: bool = False

    @classmethod
    def of(cls, text: str | None, binary: bool = False) -> "Gains":
        """Read `"1=4,2=3,3=2,4=1"`; `"-1=out"` takes the documents of a grade out of judgments and runs."""
        by_grade: dict[int, int | None] = {}
        words = [] if text is None else re.split(r"[,\s]+", text.strip())
        for word in words:
            left, _, right = word.partition("=")
            grade, gain = whole_number(left), whole_number(right)
            if grade is None or (right != OUT and (gain is None or not 0 <= gain <= HIGHEST_GRADE)):
                raise InputError(
                    f"'{word[:50]}' is not a grade and its gain; write GRADE=GAIN, such as 1=4,2=3, with a gain of "
                    f"0 or more, or GRADE={OUT}."
                )
            if grade in by_grade:
                raise InputError(f"grade {grade} has two gains; give one.")
            by_grade[grade] = gain
        return cls(by_grade, binary)

    def check_none_out(self) -> None:
        """Refuse to take documents out, where runs are made and not only measured."""
        if self.takes_out:
            raise InputError(
                f"'{OUT}' takes documents out of finished runs, to measure these with docparade evaluate or analyze; "
                "here, give the grade a gain."
            )

    def judge(self, qrels: Qrels) -> Qrels:
        """The judgments that measures count; refuses a grade above 0 whose gain nobody named, unless all count 1."""
        counted = self.regrade(qrels)
        if self.binary:
            return {query: {document: min(gain, 1) for document, gain in of.items()} for query, of in counted.items()}
        found = {grade for grades in qrels.values() for grade in grades.values() if grade > 0}
        if self.by_grade and (missing := sorted(found - self.by_grade.keys())):
            raise InputError(f"gains leave out grade {missing[0]}, which the judgments have; add {missing[0]}=GAIN.")
        return counted

    def regrade(self, qrels: Qrels) -> Qrels:
        """The judgments with the named gains in place of their grades, not yet binary."""
        return {
            query: {
                document: gain
                for document, grade in grades.items()
                if (gain := self.by_grade.get(grade, grade)) is not None
            }
            for query, grades in qrels.items()
        }

    def rank(self, run: Run, qrels: Qrels) -> Run:
        """The run without the documents that are taken out; `qrels` are the judgments with their own grades.

        >>> Gains.of("-1=out").rank({"1": {"a": 2.0, "b": 1.0}}, {"1": {"a": -1}})
        {'1': {'b': 1.0}}
        """
        if not self.takes_out:
            return run
        out = {grade for grade, gain in self.by_grade.items() if gain is None}
        return {
            query: {d: score for d, score in scores.items() if qrels.get(query, {}).get(d) not in out}
            for query, scores in run.items()
        }

    @property
    def takes_out(self) -> bool:
        """Whether documents of some grade are taken out."""
        return None in self.by_grade.values()

    def misread(self, collection: str) -> bool:
        """Whether a collection's grades are codes that are upside down as gains, and nothing is named for them."""
        return collection in LOWEST_IS_BEST and not self.binary and not self.by_grade
