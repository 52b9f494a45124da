"""A page of the handbook for each encoding, scaling and map: its module's docstring and its picture.

Nothing is written twice.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import claimed
import explored
import portraits

import milepost
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import DECLARED, measured, page
from milepost.maps import NAMES as MAPS
from milepost.scaling import SCALINGS

HOME = Path(milepost.__file__).parent
GROUPS = {
    "No position": ("nope",),
    "Added to the embedding": ("integer", "binary", "sinusoidal", "learned"),
    "Q and k": ("rope", "xpos", "temperature", "ssmax", "learned_spectrum", "fope", "grape", "rope_id"),
    "Logits, by position": ("alibi", "t5", "kerple", "sandwich", "fire"),
    "Logits, by content": ("shaw", "transformer_xl", "deberta", "cope", "pope", "dape", "stick_breaking"),
    "Hidden states": ("fox", "relative_logits", "selective_rope", "path", "grape_additive"),
    "Values": ("vo_rope",),
    "In space": tuple(SPACE),
}
"""Every encoding, by where it enters."""
POINTS = {
    "embed": "the embedding", "query": "queries", "key": "keys", "bias": "logits, by position", "rescore": "scores, "
    "by content", "output": "the output", "spread": "weights, in place of a softmax", "features": "hidden states",
    "gate": "logits, by gates of tokens", "weigh": "logits, by hidden states", "relate": "scores, by hidden states",
    "value": "values", "restore": "the output, by the query's position"
}  # fmt: skip
SAID = {
    "shift_invariant": "logits keep when all positions are shifted",
    "toeplitz": "its bias is a function of i - j",
    "causal_only": "refuses attention without a causal mask",
    "rotation": "turns by pure rotations",
    "length_dependent": "depends on the length of the text",
    "negative": "takes negative positions",
    "fractional": "takes positions that are no whole numbers",
}
"""What each declaration means, in words."""


def docstring(folder: str, name: str) -> tuple[str, str]:
    """The title of a module, and the rest of its docstring as Markdown; the lines `Mechanism:` to `Used by:` become a
    table."""
    text = ast.get_docstring(ast.parse((HOME / folder / f"{name}.py").read_text(encoding="utf-8"))) or ""
    title, _, rest = text.partition("\n")
    blocks = []
    for block in re.split(r"\n\s*\n", rest.strip("\n")):
        if block.startswith("    "):
            blocks.append("```text\n" + "\n".join(line.removeprefix("    ") for line in block.splitlines()) + "\n```")
        elif block.startswith("Mechanism:"):
            rows = [line.partition(":") for line in block.splitlines()]
            blocks.append(
                "| In short | |\n|---|---|\n"
                + "\n".join(f"| {field} | {_plain(value.strip())} |" for field, _, value in rows)
            )
        else:
            blocks.append(_plain(re.sub(r"^Departure:", "**Departure:**", block)))
    return title.rstrip("."), "\n\n".join(blocks)


def _plain(words: str) -> str:
    """Words of a docstring that Markdown would take for its own: products, indices, bars and brackets."""
    pieces = re.split(r"(`[^`]*`|\*\*Departure:\*\*)", words)
    return "".join(
        piece if piece.startswith(("`", "**")) else re.sub(r"([*_|<\[\]])", r"\\\1", piece) for piece in pieces
    )


def encoding(name: str) -> str:
    """The page of an encoding."""
    title, body = docstring("encodings", name)
    about = page(name)
    where = ", ".join(POINTS[point] for point in about.points) or "nowhere"
    told = [f"| {SAID[key]} | {'yes' if about.properties[key] else 'no'} |" for key in DECLARED]
    cost = measured(name).get("cost")
    arguments = ", ".join(f"{word}={default}" if default else word for word, default in about.arguments.items())
    more = [f"Acts on: {where}. In Python `milepost.{about.cls}({arguments})`, in specs `{name}`."]
    more += [f"Measured by `make bench`: {cost}."] if cost else []
    shown = f"milepost show {name} --out {name}.html\nmilepost check {name}\n"
    laws = "| What it declares, and the laws check | |\n|---|---|\n" + "\n".join(told)
    return _page(title, body, f"encoding-{name}", more, shown, laws, f"milepost/encodings/{name}.py")


def map_page(name: str) -> str:
    """The page of a map of positions."""
    title, body = docstring("maps", name)
    spec = portraits.SPECS[name]
    shown = f'milepost list {name}\nmilepost check "{spec}"\n'
    return _page(title, body, f"map-{name}", [f"The picture shows `{spec}`."], shown, "", f"milepost/maps/{name}.py")


def scaling(name: str) -> str:
    """The page of a scaling."""
    title, body = docstring("scaling", name)
    _, text = portraits.scaling(name)
    shown = (
        ""
        if name == "longrope"
        else f'milepost check "rope(scaling={text.partition(", for a text")[0]})" --head-dim 128\n'
    )
    what = f"The picture shows {text if name == 'longrope' else f'`{text}`'}."
    return _page(title, body, f"scaling-{name}", [what], shown, "", f"milepost/scaling/{name}.py")


def _page(title: str, body: str, figure: str, more: list[str], shown: str, laws: str, source: str) -> str:
    commands = f"```\n{shown}```" if shown else ""
    parts = [
        f"# {_plain(title)}",
        body,
        f"![{title}](../figures/{figure}.svg)",
        *more,
        commands,
        laws,
        f"*This page is the docstring of `{source}`.*",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def index() -> str:
    """The list of all pages."""
    parts = [
        "# Every encoding, scaling and map",
        "Each page is the docstring of its module, with a picture that the package draws.",
        "",
    ]
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
        parts += [f"- [{_plain(page(name).title)}]({name}.md)" for name in names]
        parts.append("")
    parts.append("## Scalings of RoPE\n")
    parts += [f"- [{_plain(docstring('scaling', name)[0])}](../scalings/{name}.md)" for name in SCALINGS]
    parts.append("\n## Maps of positions\n")
    parts += [f"- [{_plain(docstring('maps', name)[0])}](../maps/{name}.md)" for name in MAPS]
    return "\n".join(parts) + "\n"


def all_pages() -> dict[str, str]:
    """Every generated page: its path and its Markdown."""
    listed = {name for names in GROUPS.values() for name in names}
    if listed != set(NAMES | SPACE):
        raise ValueError(
            "every encoding has a place in GROUPS; it differs from encodings.NAMES and SPACE by "
            f"{sorted(listed ^ set(NAMES | SPACE))}"
        )
    found = {"encodings/index.md": index(), "claims.md": claimed.page(), "explore.md": explored.page()}
    found |= {f"encodings/{name}.md": encoding(name) for name in (*NAMES, *SPACE)}
    found |= {f"scalings/{name}.md": scaling(name) for name in SCALINGS}
    return found | {f"maps/{name}.md": map_page(name) for name in MAPS}


def nav() -> list[dict[str, object]]:
    """The pages as a part of the site's navigation."""
    groups: list[object] = ["encodings/index.md"]
    groups += [{group: [f"encodings/{name}.md" for name in names]} for group, names in GROUPS.items()]
    groups += [
        {"Scalings of RoPE": [f"scalings/{name}.md" for name in SCALINGS]},
        {"Maps of positions": [f"maps/{name}.md" for name in MAPS]},
    ]
    return [{"Encodings": groups}]
