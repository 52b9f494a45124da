"""What a notebook shows: encodings as pictures, specs and results as tables; HTML without scripts, every word
escaped.
"""

import copy
import json
import pickle
import re
from html.parser import HTMLParser
from statistics import fmean

import pytest
import torch
from IPython.lib.pretty import pretty

from milepost import Encoding, RopeSpec, build
from milepost.claims.judge import judge
from milepost.claims.report import rows_document
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import summarise
from milepost.lab.choose import Wish, choose
from milepost.lab.plan import make
from milepost.lab.report import choice, document
from milepost.lab.report.figures import mean_by_length
from milepost.lab.sweep.driver import gather
from milepost.maps import NAMES as MAPS
from milepost.measure.results import Results, Rows
from milepost.portrait import portrait
from milepost.rope.analysis import analyse
from milepost.scaling import SCALINGS, Dynamic, Linear, Llama3, LongRoPE
from milepost.testing import check_encoding
from milepost.testing.declarations import shift

CONFIG = {
    "model_type": "llama",
    "head_dim": 64,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}
OWNED = "<script>alert(1)</script>"


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.words.append(data)


def tags(thing):
    found = Tags(thing._repr_html_())
    assert not {"script", "style", "link", "iframe"} & set(found.seen)
    return found


@pytest.mark.parametrize(
    "name",
    [*NAMES, *SPACE, "rope + alibi", "self_extend(rope=rope, group=4, window=8)", "rope(scaling=dynamic(trained=32))"],
)
def test_an_encoding_is_its_picture_with_its_formula(name):
    enc = build(name, heads=4, head_dim=16, width=16, length=32)
    found = tags(enc)
    assert found.seen.count("svg") == len(portrait(enc, 64).figures) >= 1 and found.seen.count("details") == len(
        name.split(" + ")
    )
    words = "".join(found.words)
    assert repr(enc) in words
    for term in name.split(" + "):
        plain = term.partition("(")[0]
        own = summarise(f"{'maps' if plain in MAPS else 'encodings'}.{plain}")
        assert own["formula"] and own["formula"] in words and own["reference"] in words
        assert re.search(r"arXiv:\d|Fleetwood|Su,|as in transformers, models/\w+/modeling_\w+\.py", own["reference"])


def test_the_picture_of_an_encoding_draws_the_encoding_s_own_numbers():
    """Two slopes, two pictures; the same slopes, the same one. And torch's random numbers are left alone."""
    steep, flat = build("alibi(slopes=(0.5, 0.5))", heads=2), build("alibi(slopes=(0.1, 0.1))", heads=2)
    paths = [
        re.findall(r'<path d="(M[^"]*l[^"]*)"', enc._repr_html_())
        for enc in (steep, flat, build("alibi(slopes=(0.5, 0.5))", heads=2))
    ]
    assert paths[0] == paths[2] and paths[0] and all("l" in one for one in paths[0])
    assert steep._repr_html_() != flat._repr_html_()
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    build("rope", head_dim=16)._repr_html_()
    assert torch.equal(torch.rand(1), wanted)


def test_an_encoding_of_your_own_is_drawn_and_its_words_are_words():
    class Mine(Encoding):
        def __init__(self, word: str = OWNED):
            super().__init__()
            self.word = word

        def bias(self, h, i, j):
            return -1.0 * (i - j).abs() + 0 * h

    found = tags(Mine("<b>x</b>"))
    assert found.seen.count("svg") == 2 and "b" not in found.seen and found.seen.count("details") == 0


def test_an_encoding_without_a_picture_says_so():
    class Sulks(Encoding):
        def bias(self, h, i, j):
            raise ValueError("not today")

    found = tags(Sulks())
    assert "svg" not in found.seen and "not today" in found.words


def test_a_spec_is_a_table_with_sources_and_the_turns_of_its_pairs():
    spec = RopeSpec.from_config(CONFIG | {"model_type": "llama"})
    found = tags(spec)
    words = " ".join(found.words)
    assert (
        found.seen.count("svg") == 1
        and "linear(factor=2.0)" in words
        and "max_position_embeddings" in words
        and "trained length" in words
    )
    assert "no pair meets an angle" in words or "within the trained" in words
    far = analyse(spec, 100_000)[0]
    assert "meet angles that they have not seen" in " ".join(tags(far).words)
    assert far._repr_html_().count("h.01") > 5  # many points are one path, a dot for each


@pytest.mark.parametrize(
    "made",
    [Linear(4.0), Llama3(8.0, 2048), Dynamic(2048), LongRoPE((1.0, 2.0), (2.0, 4.0), 2048, length=4096)],
    ids=repr,
)
def test_a_scaling_is_what_it_keeps(made):
    found = tags(made)
    words = " ".join(found.words)
    assert repr(made) in words and repr(made).partition("(")[0] in SCALINGS
    drawn = isinstance(made, Linear | Llama3)
    assert found.seen.count("svg") == drawn
    assert drawn or "at(length)" in words or "2 factors for 32 pairs" in words


