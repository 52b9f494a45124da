"""The server: what it sends, to whom, and what it says when something is wrong. No trace ever leaves the terminal."""

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest
import resvg_py
import torch
from typer.testing import CliRunner

import milepost.explore
from milepost.cli import app
from milepost.explore import app as space
from milepost.explore.answer import answer
from milepost.explore.server import COMPUTED, FILES, LOCAL, PORT, PageServer, opened
from milepost.explore.views import VIEWS, code

HOME = Path(milepost.explore.__file__).parent


def get(served, path, **headers):
    """Status, headers and text."""
    host, port = re.match(r"http://([\d.]+):(\d+)/", served).groups()
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_page_and_its_parts_are_there_and_may_load_from_this_server_only(served):
    for path in FILES:
        status, headers, body = get(served, path)
        assert status == 200 and body
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    page = (HOME / "page" / "index.html").read_text()
    assert set(re.findall(r'(?:src|href)="(/[^"]*)"', page)) <= set(FILES)
    own = {f"/{path.name}" for path in (HOME / "page").iterdir()} - {"/index.html"}
    assert own | {"/figures.js"} == set(FILES) - {"/"} and "/figures.js" not in own  # the script of every report


def test_no_part_of_the_page_names_another_host():
    for path in (*(HOME / "page").iterdir(), *(HOME.parent / "draw" / "page").iterdir()):
        found = re.findall(r"https?://[^\s\"'<>)]+", path.read_text())
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path


def test_everything_that_a_first_visit_transfers_weighs_little(served):
    """The issue permits 3 MB; without a drawing library it is a fiftieth of that."""
    total = 0
    for path in [*FILES, "/api/start?lang=zh", "/api/code?encoding=sinusoidal&width=1000"]:
        _, headers, body = get(served, path, **{"Accept-Encoding": "gzip"})
        assert headers.get("Content-Encoding") == "gzip" or len(body) <= 1000
        total += len(body)
    assert total < 60_000


def test_answers_are_json_and_compressed_where_that_is_wished(served):
    status, headers, body = get(served, "/api/clocks?encoding=rope", **{"Accept-Encoding": "gzip, br"})
    assert (
        status == 200
        and headers["Content-Type"].startswith("application/json")
        and headers["Content-Encoding"] == "gzip"
    )
    plain = get(served, "/api/clocks?encoding=rope")
    assert "Content-Encoding" not in plain[1] and json.loads(gzip.decompress(body)) == json.loads(plain[2])
    assert len(json.loads(plain[2])["figures"][0]["dials"]) == 32


@pytest.mark.parametrize("view", VIEWS)
def test_figures_download_as_svg_csv_and_json(served, view):
    for kind, start in (("svg", b"<svg"), ("csv", b""), ("json", b"{")):
        more = "&model=random" if view == "attention" else ""
        status, headers, body = get(served, f"/file/{view}.{kind}?figure=0{more}")
        assert (
            status == 200
            and body.startswith(start)
            and f'attachment; filename="milepost-{view}-0.{kind}"' == headers["Content-Disposition"]
        )
        assert len(body) > 100


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nothing", 404, "there is nothing at /nothing"),
        ("/../../etc/passwd", 404, "there is nothing at"),
        ("/page.py", 404, "there is nothing at"),
        ("/api/nothing", 200, "there is no view 'nothing'"),
        ("/api/code?length=0", 200, "length is a number from 2 to 160 here, got 0"),
        ("/api/code?encoding=%3Cscript%3E", 200, "can't read the spec"),
        ("/api/start?lang=fr", 400, "lang is one of en, zh"),
        ("/file/code.exe", 400, "a figure is saved as csv, json, png, svg"),
        ("/file/code.csv?figure=x%0d%0aSet-Cookie:a=b", 400, "figure is a whole number"),
        ("/file/code.csv?figure=7", 400, "figures 0 to 0 here, got figure=7"),
        ("/api/code?length=%ff", 400, "the address can't be read"),
        ("/api/code?length", 400, "the address can't be read"),
        ("/api/code?" + "x=1&" * 200, 400, "the address can't be read"),
        ("/api/permute?sentence=" + "a" * 9000, 400, "an address has at most 8192 characters here"),
    ],
)
def test_what_is_wrong_is_said_in_words(served, path, status, words):
    got, headers, body = get(served, path)
    said = json.loads(body)["error"] if headers["Content-Type"].startswith("application/json") else body.decode()
    assert got == status and words in said and "Traceback" not in body.decode() and len(said.strip().splitlines()) == 1


