"""Server: the answers over HTTP. Python's own server, on 127.0.0.1 by default: one page and its data.

    /                    the page (any query: its state)
    /page.css /page.js   what it is made of
    /api/start           words, views, controls
    /api/VIEW            the answer to a query as JSON, or {"error": why there is none}
    /file/VIEW.csv|.json|.png|.svg    one figure of an answer, to keep; &figure=0

Refusals are sentences: status 400 for an address that can't be read or a file that can't be made, 403 for a request of
another origin, 404 for an address with nothing there, 413 for a request with a body, 503 for too many connections. A
fault of ours is a sentence with status 500, and its trace goes to the terminal. The page may load from this server
only: its policy forbids all else, inline scripts and styles included.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import sys
import threading
import traceback
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import torch

from milepost.explore.answer import KINDS, LONGEST, answer, file, light, start
from milepost.explore.words import PageWords

PORT, TRIED = 8713, 50
"""Where to begin, and how many ports are tried."""
LOCAL = "127.0.0.1"
HOME = Path(__file__).parent.parent
FILES = {
    "/": ("explore/page/index.html", "text/html"),
    "/page.css": ("explore/page/page.css", "text/css"),
    "/page.js": ("explore/page/page.js", "text/javascript"),
    "/figures.js": ("draw/page/figures.js", "text/javascript"),
    "/controls.js": ("explore/page/controls.js", "text/javascript"),
    "/icon.svg": ("explore/page/icon.svg", "image/svg+xml"),
}
"""What the page is made of; the script of figures is the one of every report."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
CHINESE = re.compile(r"[?&]lang=zh(?:&|$)")
"""Asked for, in an address that may be wrong otherwise."""
SMALL = 1000
"""Bytes below which nothing is compressed."""
SERVED, QUEUED, COMPUTED = 32, 32, 4
"""Connections that are served at a time, that the system lets wait, and answers that are computed at a time.

A browser opens about six connections. An answer takes at most some 200 MB.
"""
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"too many connections; try again\n"
)