def test_verdicts_are_a_row_for_each_law():
    done = check_encoding(build("alibi", heads=2), [shift])
    found = tags(done)
    assert found.seen.count("tr") == 2 and "PASS" in found.words and "every law holds" in " ".join(found.words)

    class Shifty(Encoding):
        def bias(self, h, i, j):
            return -0.1 * i.double() * (j + 0.0 * h)

    broken = tags(check_encoding(Shifty(), [shift]))
    assert "FAIL" in broken.words and "a law is broken" in " ".join(broken.words)


def test_a_portrait_is_its_figures():
    found = tags(portrait(build("t5", heads=2), 16))
    assert found.seen.count("svg") == 2


# -- results
# ---------------------------------------------------------------------------------------------------------------


def test_results_are_plain_data_but_for_their_looks(made):
    plain = made()
    found = Results("lab", plain, document)
    assert found == plain and json.loads(json.dumps(found)) == plain and pickle.loads(pickle.dumps(found)) == plain
    assert pickle.loads(pickle.dumps(found))._repr_html_() == found._repr_html_()
    assert pretty(found) == "<lab: schema, runs, comparisons, missing, failed, provenance>" and repr(found) == repr(
        plain
    )
    rows = Rows("claims", [{"id": 1}], rows_document)
    assert rows == [{"id": 1}] and json.dumps(rows) == '[{"id": 1}]' and pretty(rows) == "<claims: 1 rows>"


def test_a_run_of_the_lab_is_its_answer_a_line_for_each_run_and_tables(made):
    data = made(encodings=("nope", "learned", "alibi", "rope"))
    found = tags(Results("lab", data, document))
    words = " ".join(found.words)
    assert found.seen.count("svg") == 1 and found.seen.count("table") == 2
    assert all(name in words for name in ("alibi", "rope, yarn", "trained length, 16", "holds best", "table ends"))
    assert "trained length, 16" not in " ".join(
        tags(Results("lab", made(lengths=(32, 64)), document)).words
    )  # it was not tested there
    worse = copy.deepcopy(data)
    for row in next(run for run in worse["runs"] if run["encoding"] == "nope")["loss_by_length"]:
        row["loss"] += 1.0
    drawn = [re.findall(r'<path d="(M[^"]*)"', Results("lab", one, document)._repr_html_()) for one in (data, worse)]
    assert drawn[0] != drawn[1]  # its own numbers


def test_a_sweep_gives_results_that_a_notebook_shows(tmp_path):
    plan = make("tiny", encodings=["nope"], strategy_names=[], lengths="1x,2x")
    found = gather(plan, tmp_path, plan.read(), {})
    assert "No trial has been finished yet." in " ".join(tags(found).words)


def test_a_choice_is_a_table_and_how_far_each_is_behind(made):
    found = tags(choose(Wish(16, 128), made(), None, OWNED))
    words = " ".join(found.words)
    assert (
        found.seen.count("svg") == 1 and found.seen.count("table") == 1 and "Behind alibi" in words and OWNED in words
    )


def test_the_picture_of_a_choice_has_what_each_loses_more_than_the_first(made):
    found = choose(Wish(16, 128), made(), None, "")
    (figure,) = choice.behind_first(found)
    first, *others = found["ranked"]
    assert list(figure.y_names) == [f"{one['place']}. {one['name']}" for one in others]
    assert (
        figure.lines["behind"] == pytest.approx([one["text"]["loss"] - first["text"]["loss"] for one in others])
        and min(figure.lines["behind"]) > 0
    )
    assert all(
        low <= value <= high for value, (low, high) in zip(figure.lines["behind"], figure.sides["behind"], strict=True)
    )
    assert choice.behind_first({**found, "ranked": [first]}) == []


def test_the_picture_of_a_run_has_the_means_of_its_seeds_at_each_length(made):
    data = made(encodings=("learned", "rope"), strategies=("yarn",), seeds=(0, 1), lengths=(16, 32))
    figure = mean_by_length(data)
    assert (
        figure.x == [16, 32]
        and [mark.at for mark in figure.marks] == [16]
        and list(figure.lines) == ["learned", "rope", "rope, yarn"]
    )
    for name, strategy in (("rope", "none"), ("rope, yarn", "yarn")):
        rows = [
            run["loss_by_length"] for run in data["runs"] if (run["encoding"], run["strategy"]) == ("rope", strategy)
        ]
        assert len(rows) == 2 and figure.lines[name] == pytest.approx(
            [fmean(one[at]["loss"] for one in rows) for at in (0, 1)]
        )
    assert figure.lines["learned"][1] is None  # its table ends


def test_claims_are_verdicts_with_their_pictures():
    found = tags(judge(["rope-sign", "rope-norm"]))
    words = " ".join(found.words)
    assert (
        found.seen.count("svg") == 2
        and "rope-sign: fails" in words
        and "rope-norm: holds" in words
        and "Of 2 claims: 1 holds, 1 fails." in words
    )
