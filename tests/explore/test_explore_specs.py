"""Sliders are read from signatures, and a moved slider gives a spec that builds to what was asked."""

import inspect

import pytest

from milepost.encoding import parts_of
from milepost.encodings import NAMES, SPACE
from milepost.explore.arguments import SCALINGS, TYPED, controls
from milepost.explore.specs import SIZES, built, moved
from milepost.spec import build


def known(spec):
    return {control.name: control for control in controls(built(spec))}


@pytest.mark.parametrize("name", [*NAMES, *SPACE])
def test_every_argument_has_a_control_or_is_typed(name):
    enc = built(name)
    arguments = [
        word
        for word, p in inspect.signature(type(enc)).parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    shown = {path.partition(".")[2] for path in known(name)}
    tuples = {word for word in arguments if isinstance(getattr(enc, word), tuple)}
    assert set(arguments) - shown <= TYPED | tuples


@pytest.mark.parametrize("name", [*NAMES, *SPACE])
def test_every_slider_and_list_can_be_moved_to_its_ends(name):
    """Each alone. What the encoding itself refuses is a sentence, and nothing else is raised."""
    for path, control in known(name).items():
        values = control.options if control.kind == "choice" else (f"{control.low:g}", f"{control.high:g}")
        worked = 0
        for end in values:
            value = str(float(end)) if not control.whole and control.kind == "number" else end
            try:
                spec = moved(name, {path: value})
                got = built(spec)
            except ValueError as refused:
                assert "\n" not in str(refused)
                continue
            worked += 1
            attribute = getattr(got, path.split(".")[1])
            if control.kind == "number":
                assert attribute == float(value)
            elif not path.endswith("scaling"):
                assert str(attribute) == value
        assert worked, path


def test_a_moved_slider_keeps_the_rest_of_the_spec():
    spec = moved("rope(base=500.0) + alibi", {"0.scaling": "yarn", "1.heads": "4", "0.pairing": "interleaved"})
    assert spec == "rope(base=500.0, pairing='interleaved', scaling=yarn(factor=4.0, trained=2048)) + alibi(heads=4)"
    first, second = parts_of(built(spec))
    assert (first.base, first.pairing, repr(first.scaling), second.heads) == (
        500.0,
        "interleaved",
        "yarn(factor=4.0, trained=2048)",
        4,
    )
    assert moved(spec, {"0.scaling.factor": "8"}).count("factor=8.0") == 1
    assert moved(spec, {"0.scaling": "linear", "0.scaling.beta_fast": "8"}) == moved(
        spec, {"0.scaling": "linear"}
    )  # of the one that was replaced
    assert moved("rope", {}) == "rope"


def test_the_scalings_of_the_list_are_there_and_fit_a_plain_rope():
    for name in SCALINGS:
        enc = built(moved("rope", {"0.scaling": name}))
        assert (enc.scaling is None) == (name == "none")
        assert name == "none" or known(repr(enc))["0.scaling"].value == name


def test_sizes_that_a_spec_leaves_open_are_the_page_s():
    assert repr(built("deberta")) == repr(build("deberta", **SIZES))
    assert known("rope")["0.head_dim"].value == 64 and known("rope")["0.head_dim"].label == "head_dim"
    assert known("rope + alibi")["1.heads"].label == "alibi.heads"


def test_a_number_past_the_slider_is_for_the_package_to_judge():
    assert built(moved("rope", {"0.base": "1e12"})).base == 1e12
    slider = known("rope(base=1000000000000.0)")["0.base"]
    assert slider.low <= slider.value <= slider.high
