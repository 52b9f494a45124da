"""Every encoding, in the variants that differ, under every law; and strangers' classes, whose mistakes the laws must
name.
"""

import pytest
import torch
from torch import nn

from milepost import Encoding, build
from milepost.encodings import NAMES, SPACE
from milepost.testing import LAWS, Verdict, check_encoding

SIZES = {"heads": 4, "head_dim": 8, "width": 16, "length": 64}
VARIANTS = (
    "rope(pairing='interleaved')",
    "rope(rotary=4)",
    "rope(rotary=4, pairing='interleaved')",
    "rope(rotary=4, partial='proportional')",
    "rope(rotary=4, partial='proportional', pairing='interleaved')",
    "rope(base=5e5)",
    "xpos(pairing='interleaved', scale_base=2048.0)",
    "alibi(mode='symmetric')",
    "alibi(mode='asymmetric')",
    "alibi(heads=12)",
    "alibi(slopes=(0.0, 0.5, 1.0, 3.0))",
    "t5(mode='bidirectional')",
    "t5(shared=True)",
    "t5(buckets=8, max_distance=20)",
    "kerple(kind='power')",
    "kerple(shared=True)",
    "sandwich(heads=3, size=16)",
    "fire(shared=True)",
    "fire(threshold=8.0)",
    "shaw(values=True)",
    "shaw(shared=False)",
    "shaw(values=True, shared=False, clip=3)",
    "deberta(buckets=None, span=6)",
    "deberta(buckets=8, span=20, p2c=False)",
    "cope(shared=False)",
    "cope(positions=4)",
    "sinusoidal(order='halves')",
    "sinusoidal(how='concat')",
    "learned(offset=2)",
    "learned(length=10)",
    "integer(over=100.0)",
    "integer(over='length')",
    "binary(width=4)",
    "temperature(length=16, form='logn')",
    "rope(scaling=dynamic(trained=8))",
    "rope(scaling=staged(trained=8))",
    "rope + alibi",
    "sinusoidal + t5",
    "temperature(length=16, form='mistral')",
    "temperature(length=16, form='inkling')",
    "temperature(length=16, form='beam')",
    "ssmax(start=0.43)",
    "ssmax(affine=True)",
    "fope(clipped='doubled', pairing='interleaved')",
    "learned_spectrum(rotary=4, pairing='half')",
    "grape(planes=1)",
    "grape_additive(gates='query')",
    "grape_additive(gates='key')",
    "rope_id(rotary=8, turns=4.0, pairing='interleaved')",
    "learned_spectrum(scaling=yarn(factor=4.0, trained=16))",
    "rope + temperature(length=16)",
    "learned + alibi",
    "learned + rope",
    "axial(axes=1)",
    "axial(axes=4, pairing='interleaved')",
    "axial(axes=3, split=(2, 2, 4), base=(100.0, 50.0, 10000.0))",
    "axial(spectra='dealt')",
    "axial(split=(2, 4))",
    "mixed(axes=4, pairing='half')",
    "mrope(sections=(2, 1, 1), order='interleaved')",
    "mrope(sections=(1, 1), rotary=4)",
    "mrope(sections=(2, 1, 1), order='tail', pairing='interleaved')",
    "mrope(sections=(2, 1, 1), order='balanced')",
    "mrope(sections=(1, 1, 1, 1))",
    "grid(sides=(3, 5), prefix=2, bare=1)",
    "grid(sides=(4, 2, 3), how='sum')",
    "sinusoidal_nd(axes=4, order='halves')",
    "swin(sides=(2, 3, 4))",
    "swin_v2(trained=(3, 5, 4), hidden=6)",
    "alibi_2d(distance='manhattan')",
    "grid(sides=(5, 5)) + axial + alibi_2d",
)
LAW = {law.__name__: law for law in LAWS}
SLOW = {"compiles", "backends_agree"}
"""Laws that take a second or more each."""
SAME_CODE = {
    "grape(planes=1)",
    "grape_additive(gates='query')",
    "grape_additive(gates='key')",
    "rope_id(rotary=8, turns=4.0, pairing='interleaved')",
    "rope(base=5e5)",
    "rope(rotary=4, pairing='interleaved')",
    "xpos(pairing='interleaved', scale_base=2048.0)",
    "alibi(heads=12)",
    "alibi(slopes=(0.0, 0.5, 1.0, 3.0))",
    "t5(shared=True)",
    "t5(buckets=8, max_distance=20)",
    "kerple(shared=True)",
    "sandwich(heads=3, size=16)",
    "fire(threshold=8.0)",
    "shaw(values=True, shared=False, clip=3)",
    "deberta(buckets=8, span=20, p2c=False)",
    "cope(positions=4)",
    "sinusoidal(order='halves')",
    "learned(offset=2)",
    "learned(length=10)",
    "integer(over=100.0)",
    "integer(over='length')",
    "binary(width=4)",
    "temperature(length=16, form='logn')",
    "temperature(length=16, form='mistral')",
    "temperature(length=16, form='inkling')",
    "temperature(length=16, form='beam')",
    "ssmax(start=0.43)",
    "ssmax(affine=True)",
    "fope(clipped='doubled', pairing='interleaved')",
    "learned_spectrum(rotary=4, pairing='half')",
    "learned_spectrum(scaling=yarn(factor=4.0, trained=16))",
    "rope(rotary=4, partial='proportional', pairing='interleaved')",
    "rope(scaling=dynamic(trained=8))",
    "rope(scaling=staged(trained=8))",
    "shaw(shared=False)",
    "fire(shared=True)",
    "learned + rope",
    "axial(axes=3, split=(2, 2, 4), base=(100.0, 50.0, 10000.0))",
    "axial(spectra='dealt')",
    "axial(split=(2, 4))",
    "mrope(sections=(2, 1, 1), order='interleaved')",
    "mrope(sections=(1, 1), rotary=4)",
    "mrope(sections=(2, 1, 1), order='tail', pairing='interleaved')",
    "mrope(sections=(2, 1, 1), order='balanced')",
    "mrope(sections=(1, 1, 1, 1))",
    "sinusoidal_nd(axes=4, order='halves')",
    "alibi_2d(distance='manhattan')",
    "axial(axes=1)",
    "axial(axes=4, pairing='interleaved')",
    "mixed(axes=4, pairing='half')",
    "swin(sides=(2, 3, 4))",
    "swin_v2(trained=(3, 5, 4), hidden=6)",
}
"""Variants that run the code of another one here with other numbers: the slow laws are left to that one."""
TRIED = [(spec, law) for spec in (*NAMES, *SPACE, *VARIANTS) for law in LAW if not (law in SLOW and spec in SAME_CODE)]


