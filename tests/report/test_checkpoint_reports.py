"""The pages of inspect, verify and recommend in a real browser, made from real results of a tiny model."""

import sys
from pathlib import Path

import pytest
from opened import DESK, OWNED, PHONE, Opened

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoints"))
import tiny_models as tiny

from milepost.checkpoints import inspect, recommend, verify
from milepost.checkpoints.inspection import report as inspection
from milepost.checkpoints.recommendation import report as recommendation
from milepost.checkpoints.verification import report as verification
from milepost.draw import fill
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape
from milepost.measure.results import provenance


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Each page, and what its figures must show."""
    home = tmp_path_factory.mktemp("pages")
    tiny.build("llama").save_pretrained(home / "model")
    lab = checkpoint.save(
        Decoder(Shape(256, 1, 32, 2, 32), "rope").start(0), home / "lab", seed=0, steps=0, data="text"
    )
    (home / "text.txt").write_text("some words to read, and some more of them. " * 800)
    inspected = inspect(home / "model", target_length=4096).to_json() | {"provenance": provenance(what="inspect")}
    verified, recommended = (
        verify(home / "model").to_json(),
        recommend(lab, target_length=64, text=home / "text.txt", windows=4).to_json(),
    )
    inspected["warnings"], verified["notes"], recommended["notes"] = [OWNED], [OWNED], [OWNED]
    return {
        name: fill(home / folder, folder, data, report.document(data))  # as each command does with --out
        for name, folder, report, data in (
            ("inspect", "inspection", inspection, inspected),
            ("verify", "verification", verification, verified | {"model": OWNED}),
            ("recommend", "recommendation", recommendation, recommended | {"model": OWNED}),
        )
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", ["inspect", "verify", "recommend"])
def test_everything_is_drawn_and_nothing_is_fetched(chromium, pages, name, width, scheme):
    with Opened(chromium, pages[name], width, scheme) as seen:
        assert seen.drawn() and all(count > 0 for count in seen.drawn())
        assert "owned" not in seen.page.title()[:6]
        seen.check()


def test_a_button_hides_a_method(chromium, pages):
    with Opened(chromium, pages["recommend"]) as seen:
        shown = seen.visible("part-1")
        assert "yarn" in shown and len(shown) == 12
        seen.page.locator("#part-1 .chips button", has_text="yarn").first.click()
        assert "yarn" not in seen.visible("part-1")
