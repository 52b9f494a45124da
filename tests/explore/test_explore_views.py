"""What the views say, against numbers worked out another way; and that every view answers for every encoding, in both
languages."""

import json
import math

import pytest
import torch

from milepost.attention import attend
from milepost.draw.figure import Figure
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import page
from milepost.explore import specs
from milepost.explore.answer import answer, file, light, start, widths
from milepost.explore.seeded import seeded
from milepost.explore.views import VIEWS, attention, permute
from milepost.layout import Layout
from milepost.testing import Layer

ASKED = {"attention": {"model": "random"}, "permute": {"mask": "causal"}}
EVERY = [(view, name) for view, made in VIEWS.items() for name in made.ENCODINGS]


def shown(view, spec=None, **asked):
    return answer(view, {**({"encoding": spec} if spec else {}), **{name: str(value) for name, value in asked.items()}})


def lines(found, which):
    return list(found["figures"][which]["lines"].values())


@pytest.mark.parametrize(("view", "name"), EVERY)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_view_answers_for_every_encoding(view, name, language):
    found = shown(view, name, lang=language, **ASKED.get(view, {}))
    text = json.dumps(found, allow_nan=False)  # no NaN, no infinity
    assert found["figures"] and len(found["svg"]) == len(found["figures"]) and found["sentence"] and text
    own = found["pages"][0]
    assert (
        own["module"] == f"encodings.{name}"
        and own["formula"] == page(name).formula
        and own["reference"] == page(name).reference
    )
    assert own["formula"] and own["reference"]
    for figure in found["figures"]:
        assert figure["title"] and (figure["z"] or figure["lines"] or figure["dials"])
        for row in figure["z"]:
            assert len(row) == len(figure["x"])


@pytest.mark.parametrize(
    "spec",
    [
        "self_extend(rope=rope, group=4, window=8)",
        "streaming(rope=rope, window=8)",
        "rope(scaling=dynamic(trained=32)) + alibi",
    ],
)
@pytest.mark.parametrize("view", ["code", "distance", "permute", "attention"])
def test_maps_sums_and_scalings_by_length_can_be_typed(view, spec):
    found = shown(
        view, spec, **{"mask": "causal"} if view == "permute" else {"model": "random"} if view == "attention" else {}
    )
    assert found["spec"] == spec and json.dumps(found, allow_nan=False) and found["pages"][0]["formula"]


def test_every_encoding_can_be_seen_as_a_code_or_on_a_plane():
    assert set(VIEWS["code"].ENCODINGS) == set(VIEWS["distance"].ENCODINGS) == set(NAMES)
    assert set(VIEWS["plane"].ENCODINGS) == set(SPACE)
    assert set(start("en")["views"]) == set(VIEWS)


def test_the_code_of_sinusoidal_is_sines_and_cosines_of_the_position():
    z = shown("code", "sinusoidal(width=8, base=100.0)", length=12)["figures"][0]["z"]
    assert len(z) == 12 and len(z[0]) == 8
    for p in (0, 3, 11):
        for i in range(4):
            assert z[p][2 * i] == pytest.approx(math.sin(p * 100 ** (-i / 4)), abs=1e-12)
            assert z[p][2 * i + 1] == pytest.approx(math.cos(p * 100 ** (-i / 4)), abs=1e-12)


def test_a_bias_is_drawn_for_keys_that_may_be_seen_and_falls_with_distance():
    z = shown("code", "alibi(heads=1, slopes=(0.25,))", length=6)["figures"][0]["z"]
    assert [list(row) for row in z] == [[-0.25 * (i - j) if j <= i else None for j in range(6)] for i in range(6)]


def test_the_logit_of_ones_by_distance_is_a_sum_of_cosines():
    found = shown("distance", "rope(head_dim=8, base=100.0)", length=20)["figures"][0]
    for distance in (0, 1, 7, 19):
        wanted = sum(math.cos(distance * 100 ** (-i / 4)) for i in range(4)) / 4
        assert found["lines"]["ones with itself"][distance] == pytest.approx(wanted, abs=1e-12)


