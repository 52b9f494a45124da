"""What the page refuses, it refuses in the reader's language: wrong values of every control, wrong specs, wrong
addresses."""

import json
import re
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from string import Formatter
from urllib.parse import urlencode

import pytest

import milepost.explore
from milepost.explore import specs
from milepost.explore.answer import file, view_query
from milepost.explore.arguments import SCALINGS
from milepost.explore.views import VIEWS
from milepost.explore.words import PageWords, refusals

CHINESE = re.compile(r"[\u4e00-\u9fff]")
PROSE = re.compile(r"\b(is|of|the|must|which|least|number|wants|and|or)\b")
"""English left in a sentence."""
PATH = Path(milepost.explore.__file__).parent / "words" / "refusals.zh.json"
WRONG = ("abc", "", "inf", "1.5", "0", "-1", "1", "3", "7", "1000000000")
TYPED = [
    "ropee",
    "zzzz",
    "rope(",
    "rope(10000.0)",
    "rope(base=1, base=2)",
    "1 + 2",
    "rope(base=open('x'))",
    "rope(bse=3.0)",
    "rope(zzzz=1)",
    "rope(base='x')",
    "rope(base=1e999)",
    "learned(length=64, width=64, offset=True)",
    "rope(scaling=yarnn(factor=2.0))",
    "rope(scaling=zzzz(factor=2.0))",
    "rope(scaling=yarn())",
    "a.b:C",
    "rope" * 200,
    " + ".join(["rope"] * 5),
    "rope(scaling=3)",
    "rope(rotary=3000000)",
    "rope(rotary=5)",
    "rope(scaling=llama3(factor=8.0, trained=10**30))",
    "rope(rotary=99999999999999999999)",
    "t5(heads=2, max_distance=3)",
    "temperature(form='logn', rate=0.5)",
    "ssmax(start=-1.0)",
    "fope(gain=-1.0)",
    "fope(key_heads=3)",
    "fope(length=6)",
    "grape(planes=99)",
    "rope_id(length=6)",
    "time_aware(base=3)",
    "grid(width=256, sides=(32, 32, 32, 32))",
    f"rope(base={'9' * 250})",
]
"""What a reader may type for an encoding."""
ODD = [
    ("zzzz", {}),
    ("code", {"zzzz": "1"}),
    ("code", {"encoding": "rope", "set.0.zzzz": "1"}),
    ("code", {"width": "abc"}),
    ("permute", {"sentence": "a b " * 900}),
    ("buckets", {"encoding": "rope"}),
    ("slopes", {"encoding": "rope"}),
    ("plane", {"encoding": "rope"}),
    ("attention", {"encoding": "rope(head_dim=16)"}),
    ("scalings", {"trained": "2048", "target": "1024"}),
    ("permute", {"encoding": "learned(length=3)"}),
    ("permute", {"encoding": "binary(width=2)"}),
    ("permute", {"sentence": "a \x01 b"}),
]
"""Queries that no page sends by itself, and what is wrong with two controls together."""
ELSEWHERE = {
    "an address has at most {0} characters here, got {1}; give a shorter text",  # of the server, below
    "the address can't be read: what follows the ? is name=value, with & between, in UTF-8",
    "something went wrong in milepost itself; the terminal in which it runs has the details",
    "trained models are saved as safetensors: {0}, or choose the random model",  # where safetensors is not installed
    "the spec {0} has encodings inside encodings, too deep to read",  # as deep as Python's own reader permits
}


def wrong(view):
    """Queries of a view that are refused, or may be."""
    made = VIEWS[view]
    for control in made.CONTROLS:
        for value in (*WRONG, str(control.low - 1), str(control.high * 10 + 7)):
            yield {control.name: value}
    scaled = [f"rope(scaling={scaling})" for scaling in SCALINGS.values()] if view == "code" else []
    for name in (*made.ENCODINGS, *scaled, *(["rope + alibi"] if view == "code" else [])):
        plain = {"encoding": name}
        yield plain
        plain |= {"model": "random"} if view == "attention" else {"mask": "causal"} if view == "permute" else {}
        for control in view_query(view, plain).controls:
            for value in (*WRONG, *control.options):
                yield {**plain, f"set.{control.name}": value}


def refused(view, query):
    try:
        view_query(view, query)
    except ValueError as error:
        return str(error)
    return None


