"""The report of resize: numbers derived a second way, and pages of real tiny checkpoints opened in a real browser."""

import importlib
import json
import math
from pathlib import Path

import pytest
import torch
from opened import OWNED, PHONE, Opened

from milepost.checkpoints import resize
from milepost.checkpoints.resizing import report as resized
from milepost.checkpoints.resizing.alike import SHOWN, alike
from milepost.draw import fill

transformers = importlib.import_module("transformers")
IMAGE = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_channels": 1,
    "patch_size": 2,
    "image_size": (8, 12),
    "intermediate_size": 16,
}
TEXT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


def smooth(model):
    """Learned positions as trained ones are: near places alike."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "position_embeddings" in name:
                p.copy_(torch.randn_like(p).cumsum(-2) + 3 * torch.randn(p.shape[-1]))
    return model


def save(data, folder):
    """As `milepost resize --out` does."""
    return fill(folder, "resized", data, resized.document(data))


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image")
    smooth(transformers.ViTModel(transformers.ViTConfig(**IMAGE))).save_pretrained(folder / "vit")
    return resize(folder / "vit", grid=(8, 12), out=folder / "large")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    smooth(transformers.BertModel(transformers.BertConfig(**TEXT))).save_pretrained(folder / "bert")
    return resize(folder / "bert", length=128, out=folder / "long")


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


@pytest.mark.parametrize(("sides", "prefix"), [((4, 7), 1), ((5,), 2), ((1, 3), 0)])
def test_cosines_are_those_of_the_rows_one_by_one(sides, prefix):
    torch.manual_seed(1)
    table = torch.randn(1, prefix + math.prod(sides), 6) + 1
    found, rows = alike(table, sides, prefix), table[0, prefix:].double().tolist()
    across = sides[-1]
    middle = rows[(sides[0] // 2) * across + across // 2] if len(sides) == 2 else rows[across // 2]
    assert [v for row in found["cosine"] for v in row] == pytest.approx([cosine(middle, row) for row in rows])
    beside = [(n, n + 1) for n in range(len(rows)) if (n + 1) % across] + [
        (n, n + across) for n in range(len(rows) - across)
    ]
    assert found["neighbours"] == pytest.approx(sum(cosine(rows[a], rows[b]) for a, b in beside) / len(beside))


def test_a_row_of_zeros_has_no_cosine_and_spoils_nothing():
    table = torch.eye(4).repeat(2, 1) + 1
    table[2] = 0
    found = alike(table, (8,), 0)
    assert [v is None for v in found["cosine"][0]] == [n == 2 for n in range(8)] and math.isfinite(found["neighbours"])
    json.dumps(found, allow_nan=False)
    assert alike(torch.ones(1, 4), (1, 1), 0)["neighbours"] is None


def test_of_a_large_table_some_places_are_kept_with_both_ends():
    found = alike(torch.randn(3 * 1000, 4), (3, 1000), 0)
    rows, columns = found["places"]
    assert rows == [0, 1, 2] and len(columns) == SHOWN and (columns[0], columns[-1]) == (0, 999)
    assert [len(row) for row in found["cosine"]] == [SHOWN] * 3


def test_the_words_follow_the_numbers(image, text):
    for done in (image, text):
        data = done.to_json()
        proved, near = resized.sentences(data)
        old, new = (data["alike"][when]["neighbours"] for when in ("before", "after"))
        assert proved.startswith("PASS") and new > old, "a stretched table has neighbours that are nearer"
        assert f"{new:.3f} on average, where the model has seen {old:.3f}" in near
        assert f"| mean cosine of neighbours | {old:.4f} | {new:.4f} |" in resized.document(data).markdown()
        assert "mean cosine of neighbours" in done._repr_html_()
    failed = image.to_json() | {"ok": False, "checks": [{"name": "loads", "passed": False, "sentence": "no"}]}
    assert (
        resized.sentences(failed)[0] == "FAIL: loads."
        and '<td class="FAIL">FAIL</td>' in resized.document(failed).html()
    )


def test_the_folder_holds_its_report_which_another_resize_does_not_copy(image, tmp_path):
    folder = Path(image.out) / "milepost"
    assert sorted(p.name for p in folder.iterdir()) == ["report.html", "report.md", "resized.json"]
    assert json.loads((folder / "resized.json").read_text()) == image.to_json()
    (folder / "old.json").write_text("{}")
    again = resize(image.out, grid=(4, 6), out=tmp_path / "again")
    assert again.ok and sorted(p.name for p in (tmp_path / "again" / "milepost").iterdir()) == [
        "report.html",
        "report.md",
        "resized.json",
    ]


def test_figures_hold_the_table_before_and_after(image, text):
    data = image.to_json()
    for when, sides in (("before", (4, 6)), ("after", (8, 12))):
        drawn = resized.grid(data, when)
        assert (len(drawn.z), len(drawn.z[0])) == sides
        assert (list(drawn.y), list(drawn.x)) == (list(range(sides[0])), list(range(sides[1])))
        assert drawn.cell == (sides[0] // 2, sides[1] // 2) and drawn.z[drawn.cell[0]][drawn.cell[1]] == pytest.approx(
            1
        )
        assert [list(row) for row in drawn.z] == data["alike"][when]["cosine"]
    drawn = resized.by_place(text.to_json())
    old, new = "before: 32", "after: 128"
    assert list(drawn.lines) == [old, new] and drawn.x_of(old) == [(n + 0.5) / 32 for n in range(32)]
    assert (drawn.x_of(new)[0], drawn.x_of(new)[-1]) == (0.5 / 128, 127.5 / 128) and len(drawn.x_of(new)) == SHOWN
    assert tuple(drawn.lines.values()) == tuple(text.alike[when]["cosine"][0] for when in ("before", "after"))


def test_pages_in_a_browser(chromium, image, text, tmp_path):
    hostile = image.to_json() | {"model": OWNED, "notes": [OWNED]}
    with Opened(chromium, save(hostile, tmp_path / "image"), PHONE, "dark") as seen:
        assert seen.page.title().startswith("resize <img") and seen.drawn() == [1, 1]
        held = seen.ask("[...document.querySelectorAll('.figure script')].map(one => JSON.parse(one.textContent).z)")
        assert [len(rows) for rows in held] == [4, 8] and seen.count(".framed") == 4  # each on a desk and on a phone
        assert seen.count(".chips button") == 0, "there is nothing to hide on a map"
        seen.check()
    with Opened(chromium, save(text.to_json(), tmp_path / "text")) as seen:
        assert seen.drawn() == [2] and seen.visible("part-0") == ["before", "after"]
        seen.check()