def test_clocks_are_red_where_training_made_less_than_a_turn_and_the_target_goes_farther():
    trained, target, size, base = 300, 1000, 16, 5000.0
    found = shown("clocks", f"rope(head_dim={size}, base={base})", trained=trained, target=target)
    dials, waves = found["figures"]
    for i, dial in enumerate(dials["dials"]):
        wave = 2 * math.pi * base ** (2 * i / size)
        assert waves["lines"]["tokens in one turn"][i] == pytest.approx(wave)
        assert dial["seen"] == pytest.approx(trained / wave) and dial["met"] == pytest.approx(target / wave)
        assert dial["unseen"] is (trained < wave)
    assert {d["unseen"] for d in dials["dials"]} == {True, False}
    assert f"{sum(d['unseen'] for d in dials['dials'])} of {size // 2} pairs" in found["sentence"]
    assert [mark["at"] for mark in waves["marks"]] == [trained, target]
    within = shown("clocks", "rope", trained=4096, target=2048)
    assert not any(d["unseen"] for d in within["figures"][0]["dials"]) and "within the trained" in within["sentence"]


def test_a_scaling_of_the_rope_is_seen_by_its_clocks():
    squeezed = shown("clocks", "rope(scaling=linear(factor=4.0))", trained=2048, target=8192)
    assert not any(d["unseen"] for d in squeezed["figures"][0]["dials"])
    assert "scaling.linear" in [one["module"] for one in squeezed["pages"]]


def test_the_reach_of_alibi_s_heads_is_that_of_a_geometric_series():
    length, heads = 400, 4
    found = shown("slopes", f"alibi(heads={heads})", context=length)
    slopes, reach = lines(found, 0)[0], lines(found, 1)[0]
    for h in range(heads):
        m = 2.0 ** (-8 * (h + 1) / heads)
        whole = 1 - math.exp(-m * length)
        wanted = next(n for n in range(1, length + 1) if (1 - math.exp(-m * n)) / whole >= 0.95)
        assert slopes[h] == m and reach[h] == wanted
        weights = lines(found, 2)[h]
        assert weights[0] == pytest.approx((1 - math.exp(-m)) / whole) and weights[5] / weights[4] == pytest.approx(
            math.exp(-m)
        )


def test_the_buckets_of_t5_are_exact_below_half_and_logarithmic_above():
    found = shown("buckets", "t5(buckets=16, max_distance=64)", length=100)
    stairs, table = found["figures"][0], found["figures"][1]["z"]
    for distance in (0, 1, 7, 8, 11, 20, 40, 63, 64, 99):
        wanted = distance if distance < 8 else min(15, 8 + int(math.log(distance / 8) / math.log(64 / 8) * 8 + 1e-9))
        assert stairs["lines"]["bucket"][distance] == wanted
        assert table[99][99 - distance] == wanted
    assert table[3][4] is None  # a key after the query
    both = shown("buckets", 't5(buckets=16, max_distance=64, mode="bidirectional")', length=50)["figures"]
    assert both[0]["x"][0] == -49 and both[1]["z"][3][4] == 8 + 1 and "below 8" in found["sentence"]


def test_scalings_slow_the_pairs_that_they_say():
    factor = 4
    found = shown("scalings", "rope(head_dim=64)", trained=2048, target=2048 * factor)
    kept = found["figures"][0]["lines"]
    assert kept["no scaling"] == [1.0] * 32 and kept["PI"] == [pytest.approx(1 / factor)] * 32
    for i, share in enumerate(kept["NTK"]):
        assert share == pytest.approx(factor ** (-i / 31))
    turns = [2048 * 10000 ** (-2 * i / 64) / (2 * math.pi) for i in range(32)]
    for i, r in enumerate(turns):
        blend = min(1.0, max(0.0, (r - 1) / 3))
        assert kept["llama3"][i] == pytest.approx((1 - blend) / factor + blend)
    assert (
        kept["YaRN"][0] == 1
        and kept["YaRN"][-1] == pytest.approx(1 / factor)
        and kept["YaRN"] == sorted(kept["YaRN"], reverse=True)
    )
    table = {row[0]: row for row in found["table"]}
    assert table["PI"][1] == "0 / 32" and float(table["YaRN"][4]) == pytest.approx(
        (0.1 * math.log(factor) + 1) ** 2, abs=1e-4
    )
    unseen = sum(r < 1 for r in turns)
    assert table["no scaling"][1] == f"{unseen} / 32"
    assert [one["module"] for one in found["pages"]] == [
        "encodings.rope",
        "scaling.linear",
        "scaling.ntk",
        "scaling.yarn",
        "scaling.llama3",
    ]
    assert (
        shown("scalings", "rope(head_dim=64, scaling=linear(factor=2.0))", trained=2048, target=8192)["figures"]
        == found["figures"]
    )


