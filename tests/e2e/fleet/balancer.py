# SPDX-License-Identifier: Apache-2.0
"""A load balancer of a test's own: passes connections on to the newest of some ports, and can be cut."""
import socket
import threading


class Balancer:
    def __init__(self, port):
        self.target = port
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        _, own_port = self._listener.getsockname()
        self.url = f"http://127.0.0.1:{own_port}"
        self._open = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            try:
                theirs = socket.create_connection(("127.0.0.1", self.target), timeout=60)
            except (OSError, TypeError):
                ours.close()
                continue
            with self._lock:
                self._open |= {ours, theirs}
            for source, sink in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
        except OSError:
            pass
        self._end(source, sink)
        source.close()

    def _end(self, *connections):
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            with self._lock:
                self._open.discard(connection)

    def cut(self):
        """Nobody gets through, and who was talking hears no answer."""
        self.target = None
        with self._lock:
            connections = list(self._open)
        self._end(*connections)

    def close(self):
        self._listener.close()
        self.cut()