def test_a_fault_of_ours_is_a_sentence_on_the_page_and_a_trace_in_the_terminal(served, monkeypatch, capfd):
    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(code, "show", broken)
    status, _, body = get(served, "/api/code")
    assert (
        status == 500
        and "something went wrong in milepost itself" in json.loads(body)["error"]
        and b"secret" not in body
        and b"Traceback" not in body
    )
    assert "secret detail" in capfd.readouterr().err


def test_other_methods_and_broken_requests_get_no_trace(served):
    port = int(served.rsplit(":", 1)[1].strip("/"))
    for request in (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        with socket.create_connection((LOCAL, port), timeout=10) as line:
            line.sendall(request)
            said = line.recv(65536)
        assert b"Traceback" not in said and said


def test_a_page_that_has_gone_leaves_no_trace_and_another_fault_does(capfd):
    with opened(0)[0] as server:
        for error, said in ((ConnectionResetError("gone"), False), (RuntimeError("ours"), True)):
            try:
                raise error
            except type(error):
                server.handle_error(None, ("127.0.0.1", 1))
            assert ("Traceback" in capfd.readouterr().err) == said


def test_a_connection_that_is_dropped_between_two_requests_is_not_said(served, capfd):
    host, port = re.match(r"http://([\d.]+):(\d+)/", served).groups()
    with socket.create_connection((host, int(port)), timeout=30) as asked:
        asked.sendall(b"GET /icon.svg HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
        assert asked.recv(64)
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an orderly end
    assert get(served, "/api/start")[0] == 200
    time.sleep(0.2)
    assert "Traceback" not in capfd.readouterr().err


def test_a_name_of_a_file_can_t_carry_another_header(served):
    _, headers, _ = get(served, "/file/code.csv?figure=0%0d%0a")
    assert headers["Content-Disposition"] == 'attachment; filename="milepost-code-0.csv"'


def test_pages_of_other_names_can_t_look_in(served):
    """A page elsewhere may point its own name at 127.0.0.1; its requests come with that name."""
    port = served.rsplit(":", 1)[1].strip("/")
    for name in (f"evil.example:{port}", "evil.example", ""):
        status, _, body = get(served, "/api/code", Host=name)
        assert status == 403 and b"127.0.0.1" in body
    for name in (f"localhost:{port}", f"127.0.0.1:{port}"):
        assert get(served, "/api/start", Host=name)[0] == 200


def test_it_listens_on_this_machine_alone_unless_told():
    server, _ = opened(0)
    assert server.server_address[0] == "127.0.0.1" == server.socket.getsockname()[0]
    server.server_close()


def test_figures_are_worked_out_on_one_thread_and_others_have_theirs_again(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "milepost.explore.server.answer",
        lambda view, query: seen.append(torch.get_num_threads()) or answer(view, query),
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with opened(0)[0] as server:
            serving = threading.Thread(
                target=lambda: (server.serve_forever(0.01), seen.append(torch.get_num_threads()))
            )
            serving.start()
            assert get(server.address, "/api/code")[0] == 200
            server.shutdown()
            serving.join(60)
        assert seen == [1, 2]
    finally:
        torch.set_num_threads(before)


def test_a_busy_port_is_passed_over_and_that_is_said():
    first, _ = opened(0)
    port = first.server_address[1]
    second, said = opened(port)
    assert second.server_address[1] > port and said == f"port {port} is busy: using {second.server_address[1]}"
    first.server_close()
    second.server_close()


def test_with_no_port_left_there_is_a_sentence(monkeypatch):
    def busy(*_):
        raise OSError("busy")

    monkeypatch.setattr("milepost.explore.server.PageServer", busy)
    with pytest.raises(ValueError, match=r"ports 8000 to 8049 are all busy.*--port"):
        opened(8000)


def test_many_at_once_get_their_own_answers(served):
    """Learned tables come from torch's one generator: threads must not mix them."""
    wanted = {
        name: get(served, f"/api/code?encoding={name}&length=8")[2] for name in ("t5", "learned", "kerple", "shaw")
    }
    got, threads = [], []
    for name in list(wanted) * 4:
        threads.append(
            threading.Thread(
                target=lambda name=name: got.append((name, get(served, f"/api/code?encoding={name}&length=8")[2]))
            )
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 16 and all(body == wanted[name] for name, body in got)


# -- strangers' requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        "grid(width=256, sides=(32, 32, 32, 32))",
        " + ".join(["grid(width=256, sides=(32, 32, 32, 32))"] * 4),
        "swin(heads=32, sides=(32, 32, 32, 32))",
        "swin_v2(heads=32, trained=(32, 32, 32))",
        " + ".join(["learned(width=256, length=8192)"] * 4),
        "self_extend(rope=rope) + transformer_xl(heads=32, head_dim=256, width=256) + deberta(heads=32, head_dim=256, "
        "span=1024)",
    ],
)
def test_sizes_are_bounded_by_their_product_before_anything_is_built(served, monkeypatch, spec):
    monkeypatch.setattr("milepost.explore.specs.build", lambda *_, **__: pytest.fail("it was built"))
    _, _, body = get(served, "/api/code?" + urlencode({"encoding": spec}))
    assert "multiply to at most 4194304 numbers on this page, got" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("view", "spec"),
    [
        ("code", "learned(width=256, length=8192)"),
        ("code", "cope(heads=32, head_dim=256, positions=256)"),
        ("plane", "grid(width=256, sides=(32, 32))"),
        ("plane", "swin(heads=32, sides=(32, 32))"),
        ("code", "rope + alibi + t5 + kerple"),
    ],
)
def test_large_sizes_that_are_no_danger_are_drawn(served, view, spec):
    _, _, body = get(served, f"/api/{view}?" + urlencode({"encoding": spec}))
    assert json.loads(body)["figures"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({}, 200),
    ],
)
def test_pages_of_other_origins_are_refused(served, headers, status):
    for path in ("/api/start", "/page.js", "/file/code.csv"):
        got, _, body = get(served, path, **headers)
        assert got == status and (status == 200 or b"not those of other origins" in body)
    own = served.removesuffix("/")
    assert get(served, "/api/start", Origin=own)[0] == 200