def test_the_map_of_a_plane_is_highest_in_its_middle_and_the_same_both_ways_for_axial():
    z = shown("plane", "axial", side=9)["figures"][0]["z"]
    assert z[4][4] == max(v for row in z for v in row) == pytest.approx(1)
    assert all(z[i][j] == pytest.approx(z[j][i]) for i in range(9) for j in range(9))
    bias = shown("plane", "alibi_2d(heads=1)", side=9)["figures"][0]["z"]
    assert bias[4][7] == pytest.approx(-3 / 256) and bias[0][1] == pytest.approx(-5 / 256)  # 3-4-5


def test_positions_are_shuffled_shifted_and_stretched_and_the_mask_stays():
    pos = torch.arange(6)
    assert attention.changed(pos, "shifted", 4).tolist() == [4, 5, 6, 7, 8, 9]
    assert attention.changed(pos, "stretched", 3).tolist() == [0, 3, 6, 9, 12, 15]
    mixed = attention.changed(pos, "shuffled", 1).tolist()
    assert sorted(mixed) == list(range(6)) != mixed
    for change in ("shuffled", "shifted", "stretched"):
        found = shown("attention", "alibi", model="random", change=change, text="abcdef")
        for figure in found["figures"]:
            for i, row in enumerate(figure["z"]):
                assert sum(v for v in row[: i + 1]) == pytest.approx(1, abs=1e-6) and all(
                    v is None for v in row[i + 1 :]
                )


@pytest.mark.parametrize("name", ["rope", "alibi", "nope"])
def test_a_relative_encoding_does_not_notice_a_shift_and_an_absolute_one_does(name):
    assert "looks where it looked before" in shown("attention", name, model="random", change="shifted")["sentence"]
    assert "goes elsewhere" in shown("attention", "sinusoidal", model="random", change="shifted", amount=7)["sentence"]


def test_alibi_stretched_is_alibi_with_steeper_slopes():
    there = shown("attention", "alibi", model="random", change="stretched", amount=2)["figures"][1]["z"]
    steep = tuple(2 * 2.0 ** (-2 * h) for h in range(1, 5))
    here = shown("attention", f"alibi(slopes={steep})", model="random", change="shifted", amount=1)["figures"][0]["z"]
    for a, b in zip(there, here, strict=True):
        assert [v for v in a if v is not None] == pytest.approx([v for v in b if v is not None], abs=1e-6)


@pytest.mark.parametrize("name", attention.TRAINED)
def test_a_trained_model_comes_with_the_package_small_and_with_its_provenance(name):
    folder = attention.FOLDER / name
    about = json.loads((folder / "model.json").read_text())
    assert about["encodings"] == [name] * 2 and about["loss_last"] < 2.5 < math.log(256) * 0.9 < about["loss_first"]
    assert (
        about["provenance"]["protocol"]["recipe"]["steps"] == 3000 and about["provenance"]["protocol"]["text"]["sha256"]
    )
    assert sum(path.stat().st_size for path in attention.FOLDER.rglob("*.safetensors")) < 300_000


def test_trained_heads_have_learned_where_to_look_and_depend_on_it():
    """A trained model predicts text better with its own positions than with shuffled ones; an untrained one can't
    tell.
    """
    model = attention._trained("rope")
    text = b"import os\nimport sys\nfrom typing import Any\n\ndef main()"
    ids = torch.tensor([list(text)])
    plain = Layout.dense(len(text))
    losses = []
    for at in (plain, plain.with_positions(attention.changed(plain.pos[0], "shuffled", 3))):
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(model(ids, at)[0, :-1], ids[0, 1:]).item())
    assert losses[0] < losses[1] - 0.5
    moved = shown("attention", "rope", text="import os; import sys; import re")["sentence"]
    assert "goes elsewhere" in moved
    other = shown("attention", "rope(base=100.0)")["figures"][0]["z"]
    assert other != shown("attention", "rope")["figures"][0]["z"]


def test_permuting_words_is_not_noticed_without_position_and_without_a_mask():
    same = shown("permute", "nope", sentence="the dog bit the man", order=3)
    assert max(same["figures"][2]["z"][0]) < 1e-12 and "has not noticed" in same["sentence"]
    assert sorted(same["figures"][1]["x_names"]) == sorted(["the", "dog", "bit", "the", "man"])
    moved = shown("permute", "rope", sentence="the dog bit the man", order=3)
    assert min(moved["figures"][2]["z"][0]) > 1e-3 and "knows the order" in moved["sentence"]
    masked = shown("permute", "nope", sentence="the dog bit the man", order=3, mask="causal")
    assert max(masked["figures"][2]["z"][0]) > 1e-3 and "causal mask knows" in masked["sentence"]
    still = shown("permute", "rope", order=0)
    assert max(still["figures"][2]["z"][0]) == 0


