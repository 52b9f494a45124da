"""The handbook is true and whole: its numbers are those of the results, its questions are all there, its pages are
the package's own words.
"""

import json
import re

import pytest
from handbook_pages import DOCS, ELSEWHERE, FENCE, PAGES, ROOT, TOOLS, read

from milepost.encodings import NAMES, SPACE
from milepost.maps import NAMES as MAPS
from milepost.scaling import SCALINGS

# -- numbers
# -------------------------------------------------------------------------------------------------------------


def prose(name):
    """A page without its fences."""
    return FENCE.sub("", read(name))


def measured():
    """Every loss of the standard run, its change, and what short texts pay for a strategy, as pages write them."""
    import lab

    losses, changes, costs = set(), set(), set()
    first = lab.lengths()[0]
    for encoding, strategy in {(run["encoding"], run["strategy"]) for run in lab.results()["runs"]}:
        start = lab.loss(encoding, first, strategy)
        for length in lab.lengths():
            value = lab.loss(encoding, length, strategy)
            if value is not None:
                losses.add(f"{value:.3f}")
                changes.add(f"{value / start - 1:+.1%}")
        fixed = [
            row["loss"]
            for run in lab.runs(encoding, strategy)
            for row in run.get("fixed", [])
            if row["length"] == first
        ]
        if fixed:
            costs.add(f"{sum(fixed) / len(fixed) - start:.3f}")
    return losses, changes, costs


@pytest.mark.parametrize("name", [name for name in PAGES if name != "engines.md"])  # its numbers are frequencies
def test_numbers_of_a_page_are_those_of_the_standard_run(name):
    losses, changes, costs = measured()
    text = prose(name)
    wrong = [word for word in re.findall(r"(?<![\d.,/])\d\.\d{3}(?!\d)", text) if word not in losses | costs]
    wrong += [word for word in re.findall(r"[+]\d+\.\d%", text) if word not in changes]
    wrong += [word for word in re.findall(r"by (\d+\.\d%)", text) if f"+{word}" not in changes]
    assert not wrong


def test_the_table_of_lengths_is_that_of_the_reference_run():
    import lab

    rows = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \| ([\d.]+) \| (\S+) \|$", read("lengths.md"), flags=re.M)
    assert len(rows) >= 9
    for encoding, short, long, change in rows:
        a, b = lab.loss(encoding, 64), lab.loss(encoding, 512)
        assert (short, long, change) == (f"{a:.3f}", f"{b:.3f}", f"{b / a - 1:+.1%}")


def test_costs_are_those_of_the_benchmark():
    result = json.loads((DOCS / "bench" / "bench.json").read_text(encoding="utf-8"))
    ours = {(r["scheme"], r["implementation"], r["length"]): r for r in result["rows"] if r["pass"] == "forward"}
    rows = re.findall(
        r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+)( \(transformers, eager\))? \| (\d+) MB \| (\d+) MB \|$",
        read("cost.md"),
        flags=re.M,
    )
    assert len(rows) == 10
    for scheme, ratio, plain, eager, extra, much in rows:
        mine, theirs = (
            ours[scheme, "milepost", 4096],
            ours[scheme, "transformers eager" if eager else "materialised", 4096],
        )
        assert (ratio, plain) == (f"{mine['ratio']:.2f}", f"{theirs['ratio']:.2f}")
        assert (extra, much) == (f"{mine['peak_mb']:.0f}", f"{theirs['peak_mb']:.0f}")


def test_what_the_walk_says_of_a_recurrent_network_is_what_its_figure_found():
    import order

    found = {name.split(", R2 = ")[0]: name.split(" = ")[1] for name in order.recurrent()[1].lines if "R2" in name}
    words = " ".join(read("walk.md").split())
    assert (
        f"R² is {found['GRU']} for a straight line, against {found['attention without position, 3 layers']} for three "
        "causal layers" in words
    )


@pytest.mark.parametrize(
    ("name", "claim", "number", "says"),
    [
        (
            "walk.md",
            "rnn",
            "trained",
            "a line reads the place with an R² of {value:.2f} ({low:.2f} to {high:.2f}, [measured](claims.md#rnn))",
        ),
    ],
)
def test_what_a_page_says_of_a_claim_is_what_was_measured(name, claim, number, says):
    rows = {row["id"]: row for row in json.loads((DOCS / "claims" / "claims.json").read_text(encoding="utf-8"))["rows"]}
    assert says.format(**rows[claim]["numbers"][number]) in " ".join(read(name).split())


def test_what_is_said_to_be_measured_later_is_not_measured():
    about = json.loads((DOCS / "claims" / "claims.json").read_text(encoding="utf-8"))
    (base_up,) = (row for row in about["rows"] if row["id"] == "base-up")
    said = "[to be measured](claims.md#base-up)" in " ".join(read("queries-and-keys.md").split())
    assert said == ("far" not in base_up["numbers"]) == ("base-up" in about["provenance"]["protocol"]["open"])


# -- questions
# -----------------------------------------------------------------------------------------------------------

ASKED = re.findall(
    r"\S+",
    """1.1 1.2 1.3 1.4 2. 2.1 3.1 3.2 3.2.1 3.2.2 3.2.3 3.3 4.1 4.1.1 4.2 4.2.1 4.3 4.3.1 4.4 4.4.1 4.4.2 4.5
    5.1 5.2 5.3 5.3.1 5.3.2 5.3.3 5.3.4 5.3.5 5.4 6. 6.1 6.2 7. 7.1""",
)
"""The numbers of the questions, in the order of the notes."""


