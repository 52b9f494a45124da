"""The text: the same split everywhere, training and test apart, stretches as documented, and sentences for what is
no text.
"""

import hashlib
import json

import numpy as np
import pytest
import torch

from milepost.lab import corpus
from milepost.lab.checkpoint import load
from milepost.lab.measure import Texts, model_for
from milepost.lab.plan import make as make_plan
from milepost.lab.report import document
from milepost.lab.text_trial import run_text_trial
from milepost.lab.trial import Trial


def digest(folder):
    files = sorted(folder.rglob("*.txt"))
    return hashlib.sha256(
        b"".join(f.relative_to(folder).as_posix().encode() + b"\0" + f.read_bytes() + b"\0" for f in files)
    ).hexdigest()


def test_the_split_is_decided_by_names_and_the_digest_by_bytes(texts):
    one, two = (corpus.read(texts, longest=64) for _ in range(2))
    chosen = {
        f.name for f in texts.iterdir() if int(hashlib.sha256(f.name.encode()).hexdigest(), 16) % corpus.TESTED == 0
    }
    assert set(one.names) == chosen and 0 < len(chosen) < 20
    assert one.digest == two.digest == digest(texts)
    assert all(np.array_equal(a, b) for a, b in zip((one.train, *one.test), (two.train, *two.test), strict=True))
    train = b"".join(f.read_bytes() for f in sorted(texts.iterdir()) if f.name not in chosen)
    assert one.train.tobytes() == np.frombuffer(train, dtype=np.uint8).astype(np.int64).tobytes()
    assert [bytes(t.astype(np.uint8)) for t in one.test] == [(texts / name).read_bytes() for name in one.names]
    assert one.bytes_per_token == 1.0 and one.vocabulary == 256


def test_a_changed_byte_or_name_is_another_digest(texts, tmp_path):
    for name, content in (("a.txt", b"x" * 999), ("b.txt", b"y" * 999)):
        (tmp_path / name).write_bytes(content)
    seen = {corpus.read(tmp_path, longest=8).digest}
    (tmp_path / "a.txt").write_bytes(b"x" * 998 + b"y")
    seen.add(corpus.read(tmp_path, longest=8).digest)
    (tmp_path / "a.txt").rename(tmp_path / "c.txt")
    seen.add(corpus.read(tmp_path, longest=8).digest)
    assert len(seen) == 3


def test_of_few_files_the_last_eighth_of_each_is_for_testing(tmp_path):
    content = bytes(range(1, 251)) * 4
    (tmp_path / "one.txt").write_bytes(content)
    found = corpus.read(tmp_path / "one.txt", longest=64)
    assert bytes(found.train.astype(np.uint8)) == content[:875]
    assert bytes(found.test[0].astype(np.uint8)) == content[875:]


def test_files_too_short_to_be_tested_are_left_out_of_the_test(texts):
    sizes = [len((texts / name).read_bytes()) for name in corpus.read(texts, longest=64).names]
    longest = max(sizes) - 1
    assert len(corpus.read(texts, longest=longest).test) == sum(size > longest for size in sizes) >= 1
    with pytest.raises(
        ValueError, match=f"the longest test text has {max(sizes)} tokens, and {max(sizes) + 1} are needed"
    ):
        corpus.read(texts, longest=max(sizes))


def test_the_standard_library_is_there_and_large_enough_for_every_profile():
    found = corpus.read(longest=4096, trained=512)
    about = found.describe()
    assert about["train_tokens"] > 4_000_000 and about["test_files"] >= 16 and len(about["sha256"]) == 64
    assert not any("site-packages" in name or name.startswith("test/") for name in found.names)


def test_windows_are_spread_over_the_files_and_do_not_overlap():
    test = [np.arange(100), 1000 + np.arange(35), 2000 + np.arange(9)]
    found = corpus.windows(test, 10, 99)
    assert [(n, int(w[0])) for n, w in found[:4]] == [(0, 0), (1, 1000), (0, 11), (1, 1011)]
    assert all(len(w) == 11 for _, w in found)
    tokens = [t for _, w in found for t in w.tolist()]
    assert len(set(tokens)) == len(tokens) == 11 * (100 // 11 + 35 // 11)
    assert len(corpus.windows(test, 10, 3)) == 3


def test_a_batch_depends_on_seed_and_step_alone():
    row = np.arange(1000)
    one = corpus.batch(row, 16, 4, seed=3, step=7)
    assert one.shape == (4, 17) and np.array_equal(np.diff(one), np.ones((4, 16)))
    assert np.array_equal(one, corpus.batch(row, 16, 4, seed=3, step=7))
    assert not np.array_equal(one, corpus.batch(row, 16, 4, seed=3, step=8))
    assert not np.array_equal(one, corpus.batch(row, 16, 4, seed=4, step=7))
    starts = np.concatenate([corpus.batch(np.arange(20), 16, 8, 0, step)[:, 0] for step in range(50)])
    assert set(starts.tolist()) == {0, 1, 2, 3}  # every stretch that fits, the last one too


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "holds no text: it is empty"),
        ({"a.txt": b""}, "holds no text: it is empty"),
        ({"a.bin": b"\0\1\2" * 999}, "holds binary data, not text: a.bin has NUL bytes"),
        (
            {"a.txt": b"hello"},
            "the longest test text has 1 tokens, and 65 are needed to test 64; give more text, or test shorter",
        ),
    ],
)
def test_what_is_no_text_is_said_in_a_sentence(tmp_path, content, said):
    for name, part in content.items():
        (tmp_path / name).write_bytes(part)
    with pytest.raises(ValueError, match=said):
        corpus.read(tmp_path, longest=64)