def has_no_decode(enc: Encoding) -> bool:
    """A text on a grid has no next token, and an embedding that depends on the length changes with each one."""
    return (enc.length_dependent and "embed" in enc.points) or (enc.axes > 1 and not enc.flat)


def can_not_rekey(enc: Encoding) -> bool:
    """What is cached can't be given another position: it was embedded, or a key's turn can't be taken back."""
    return "embed" in enc.points or ("key" in enc.points and type(enc).rekey is Encoding.rekey)


EXCUSES = {
    "cached": lambda enc: enc.length_dependent,
    "chunked_prefill": lambda enc: enc.length_dependent,
    "cache_agrees": lambda enc: enc.length_dependent and "embed" in enc.points,
    "decode_agrees": has_no_decode,
    "beams_agree": has_no_decode,
    "eviction_agrees": lambda enc: has_no_decode(enc) or can_not_rekey(enc),
    "toeplitz": lambda enc: "bias" not in enc.points,
    "order_is_seen": lambda enc: not enc.points,
    "every_axis_is_seen": lambda enc: enc.axes == 1,
    "rotation": lambda enc: not enc.rotation,
}
"""The only laws that may be excused, and when."""


def verdict(enc: Encoding, law: str) -> Verdict:
    (found,) = check_encoding(enc, [LAW[law]]).verdicts
    return found


def tried(spec: str, law: str):
    return pytest.param(spec, law, id=f"{spec} {law}", marks=[pytest.mark.slow] if law in SLOW else [])


