# SPDX-License-Identifier: Apache-2.0
"""What stands between forwarders and a gatherer, and spoils answers: passes each request on, and does with its answer what it is told.

    pass     the answer goes back
    drop     the gatherer has committed, and nobody hears of it
    late     the answer comes after the next request of its connection has
    twice    the answer comes, and once more when the next request of its connection has come, as if it were that one's; the next one is
             thrown away
    hold     requests and answers stay where they are: a link that is down

Whoever listens may want TLS: `context` is of ssl.
"""
import re
import select
import socket
import ssl
import threading


class Passage:
    def __init__(self, port, context=None):
        self.target, self.context, self.mode, self.spoiled = port, context, "pass", 0
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        _, self.port = self._listener.getsockname()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self):
        self._flowing.clear()

    def release(self):
        self._flowing.set()

    def close(self):
        self._listener.close()
        self.release()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, plain):
        try:
            # With the newest certificate, once each connection.
            with (self.context.wrap_socket(plain, server_side=True) if self.context else plain) as ours:
                kept = b""
                while head_and_body := read_message(ours):
                    kept = self._pass_on(ours, head_and_body, kept)
        except (OSError, ssl.SSLError, TypeError):
            plain.close()

    def _pass_on(self, ours, request, kept):
        """Answers one request. Gives what is to come with the next one."""
        self._flowing.wait()
        if kept:
            # An answer to what was asked before, while this is not asked at all.
            ours.sendall(kept)
            self.spoiled += 1
            return b""
        with socket.create_connection(("127.0.0.1", self.target), timeout=60) as theirs:
            theirs.sendall(request)
            answer = read_message(theirs)
        if not answer:
            raise OSError("the gatherer has left")
        self._flowing.wait()
        if self.mode == "drop":
            self.spoiled += 1
            raise OSError("nobody hears of it")
        if self.mode == "late":
            # Until the sender speaks or leaves; a sender that only waits gets it in the end.
            select.select([ours], [], [], 2)
            self.spoiled += 1
        ours.sendall(answer)
        return answer if self.mode == "twice" else b""


def read_message(connection):
    """A head and its body, which has a length; empty: the connection ended."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    while length and len(body) < int(length[1]):
        piece = connection.recv(65536)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body