@cache
def all_of(view):
    """Every sentence that a view refuses with."""
    return {said for query in wrong(view) if (said := refused(view, query))}


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_wrong_values_are_refused_in_chinese(view):
    said = all_of(view)
    assert len(said) > 10
    chinese = [PageWords("zh").refusal(text) for text in said]
    assert not [text for text in chinese if not CHINESE.search(text) or PROSE.search(text)]
    assert all(PageWords("en").refusal(text) == text for text in said)


@pytest.mark.parametrize(("view", "query"), ODD)
def test_what_no_page_sends_is_refused_in_chinese(view, query):
    said = refused(view, query)
    assert said and CHINESE.search(PageWords("zh").refusal(said)), said


@pytest.mark.parametrize("typed", TYPED)
def test_wrong_specs_are_refused_in_chinese(typed):
    said = refused("code", {"encoding": typed})
    assert said and CHINESE.search(PageWords("zh").refusal(said)), said


def test_numbers_and_names_of_the_english_are_all_in_the_chinese():
    for view in VIEWS:
        for text in all_of(view):
            said = PageWords("zh").refusal(text)
            got = (
                text.rpartition("got ")[2].partition(";")[0].partition(": choose")[0].partition(" (None")[0]
                if "got " in text
                else ""
            )
            assert got.replace(" and ", " 和 ") in said, (text, said)
            for value in re.findall(r"\d[\d.e+]*\d|\d", text):
                assert value in said or value in ("4", "2", "1"), (text, said)


def test_every_sentence_is_one_that_is_said():
    """A sentence that the package has changed is not found any more: then its Chinese is dead, and this says so."""
    met = set().union(
        *(all_of(view) for view in VIEWS),
        (refused("code", {"encoding": typed}) for typed in TYPED),
        (refused(*odd) for odd in ODD),
    )
    for kind, query in (("gif", {}), ("csv", {"figure": "9"})):
        with pytest.raises(ValueError) as caught:
            file("code", kind, query)
        met.add(str(caught.value))
    with pytest.raises(ValueError) as caught:
        specs.moved("rope", {"0.zzzz": "1"})
    met.add(str(caught.value))
    used = {next((said for pattern, said in refusals("zh") if pattern.fullmatch(text)), None) for text in met - {None}}
    assert {
        english for english, said in json.loads(PATH.read_text(encoding="utf-8")).items() if said not in used
    } == ELSEWHERE


def test_a_general_sentence_does_not_take_what_a_special_one_says():
    said = PageWords("zh").refusal(
        "a rotation turns pairs of channels: the rotary size must be even and at least 2, got 3"
    )
    assert said == "旋转转动的是成对的通道：旋转的通道数应是偶数，至少为 2，收到的是 3"
    assert PageWords("zh").refusal("nobody has translated this") == "nobody has translated this"


def test_every_part_is_put_in_once():
    for english, said in json.loads(PATH.read_text(encoding="utf-8")).items():
        parts = [name for _, name, _, _ in Formatter().parse(english) if name is not None]
        assert parts == [str(n) for n in range(len(parts))], english
        put = sorted(name for _, name, _, _ in Formatter().parse(said) if name is not None)
        assert put == parts or ("{5}" in english and put == parts[:-1]), english  # advice that is translated whole


def asked(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as found:
            return json.loads(found.read())["error"]
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["error"]


def test_the_server_refuses_in_the_language_of_the_address(served, monkeypatch):
    assert asked(served + "api/code?length=1&lang=zh") == "length 在此页要填 2 到 160 之间的数，收到的是 1"
    assert asked(served + "api/code?length=1") == "length is a number from 2 to 160 here, got 1"
    assert asked(served + "api/code?lang=zh&zzzz").startswith("网址读不懂")
    assert asked(served + "api/code?" + urlencode({"lang": "zh", "encoding": "x" * 9000})).startswith(
        "网址在此页最多 8192 个字符"
    )
    assert asked(served + "file/code.gif?lang=zh").startswith("图可以存为 csv")
    script = asked(served + "api/code?" + urlencode({"lang": "zh", "encoding": "<script>alert(1)</script>"}))
    assert "<script>" in script and CHINESE.search(script)  # as text: the page never makes markup of it
    monkeypatch.setattr("milepost.explore.server.light", lambda found: 1 / 0)
    assert asked(served + "api/code?lang=zh") == "milepost 自己出了错；详情见运行它的终端"