def test_a_link_from_elsewhere_opens_the_page(served):
    assert get(served, "/?view=clocks", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[0] == 200


def test_a_slow_request_does_not_stop_the_others(served, monkeypatch):
    begun, may_end, show = threading.Event(), threading.Event(), code.show

    def slow(*asked):
        begun.set()
        assert may_end.wait(60)
        return show(*asked)

    monkeypatch.setattr(code, "show", slow)
    got = []
    thread = threading.Thread(target=lambda: got.append(get(served, "/api/code")[0]))
    thread.start()
    try:
        assert begun.wait(60)
        assert "figures" in json.loads(get(served, "/api/distance?encoding=learned&length=8")[2])
        assert not got
    finally:
        may_end.set()
        thread.join(60)
    assert got == [200]


def test_a_png_is_drawn_beside_the_server(served, monkeypatch):
    """resvg holds Python's lock: in the server's own process a wide picture would stop every other answer."""
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **about: pytest.fail("the server would draw"))
    status, _, body = get(served, "/file/code.png?encoding=rope&width=4000")
    assert status == 200 and body[:8] == b"\x89PNG\r\n\x1a\n"


def test_so_many_answers_are_computed_at_a_time_and_no_more(served, monkeypatch):
    counted, most, lock, show = [0], [0], threading.Lock(), code.show

    def counting(*asked):
        with lock:
            counted[0] += 1
            most[0] = max(most[0], counted[0])
        time.sleep(0.1)
        with lock:
            counted[0] -= 1
        return show(*asked)

    monkeypatch.setattr(code, "show", counting)
    threads = [threading.Thread(target=get, args=(served, "/api/code?length=8")) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most[0] == COMPUTED == 4


@pytest.mark.parametrize(
    "header", [{"Content-Length": "5"}, {"Content-Length": "99999999999"}, {"Transfer-Encoding": "chunked"}]
)
def test_a_body_is_refused_and_never_read_as_another_request(served, header):
    port = int(served.rsplit(":", 1)[1].strip("/"))
    lines = [f"{name}: {value}" for name, value in {"Host": f"127.0.0.1:{port}", **header}.items()]
    with socket.create_connection((LOCAL, port), timeout=10) as line:
        line.sendall("\r\n".join(["GET /api/start HTTP/1.1", *lines, "", "GET /icon.svg HTTP/1.1\r\n\r\n"]).encode())
        said = b""
        while part := line.recv(65536):
            said += part
    assert said.startswith(b"HTTP/1.1 413") and said.count(b"HTTP/1.1") == 1 and b"a request has no body here" in said


def test_connections_beyond_the_bound_get_a_sentence_and_places_are_freed(monkeypatch):
    monkeypatch.setattr("milepost.explore.server.SERVED", 2)
    with opened(0)[0] as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        port = server.server_address[1]
        idle = [socket.create_connection((LOCAL, port), timeout=10) for _ in range(2)]
        with socket.create_connection((LOCAL, port), timeout=10) as third:
            said = third.recv(65536)
        assert said.startswith(b"HTTP/1.1 503") and b"too many connections" in said
        for line in idle:
            line.close()
        for _ in range(100):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if get(server.address, "/api/start")[0] == 200:
                    break
            time.sleep(0.05)
        else:
            pytest.fail("no place was freed")
        server.shutdown()
    assert server.request_queue_size == 32


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"length": "9" * 400}, "length is a finite number, got '999"),
        ({"width": "9" * 400}, "width is a finite number"),
        ({"encoding": "sinusoidal", "set.0.width": "9" * 400}, "width is a finite number"),
        ({"encoding": f"rope(base={'9' * 250})"}, "a number has at most 40 digits on this page, got 250"),
        ({"encoding": "rope\x00"}, "'encoding' has the character U+0000, which can't be shown; leave it out"),
        ({"encoding": "\x1b[31mrope"}, "'encoding' has the character U+001B"),
        ({"a\x07": "1"}, "has the character U+0007"),
        ({"encoding": "\ufffe"}, "'encoding' has the character U+FFFE"),
    ],
)
def test_odd_characters_and_endless_numbers_get_a_sentence(served, capfd, query, words):
    status, _, body = get(served, "/api/code?" + urlencode(query))
    assert status == 200 and words in json.loads(body)["error"] and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "a\x85b"])
