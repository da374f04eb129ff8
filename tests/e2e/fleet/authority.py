# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of a test's own, made by the program openssl."""
import pathlib
import shutil
import ssl
import subprocess
import tempfile

MISSING = "" if shutil.which("openssl") else "the program openssl is not installed"


class Authority:
    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.file, self._key = self.folder / "ca.pem", self.folder / "ca.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test",
                      "-keyout", self._key, "-out", self.file)

    def _openssl(self, *arguments):
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def issue(self, name, expired=False, host="127.0.0.1"):
        """Files of a certificate for `host` and its key."""
        stem = self.folder / f"{name}{'-expired' if expired else ''}"
        request, key, certificate, extensions = (stem.with_suffix(end) for end in (".csr", ".key", ".pem", ".ext"))
        extensions.write_text(f"subjectAltName=IP:{host}\n" if host[0].isdigit() else f"subjectAltName=DNS:{host}\n")
        self._openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", key,
                      "-out", request)
        # -days -1: its end is a day ago.
        self._openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-days", "-1" if expired else "1",
                      "-extfile", extensions, "-out", certificate)
        key.chmod(0o600)
        return certificate, key

    def server_context(self, wants_client=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server"))
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context

    def close(self):
        self._folder.cleanup()