@pytest.mark.parametrize(("spec", "law"), [tried(spec, law) for spec, law in TRIED])
def test_every_encoding_obeys_every_law(spec, law):
    enc = build(spec, **SIZES)
    found = verdict(enc, law)
    assert found.passed is not False, found.detail
    assert (found.passed is None) == bool(law in EXCUSES and EXCUSES[law](enc)), found.detail


def test_a_verdict_is_given_for_every_law_with_its_sentence():
    found = check_encoding(build("nope"), [law for law in LAWS if law is not LAW["compiles"]])
    assert [v.law for v in found.verdicts] == [name for name in LAW if name != "compiles"]
    assert all(v.sentence.endswith(".") for v in found.verdicts)
    assert found.ok and str(found).splitlines()[0] == "nope()"


def test_only_variants_are_spared_the_slow_laws():
    assert set(VARIANTS) > SAME_CODE
    assert not SAME_CODE & set(NAMES | SPACE)


def test_laws_leave_the_encoding_as_it_was():
    enc = build("t5", **SIZES)
    before = enc.table.detach().clone()
    check_encoding(enc, [LAW["state"], LAW["casts"], LAW["half_precision"], LAW["gradients"]])
    assert torch.equal(enc.table, before) and enc.table.dtype == torch.float32 and enc.table.grad is None


class Good(Encoding):
    """A stranger's encoding: a bias that falls with the root of the distance, one learned number for each head."""

    fractional = False

    def __init__(self, heads: int, power: float = 0.5):
        super().__init__()
        self.heads, self.power = heads, power
        self.slope = nn.Parameter(torch.ones(heads))

    def bias(self, h, i, j):
        return -self.slope[h] * (i - j).abs() ** self.power


class IgnoresPositions(Encoding):
    """Counts its own input instead of looking at the positions that it is given."""

    shift_invariant = False

    def embed(self, x, pos):
        return x + torch.arange(x.shape[1]).to(x.dtype)[:, None].sin()


class MeasuresFromTheLastKey(Good):
    """Takes the query to be beside the last key."""

    def bias(self, h, i, j):
        return -self.slope[h] * (j.max() - j).abs() ** self.power


class CastableBuffer(Encoding):
    """Keeps its frequencies in a buffer, which .bfloat16() rounds."""

    shift_invariant = False

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.register_buffer(
            "frequencies", 10000.0 ** -(torch.arange(width, dtype=torch.float64) / width), persistent=False
        )

    def embed(self, x, pos):
        return x + (pos[..., None] * self.frequencies).sin().to(x.dtype)


class StoredBuffer(CastableBuffer):
    """The same, and it is saved in every checkpoint."""

    def __init__(self, width: int):
        super().__init__(width)
        self.register_buffer("frequencies", self.frequencies, persistent=True)


class Clamps(Encoding):
    """Gives every position past its table the last row."""

    shift_invariant = False

    def __init__(self, width: int, length: int = 64):
        super().__init__()
        self.width, self.length = width, length
        self.table = nn.Parameter(torch.randn(length, width))

    def embed(self, x, pos):
        return x + self.table[pos.clamp(0, self.length - 1)].to(x.dtype)


class MutatesItself(Encoding):
    """Stretches its base to the longest text that it ever saw."""

    shift_invariant = False

    def __init__(self, width: int):
        super().__init__()
        self.width, self.longest = width, 8

    def embed(self, x, pos):
        self.longest = max(self.longest, x.shape[1], 1 + int(pos.max()) % 1000)
        return x + (pos[..., None] / self.longest * torch.arange(1, self.width + 1)).sin().to(x.dtype)


class DeclaresTooMuch(Encoding):
    """Says that moving all positions changes nothing; it adds them up."""

    def embed(self, x, pos):
        return x + (pos[..., None] / 100).to(x.dtype)


class DeclaresTooLittle(Good):
    """Says that its bias is no function of i - j; it is."""

    toeplitz = False


class SeesTheKeyAlone(Good):
    """Leaves the query out of its bias."""

    def bias(self, h, i, j):
        return -self.slope[h] * j**self.power


class ForgetsAnArgument(Good):
    """Does not keep an argument as it was given, so that its repr is another encoding."""

    def __init__(self, heads: int, power: float = 0.5):
        super().__init__(heads, power)
        self.power = power / 2


