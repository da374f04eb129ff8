#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packages of a build tree, installed and run: `packages_test.py SOURCE BUILD`. What they are for has to hold: a fresh
virtual environment, a copied folder, a Debian system find a working nanwatch in them."""
import base64
import csv
import gzip
import hashlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import typing
import unittest
import zipfile


def run(*words, status=0, **more):
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    assert status is None or ran.returncode == status, f"{words} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
    return ran


def end_daemon(lock):
    """Ends the daemon that holds this file, and waits until it has left. It leaves by itself after a minute without a job."""
    try:
        daemon = os.pidfd_open(int(lock.read_text().split()[0]))
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(daemon, signal.SIGTERM)
        select.select([daemon], [], [])
    finally:
        os.close(daemon)


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run(SOURCE / "scripts/package.sh", "wheel", "tar", "deb", "--build", BUILD, "--out", cls.folder / "dist",
            env={**os.environ, "NANWATCH_PYTHON": sys.executable})
        shutil.copy(SOURCE / "scripts/package/training.py", cls.folder / "train.py")

    def the(self, pattern):
        found = list((self.folder / "dist").glob(pattern))
        self.assertEqual(len(found), 1, os.listdir(self.folder / "dist"))
        return found[0]

    def environment(self, name):
        """Places of a test's own, so that no daemon of another is met."""
        mine = {key: value for key, value in os.environ.items() if not key.startswith("NANWATCH")}
        return {**mine, "HOME": str(self.folder), "NANWATCH_DIR": str(self.folder / f"{name}-segments"), "NANWATCH_STATE_DIR": str(self.folder / f"{name}-state")}

    def watch(self, name, *tool):
        """Runs the job under this tool, and gives the path of its verdict."""
        verdict = self.folder / f"{name}.json"
        environment = self.environment(name)
        try:
            run(*tool, "run", "--verdict", verdict, "--", sys.executable, self.folder / "train.py", env=environment)
        finally:
            end_daemon(pathlib.Path(environment["NANWATCH_DIR"], "daemon.lock"))
        return verdict

    def test_the_wheel_holds_what_its_record_says(self):
        wheel = self.the("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
            listed = {name: digest for name, digest, _ in csv.reader(archive.read(record).decode().splitlines())}
            self.assertEqual(set(listed), set(archive.namelist()))
            for name, digest in listed.items():
                if name != record:
                    found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
                    self.assertEqual(digest, f"sha256={found}", name)
        self.assertLess(wheel.stat().st_size, 30_000_000)

    def test_the_tag_of_the_wheel_is_what_auditwheel_finds(self):
        beside = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        tool = shutil.which("auditwheel", path=beside)
        if not tool:
            self.skipTest("no auditwheel")
        wheel = self.the("*.whl")
        words = " ".join(run(tool, "show", wheel, env={**os.environ, "PATH": beside}).stdout.split())
        found = re.search(r'constrains the platform tag to "(manylinux_\w+)"', words)
        self.assertTrue(found, words)
        self.assertTrue(wheel.name.endswith(f"-py3-none-{found[1]}.whl"), f"{wheel.name}, and auditwheel: {found[1]}")

    def test_the_tag_counts_libstdcxx_as_well(self):
        sys.path.insert(0, str(SOURCE / "scripts/package"))
        import wheel

        for needed, oldest in (([], (2, 17)), ([("GLIBC", (2, 25))], (2, 26)), ([("GLIBC", (2, 25)), ("CXXABI", (1, 3, 11))], (2, 27)),
                               ([("GLIBC", (2, 2, 5)), ("GLIBCXX", (3, 4, 30))], (2, 35)), ([("GLIBC", (2, 34)), ("GCC", (7, 0, 0))], (2, 34))):
            self.assertEqual(wheel.oldest_glibc(needed), oldest, needed)
        with self.assertRaisesRegex(SystemExit, "TAGS allows"):
            wheel.oldest_glibc([("GLIBC", (3, 0))])

    def test_the_wheel_watches_a_job_from_a_fresh_environment_and_reads_its_verdict(self):
        venv = self.folder / "venv"
        run(sys.executable, "-m", "venv", venv)
        run(venv / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", self.the("*.whl"))
        verdict = self.watch("wheel", venv / "bin/nanwatch")
        words = "import nanwatch, sys; v = nanwatch.load_verdict(sys.argv[1]); print(v['verdict'], v['incidents'][0]['origin']['op'])"
        self.assertEqual(run(venv / "bin/python", "-c", words, verdict).stdout, "anomaly aten::log\n")
        self.assertRegex(run(venv / "bin/python", "-m", "nanwatch", "--version").stdout, r"^nanwatch \d.* observers for torch \d")
        self.assertRegex(run(venv / "bin/nanwatchd", "--version").stdout, r"^nanwatchd \d")
        (self.folder / "other.json").write_text('{"schema": "nanwatch.stats/1"}')
        refused = run(venv / "bin/python", "-c", words, self.folder / "other.json", status=1)
        self.assertIn("is a document of type 'nanwatch.stats/1'", refused.stderr)
        run(venv / "bin/python", "-m", "pip", "uninstall", "--yes", "--quiet", "--disable-pip-version-check", "nanwatch")
        self.assertEqual([str(path) for path in venv.rglob("*nanwatch*") if path.suffix != ".pyc"], [])

    def test_the_types_are_those_of_the_document(self):
        sys.path.insert(0, str(SOURCE / "scripts/package/python"))
        import nanwatch

        described = (SOURCE / "proto/verdict.proto").read_text()
        for name in ("RunInfo", "Coverage", "TensorStats", "Pattern", "Finding", "Incident", "Warning", "Verdict"):
            body = re.search(rf"^message {name} {{\n(.*?)^}}", described, re.MULTILINE | re.DOTALL)[1]
            fields = re.findall(r"(\w+) = \d+;", re.sub(r"//.*", "", body))
            self.assertEqual(set(typing.get_type_hints(getattr(nanwatch, name))), set(fields), name)

    def test_the_archive_runs_from_where_it_is_unpacked(self):
        run("tar", "-xf", self.the("*.tar.gz"), "-C", self.folder)
        prefix = next(path for path in self.folder.glob("nanwatch-*") if path.is_dir())
        verdict = json.loads(self.watch("tar", prefix / "bin/nanwatch").read_text())
        self.assertEqual(verdict["incidents"][0]["origin"]["op"], "aten::log")

    def test_an_installed_copy_compiles_an_observer_from_the_sources_that_come_along(self):
        folder = self.folder / "installed"
        folder.mkdir()
        run("tar", "-xf", self.the("*.tar.gz"), "-C", folder)
        prefix = next(folder.iterdir())
        for observer in (prefix / "lib/nanwatch").glob("libnanwatch_observer-*"):
            observer.unlink()
        # In batches of files of all folders: no other test compiles it like this.
        built = run(prefix / "bin/nanwatch", "build-observer", "--python", sys.executable, "--no-setup")
        self.assertRegex(built.stdout, r"\d+ of \d+ compiled\n")
        verdict = json.loads(self.watch("built", prefix / "bin/nanwatch").read_text())
        self.assertEqual(verdict["incidents"][0]["origin"]["op"], "aten::log")
        self.assertTrue(verdict["incidents"][0]["origin"]["exact"])

    def unpacked_deb(self):
        root = self.folder / "root"
        if not root.exists():
            run("dpkg-deb", "-x", self.the("*.deb"), root)
        return root

    def test_the_deb_watches_a_job_and_belongs_to_root(self):
        root = self.unpacked_deb()
        verdict = json.loads(self.watch("deb", root / "usr/bin/nanwatch").read_text())
        self.assertEqual(verdict["incidents"][0]["origin"]["op"], "aten::log")
        listed = run("dpkg-deb", "-c", self.the("*.deb")).stdout.splitlines()
        self.assertEqual({line.split()[1] for line in listed}, {"root/root"})

    def test_each_verb_has_a_manual_page_with_its_options(self):
        pages = self.unpacked_deb() / "usr/share/man/man1"
        verbs = re.search(r"Subcommands:\n(.*?)\n\n", run(BUILD / "bin/nanwatch", "--help").stdout, re.DOTALL)[1]
        names = re.findall(r"^  (\S+)", verbs, re.MULTILINE)
        self.assertIn("run", names)
        self.assertEqual({path.name for path in pages.iterdir()}, {f"{name}.1.gz" for name in ["nanwatch", "nanwatchd", *(f"nanwatch-{name}" for name in names)]})
        for name in names:
            text = gzip.decompress((pages / f"nanwatch-{name}.1.gz").read_bytes()).decode()
            for option in re.findall(r"^  (--[a-z-]+)", run(BUILD / "bin/nanwatch", name, "--help").stdout, re.MULTILINE):
                self.assertIn(f"\n.B {option}".replace("-", "\\-"), text, name)

    def test_the_shells_complete(self):
        complete = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _nanwatch; echo "${COMPREPLY[@]}" """
        script = self.unpacked_deb() / "usr/share/bash-completion/completions/nanwatch"
        for words, expected in ((("rep",), "report replay"), (("run", "--lev"), "--level"), (("run", "--level", ""), "idle canary sampled full auto"),
                                (("run", "--capsule", "o"), "off op"), (("capsule", ""), "ls show verify pack"), (("run", "--", "--l"), ""), (("run", "--json", "--lev"), "--level"),
                                (("completion", "z"), "zsh")):
            self.assertEqual(run("bash", "-c", complete, "bash", script, "nanwatch", *words).stdout.strip(), expected, words)
        for shell, place in (("zsh", "zsh/vendor-completions/_nanwatch"), ("fish", "fish/vendor_completions.d/nanwatch.fish")):
            if shutil.which(shell):
                run(shell, "-n", self.unpacked_deb() / "usr/share" / place)
        if shutil.which("fish"):
            fish = f"source {self.unpacked_deb()}/usr/share/fish/vendor_completions.d/nanwatch.fish; complete -C 'nanwatch run --level c'"
            self.assertRegex(run("fish", "-c", fish).stdout, r"^canary\t")

    def test_the_units_start_what_is_there_and_are_sandboxed(self):
        root = self.unpacked_deb()
        units = sorted((root / "usr/lib/systemd").rglob("*.service"))
        self.assertEqual(len(units), 4)
        for unit in units:
            program, *words = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1].split()
            self.assertTrue(os.access(str(root) + program, os.X_OK), unit)
            # Its words are ones that the program knows.
            run(str(root) + program, *(word.replace("%i", "root") for word in words), "--help")
            if shutil.which("systemd-analyze"):
                whose = unit.parent.name
                mine = self.folder / whose / unit.name.replace("@", "@root")
                mine.parent.mkdir(exist_ok=True)
                shutil.copy(unit, mine)
                found = run("systemd-analyze", f"--{whose}", "security", "--offline=true", "--no-pager", mine, status=None, env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder)})
                exposure = re.search(r"exposure level for .*: ([\d.]+)", found.stdout)
                self.assertTrue(exposure, found)
                self.assertLessEqual(float(exposure[1]), 3.0, found.stdout)

    def test_lintian_finds_no_error(self):
        if not shutil.which("lintian"):
            self.skipTest("no lintian")
        found = run("lintian", "--fail-on", "error", self.the("*.deb"), status=None)
        self.assertEqual(found.returncode, 0, found.stdout)

    def test_wrong_use_is_named(self):
        for words, expected in (((), "say what to make"), (("rpm",), "'rpm' is unknown"), (("tar", "--build", "/nowhere"), "/nowhere is no build tree"), (("tar", "--out"), "--out needs a value")):
            refused = run(SOURCE / "scripts/package.sh", *words, status=1)
            self.assertIn(expected, refused.stderr)


if __name__ == "__main__":
    SOURCE, BUILD = map(pathlib.Path, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
