"""diagnose against transformers' own forward, family by family; what its result holds; and that it leaves the model as it was."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch
from tiny_models import DYNAMIC, HONEST, build, transformers
from torch.nn import functional as F

from milepost.checkpoints import diagnose
from milepost.checkpoints.diagnosis.needle import ASKED, K, make_needles
from milepost.checkpoints.diagnosis.plan import Reader, make_plan
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.text import read_text
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape

LENGTHS = [32, 96]
SOFTCAPS = {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16}
FAMILIES = {
    "llama": {},
    "llama, yarn": {},
    "gpt2": {},
    "gpt_neox": {},
    "gemma3": {},
    "falcon, alibi": {},
    "bloom": {},
    "qwen3": {},
    "mpt": {},
    "opt": {},
    "gptj": {},
}
KEYS = {
    "trained_length",
    "effective_length",
    "onset",
    "loss_by_position",
    "loss_by_length",
    "shifted",
    "retrieval",
    "attention",
    "protocol",
    "verdict",
    "pairs",
    "drift",
    "provenance",
    "notes",
}


def tokens(folder, rows=4, length=400, most=64):
    """A file of token ids: rows of random words."""
    path = folder / "ids.npy"
    np.save(path, np.random.default_rng(0).integers(3, most, (rows, length)))
    return path


def gemma2():
    given = {
        **HONEST["gemma3"],
        **SOFTCAPS,
        "model_type": "gemma2",
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**given)).eval()


def own_losses(model, windows):
    """transformers' own: logits of all tokens, then cross entropy."""
    with torch.no_grad():
        ids = torch.from_numpy(windows)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float()
        return (
            F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
            .view(len(ids), -1)
            .double()
            .numpy()
        )


