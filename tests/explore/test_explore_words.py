"""English and Chinese say the same things: the same keys, the same numbers put in, and nothing left untranslated."""

import re
from pathlib import Path
from string import Formatter

import pytest

import milepost.explore
from milepost.explore.answer import answer, start
from milepost.explore.views import VIEWS
from milepost.explore.words import LANGUAGES, PageWords, table

HOME = Path(milepost.explore.__file__).parent
CHINESE = re.compile(r"[\u4e00-\u9fff]")
NEUTRAL = {"logit / D", "PI", "NTK", "YaRN", "llama3"}
"""What is the same in both."""


def keys(language):
    return {key for key in table(language) if not key.startswith("phrase.")}


def names(text):
    return sorted(name for _, name, _, _ in Formatter().parse(text) if name is not None)


def test_both_languages_have_the_same_keys_and_put_in_the_same_values():
    assert keys("en") == keys("zh") and len(keys("en")) > 100
    for key in keys("en"):
        assert names(table("en")[key]) == names(table("zh")[key]), key
        assert table("en")[key] and table("zh")[key]


def test_a_phrase_puts_in_every_number_of_the_english():
    for key, text in table("zh").items():
        if key.startswith("phrase."):
            assert names(text) == [str(n) for n in range(key.count("{}"))], key


def test_every_key_is_used_and_every_used_key_is_there():
    source = "".join(
        path.read_text(encoding="utf-8") for path in [*HOME.rglob("*.py"), *HOME.rglob("*.js"), *HOME.rglob("*.html")]
    )
    made = {
        "view",
        "intro",
        "control",
        "option",
        "code",
        "distance",
        "attention",
        "permute",
        "scalings",
    }  # the rest of these is put together
    asked = re.findall(r'words\.([a-z]+)\b|data-word="([a-z]+)"', source)
    used = set(re.findall(r"""say\(["']([a-z_.]+)["']""", source)) | {
        f"page.{word}" for pair in asked for word in pair if word
    }
    assert used - {"page.phrase", "page.append", "page.say", "page.starting", "page.language"} <= keys("en")
    for key in keys("en") - used:
        assert (
            key.removeprefix("page.").split(".")[0] in made
            or f"words[{key!r}]" in source
            or key in {"page.csv", "page.json", "page.png", "page.svg"}
        ), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_view_control_and_choice_has_words(language):
    words = start(language)["words"]
    for view, made in VIEWS.items():
        assert words[f"view.{view}"] and words[f"intro.{view}"]
        for control in made.CONTROLS:
            assert words[f"control.{control.name}"]
            assert all(words[f"option.{option}"] for option in control.options)


@pytest.mark.parametrize(("view", "name"), [(view, name) for view, made in VIEWS.items() for name in made.ENCODINGS])
def test_nothing_in_a_chinese_answer_is_left_in_english(view, name):
    query = {"encoding": name, "lang": "zh"} | (
        {"model": "random"} if view == "attention" else {"mask": "causal"} if view == "permute" else {}
    )
    found = answer(view, query)
    said = [found["sentence"], *(found["table"][0] if found["table"] else [])]
    for figure in found["figures"]:
        said += [
            figure["title"],
            figure["x_title"],
            figure["y_title"],
            *(figure["lines"] or {}),
            *(mark["name"] for mark in figure["marks"]),
        ]
        said += [dial["name"] for dial in figure["dials"]]
    plain = re.compile(r"query \d+|[\d.]+")
    left = [
        text for text in said if text and not CHINESE.search(text) and text not in NEUTRAL and not plain.fullmatch(text)
    ]
    assert not left


def test_a_phrase_keeps_its_numbers_in_their_places():
    said = PageWords("zh").phrase("at 8192 tokens 11 of 32 pairs meet angles that they have not seen in 2048")
    assert re.findall(r"\d+", said) == ["8192", "32", "11", "2048"]
    assert PageWords("zh").phrase("not known to anybody") == "not known to anybody"
    assert PageWords("en").phrase("Bias of head 3") == "Bias of head 3"
