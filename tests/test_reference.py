"""The reference of public names: every one is there, with its own words."""

import re
import sys
from pathlib import Path

import milepost

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools" / "handbook"))

import reference  # noqa: E402

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_every_public_name_has_its_entry():
    assert sorted(reference.MARK.findall(PAGE)) == sorted(milepost.__all__)


def test_an_entry_is_the_signature_and_docstring_of_the_package():
    text = reference.filled(PAGE)
    assert ":::" not in text
    assert "turned: Turned = False" in text or "turned: Literal" in text
    for name in milepost.__all__:
        doc = getattr(milepost, name).__doc__
        assert doc, name
        assert re.sub(r"\s+", " ", doc.strip().splitlines()[0]) in re.sub(r"\s+", " ", text), name