def windows_of(path, length, count):
    ids = np.load(path)
    places = [(r, a) for r in range(len(ids)) for a in range(0, ids.shape[1] - length, length + 1)]
    chosen = [places[n * len(places) // min(count, len(places))] for n in range(min(count, len(places)))]
    return np.stack([ids[r, a : a + length + 1] for r, a in chosen])


@pytest.mark.parametrize("name", [*FAMILIES, "gemma2"])
def test_loss_by_position_and_by_length_are_transformers_own(name, tmp_path):
    model = gemma2() if name == "gemma2" else build(name)
    model.save_pretrained(tmp_path / "model")
    path = tokens(tmp_path)
    found = diagnose(tmp_path / "model", path, LENGTHS, windows=4).to_json()
    windows = windows_of(path, 96, 4)
    own = own_losses(model, windows)
    assert [(row["start"], row["end"]) for row in found["loss_by_position"]][-1][1] == 96
    for row in found["loss_by_position"]:
        assert abs(row["loss"] - own[:, row["start"] : row["end"]].mean()) < 1e-4, row
        assert row["low"] <= row["loss"] <= row["high"] and row["tokens"] == 4 * (row["end"] - row["start"])
    same = [own_losses(model, windows[:, -33:])[:, -16:].mean(), own[:, -16:].mean()]
    assert [row["loss"] for row in found["loss_by_length"]] == pytest.approx(same, abs=1e-4)
    assert found["loss_by_length"][0]["perplexity"] == pytest.approx(math.exp(same[0]), rel=1e-3)
    pieces = np.concatenate([windows[:2, n * 32 : n * 32 + 33] for n in range(3)])
    assert [row["loss"] for row in found["disjoint"]] == pytest.approx(
        [own_losses(model, pieces).mean(), own[:2].mean()], abs=1e-4
    )
    assert found["drift"] and not any(row["beyond"] for row in found["drift"])
    if name == "gptj":
        assert found["attention"] == [] and any("can't be watched" in note for note in found["notes"])
    else:
        assert [look["length"] for look in found["attention"]] == [32, 96]
    moved = [row["largest"] for row in found["shifted"][1:]]
    if name in ("falcon, alibi", "bloom", "mpt"):
        assert not moved and any("takes no positions" in note for note in found["notes"])
    elif name in ("gpt2", "opt"):
        assert min(moved) > 1e-2  # a table of places
    else:
        assert moved and max(moved) < 1e-3  # distances alone: rounding of float32 angles


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "gemma2", "bloom", "mpt"])
def test_attention_is_transformers_own(name, tmp_path):
    model = gemma2() if name == "gemma2" else build(name)
    model.save_pretrained(tmp_path / "model")
    path = tokens(tmp_path)
    found = diagnose(tmp_path / "model", path, [96], windows=2).to_json()["attention"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(
            input_ids=torch.from_numpy(windows_of(path, 96, 2)[:, :-1]), use_cache=False, output_attentions=True
        ).attentions
    back = (torch.arange(96)[:, None] - torch.arange(96)[None]).clamp(min=0)
    (look,) = found
    assert len(look["heads"]) == sum(p.shape[1] for p in own)
    for head in look["heads"]:
        p = own[head["layer"]][:, head["head"]].double()
        assert head["sink"] == pytest.approx(p[..., 0].mean().item(), abs=2e-5)  # rounded to five digits
        assert head["mean"] == pytest.approx((p * back).sum(-1).mean().item(), abs=2e-3)
        assert head["entropy"] == pytest.approx(-torch.special.xlogy(p, p).sum(-1).mean().item(), abs=1e-3)


def test_of_a_model_that_depends_on_the_length_every_bucket_is_read_up_to_its_end(tmp_path):
    model = build("llama", **DYNAMIC)
    model.save_pretrained(tmp_path / "model")
    path = tokens(tmp_path, 6, 500)
    found = diagnose(tmp_path / "model", path, [128, 384], windows=3).to_json()
    windows = windows_of(path, 384, 3)
    ends = [row["end"] for row in found["loss_by_position"]]
    assert ends == list(range(32, 385, 32)) and "a pass for each bucket's end" in found["protocol"]["loss_by_position"]
    for row in found["loss_by_position"]:
        with_end = own_losses(build("llama", **DYNAMIC), windows[:, : row["end"] + 1])[:, row["start"] : row["end"]]
        assert abs(row["loss"] - with_end.mean()) < 1e-4, row
    once = own_losses(build("llama", **DYNAMIC), windows)
    assert abs(found["loss_by_position"][0]["loss"] - once[:, :32].mean()) > 1e-3  # one pass would be something else


@pytest.fixture(scope="module")
def lab_model(tmp_path_factory):
    torch.manual_seed(0)
    return checkpoint.save(Decoder(Shape(256, 2, 16, 2, 32), "rope").eval(), tmp_path_factory.mktemp("lab"))


def test_a_lab_model_is_read_as_its_own_forward_reads_it(lab_model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(np.random.default_rng(0).choice(list("abcdefgh "), 2000)))
    found = diagnose(lab_model, text, [32, 64], windows=4).to_json()
    ids = np.frombuffer(text.read_bytes(), np.uint8).astype(np.int64)
    places = list(range(0, len(ids) - 64, 65))
    windows = np.stack([ids[places[n * len(places) // 4] :][:65] for n in range(4)])
    model = checkpoint.load(lab_model)
    with torch.no_grad():
        logits = model(torch.from_numpy(windows[:, :-1]))
    own = (
        F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(windows[:, 1:]).flatten(), reduction="none")
        .view(4, -1)
        .double()
        .numpy()
    )
    for row in found["loss_by_position"]:
        assert abs(row["loss"] - own[:, row["start"] : row["end"]].mean()) < 1e-4
    assert found["loss_by_length"][1]["bits_per_byte"] == pytest.approx(own[:, -16:].mean() / math.log(2), abs=1e-4)


def test_a_result_is_plain_data_with_the_promised_keys_and_the_model_is_left_as_it_was(lab_model, tmp_path):
    subject = load(lab_model)
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    told = []
    found = diagnose(
        subject, tokens(tmp_path), [32, 64], windows=3, tell=lambda what, share: told.append((what, share))
    )
    data = found.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data and set(data) >= KEYS
    assert (
        data["trained_length"] == 32
        and data["protocol"]["text"]["source"] == "ids.npy"
        and data["provenance"]["versions"]["torch"]
    )
    assert all(
        torch.equal(value, before[name]) and value.dtype == before[name].dtype
        for name, value in subject.model.state_dict().items()
    )
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0
    again = diagnose(subject, tokens(tmp_path), [64, 32, 64], windows=3).to_json()
    assert {k: v for k, v in again.items() if k != "provenance"} == {k: v for k, v in data.items() if k != "provenance"}
    shown = found._repr_html_()
    assert (
        "<table>" in shown and found.verdict[0] in shown and shown.count("<svg") == 1 and "Loss at each place" in shown
    )


def test_the_count_of_what_is_to_be_read_is_about_what_is_read(lab_model, tmp_path, monkeypatch):
    counts = []

    class Watched(Reader):
        def _counted(self, ids, out):
            super()._counted(ids, out)
            counts.append(self.read)
            return out

    monkeypatch.setattr(sys.modules["milepost.checkpoints.diagnosis.diagnose"], "Reader", Watched)
    subject = load(lab_model)
    diagnose(subject, tokens(tmp_path), [32, 64, 128], windows=3)
    assert 0.8 < counts[-1] / make_plan(subject, [32, 64, 128], 3).work < 1.1


# -- the needle ------------------------------------------------------------------------------------------------------------------


def wordy(folder):
    """A tiny Llama with a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from milepost.checkpoints.diagnosis.needle import WORDS

    words = [
        "[unk]",
        "<s>",
        "</s>",
        "The",
        "pass",
        "key",
        "is",
        "Remember",
        "it",
        "the",
        "What",
        ".",
        ":",
        "?",
        *WORDS[:12],
        "one",
        "two",
        "three",
    ]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[unk]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    build("llama").save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    return folder, words


def test_a_needle_in_words_holds_its_key_and_every_candidate_is_one_token(tmp_path):
    folder, words = wordy(tmp_path / "model")
    (tmp_path / "text.txt").write_text(" ".join(np.random.default_rng(0).choice(["one", "two", "three"], 3000)))
    subject = load(folder, tokenizer=str(folder / "tokenizer.json"))
    text = read_text(tmp_path / "text.txt", subject)
    windows, _ = text.windows(128, 4)
    made = make_needles(subject, text, windows, 5, 64)
    assert made.kind == "words" and len(made.tokens) == K == len(set(made.tokens.tolist()))
    asked = {}
    for trial in range(4):
        for depth in range(5):
            one = made.build(trial, depth)
            key = int(one.candidates[one.answer])
            asked[key] = asked.get(key, 0) + 1
            name = made.candidates[one.answer]
            assert words[key] == name and one.needle.tolist().count(key) == 2
            assert subject.encode(f"{ASKED} {name}").tolist() == [*one.asked.tolist(), key]
    assert set(asked.values()) == {2}  # each candidate as often as any other
    assert make_needles(subject, text, windows, 5, 20).kind == "passage"  # where sentences leave no room


def test_without_a_tokenizer_a_passage_of_another_text_is_begun_again(lab_model, tmp_path):
    subject = load(lab_model)
    text = read_text(tokens(tmp_path), subject)
    windows, _ = text.windows(64, 3)
    made = make_needles(subject, text, windows, 5, 32)
    one = made.build(1, 0)
    assert made.kind == "passage" and one.needle[:-1].tolist() == one.asked.tolist() == windows[2, 1:9].tolist()
    assert one.needle[-1] == one.candidates[one.answer] and len(set(made.tokens.tolist())) == K


def test_a_byte_model_is_asked_for_digits(lab_model, tmp_path):
    (tmp_path / "text.txt").write_text("so it goes " * 300)
    subject = load(lab_model)
    text = read_text(tmp_path / "text.txt", subject)
    windows, _ = text.windows(256, 3)
    made = make_needles(subject, text, windows, 5, 256)
    assert (
        made.kind == "words"
        and made.candidates == tuple("0123456789")
        and made.tokens.tolist() == [ord(c) for c in "0123456789"]
    )
    one = made.build(0, 3)
    assert bytes(one.needle.tolist()).decode() == "\nThe pass key is 3. Remember it: the pass key is 3.\n"
    assert bytes(one.asked.tolist()).decode() == "\nWhat is the pass key? The pass key is "


def test_a_model_that_looks_back_finds_it_through_the_whole_of_diagnose(lab_model, tmp_path, monkeypatch):
    """The model's last logits are put in by hand: it says what followed the last eight tokens when they were read before."""
    subject = load(lab_model)

    def copies(ids):
        row = ids[0].tolist()
        logits = torch.zeros(1, 256)
        for at in range(len(row) - 9, -1, -1):
            if row[at : at + 8] == row[-8:]:
                logits[0, row[at + 8]] = 3.0
                return logits
        return logits

    monkeypatch.setattr(subject, "last", copies)
    found = diagnose(subject, tokens(tmp_path), [32, 64], windows=4).to_json()["retrieval"]
    assert found["kind"] == "passage" and found["chance"] == 0.1
    assert len(found["cells"]) == 10 and all(
        cell["share"] == 1.0 and cell["margin"] == pytest.approx(3.0) for cell in found["cells"]
    )
    assert [row["trials"] for row in found["lengths"]] == [10, 10]
