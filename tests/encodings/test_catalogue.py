"""The catalogue, read from source without torch, against the imported classes."""

import inspect
import re
from pathlib import Path

import pytest

import milepost.encodings
import milepost.maps
from milepost import Encoding, build
from milepost.encoding import PROPERTIES
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import DECLARED, FIELDS, HOOKS, page, pages
from milepost.maps import NAMES as MAPS
from milepost.spec import find_class

SIZES = {"heads": 4, "head_dim": 8, "width": 16, "length": 32}
HOMES = {"encodings": Path(milepost.encodings.__file__).parent, "maps": Path(milepost.maps.__file__).parent}
DEFAULT = (
    {name: name for name in NAMES | SPACE}
    | {name: f"{name}(rope=rope)" for name in MAPS}
    | {"dual_chunk": "dual_chunk(rope=rope, chunk=24, local=4)"}
)
"""The shortest text that builds each."""
LONGEST = 130
every = pytest.mark.parametrize("name", [*NAMES, *SPACE, *MAPS])


def test_every_page_is_listed_and_every_name_has_its_page():
    assert {file.stem for file in HOMES["encodings"].glob("*.py")} - {"__init__", "catalogue", "resize_table"} == set(
        NAMES | SPACE
    )
    assert {file.stem for file in HOMES["maps"].glob("*.py")} - {"__init__", "mapped"} == set(MAPS)
    assert [p.name for p in pages()] == [*NAMES, *SPACE]
    assert len(set(NAMES) | set(SPACE) | set(MAPS)) == len(NAMES) + len(SPACE) + len(MAPS)


def test_the_hooks_and_the_silent_properties_are_those_of_the_base_class():
    assert all(callable(vars(Encoding)[hook]) for hook in HOOKS)
    assert {word: getattr(Encoding, word) for word in DECLARED} == DECLARED
    assert set(PROPERTIES) <= {*DECLARED, "cacheable", "content_dependent"}


@every
def test_points_are_the_hooks_that_the_class_overrides(name):
    cls = find_class(name)
    assert page(name).points == tuple(hook for hook in HOOKS if getattr(cls, hook) is not getattr(Encoding, hook))
    assert set(build(DEFAULT[name], **SIZES).points) <= set(page(name).points)


@every
def test_properties_are_those_of_an_encoding_built_by_default(name):
    enc = build(DEFAULT[name], **SIZES)
    assert page(name).properties == {word: bool(getattr(enc, word)) for word in page(name).properties}
    assert enc.properties.items() <= page(name).properties.items()


@every
def test_arguments_and_defaults_are_those_of_the_constructor(name):
    known = [p for p in inspect.signature(find_class(name)).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    wanted = {p.name: "" if p.default is p.empty else repr(p.default) for p in known}
    assert page(name).arguments == wanted


@every
def test_the_class_is_the_one_in_the_list(name):
    assert page(name).cls == (NAMES | SPACE | MAPS)[name] == find_class(name).__name__


@every
def test_a_page_has_its_title_formula_reference_and_all_six_facts(name):
    p = page(name)
    assert p.title and p.formula.strip() and p.reference
    assert "\n" not in p.title and not p.title.endswith(".")
    assert set(p.facts) == set(FIELDS) and len(FIELDS) == 6
    assert all(p.facts.values())


@every
def test_a_page_s_reference_can_be_found(name):
    where = page(name).reference
    assert (
        re.search(r"arXiv:\d{4}\.\d{4,5}", where)
        or "kexue.fm/archives/" in where
        or name in ("integer", "binary")
        or re.search(r"transformers, models/\w+/modeling_\w+\.py", where)
    )


@every
def test_a_page_says_where_it_departs_from_the_paper(name):
    assert page(name).departure or name == "nope"


@every
def test_a_page_stays_short(name):
    assert (
        len((HOMES["maps" if name in MAPS else "encodings"] / f"{name}.py").read_text(encoding="utf-8").splitlines())
        < LONGEST
    )


@every
def test_a_row_is_plain_data(name):
    row = page(name).row()
    assert {"name", "cls", "title", "formula", "reference", "points", "properties", "arguments", "facts"} <= set(row)
    assert isinstance(row["points"], list)


def test_reading_a_page_twice_gives_the_same_object():
    assert page("rope") is page("rope")
