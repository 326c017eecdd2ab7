"""The server as a process: how it starts, what it writes, how it stops."""

from __future__ import annotations

import datetime
import json
import signal
import ssl
import sys
import tomllib
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.served import (
    ANSWER_MAX_S,
    PREFIX,
    command,
    environment,
    run_to_end,
    served_process,
)

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_it_says_once_where_it_listens_and_finishes_what_is_in_flight(root: Path) -> None:
    record = b'{"type": "Note", "data": {"name": "late"}}\n'
    with served_process(str(root)) as server:
        assert server.get("/healthz").json()["status"] == "ok"
        with server.connect() as connection:
            connection.sendall(
                b"POST /graphs/demo/load/ndjson HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/x-ndjson\r\n"
                b"Content-Length: %d\r\n\r\n" % len(record)
            )
            connection.sendall(record[:10])
            # The answer to a request of another connection shows that this one was seen.
            assert server.get("/graphs/demo/branches").status_code == 200
            server.process.send_signal(signal.SIGTERM)
            connection.sendall(record[10:])
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b'"total_entities":1' in answer
        server.process.wait(ANSWER_MAX_S)
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
        lines = server.log_lines()
    assert lines
    assert all(set(json.loads(line)) >= {"time", "level", "message"} for line in lines)
    assert not [line for line in lines if line.startswith(PREFIX)]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(root: Path, sent: signal.Signals) -> None:
    with served_process(str(root)) as server:
        assert server.get("/healthz").status_code == 200
        server.process.send_signal(sent)
        assert server.process.wait(ANSWER_MAX_S) == 0


def test_omnigraph_server_is_omnigraph_serve(root: Path) -> None:
    scripts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, name = scripts["omnigraph-server"].partition(":")
    program = f"import sys; from {module} import {name}; {name}()"
    words = [sys.executable, "-c", program, "--store", str(root), "--bind", "nowhere"]
    done = run_to_end(words, environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert "'nowhere' is no address" in done.stderr
    assert run_to_end([*words, "--no-such-option"], environment()).returncode == 2


def test_it_does_not_start_without_tokens_unless_told_to(root: Path) -> None:
    done = run_to_end(command(str(root), "--bind", "127.0.0.1:0"), environment())
    assert done.returncode == 1
    assert done.stdout == ""
    assert "--unauthenticated" in done.stderr


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of this machine that nobody has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def test_it_speaks_tls(root: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    options = ["--unauthenticated", "--tls-cert", str(cert), "--tls-key", str(key)]
    with served_process(str(root), options=options, scheme="https") as server:
        trusting = ssl.create_default_context(cafile=str(cert))
        answer = httpx2.get(
            f"{server.url}/graphs/demo/branches", verify=trusting, timeout=ANSWER_MAX_S
        )
        assert answer.json() == {"branches": ["main"]}
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            httpx2.get(f"{server.url}/healthz", timeout=ANSWER_MAX_S)
