"""Data sets are fetched whole or not at all, resumed, checked, and unpacked within their folder."""

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from expacc.cli import main
from expacc.data import download, official
from expacc.data.download import fetch, get
from expacc.data.official import OFFICIAL, File, Official
from expacc.data.unpack import unpack

BODY = os.urandom(700_000)


class Server(ThreadingHTTPServer):
    """Serves ``body``; ``breaks`` so many connections after half; with ``ranges`` or without."""

    daemon_threads = True

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.breaks, self.ranges, self.status, self.asked = body, 0, True, 200, []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append((self.path, wanted))
        if server.status != 200:
            self.send_error(server.status)
            return
        first = int(wanted[6:-1]) if wanted and server.ranges else 0
        if first >= len(server.body) > 0 and first:
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            whole = len(server.body)
            self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
        self.send_header("Content-Length", str(len(server.body) - first))
        self.end_headers()
        rest = server.body[first:]
        if server.breaks:
            server.breaks -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "_WAIT", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    one = Server(BODY)
    yield one
    one.shutdown()
    one.server_close()


def md5(data):
    return "md5:" + hashlib.md5(data).hexdigest()


def asked(server, *, body=BODY, name="set.bin", more=()):
    addresses = (*more, server.address + name)
    return File(name, addresses, len(body), md5(body))


def test_a_file_is_fetched_once(server, tmp_path):
    told = []
    path, was_there = fetch(asked(server), tmp_path, lambda *news: told.append(news))
    assert (path.read_bytes(), was_there) == (BODY, False)
    assert told[-1] == ("set.bin", len(BODY), len(BODY))
    assert fetch(asked(server), tmp_path)[1]
    assert len(server.asked) == 1
    assert os.listdir(tmp_path) == ["set.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_goes_on(server, tmp_path, ranges):
    server.ranges, server.breaks = ranges, 3 if ranges else 1
    assert fetch(asked(server), tmp_path)[0].read_bytes() == BODY
    begun = [int(wanted[6:-1]) for _, wanted in server.asked if wanted]
    assert begun == sorted(begun)
    assert len(server.asked) == (4 if ranges else 2)


def test_a_later_command_goes_on_and_a_wrong_beginning_is_fetched_anew(server, tmp_path):
    part = tmp_path / "set.bin.expacc-part"
    part.write_bytes(BODY[:400_000])
    assert fetch(asked(server), tmp_path)[0].read_bytes() == BODY
    assert server.asked == [("/set.bin", "bytes=400000-")]
    for wrong in (bytes(400_000), bytes(len(BODY)), bytes(len(BODY) + 9)):
        (tmp_path / "set.bin").unlink()
        part.write_bytes(wrong)
        assert fetch(asked(server), tmp_path)[0].read_bytes() == BODY


def test_a_wrong_digest_deletes_nothing_of_the_users(server, tmp_path):
    (tmp_path / "set.bin").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"set.bin must be the official file, md5:.*left as it is"):
        fetch(asked(server), tmp_path)
    assert not server.asked
    server.body = BODY[:-1] + b"?"
    wanted = File("other.bin", (server.address,), len(BODY), md5(BODY))
    with pytest.raises(ValueError, match=r"must have md5:.*; got md5:.*, which was deleted"):
        fetch(wanted, tmp_path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("set.bin", b"mine")]


def test_another_address_is_tried_and_what_failed_is_said(server, tmp_path):
    nobody = "http://127.0.0.1:9/set.bin"
    assert fetch(asked(server, more=(nobody,)), tmp_path)[0].read_bytes() == BODY
    server.status = 404
    with pytest.raises(ValueError, match=r"the server answers 404 .*HTTPS_PROXY"):
        fetch(asked(server, name="b.bin"), tmp_path)
    assert len(server.asked) == 2
    server.status = 503
    with pytest.raises(ValueError, match="the server answers 503"):
        fetch(asked(server, name="b.bin"), tmp_path)
    assert len(server.asked) == 2 + download._TRIES


def test_no_space_and_too_much(server, tmp_path, monkeypatch):
    small = File("set.bin", (server.address,), 1000, md5(BODY))
    with pytest.raises(ValueError, match="700,000 bytes are offered, of about 1,000"):
        fetch(small, tmp_path)
    usage = download.shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ValueError, match="bytes free; it has 1,048,576"):
        get(Official("a set", (asked(server),), "set"), tmp_path)
    assert len(server.asked) == 1