def test_a_text_that_is_not_there_or_too_short_to_train_on(tmp_path):
    with pytest.raises(ValueError, match="there is no text at"):
        corpus.read(tmp_path / "none", longest=64)
    (tmp_path / "a.txt").write_bytes(b"x" * 400)
    with pytest.raises(ValueError, match="has 350 tokens to train on, and more than 512 are needed"):
        corpus.read(tmp_path, longest=8, trained=512)


def test_a_file_that_can_not_be_read_is_named(tmp_path, monkeypatch):
    from pathlib import Path

    (tmp_path / "a.txt").write_bytes(b"x" * 400)

    def refused(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(ValueError, match=r"can't read .*a\.txt: Permission denied"):
        corpus.read(tmp_path, longest=8)


def test_binary_files_among_texts_are_left_out_and_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"hello " * 200)
    (tmp_path / "b.bin").write_bytes(b"\0" * 999)
    found = corpus.read(tmp_path, longest=16)
    assert found.names == ("a.txt",) and found.describe()["binary_files_left_out"] == 1


def test_a_tokenizer_file_makes_the_tokens_and_bits_stay_per_byte(texts, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.WordLevel(unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train([str(f) for f in texts.iterdir()], trainers.WordLevelTrainer(special_tokens=["?"], show_progress=False))
    made.save(str(tmp_path / "tokenizer.json"))
    found = corpus.read(texts, str(tmp_path / "tokenizer.json"), longest=64)
    assert found.vocabulary == corpus.vocabulary(str(tmp_path / "tokenizer.json")) == 17
    assert [len(t) for t in found.test] == [500] * len(found.test)
    assert found.bytes_per_token == sum(len((texts / name).read_bytes()) for name in found.names) / (
        500 * len(found.names)
    )
    assert found.digest != corpus.read(texts, longest=64).digest  # the tokenizer decides the numbers too
    (tmp_path / "no.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match="is no tokenizer"):
        corpus.vocabulary(str(tmp_path / "no.json"))
    with pytest.raises(ValueError, match="there is no file"):
        corpus.vocabulary(str(tmp_path / "none.json"))


def test_a_second_text_is_tested_whole_and_trained_on_never(texts, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    (second / "tale.txt").write_text("Call me Ishmael. " * 20)
    (second / "short.txt").write_text("no")
    plan = make_plan("tiny", encodings=["nope"], text=str(texts), second_text=str(second), lengths="1x,4x")
    data, alone = plan.read(), corpus.read(texts, longest=64, trained=16)
    assert data.second is not None and data.second.names == ("tale.txt",) and len(data.second.train) == 0
    assert bytes(data.second.test[0].astype("uint8")) == b"Call me Ishmael. " * 20
    assert data.train.tolist() == alone.train.tolist() and data.names == alone.names
    about = data.describe()
    assert about["sha256"] == alone.digest and about["second"]["sha256"] != alone.digest  # runs stay comparable
    (second / "tale.txt").write_text("call me Ishmael. " * 20)
    assert plan.read().digest != data.digest  # and a changed second text is seen by --resume
    with pytest.raises(ValueError, match="its longest file has 340 tokens, and 401 are needed to test 400"):
        corpus.read_second(second, longest=400)


def test_the_losses_of_a_second_text_are_those_of_the_model_on_it(small, texts, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    for number in range(3):
        (second / f"tale-{number}.txt").write_text("Call me Ishmael. Some years ago " * (4 + number))
    plan = small(["rope"], second_text=str(second))
    result = run_text_trial(plan, Trial("rope", 0), tmp_path / "trial")
    model, windows = load(tmp_path / "trial"), Texts.of(plan, plan.read().second).windows
    assert len(windows) == 5  # of 65 tokens, from texts of 128, 160 and 192
    for run in result["runs"]:
        rows = {row["length"]: row["loss"] for row in run["second_by_length"]}
        assert list(rows) == [16, 32, 64]
        for length, loss in rows.items():
            reader = model_for(plan, Trial("rope", 0), model, run["strategy"], length)
            ids = torch.from_numpy(windows[:, -length - 1 :])
            expected = torch.nn.functional.cross_entropy(
                reader(ids[:, :-1])[:, -8:].flatten(0, 1).double(), ids[:, -8:].flatten()
            )
            assert loss == pytest.approx(expected.item(), abs=1e-5)
    page = document(gathered(plan, result)).markdown()
    assert "## On a second text" in page and "The same models on second" in page


def gathered(plan, result):
    """A run's results, as the driver makes them."""
    protocol = plan.protocol(plan.read())
    return {"schema": 1, "runs": result["runs"], "comparisons": [], "missing": [], "failed": [],
            "provenance": {"date": "", "protocol": protocol, "versions": {}}}  # fmt: skip