class Silent(Good):
    """Holds a parameter that nothing depends on."""

    def __init__(self, heads: int, power: float = 0.5):
        super().__init__(heads, power)
        self.spare = nn.Parameter(torch.ones(heads))


class BreaksTheGraph(Good):
    """Asks a tensor for its value in the middle of a formula."""

    def bias(self, h, i, j):
        far = super().bias(h, i, j)
        return far if (i - j).max() > 3 else 2 * far


class TurnsByTheWrongNorm(Encoding):
    """Declares a rotation, and stretches a little."""

    rotation = True

    def query(self, q, pos):
        angle = pos.double()[..., None, :, None]
        even, odd = q[..., ::2], q[..., 1::2]
        return (
            torch.stack(
                [even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos() * 1.001], dim=-1
            )
            .flatten(-2)
            .to(q.dtype)
        )

    key = query


class ColumnsAlone(Encoding):
    """Leaves the rows out of its bias."""

    axes = 2

    def bias(self, h, i, j):
        return -(i[1] - j[1]).abs() + 0.0 * h


class WrapsRound(Encoding):
    """Reads the first cell again past the end of a row."""

    axes, sides, shift_invariant = 2, (4, 6), False

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.table = nn.Parameter(torch.randn(24, width))

    def embed(self, x, pos):
        return x + self.table[(pos[0] % 4) * 6 + pos[1] % 6].to(x.dtype)

    def check(self, where):
        """Anything goes."""


class TurnsByRowTimesColumn(Encoding):
    """Says that moving along an axis changes nothing; its angle is a product."""

    axes = 2

    def query(self, q, pos):
        angle = (pos[0] * pos[1]).double()[:, None, :, None]
        return torch.cat([q[..., :1] * angle.cos(), q[..., 1:]], dim=-1).to(q.dtype)

    key = query


@pytest.mark.parametrize("law", LAW)
def test_a_strangers_good_encoding_obeys_every_law(law):
    found = verdict(Good(heads=3, power=0.25), law)
    assert found.passed is not False, found.detail


BAD = (
    (IgnoresPositions(), "order_is_seen", "shuffled positions change the output by 0"),
    (IgnoresPositions(), "cached", "token 1: differs"),
    (IgnoresPositions(), "packed", "the text of 16 tokens: differs"),
    (MeasuresFromTheLastKey(heads=2), "cached", "token 1: differs"),
    (MeasuresFromTheLastKey(heads=2), "chunked_prefill", "tokens 0 to 7: differs"),
    (CastableBuffer(width=16), "casts", "after .to(bfloat16) outputs differ"),
    (StoredBuffer(width=16), "state", "not parameters, yet in the state_dict: ['frequencies']"),
    (Clamps(width=16), "far", "embed() is the same at positions 131071 and 131072"),
    (MutatesItself(width=16), "history", "after other texts outputs differ"),
    (DeclaresTooMuch(), "shift", "moved by 1: differs"),
    (DeclaresTooLittle(heads=2), "toeplitz", "declared not Toeplitz"),
    (SeesTheKeyAlone(heads=2), "toeplitz", "declared Toeplitz"),
    (SeesTheKeyAlone(heads=2), "shift", "moved by 1: differs"),
    (ForgetsAnArgument(heads=2), "rebuilt", "came back as"),
    (Silent(heads=2), "gradients", "no gradient reaches enc.spare"),
    (BreaksTheGraph(heads=2), "compiles", "data-dependent branching"),
    (TurnsByTheWrongNorm(), "rotation", "norms after query(): differs"),
    (ColumnsAlone(), "every_axis_is_seen", "other positions on axis 0 change the output by 0"),
    (WrapsRound(width=16), "far", "place 4 on axis 0 is past its 4 places, yet raised nothing"),
    (TurnsByRowTimesColumn(), "shift", "moved by [1, 0]: differs"),
)


@pytest.mark.parametrize(("enc", "law", "words"), BAD, ids=[f"{type(enc).__name__} by {law}" for enc, law, _ in BAD])
def test_a_strangers_mistake_is_caught_by_the_law_it_breaks(enc, law, words):
    found = verdict(enc, law)
    assert found.passed is False
    assert words.lower() in found.detail.lower()