def test_a_word_that_received_nothing_before_has_no_share_of_change():
    """With stick_breaking the first word receives nothing: 0 where it stays first, and blank where it does not."""
    asked = {"sentence": "dogs bite old men", "mask": "causal"}
    still = shown("permute", "stick_breaking", order=0, **asked)
    assert still["figures"][2]["z"][0] == [0.0] * 4 and "has not noticed" in still["sentence"]
    moved = shown("permute", "stick_breaking", order=1, **asked)
    names, change = moved["figures"][2]["x_names"], moved["figures"][2]["z"][0]
    assert names[0] != "dogs" and change[0] == pytest.approx(1.0)  # nothing is left of what the new first one had
    assert [name for name, share in zip(names, change, strict=True) if share is None] == ["dogs"]
    assert "left blank" in moved["sentence"] and "left blank" not in still["sentence"]
    assert "留空" in shown("permute", "stick_breaking", order=1, lang="zh", **asked)["sentence"]


@pytest.mark.parametrize("name", ["fox", "relative_logits", "selective_rope", "path"])
def test_features_of_a_word_are_those_of_its_own_vector(name):
    """The weights of the picture are those of the encoding in float32, with the features of the same words."""
    sentence = "the dog bit the man"
    seen = shown("permute", name, sentence=sentence, order=0, mask="causal")["figures"][0]["z"]
    with seeded():
        enc = specs.built(name)
    layer, at = Layer(enc, seed=1, dtype=torch.float32), Layout.dense(5)
    x = torch.stack([permute._vector(word, layer.width) for word in sentence.split()])[None].float()
    with torch.no_grad():
        q, k, v = layer.project(x, at)
        plain = attend(q, k, v, None, at=at, turned=True, details=True).weights[0, 0]
        wanted = attend(q, k, v, enc, at=at, turned=True, features=enc.features(x, at.pos), details=True).weights[0, 0]
    rounding = layer.head_dim * torch.finfo(torch.float32).eps  # of a dot product; weights are at most 1
    assert (torch.tensor(seen) - wanted).abs().max() < rounding < 1e-3 < (wanted - plain).abs().max()


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("狗咬人", ["狗", "咬", "人"]),
        ("狗 咬了 人", ["狗", "咬", "了", "人"]),
        ("RoPE让q转，k也是。", ["RoPE", "让", "q", "转", "，", "k", "也", "是", "。"]),
        ("犬か\u3099ヒトを", list("犬がヒトを")),
        ("これは", list("これは")),
        ("好。ok", ["好", "。", "ok"]),
        ("개가 사람을", ["개가", "사람을"]),
        (" the  dog\u3000bit ", ["the", "dog", "bit"]),
        ("naïve café", ["naïve", "café"]),
    ],
)
def test_words_stand_between_spaces_and_where_there_are_none_each_character_is_one(sentence, words):
    assert permute.words_of(sentence) == words
    assert shown("permute", "nope", sentence=sentence, order=0)["figures"][0]["x_names"] == tuple(words)


def test_the_same_question_has_the_same_answer_whatever_was_asked_before():
    first = shown("code", "t5")
    shown("code", "learned")
    torch.rand(3)
    assert shown("code", "t5") == first


def test_asking_leaves_torch_s_own_random_numbers_alone():
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    shown("code", "learned")
    assert torch.equal(torch.rand(1), wanted)


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_a_figure_is_kept_with_all_its_digits_and_its_provenance():
    whole = shown("code", "sinusoidal", length=5)
    few = light(whole)
    kept = json.loads(file("code", "json", {"encoding": "sinusoidal", "length": "5"}))
    assert few["figures"][0]["z"][1][2] != whole["figures"][0]["z"][1][2] == kept["z"][1][2]
    assert few["figures"][0]["z"][1][2] == pytest.approx(whole["figures"][0]["z"][1][2], rel=1e-4)
    assert kept["provenance"]["protocol"] == {
        "view": "code",
        "encoding": "sinusoidal(width=64)",
        "asked": {"length": 5},
    }
    rows = file("code", "csv", {"encoding": "sinusoidal", "length": "5"}).splitlines()
    assert len(rows) == 6 and float(rows[2].split(",")[1]) == math.sin(1)
    table = file("clocks", "csv", {"encoding": "rope", "figure": "0"}).splitlines()
    assert table[0] == "name,note,seen_turns,met_turns,unseen" and len(table) == 33
    assert file("clocks", "svg", {"encoding": "rope", "figure": "1"}).startswith("<svg")


def test_words_in_a_table_are_no_formulas_of_a_spreadsheet():
    rows = file("permute", "csv", {"sentence": "=SUM(A1) +1 -2 @x"})
    assert "'=SUM(A1)" in rows and "\n=SUM" not in rows and ",=SUM" not in rows