def test_control_characters_never_reach_a_figure(served, text):
    for view, name in (("attention", "text"), ("permute", "sentence")):
        body = get(served, f"/api/{view}?" + urlencode({name: f"{text} c"}))[2]
        assert "can't be shown" in json.loads(body)["error"]


def test_lines_and_tabs_are_shown(served):
    assert "figures" in json.loads(get(served, "/api/attention?" + urlencode({"text": "a\n\tb", "model": "random"}))[2])


# -- the Space and the command -----------------------------------------------------------------------------------------


def started(*words):
    """A process that serves."""
    plain = os.environ | {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=plain
    )


@pytest.mark.slow
def test_the_app_of_a_space_starts_and_answers():
    process = started("-c", "from milepost.explore.app import main; main(host='127.0.0.1', port=0)")
    try:
        port = re.search(r"port (\d+)", process.stdout.readline()).group(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
            assert b"milepost" in page.read()
    finally:
        process.kill()
        process.communicate()


def test_a_space_is_served_to_everybody_where_spaces_look():
    readme = (HOME / "space" / "README.md").read_text()
    docker = (HOME / "space" / "Dockerfile").read_text()
    assert (
        (space.HOST, space.PORT) == ("0.0.0.0", 7860)
        and f"app_port: {space.PORT}" in readme
        and f"EXPOSE {space.PORT}" in docker
    )
    assert "milepost.explore.app" in docker
    server = PageServer("0.0.0.0", 0)
    assert server.welcome("someone-milepost.hf.space")
    server.server_close()


@pytest.mark.slow
def test_the_command_serves_says_where_and_ends_with_ctrl_c():
    busy, _ = opened(0)
    port = busy.server_address[1]
    words = ["explore", "--no-open", "--port", str(port), "--view", "clocks", "--set", "target=16384"]
    # a job in the background sleeps through Ctrl-C, and so do its children
    awake = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = started("-c", f"{awake}; from milepost.cli import app; app({words!r})")
    try:
        said = [process.stderr.readline() for _ in range(3)]
        assert f"port {port} is busy: using" in said[0]
        address = re.search(r"http://127\.0\.0\.1:(\d+)/\?\S+", said[1]).group(0)
        assert "view=clocks" in address and "target=16384" in address and "Ctrl-C" in said[2]
        with urllib.request.urlopen(address, timeout=30) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=30)
        assert process.returncode == 0 and out == "" and "Traceback" not in rest
    finally:
        process.kill()
        process.communicate()
        busy.server_close()


