"""The laws: what every encoding must obey, whatever its formula. Public, for your own encodings too.

    from milepost.testing import check_encoding
    assert check_encoding(MyEncoding(heads=8)).ok

Each law is a function that takes an encoding and raises: `Broken` with the numbers, or `Excused` with the reason why
it does not apply. Parameters are randomised first (a bias of zeros passes everything), and positions are the ones that
matter, up to 1048575, as far as the encoding goes. Laws see wrong positions; a wrong formula needs an oracle beside
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from milepost.draw import Document, Section, Table
from milepost.encoding import Encoding
from milepost.testing.declarations import every_axis_is_seen, order_is_seen, rotation, shift, toeplitz
from milepost.testing.engine import (
    any_storage,
    backends_agree,
    beams_agree,
    cache_agrees,
    decode_agrees,
    eviction_agrees,
)
from milepost.testing.layer import Broken, Excused, Layer, randomised_copy
from milepost.testing.layouts import cached, causal, chunked_prefill, packed, padded, sharded
from milepost.testing.position_ids import Collate, difference, fits, golden_positions, plain
from milepost.testing.precision import gradients, half_precision, refuses_half_positions
from milepost.testing.state import casts, compiles, far, history, rebuilt, state

__all__ = [
    "LAWS", "Broken", "Excused", "Layer", "Verdict", "Verdicts", "check_encoding", "check_positions",
    "golden_positions", "randomised_copy",
]  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """One law's answer: ``passed`` is None where the law is excused."""

    law: str
    sentence: str
    passed: bool | None
    detail: str

    @property
    def word(self) -> str:
        """PASS, FAIL or excused."""
        return {True: "PASS", False: "FAIL", None: "excused"}[self.passed]

    def row(self) -> dict[str, str]:
        """As plain data."""
        return {"law": self.law, "sentence": self.sentence, "result": self.word, "detail": self.detail}


@dataclass(frozen=True)
class Verdicts:
    """The answers of all laws for one encoding."""

    encoding: str
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """No law is broken."""
        return all(v.passed is not False for v in self.verdicts)

    def document(self) -> Document:
        """A row for each law."""
        rows = [
            [verdict.word, verdict.law, f"{verdict.sentence} {verdict.detail}".strip()] for verdict in self.verdicts
        ]
        table = Table(["", "law", "sentence"], rows, self.encoding)
        answer = f"{self.encoding}: {'every law holds' if self.ok else 'a law is broken'}"
        return Document("", answer, ok=self.ok, terminal_tables=[table], inline=[Section("", tables=[table])])

    def in_a_line(self) -> str:
        """How many laws hold and how many do not apply, where none is broken."""
        passed, excused = (sum(verdict.passed is answer for verdict in self.verdicts) for answer in (True, None))
        return f"{self.encoding}: {passed} laws hold, {excused} do not apply"

    def _repr_html_(self) -> str:
        """How it looks in a notebook."""
        return self.document().fragment()

    def __str__(self) -> str:
        return "\n".join(
            [self.encoding, *(f"  {v.word:8}{v.law:22}{v.sentence} {v.detail}".rstrip() for v in self.verdicts)]
        )


def check_encoding(enc: Encoding, laws: Sequence[Callable[[Encoding], None]] | None = None) -> Verdicts:
    """Every law (or those given) on a copy of ``enc`` in float64 with randomised parameters. Never raises for a broken
    law.
    """
    verdicts = []
    for law in laws or LAWS:
        passed: bool | None = True
        detail = ""
        try:
            law(randomised_copy(enc))
        except Excused as reason:
            passed, detail = None, f"[{reason}]"
        except Broken as broken:
            passed, detail = False, f"[{broken}]"
        except Exception as error:  # an encoding that raises where it should not has broken the law, too
            passed, detail = False, f"[{type(error).__name__}: {error}]"
        verdicts.append(Verdict(law.__name__, (law.__doc__ or "").strip().splitlines()[0], passed, detail))
    return Verdicts(repr(enc), tuple(verdicts))


LAWS: tuple[Callable[[Encoding], None], ...] = (
    cached,
    chunked_prefill,
    packed,
    padded,
    sharded,
    backends_agree,
    any_storage,
    cache_agrees,
    decode_agrees,
    beams_agree,
    eviction_agrees,
    causal,
    shift,
    toeplitz,
    order_is_seen,
    every_axis_is_seen,
    rotation,
    half_precision,
    refuses_half_positions,
    gradients,
    rebuilt,
    state,
    casts,
    history,
    far,
    compiles,
)
"""Every law, in the order in which `check_encoding` tries them."""


def check_positions(collate: Collate, *, name: str = "collate") -> Verdicts:
    """Try a stranger's collator or sharding against the golden position ids: see `milepost.testing.position_ids`.

    ``collate`` gets the name of a layout and what is given, and returns the ids, or None where it has no such layout.
    """
    verdicts = []
    for case in golden_positions():
        sentence = f"{case['given']}"
        try:
            given = plain(collate(case["layout"], dict(case["given"])))
        except Exception as error:  # a stranger's code may raise anything, and the other layouts are still to be tried
            verdicts.append(Verdict(case["layout"], sentence, False, f"{type(error).__name__}: {error}"))
            continue
        if given is None:
            verdicts.append(Verdict(case["layout"], sentence, None, "not tried: no ids were given"))
            continue
        wrong = difference(case["ids"], fits(case["ids"], given))
        verdicts.append(Verdict(case["layout"], sentence, not wrong, wrong))
    return Verdicts(name, tuple(verdicts))
