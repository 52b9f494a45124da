"""What is asked for: all that can be wrong is said before any training."""

import json
import sys

import pytest

from milepost.lab.model import Decoder, Shape
from milepost.lab.plan import PROFILES, TextPlan, make, read_lengths
from milepost.lab.tasks import TASKS
from milepost.lab.user_modules import import_named


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_a_plan(profile):
    plan = make(profile, tasks=TASKS)
    assert plan.lengths == tuple(int(n * plan.shape.length) for n in (1, 1.25, 1.5, 2, 4, 8))
    assert plan.targets == plan.shape.length // 2
    own = [trial for trial in plan.trials() if not trial.as_large_as]
    assert len(own) == len(plan.seeds) * len(plan.encodings) * (1 + len(TASKS))
    assert len(plan.trials()) == len({trial.key for trial in plan.trials()})
    assert TextPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.trial(plan.trials()[-1].key) == plan.trials()[-1]


def test_the_standard_profile_is_what_was_promised():
    plan = make("standard")
    assert plan.shape.length >= 128 and len(plan.seeds) == 3 and len(plan.encodings) == 15
    assert 0.7e6 < Decoder(plan.shape, "rope").count() < 1.5e6
    assert 'sinusoidal(width=36, how="concat")' in plan.encodings


@pytest.mark.parametrize(("profile", "least"), [("quick", 8), ("standard", 20), ("full", 20)])
def test_a_model_reads_so_many_tokens_a_parameter(profile, least):
    size = PROFILES[profile]
    tokens = size.steps * size.rows * size.length
    plain = Decoder(size.shape(), "rope").count()
    assert tokens / plain >= least and size.tokens_per_parameter() == pytest.approx(tokens / plain, rel=0.05)


def test_the_demo_has_at_least_what_was_promised():
    plan = make("quick")
    assert {"nope", "sinusoidal", "learned", "t5", "alibi", "rope"} <= set(plan.encodings)
    assert {"none", "linear", "ntk", "dynamic", "yarn"} <= set(plan.strategies)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"profile": "quik"}, "did you mean 'quick'"),
        ({"encodings": ["rpoe"]}, "unknown encoding 'rpoe'.*did you mean 'rope'"),
        ({"encodings": ["rope(bsae=1.0)"]}, "did you mean 'base'"),
        ({"encodings": ["no_such_module:Thing"]}, "can't import 'no_such_module'"),
        ({"encodings": ["json:JSONDecoder"]}, "is not a subclass of milepost's Encoding"),
        ({"strategy_names": ["yran"]}, "did you mean 'yarn'"),
        ({"tasks": ["recal"]}, "did you mean 'recall'"),
        ({"tasks": ["recall"], "lengths": "4"}, "at least 8 tokens, got 4"),
        ({"tune": -1}, "--tune is a number of steps"),
        ({"train_length": 4}, "at least 8 tokens, got 4"),
        ({"seeds": [1, 1]}, "seeds are different whole numbers"),
        ({"seeds": [-1]}, "seeds are different whole numbers"),
        ({"lengths": "1x,zwei"}, "got 'zwei'"),
        ({"lengths": ""}, "got ''"),
        ({"lengths": "0x"}, "got '0x'"),
        ({"tokenizer": "none.json"}, "there is no file none.json"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_a_sentence(how, said):
    with pytest.raises(ValueError, match=said):
        make(**how)


def test_lengths_are_times_or_numbers():
    assert read_lengths("8x,1x, 2x", 64) == (64, 128, 512)
    assert read_lengths("1.5x,1k,100", 64) == (96, 100, 1024)
    with pytest.raises(ValueError, match=r"got '1\.01x'"):
        read_lengths("1.01x", 64)


def test_a_strangers_module_is_imported_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "a_strangers_module.py").write_text("import milepost\nclass Mine(milepost.Encoding):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = "a_strangers_module:Mine"
    with pytest.raises(ValueError, match="import it first"):
        Shape().build(spec)
    assert make("tiny", encodings=[spec + " + alibi"]).encodings == (spec + " + alibi",)
    del sys.modules["a_strangers_module"]
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    monkeypatch.chdir("/")
    import_named([spec], [str(tmp_path)])  # as another machine does, which is told where to look
    assert repr(Shape().build(spec)) == spec + "()"
    del sys.modules["a_strangers_module"]


def test_files_are_named_so_that_another_folder_finds_them(texts, monkeypatch):
    monkeypatch.chdir(texts.parent)
    assert make("tiny", text=texts.name).text == str(texts.resolve())