class PageServer(ThreadingHTTPServer):
    """A server that knows whether it is for this machine alone."""

    daemon_threads = True
    request_queue_size = QUEUED
    allow_reuse_address = os.name != "nt"  # there it would take a busy port, too

    def __init__(self, host: str, port: int):
        self.host, self.places = host, threading.BoundedSemaphore(SERVED)
        self.computing = threading.BoundedSemaphore(COMPUTED)
        super().__init__((host, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, if one is free; else a sentence, at once."""
        if self.places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.sendall(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOCAL}:{self.server_address[1]}/"

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Answer until stopped, on one thread of torch.

        Figures are small; on a machine that is training, a second thread would make each of them wait.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            super().serve_forever(poll_interval)
        finally:
            torch.set_num_threads(before)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What a request left behind; a page that has gone is no fault, and the terminal stays quiet."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def welcome(self, name: str) -> bool:
        """Whether a request for this host is meant for us; another name may be a page elsewhere that points here."""
        return self.host != LOCAL or name.rpartition(":")[0] in (LOCAL, "localhost")

    def foreign(self, headers: Message, path: str) -> bool:
        """Whether a page of another origin sends this request. A followed link to the page itself is not one."""
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if origin is not None and urlsplit(origin).netloc != headers.get("Host"):
            return True
        opened = headers.get("Sec-Fetch-Mode") == "navigate" and path == "/"
        return site not in ("none", "same-origin") and not opened


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "milepost"
    sys_version = ""
    timeout = 20  # seconds of silence

    def do_GET(self) -> None:
        """Answer, or say in a sentence why not."""
        try:
            status, kind, body, more = self._respond()
        except ValueError as error:
            status, kind, body, more = 400, "application/json", _json({"error": self._translate(str(error))}), {}
        except Exception:
            traceback.print_exc(file=sys.stderr)
            fault = self._translate(
                "something went wrong in milepost itself; the terminal in which it runs has the details"
            )
            status, kind, body, more = 500, "application/json", _json({"error": fault}), {}
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the page has gone, or does not wait for this
            self._send(status, kind, body, more)

    def do_HEAD(self) -> None:
        """The same without a body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What Python's server refuses by itself, in words."""
        self.close_connection = True
        self.headers = getattr(self, "headers", Message())
        self.command = getattr(self, "command", "")
        sentence = (
            f"an address has at most {LONGEST} characters here"
            if code == 414
            else "this server answers GET of HTTP/1.1, and could not read this"
        )
        self._send(code, "application/json", _json({"error": sentence}), {})

    def _respond(self) -> tuple[int, str, bytes, dict[str, str]]:
        if len(self.path) > LONGEST:
            raise ValueError(
                f"an address has at most {LONGEST} characters here, got {len(self.path)}; give a shorter text"
            )
        if not self.server.welcome(self.headers.get("Host", "")):
            return (
                403,
                "text/plain",
                b"this page is for the machine it runs on: open it as 127.0.0.1 or localhost\n",
                {},
            )
        asked = urlsplit(self.path)
        if self.server.foreign(self.headers, asked.path):
            return 403, "text/plain", b"this server answers its own page, not those of other origins\n", {}
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what follows is not read
            return 413, "text/plain", b"a request has no body here; all that is asked stands in the address\n", {}
        if asked.path in FILES:
            name, kind = FILES[asked.path]
            return 200, kind, (HOME / name).read_bytes(), {}
        query = _query(asked.query)
        if asked.path == "/api/start":
            return 200, "application/json", _json(start(query.get("lang", "en"))), {}
        if asked.path.startswith("/api/"):
            return 200, "application/json", _json(self._answer(asked.path.removeprefix("/api/"), query)), {}
        if asked.path.startswith("/file/"):
            view, _, kind = asked.path.removeprefix("/file/").rpartition(".")
            with self.server.computing:
                made = file(view, kind, query)
            body = made if isinstance(made, bytes) else made.encode()
            name = f"milepost-{view}-{int(query.get('figure', '0'))}.{kind}"
            return 200, KINDS[kind], body, {"Content-Disposition": f'attachment; filename="{name}"'}
        path = "".join(letter if letter.isprintable() else "?" for letter in asked.path[:80])
        return 404, "text/plain", f"there is nothing at {path}; the page is at /\n".encode(), {}

    def _answer(self, view: str, query: dict[str, str]) -> dict[str, Any]:
        """An answer, or the sentence that refuses: both are what the page asked for."""
        try:
            with self.server.computing:
                return light(answer(view, query))
        except ValueError as error:
            return {"error": self._translate(str(error))}

    def _translate(self, refusal: str) -> str:
        """A sentence that refuses, in the language of the address."""
        return PageWords("zh" if CHINESE.search(self.path) else "en").refusal(refusal)

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str]) -> None:
        packed = len(body) > SMALL and "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(body, 5, mtime=0) if packed else body
        self.send_response(status)
        if self.close_connection:
            self.send_header("Connection", "close")
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            **({"Content-Encoding": "gzip"} if packed else {}),
            **more,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: the terminal is for what goes wrong."""


def _query(text: str) -> dict[str, str]:
    try:
        return dict(
            parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=100, errors="strict")
        )
    except ValueError:
        raise ValueError(
            "the address can't be read: what follows the ? is name=value, with & between, in UTF-8"
        ) from None


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def opened(port: int, host: str = LOCAL) -> tuple[PageServer, str]:
    """A server on ``port``, or on the next free one; and a sentence where that is another."""
    for other in range(port, min(port + TRIED, 65536)):
        try:
            server = PageServer(host, other)
        except OSError:
            continue
        return server, "" if other == port else f"port {port} is busy: using {other}"
    raise ValueError(
        f"ports {port} to {min(port + TRIED, 65536) - 1} are all busy, or not permitted; choose another with --port"
    )