def test_two_figures_stand_side_by_side_where_there_is_room():
    two, dials = Figure("lines", "a"), Figure("dials", "b")
    assert widths([two, two], 1000) == [484, 484] and widths([two], 1000) == [1000]
    assert widths([two, two], 500) == [500, 500] and widths([dials, two, two], 1000) == [1000, 484, 484]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "query", "sentence"),
    [
        ("nothing", {}, "there is no view 'nothing'"),
        ("code", {"length": "1"}, "length is a number from 2 to 160 here, got 1"),
        ("code", {"length": "99999"}, "length is a number from 2 to 160 here, got 99999"),
        ("code", {"length": "ten"}, "length is a whole number, got 'ten'"),
        ("code", {"length": "1e3"}, "length is a whole number"),
        ("code", {"leangth": "5"}, "has nothing called 'leangth' to set"),
        ("code", {"lang": "fr"}, "lang is one of en, zh, got 'fr'"),
        ("code", {"width": "20"}, "a figure is drawn 160 to 4000 pixels wide, got 20"),
        ("code", {"encoding": "ropee"}, "unknown encoding 'ropee' (did you mean 'rope'?)"),
        ("code", {"encoding": "rope(head_dim=7)"}, "the rotary size must be even"),
        ("code", {"encoding": "rope(base=-1.0)"}, "base must be a finite number above 1"),
        ("code", {"encoding": "rope", "set.0.base": "0.5"}, "base must be a finite number above 1"),
        ("code", {"encoding": "rope", "set.0.base": "nan"}, "base is a finite number"),
        ("code", {"encoding": "rope", "set.0.nothing": "1"}, "has no argument '0.nothing' to set"),
        ("code", {"encoding": "rope", "set.0.pairing": "thirds"}, "pairing is one of half, interleaved"),
        ("code", {"encoding": "rope("}, "can't read the spec"),
        ("code", {"encoding": "os.system('x')"}, "arguments are given by name"),
        ("code", {"encoding": "learned(length=64, width=100000)"}, "width is at most 256 on this page, got 100000"),
        ("code", {"encoding": "rope + shaw(clip=65536, head_dim=256)"}, "clip is at most 64 on this page"),
        ("code", {"encoding": "shaw(clip=65536) + a:B"}, "classes of your own are for the command line"),
        ("code", {"encoding": " + ".join(["alibi"] * 9)}, "at most 4 terms"),
        ("code", {"encoding": "rope(base=" + "1" * 400 + ")"}, "a spec has at most 300 characters on this page"),
        ("clocks", {"encoding": "alibi"}, "choose rope"),
        ("slopes", {"encoding": "rope"}, "choose alibi"),
        ("buckets", {"encoding": "rope"}, "choose t5"),
        ("plane", {"encoding": "rope"}, "choose one of axial"),
        ("plane", {"encoding": "swin(sides=(4000, 4000))"}, "sides is at most 32 on this page"),
        ("scalings", {"trained": "2048", "target": "1024"}, "fewer than the 2048"),
        ("attention", {"text": "x" * 49}, "text has at most 48 characters here, got 49"),
        ("attention", {"text": "字" * 20}, "text has 2 to 48 bytes here, for the model reads bytes; got 60"),
        ("attention", {"text": "x"}, "text has 2 to 48 bytes"),
        ("attention", {"encoding": "t5"}, "choose the random model"),
        ("attention", {"encoding": "rope(head_dim=16)"}, "the model of this view has head_dim=8"),
        ("permute", {"sentence": "alone"}, "sentence has 2 to 24 words here"),
        ("permute", {"sentence": "word " * 60}, "sentence has 2 to 24 words here (between spaces; of Chinese, characters), got 60"),
        ("permute", {"sentence": "w" * 5000}, "sentence has at most 400 characters here, got 5000"),
        ("permute", {"encoding": "alibi", "mask": "none"}, "has no meaning for keys after the query"),
    ],
)  # fmt: skip
def test_what_can_t_be_shown_is_said_in_a_sentence(view, query, sentence):
    with pytest.raises(ValueError) as said:
        answer(view, query)
    assert sentence in str(said.value) and "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("kind", "query"), [("exe", {}), ("csv", {"figure": "9"}), ("csv", {"figure": "-1"}), ("csv", {"figure": "x"})]
)
def test_a_file_that_can_t_be_made_is_refused(kind, query):
    with pytest.raises(ValueError, match="figure"):
        file("code", kind, query)
