"""The explorer as a Hugging Face Space: the same server, on the port and the host that a Space wants.

    python -m milepost.explore.app

A Space is a container for everybody to look at, so here, and with --share, the page is served to other machines.
"""

from __future__ import annotations

from milepost.explore.server import PageServer

HOST, PORT = "0.0.0.0", 7860


def main(host: str = HOST, port: int = PORT) -> None:
    """Serve until stopped."""
    with PageServer(host, port) as server:
        print(f"milepost explore on port {server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
