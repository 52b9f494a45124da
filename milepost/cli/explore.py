"""explore: the page of pictures that move."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli.shared import Json, aside, print_json, teaching


@teaching
def explore_command(
    view: Annotated[
        str,
        typer.Option(
            help="Where to begin: code, distance, clocks, slopes, buckets, scalings, plane, attention or permute."
        ),
    ] = "code",
    encoding: Annotated[
        list[str] | None,
        typer.Option("--encoding", help="A spec, such as `rope(base=500000.0)`; twice for two side by side."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the view, such as `target=32768`; as often as needed."),
    ] = None,
    language: Annotated[str, typer.Option("--lang", help="en or zh.")] = "en",
    port: Annotated[
        int, typer.Option(help="Where to serve; the next free port where it is busy.", min=1, max=65535)
    ] = 8713,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    share: Annotated[bool, typer.Option("--share", help="Serve to other machines too, not to this one alone.")] = False,
    as_json: Json = False,
) -> None:
    """A page of pictures that move, on this machine alone: encodings, clocks, scalings, attention. Ends with Ctrl-C.

    With --json no page is served: the view's data are printed, figures as numbers and as SVG.

    Example: `milepost explore`, or
    `milepost explore --view clocks --encoding "rope(base=500000.0)" --set target=32768 --json`
    """
    from milepost.explore.answer import answer

    values = dict(_pair(text) for text in settings or [])
    specs = encoding or []
    if len(specs) > 2:
        raise ValueError(f"one encoding or two side by side, got {len(specs)}")
    queries = [{**values, "lang": language, "encoding": spec} for spec in specs] or [{**values, "lang": language}]
    asked = [answer(view, query) for query in queries]  # a mistake is said before anything is served
    if as_json:
        print_json(asked[0] if len(asked) == 1 else asked)
        return
    _serve(
        {
            "view": view,
            **dict(zip("ab", (result["spec"] for result in asked), strict=False)),
            **values,
            "lang": language,
        },
        port,
        not no_open,
        share,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set wants name=value, such as target=32768, got {text!r}")
    return name, value


def _serve(state: dict[str, str], port: int, browse: bool, share: bool) -> None:
    """Serve until Ctrl-C."""
    import webbrowser
    from urllib.parse import urlencode

    from milepost.explore.app import HOST
    from milepost.explore.server import LOCAL, opened

    words = aside()
    server, notice = opened(port, HOST if share else LOCAL)
    if notice:
        words.print(notice, soft_wrap=True)
    if share:
        words.print(
            "--share: everybody who can reach this machine can open the page; it asks for no password",
            style="bold red",
            soft_wrap=True,
        )
    address = f"{server.address}?{urlencode(state)}"
    words.print(f"milepost explore: {address}\nCtrl-C ends it", soft_wrap=True, highlight=False)
    if browse and not webbrowser.open(address):
        words.print("no browser was found: open the address above yourself", soft_wrap=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        words.print("ended")
    finally:
        server.server_close()
