"""Requests to a server: bounded, retried with patience, and never sent elsewhere than where they were meant for.

An answer of more than ``LARGEST`` bytes, or one that comes too slowly, is not read on. A server that has answered
before, and does not now, is asked again, since it may be starting anew. A redirect is not followed, since prompts and
keys would go with it. A key is read from an environment variable, and appears in no sentence and in no result. What a
server says in an error is quoted in a few words, without the prompt.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from milepost.rope import ConfigError

LARGEST = 64 << 20
"""Bytes of the largest answer that is read."""
PATIENCE = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds that are waited before each further attempt, unless the server names its own time."""
LONGEST_WAIT = 60.0
BUSY = (429, 502, 503, 504)
QUOTED = 200
"""Letters of a server's own words."""
REPEATED = 20
"""Letters by which a prompt is known again in a server's words."""
KEY = "MILEPOST_KEY"
"""The environment variable of the key, unless another is named."""


class ServerError(ConfigError):
    """A server did not answer as it should; ``status`` is its HTTP status, where it had one."""

    def __init__(self, sentence: str, status: int | None = None):
        super().__init__(sentence)
        self.status = status


class UnreachedError(ServerError):
    """There is no connection to a server."""


class NotJsonError(ServerError):
    """A server answered something else than JSON."""


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def is_url(name: object) -> bool:
    """Whether a model is named by the address of a server."""
    return isinstance(name, str) and name.lower().startswith(("http://", "https://"))


class Client:
    """The address of one server. ``certificate`` is a file of certificates to trust, for one that signs its own.

    ``requests`` counts what was sent; ``answered`` is whether anything ever came back.
    """

    def __init__(
        self, url: str, *, key: str | None = None, certificate: str | None = None, timeout: float = 600.0
    ):  # fmt: skip
        parts = urllib.parse.urlsplit(url)
        if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"a server's address is like http://127.0.0.1:8000, got {_bare(url)!r}")
        if parts.username or parts.password:
            raise ConfigError("a key does not belong into an address: put it into an environment variable (--key-from)")
        self.url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self.url = self.url.removesuffix("/v1")
        named, self._key = key or KEY, os.environ.get(key or KEY)
        if key is not None and self._key is None:
            raise ConfigError(f"there is no environment variable {named}, which should hold the key")
        self.timeout, self.requests, self.answered = timeout, 0, False
        try:
            context = ssl.create_default_context(cafile=certificate)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"no certificates can be read from {certificate}: {error}") from None
        proxies = urllib.request.ProxyHandler({})  # prompts go to the server that was named, and through nothing else
        self._open = urllib.request.build_opener(
            proxies, _Unfollowed(), urllib.request.HTTPSHandler(context=context)
        ).open

    def get(self, path: str) -> Any:
        """What the server says under a path, read as JSON."""
        return self._ask(path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """What the server answers to a JSON object, read as JSON."""
        return self._ask(path, json.dumps(body).encode())

    def get_words(self, path: str) -> str:
        """What the server says under a path, as it is."""
        return self._fetch(path, None).decode("utf-8", "replace")

    def _ask(self, path: str, body: bytes | None) -> Any:
        content = self._fetch(path, body)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            words = content[:60].decode("utf-8", "replace").split("\n")[0]
            raise NotJsonError(
                f"{self.url}{path} answered {len(content)} bytes that are not JSON, beginning {words!r}: is it the "
                "address of an inference server?"
            ) from None

    def _fetch(self, path: str, body: bytes | None) -> bytes:
        """The answer's bytes; a busy server is asked again."""
        for wait in (*PATIENCE, None):
            try:
                return self._once(path, body)
            except ServerError as error:
                gone = self.answered and isinstance(error, UnreachedError)
                if wait is None or not (gone or error.status in BUSY):
                    raise
                asked = getattr(error, "retry_after", None)
                time.sleep(min(LONGEST_WAIT, wait if asked is None else max(wait, asked)))
        raise AssertionError

    def _once(self, path: str, body: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "milepost"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        self.requests += 1
        try:
            with self._open(request, timeout=self.timeout) as answer:
                content = self._bounded(answer, path)
            self.answered = True
            return content
        except urllib.error.HTTPError as error:
            self.answered = True
            raise self._refused(error, path, body) from None
        except urllib.error.URLError as error:
            raise self._unreached(error.reason) from None
        except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError, OSError) as error:
            raise self._unreached(error) from None

    def _bounded(self, answer: Any, path: str) -> bytes:
        parts, size, end = [], 0, time.monotonic() + self.timeout
        while part := answer.read1(1 << 20):
            parts.append(part)
            size += len(part)
            if size > LARGEST:
                raise ServerError(
                    f"{self.url}{path} answers more than {LARGEST >> 20} MB, which is not read on: is it the address "
                    "of an inference server?"
                )
            if time.monotonic() > end:
                raise ServerError(f"{self.url}{path} did not answer whole within {self.timeout:g} seconds")
        promised = answer.headers.get("Content-Length", "")
        if promised.isdigit() and size < int(promised):
            raise ConnectionError(f"it broke off after {size} of {promised} bytes")
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError, path: str, body: bytes | None) -> ServerError:
        status, where = error.code, f"{self.url}{path}"
        with error:
            content = error.read(4096).decode("utf-8", "replace")
        if 300 <= status < 400:
            target = _bare(str(error.headers.get("Location", "elsewhere")))
            return ServerError(
                f"{where} redirects to {target}, which is not followed, since prompts and keys would go with it: give "
                "that address if it is the right one",
                status,
            )
        if status in (401, 403):
            how = "the key was refused" if self._key is not None else f"it wants a key: put it into {KEY}"
            return ServerError(f"{where} answered {status}: {how}", status)
        made = ServerError(f"{where} answered {status}: {_without_prompt(_quoted(content), body)}", status)
        after = error.headers.get("Retry-After", "")
        made.retry_after = float(after) if after.isdigit() else None  # type: ignore[attr-defined]
        return made

    def _unreached(self, reason: Any) -> ServerError:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ServerError(
                f"the certificate of {self.url} can't be trusted ({reason.verify_message}): for one that the server "
                "signed itself, name its file (--certificate)"
            )
        if isinstance(reason, TimeoutError | socket.timeout):
            return ServerError(f"{self.url} did not answer within {self.timeout:g} seconds")
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        ended = ", which has answered before" if self.answered else ""
        return UnreachedError(f"no server answers at {self.url}{ended}: {words}")


def _quoted(content: str) -> str:
    """A server's own words for an error, in brief."""
    try:
        data = json.loads(content)
    except ValueError:
        return " ".join(content.split())[:QUOTED] or "no words"
    for name in ("error", "detail", "message", "object"):
        if isinstance(data, dict) and name in data:
            data = data[name]
    if isinstance(data, dict):
        data = data.get("message", data)
    if isinstance(data, list):  # FastAPI: each says what is wrong, and repeats what was sent
        data = "; ".join(str(row.get("msg", "")) for row in data if isinstance(row, dict))
    return " ".join(str(data).split())[:QUOTED]


def _without_prompt(words: str, body: bytes | None) -> str:
    """A server's words up to where they repeat the prompt that they are about."""
    sent = json.loads(body) if body is not None else {}
    for prompt in (sent.get("prompt"), sent.get("input_ids")):
        start = prompt[:REPEATED] if isinstance(prompt, str) else str((prompt or [])[:4])[1:-1]
        start = " ".join(start.split())
        if len(start) >= 4 and start in words:
            words = words.partition(start)[0] + "(the prompt)"
    return words


def _bare(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