def test_a_proxy_is_asked_instead(server, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", server.address)
    file = File("set.bin", ("http://data.invalid/set.bin",), len(BODY), md5(BODY))
    assert fetch(file, tmp_path)[0].read_bytes() == BODY
    assert server.asked[0][0] == "http://data.invalid/set.bin"


def test_links_are_not_written_through(server, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "to").mkdir()
    for name in ("set.bin", "set.bin.expacc-part"):
        link = tmp_path / "to" / name
        link.symlink_to(mine)
        with pytest.raises(ValueError, match="must be a plain file; got a symbolic link"):
            fetch(asked(server), tmp_path / "to")
        link.unlink()
    assert mine.read_text() == "mine"


def tar(path, members):
    with tarfile.open(path, "w:gz") as tape:
        for name, content in members:
            one = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = content if isinstance(content, bytes) else b""
            one.name, one.size = name, len(data)
            tape.addfile(one, io.BytesIO(data))


def link(kind):
    one = tarfile.TarInfo()
    one.type, one.linkname = kind, "/etc/passwd"
    return one


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("set/../../out", b"x"),
        ("/out", b"x"),
        ("set/C:\\out", b"x"),
        ("set/a\nb", b"x"),
        ("set/link", link(tarfile.SYMTYPE)),
        ("set/link", link(tarfile.LNKTYPE)),
        ("set/pipe", link(tarfile.FIFOTYPE)),
        ("set/much", bytes(5000)),
    ],
)
def test_an_archive_that_leads_elsewhere_writes_nothing(tmp_path, name, content):
    path = tmp_path / "set.tar.gz"
    tar(path, [("set/good", b"good"), (name, content)])
    with pytest.raises(ValueError, match=r"set\.tar\.gz must hold"):
        unpack(path, tmp_path / "to", "set", "set", 4000)
    assert os.listdir(tmp_path) == ["set.tar.gz"]
    if isinstance(content, bytes):
        with zipfile.ZipFile(tmp_path / "set.zip", "w") as book:
            book.writestr(zipfile.ZipInfo(name), content)
        with pytest.raises(ValueError, match=r"set\.zip must hold"):
            unpack(tmp_path / "set.zip", tmp_path / "to", "set", "set", 4000)


def test_unpacking_keeps_what_is_there(tmp_path):
    path, to = tmp_path / "set.zip", tmp_path / "to"
    to.mkdir()
    with zipfile.ZipFile(path, "w") as book:
        for name in ("data/a/1.dat", "data/a/2.dat", "readme"):
            book.writestr(name, name)
    for _ in range(2):
        assert unpack(path, to, "data", "uci", 4000) == 2
    assert (to / "uci" / "a" / "2.dat").read_text() == "data/a/2.dat"
    (to / "uci" / "a" / "1.dat").write_text("mine, mine, ")
    with pytest.raises(ValueError, match=r"1\.dat must be as in the archive; got another file"):
        unpack(path, to, "data", "uci", 4000)
    assert (to / "uci" / "a" / "1.dat").read_text() == "mine, mine, "
    (to / "uci" / "a" / "1.dat").unlink()
    (to / "uci" / "a").rename(tmp_path / "a")
    (to / "uci" / "a").symlink_to(tmp_path / "a")
    with pytest.raises(ValueError, match="must be a folder; got a link"):
        unpack(path, to, "data", "uci", 4000)
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="an undamaged archive"):
        unpack(path, tmp_path, "data", "new", 4000)


def test_the_command(server, tmp_path, monkeypatch, capsys):
    path = tmp_path / "served.tar.gz"
    tar(path, [("top/train.bin", b"1" * 100), ("top/test.bin", b"2" * 100)])
    server.body = path.read_bytes()
    known = Official(
        "a set", (asked(server, body=server.body, name="a.tar.gz"),), "own", 1000, "top"
    )
    loose = Official("b", (File("b.zip", (server.address,), 1000, ""),), "b")
    monkeypatch.setattr(official, "OFFICIAL", {"a": known, "b": loose})
    for _ in range(2):
        assert main(["get", "a", "--to", str(tmp_path / "data")]) == 0
        out = capsys.readouterr()
        assert f"Next: expacc compare {tmp_path}/data/own" in out.out
        assert "is unpacked (2 files) and may be deleted" in out.err
    assert (tmp_path / "data" / "own" / "test.bin").read_bytes() == b"2" * 100
    assert main(["get", "b", "--to", str(tmp_path), "-q", "--json"]) == 0
    assert "No digest of b.zip is published or pinned; got SHA-256" in capsys.readouterr().out
    assert main(["get"]) == 0
    assert "a set" in capsys.readouterr().out
    assert main(["get", "c"]) == 2
    assert capsys.readouterr().err == "expacc: NAME must be one of a, b; got 'c'.\n"


def test_what_is_pinned():
    for name, one in OFFICIAL.items():
        for file in one.files:
            kind, _, digest = file.digest.partition(":")
            assert len(digest) == {"md5": 32, "sha256": 64, "": 0}[kind]
            assert bool(kind) == (name != "uci121")
            assert all(a.startswith("http") and a.endswith(file.name) for a in file.addresses)
            assert Path(file.name).name == file.name
