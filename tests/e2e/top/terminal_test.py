# SPDX-License-Identifier: Apache-2.0
"""`nanwatch top` follows real training on a real terminal, and gives the terminal back however it ends."""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from watched_job import NANWATCH, TIMEOUT_S, Workplace, await_condition

# Trains until the file that it is told of is there; from then on one gradient is NaN.
PROGRAM = """
import os, sys, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs = torch.randn(32, 8)
while not os.path.exists(sys.argv[1] + ".end"):
    optimizer.zero_grad()
    loss = (model(inputs) ** 2).mean()
    if os.path.exists(sys.argv[1] + ".bad"):
        loss = loss + torch.log(torch.full((), -1.0))
    loss.backward()
    optimizer.step()
    loss.item()
"""


class Terminal:
    """A shell in a tmux server that nobody else uses."""

    def __init__(self, environment, columns=110, lines=24):
        self._folder = tempfile.mkdtemp(prefix="nanwatch-tmux-")
        self._environment = environment | {"TERM": "xterm-256color", "PS1": "$ ", "LC_ALL": "C.UTF-8"}
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "sh")

    def _tmux(self, *arguments):
        command = ["tmux", "-u", "-S", f"{self._folder}/socket", *arguments]
        ran = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        if ran.returncode:
            raise AssertionError(f"{command} failed: {ran.stderr}")
        return ran.stdout

    def type(self, *keys):
        self._tmux("send-keys", *keys)

    def command(self, text):
        self.type("-l", text)
        self.type("Enter")

    def resize(self, columns, lines):
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def text(self):
        return self._tmux("capture-pane", "-p")

    def modes(self):
        """What a screen changes: alternate buffer, cursor, wrapping."""
        return self._tmux("display", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}").strip()

    def wait_for(self, holds, what):
        """The text of the first screen for which `holds` is true."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = self.text()
            if holds(text):
                return text
        raise AssertionError(f"{what}; the screen is\n{self.text()}")

    def wait_for_text(self, text):
        return self.wait_for(lambda shown: text in shown, f"'{text}' did not come")

    @staticmethod
    def wait_for_end(pid):
        def has_ended():
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
            except OSError:
                return True
        await_condition(has_ended, "it ends without its terminal")

    def settings(self):
        """The line settings as stty writes them, read by the shell."""
        path = pathlib.Path(self._folder) / "settings"
        path.unlink(missing_ok=True)
        self.command(f"stty -g > {path}.new; mv {path}.new {path}")
        self.wait_for(lambda _: path.exists(), "the shell does not answer")
        return path.read_text()

    def close(self):
        subprocess.run(["tmux", "-S", f"{self._folder}/socket", "kill-server"], capture_output=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def steps_shown(text):
    """The STEP of the only row, None while there is none."""
    header = re.search(r"^  .*\bSTEP\b.*$", text, re.M)
    row = re.search(r"^> .*$", text, re.M)
    if not header or not row:
        return None
    shown = row.group()[:header.group().index("STEP") + len("STEP")].split()[-1]
    return int(shown) if shown.isdigit() else None


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed: scripts/setup.sh --tests")
class TopOnATerminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workplace = Workplace()
        cls.addClassCleanup(cls.workplace.close)
        cls.switch = cls.workplace.folder / "switch"
        cls.job = cls.workplace.run_watched([*cls.workplace.program("training", PROGRAM), cls.switch])

    def setUp(self):
        self.terminal = Terminal(self.workplace.watched)
        self.addCleanup(self.terminal.close)

    def start(self, *options):
        self.before = self.terminal.settings()
        self.terminal.command("clear; echo 'what stood here'")
        self.terminal.wait_for_text("what stood here")
        self.terminal.command(" ".join([str(NANWATCH), "top", "--interval", "0.1", *options]))
        self.terminal.wait_for(lambda text: (steps_shown(text) or 0) > 0, "no row with steps came")

    def top_pid(self):
        for status in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = status.read_bytes().split(b"\0")
                environment = (status.parent / "environ").read_bytes()
            except OSError:
                continue
            if words[:2] == [str(NANWATCH).encode(), b"top"] and str(self.workplace.segments).encode() in environment:
                return int(status.parent.name)
        raise AssertionError("top does not run")

    def assert_given_back(self):
        self.terminal.wait_for(lambda text: "what stood here" in text, "the old screen did not come back")
        self.assertEqual(self.terminal.modes(), "0 1 1")
        self.assertEqual(self.terminal.settings(), self.before)

    def test_rows_move_with_the_training(self):
        self.start()
        self.assertEqual(self.terminal.modes(), "1 0 0")
        first = steps_shown(self.terminal.text())
        # The daemon's verdict and a rate of two steps may come a picture later than a step.
        text = self.terminal.wait_for(lambda shown: (steps_shown(shown) or 0) > first and " clean" in shown
                                      and not re.search(r"training\.py +\d+ +-", shown), "the step stands still")
        for word in ("training.py", "STEP/S", "LOSS", "GRADNORM", "full", "clean", "q quit"):
            self.assertIn(word, text)
        self.assertNotRegex(text, r"training\.py +\d+ +-")  # the rate is known
        self.assertRegex(text, r"\A.*\d\d:\d\d:\d\d UTC\n")  # the last cell of a full line

    def test_the_table_follows_the_size_of_the_terminal(self):
        self.start()
        self.assertIn("GRADNORM", self.terminal.text())
        self.terminal.resize(40, 10)
        narrow = self.terminal.wait_for(lambda text: "GRADNORM" not in text and steps_shown(text), "it stayed wide")
        self.assertIn("LOSS", narrow)
        self.terminal.resize(150, 30)
        self.terminal.wait_for(lambda text: "LOSSES" in text and steps_shown(text), "it stayed narrow")

    def test_keys_sort(self):
        self.start()
        self.terminal.type("o")
        self.terminal.wait_for_text("by overhead")
        self.terminal.type("l")
        self.terminal.wait_for_text("by loss")
        self.terminal.type("Down", "Up", "r")
        self.terminal.wait_for_text("by rank")

    def test_q_gives_the_terminal_back(self):
        self.start()
        self.terminal.type("q")
        self.assert_given_back()
        self.terminal.command("echo status $?")  # of stty and mv, which assert_given_back ran
        self.terminal.wait_for_text("status 0")

    def test_ctrl_c_and_signals_that_kill_give_the_terminal_back(self):
        self.start()
        self.terminal.type("C-c")
        self.assert_given_back()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV, signal.SIGABRT):
            with self.subTest(number.name):
                self.start()
                subprocess.run(["kill", f"-{number.value}", str(self.top_pid())], check=True)
                self.assert_given_back()

    def test_ctrl_z_gives_it_back_and_fg_takes_it_again(self):
        self.start()
        self.terminal.type("C-z")
        self.assert_given_back()
        self.terminal.command("bg; clear; echo 'what stood here'")
        self.assert_given_back()
        self.terminal.command("fg")
        self.terminal.wait_for(lambda text: steps_shown(text), "it did not come back")
        self.assertEqual(self.terminal.modes(), "1 0 0")
        self.terminal.type("q")
        self.assert_given_back()

    def test_it_ends_with_its_terminal(self):
        self.start()
        pid = self.top_pid()
        self.terminal.close()
        self.terminal.wait_for_end(pid)

    def test_no_color_is_obeyed(self):
        self.terminal.command("export NO_COLOR=1")
        self.start()
        self.assertNotIn("\x1b[", self.terminal._tmux("capture-pane", "-p", "-e"))

    def test_once_prints_a_table_and_a_document(self):
        self.start()
        self.terminal.wait_for(lambda text: (steps_shown(text) or 0) > 2, "the step stands still")  # a rate is of two
        table = self.workplace.tool("top", "--once")
        self.assertRegex(table, r"training\.py +[1-9]")
        self.assertNotIn("\x1b", table)
        (run,) = json.loads(self.workplace.tool("top", "--once", "--json"))["runs"]
        self.assertEqual((run["program"], run["level"], run["state"]), ("training.py", "full", "watching"))
        self.assertGreater(run["step"], 0)
        self.assertGreater(run["steps_per_second"], 0)
        self.assertGreater(run["gradient_norm"], 0)
        self.assertGreater(len(run["losses"]), 1)


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed: scripts/setup.sh --tests")
class TopThroughALife(unittest.TestCase):
    def test_no_job_then_a_job_then_an_anomaly_then_its_end(self):
        workplace = Workplace()
        self.addCleanup(workplace.close)
        terminal = Terminal(workplace.watched)
        self.addCleanup(terminal.close)
        terminal.command(f"{NANWATCH} top --interval 0.1")
        terminal.wait_for_text("no job is running: start one with 'nanwatch run -- python train.py'")
        switch = workplace.folder / "switch"
        job = workplace.run_watched([*workplace.program("training", PROGRAM), switch])
        terminal.wait_for(lambda text: (steps_shown(text) or 0) > 0 and "clean" in text, "the job did not appear")
        pathlib.Path(f"{switch}.bad").touch()
        text = terminal.wait_for_text("ANOMALY")
        self.assertIn("aten::log", text)
        self.assertIn("anomaly", text)
        pathlib.Path(f"{switch}.end").touch()
        self.assertEqual(job.status(), 0, job.stderr())
        terminal.wait_for_text("ended, 0")


if __name__ == "__main__":
    unittest.main(verbosity=2)