def run(*words):
    return CliRunner().invoke(app, ["explore", *words], env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"})


def test_no_browser_is_said_and_share_warns(monkeypatch):
    class Ended(PageServer):
        def serve_forever(self, poll_interval=0.5):
            raise KeyboardInterrupt

    monkeypatch.setattr("milepost.explore.server.PageServer", Ended)
    seen = []
    monkeypatch.setattr("webbrowser.open", lambda address: seen.append(address) or False)
    alone, shared = run("--port", "8790"), run("--share", "--no-open")
    assert alone.exit_code == shared.exit_code == 0
    assert (
        "no browser was found" in alone.stderr
        and "--share" not in alone.stderr
        and seen
        and seen[0].startswith("http://127.0.0.1:")
    )
    assert "everybody who can reach this machine" in shared.stderr and "no browser" not in shared.stderr


def test_json_prints_a_view_without_a_server():
    done = run("--view", "clocks", "--encoding", "rope(base=500000.0)", "--set", "target=32768", "--json")
    found = json.loads(done.stdout)
    assert (
        done.exit_code == 0
        and found["spec"] == "rope(base=500000.0)"
        and found["asked"] == {"trained": 2048, "target": 32768}
    )
    both = json.loads(run("--view", "distance", "--encoding", "rope", "--encoding", "alibi", "--json").stdout)
    assert [one["spec"] for one in both] == ["rope", "alibi"]
    assert json.loads(run("--json").stdout)["view"] == "code"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--view", "clock"], "there is no view 'clock'"),
        (["--encoding", "roppe"], "did you mean 'rope'"),
        (["--set", "target"], "--set wants name=value"),
        (["--set", "length=1"], "length is a number from 2 to 160"),
        (["--encoding", "rope", "--encoding", "rope", "--encoding", "rope"], "one encoding or two"),
        (["--lang", "fr"], "lang is one of en, zh"),
        (["--port", "99999"], "65535"),
    ],
)
def test_mistakes_are_said_before_anything_is_served(words, sentence):
    done = run(*words)
    assert done.exit_code == 2 and sentence in done.stderr and "Traceback" not in done.stderr


def test_the_help_names_every_view_and_the_port():
    said = run("--help").stdout
    assert all(view in said for view in VIEWS) and str(PORT) in said


def test_everything_that_the_page_needs_is_in_the_wheel():
    root = HOME.parent
    patterns = tomllib.loads((root.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "milepost"
    ]
    packed = {path for pattern in patterns for path in root.glob(pattern)}
    folders = ("explore/page", "explore/words", "explore/space", "measured/explore")
    needed = {path for folder in folders for path in (root / folder).rglob("*") if path.is_file()}
    assert len(needed) > 12 and needed <= packed