def sections():
    """Each question's heading and what follows it, page after page."""
    for name in ("basics", "absolute", "relative", "rope", "choosing", "more"):
        for part in re.split(r"^## ", read(f"questions/{name}.md"), flags=re.M)[1:]:
            yield part.partition("\n")[::2]


def test_every_question_is_there_in_its_order():
    numbered = [title.split()[0] for title, _ in sections() if title[0].isdigit()]
    assert numbered == ASKED
    assert sum(1 for title, _ in sections() if not title[0].isdigit()) >= 4


@pytest.mark.parametrize(("title", "body"), list(sections()), ids=lambda value: value.split()[0])
def test_a_question_has_its_original_an_answer_a_command_and_a_figure(title, body):
    assert re.search(
        r"^\*[^*]*[\u4e00-\u9fff][^*]*\*$", body.split("\n\n")[0].strip() or body.split("\n\n")[1], flags=re.M
    ), "the Chinese original"
    assert any(language in ("", "python") for language, _ in FENCE.findall(body)), "a command or a snippet"
    figures = re.findall(r"!\[([^\]]+)\]\(\.\./([\w/.-]+)\)", body)
    assert figures and all(words for words, _ in figures)
    words = re.sub(r"!\[.*|^\*.*", "", FENCE.sub("", body), flags=re.M)
    assert 15 < len(words.split()) < 160, "a few sentences"


# -- what is made
# --------------------------------------------------------------------------------------------------------


def test_every_figure_that_a_page_shows_is_made():
    import portraits
    from figures import FIGURES

    known = (
        set(FIGURES)
        | {f"encoding-{n}" for n in NAMES | SPACE}
        | {f"map-{n}" for n in MAPS}
        | {f"scaling-{n}" for n in SCALINGS}
    )
    shown = {name for page in (*PAGES, *ELSEWHERE) for name in re.findall(r"figures/([\w-]+)\.svg", read(page))}
    assert shown <= known
    assert set(FIGURES) <= shown, "a figure that no page shows"
    assert set(portraits.all_portraits()) == known - set(FIGURES)


def test_the_page_of_the_explorer_has_every_view_as_its_command_opens_it():
    import explored

    from milepost.explore.answer import answer
    from milepost.explore.views import VIEWS

    text, pictures = explored.page(), explored.drawn()
    assert list(explored.TRIED) == list(VIEWS)
    assert set(re.findall(r"figures/([\w-]+)\.svg", text)) == set(pictures)
    for view, (encodings, values, _) in explored.TRIED.items():
        assert explored.command(view) in text
        for n, spec in enumerate(encodings):
            found = answer(view, {**values, "encoding": spec})
            assert (
                found["sentence"] in text
                and [one.to_json() for one in pictures[f"explore-{view}-{n}"]] == found["figures"]
            )


def test_a_page_of_an_encoding_is_its_docstring():
    import pages

    from milepost.encodings.catalogue import page

    made = pages.all_pages()
    for name in (*NAMES, *SPACE):
        text = made[f"encodings/{name}.md"]
        about = page(name)
        assert (
            about.formula.splitlines()[0] in text
            and f"figures/encoding-{name}.svg" in text
            and f"milepost check {name}" in text
        )
        for line in about.facts:
            assert f"| {line} |" in text
    assert len(made) == 3 + len(NAMES | SPACE) + len(SCALINGS) + len(MAPS)
    for name in SCALINGS:
        assert f"figures/scaling-{name}.svg" in made[f"scalings/{name}.md"]


def test_nothing_of_a_workplace_is_in_the_handbook():
    for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"), *TOOLS.glob("*.py"), ROOT / "mkdocs.yml"]:
        assert not re.search(r"/(work|home|root|tmp)/", path.read_text(encoding="utf-8")), path


def test_the_figures_of_the_migration_are_those_that_were_measured():
    told = json.loads((DOCS / "migration" / "migration.json").read_text(encoding="utf-8"))
    inside, share, tokens = told["inside"], told["share"], told["provenance"]["protocol"]["tokens"]
    page = " ".join(read("migration.md").split())
    for number in (
        f"{inside['before']['value']:.4f} before",
        f"{inside['swapped']['value']:.4f} right",
        f"{inside['recovered']['value']:.4f} after",
    ):
        assert number in page
    assert f"{share['value']:.1%} of the gap (95% between {share['low']:.1%} and {share['high']:.1%})" in page
    assert f"{told['past'][0]['difference']['value']:.4f} nats more" in page and told["past"][0]["works"]
    assert (
        f"{tokens['trained']:,} bytes" in page
        and f"{tokens['migration']:,} tokens" in page
        and 10 * tokens["migration"] <= tokens["trained"]
    )
    assert share["low"] > 0.9 and told["recovered"] and told["ok"]
    import lab

    (panel,) = lab.migration()
    assert (
        panel.marks[0].at == told["old"]
        and panel.lines["before"][0] == told["by_position"][0]["before"]["value"]
        and panel.lines["before"][-1] is None
    )
    assert (
        panel.lines["after recovery"][-1]
        == told["by_position"][-1]["recovered"]["value"]
        < panel.lines["after the swap"][-1]
    )
