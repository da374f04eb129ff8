# SPDX-License-Identifier: Apache-2.0
"""What a session makes of questions that hang, crash, fail or leave processes behind, and of a deadline: the others' answers stay."""
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import descendants  # noqa: E402
import session  # noqa: E402

HEAD = f"""
import os, signal, subprocess, sys, time
sys.path.insert(0, {str(HERE)!r})
import answers
from answers import Answer, CannotAsk, Question
def fine(_): return Answer({{"figure": 1}}, True)
def hangs(_): time.sleep(1000)
def crashes(_): os.kill(os.getpid(), signal.SIGSEGV)
def fails(_): raise RuntimeError("CUDA error: an illegal memory access")
def partly(arguments):
    arguments.so_far(Answer({{"rounds": 1}}))
    arguments.so_far(Answer({{"rounds": 2}}))
    crashes(arguments)
def wholly(arguments):
    arguments.so_far(Answer({{"rounds": 1}}))
    return Answer({{"rounds": 3}})
def loses(_): return Answer({{"figure": 1}}, gpu_lost=True)
def process(_): return Answer(os.getpid())
def deaf(_):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    time.sleep(1000)
def orphan(_):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    open(os.environ["ORPHAN"], "w").write(str(child.pid))
    os._exit(9)
"""


def runs(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class SessionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.work, self.out = self.folder / "work", self.folder / "out"
        self.work.mkdir()
        descendants.adopt()

    def file(self, name, *questions, head="", last="answers.main('', QUESTIONS)"):
        """A file with questions, each (id, function of HEAD)."""
        listed = ", ".join(f"Question('{name}.{about}', 'what?', {function})" for about, function in questions)
        path = self.folder / f"{name}.py"
        path.write_text(HEAD + textwrap.dedent(head) + f"QUESTIONS = [{listed}]\n{last}\n")
        return [sys.executable, path]

    def session(self, seconds, **files):
        made = session.Session(self.work, self.out, time.monotonic() + seconds, files)
        with contextlib.redirect_stdout(io.StringIO()):
            made.list_questions()
        return made

    def asked(self, made):
        with contextlib.redirect_stdout(io.StringIO()):
            made.ask_all()
        return self.result()

    def result(self):
        """By id, what the result file says."""
        documents = sorted(self.out.glob("*.json"))
        self.assertEqual(len(documents), 1, "one call makes one result")
        return {answer["id"]: answer for answer in json.loads(documents[0].read_text())["answers"]}

    def states(self, by_id):
        return {name: answer["state"] for name, answer in by_id.items()}

    def test_one_that_hangs_is_ended_with_its_stack_and_the_others_are_asked(self):
        by_id = self.asked(self.session(60, kernels=self.file("kernels", ("a", "fine"), ("b", "hangs"), ("c", "fine"), ("d", "fine"), ("e", "fine"))))
        self.assertEqual(self.states(by_id), {"kernels.a": "answered", "kernels.b": "failed", "kernels.c": "answered", "kernels.d": "answered",
                                              "kernels.e": "answered"})
        self.assertIn("its time was over", by_id["kernels.b"]["why"])
        self.assertIn("in hangs", (self.work / "kernels.log").read_text())

    def test_one_that_crashes_costs_itself_alone(self):
        by_id = self.asked(self.session(500, kernels=self.file("kernels", ("a", "crashes"), ("b", "fine")), sums=self.file("sums", ("a", "fine"))))
        self.assertEqual(self.states(by_id), {"kernels.a": "failed", "kernels.b": "answered", "sums.a": "answered"})
        self.assertIn("status -11", by_id["kernels.a"]["why"])

    def test_of_one_that_is_cut_off_stays_what_it_has_told(self):
        by_id = self.asked(self.session(500, steps=self.file("steps", ("a", "fine"), ("b", "partly"), ("c", "wholly"))))
        self.assertEqual(self.states(by_id), {"steps.a": "answered", "steps.b": "answered", "steps.c": "answered"})
        self.assertEqual((by_id["steps.b"]["answer"], by_id["steps.c"]["answer"]), ({"rounds": 2}, {"rounds": 3}))
        self.assertIn("status -11", by_id["steps.b"]["cut_off"])
        self.assertEqual([name for name, answer in by_id.items() if answer.get("provisional")], ["steps.b"])
        self.assertIn("as far as it came: its process ended with status -11", next(self.out.glob("*.txt")).read_text())

    def test_after_a_lost_gpu_the_others_have_a_process_of_their_own_and_none_is_blamed(self):
        by_id = self.asked(self.session(500, kernels=self.file("kernels", ("a", "process"), ("b", "loses"), ("c", "process"))))
        self.assertEqual(set(self.states(by_id).values()), {"answered"})
        self.assertNotEqual(by_id["kernels.a"]["answer"], by_id["kernels.c"]["answer"])

    def test_after_a_failure_the_others_have_a_process_of_their_own(self):
        by_id = self.asked(self.session(500, kernels=self.file("kernels", ("a", "process"), ("b", "fails"), ("c", "process"))))
        self.assertEqual(self.states(by_id), {"kernels.a": "answered", "kernels.b": "failed", "kernels.c": "answered"})
        self.assertNotEqual(by_id["kernels.a"]["answer"], by_id["kernels.c"]["answer"])

    def test_what_a_file_leaves_running_is_gone_before_the_next_begins(self):
        os.environ["ORPHAN"] = str(self.folder / "orphan")
        self.addCleanup(os.environ.pop, "ORPHAN")
        by_id = self.asked(self.session(500, kernels=self.file("kernels", ("a", "orphan"))))
        self.assertEqual(by_id["kernels.a"]["state"], "failed")
        self.assertFalse(runs(int((self.folder / "orphan").read_text())))

    def test_the_deadline_holds_and_what_was_not_asked_says_so(self):
        began = time.monotonic()
        # Deaf to SIGTERM, and without the file's own limit.
        deaf = self.file("kernels", ("a", "fine"), ("b", "deaf"), head="answers.ended_after = lambda seconds: __import__('contextlib').nullcontext()\n")
        by_id = self.asked(self.session(32, kernels=deaf, sums=self.file("sums", ("a", "fine")), steps=self.file("steps", ("a", "fine"))))
        self.assertLess(time.monotonic() - began, 32 + 2 * 5)
        self.assertEqual(by_id["kernels.a"]["state"], "answered" if by_id["kernels.a"].get("answer") else "not asked")
        self.assertTrue(all(answer["state"] == "answered" or answer["why"] for answer in by_id.values()))
        self.assertIn("left out for time", " ".join(answer.get("why", "") for answer in by_id.values()))

    def test_each_answer_is_in_the_result_file_before_the_next_question_ends(self):
        """The session is killed, as nothing can be kept from: what was answered is in --out."""
        command = self.file("kernels", ("a", "fine"), ("b", "hangs"))
        code = f"""
            import sys, time, pathlib
            sys.path.insert(0, {str(HERE)!r})
            import session
            one = session.Session(pathlib.Path({str(self.work)!r}), pathlib.Path({str(self.out)!r}), time.monotonic() + 500,
                                  {{"kernels": {[str(c) for c in command]!r}}})
            one.list_questions()
            one.ask_all()
        """
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True) as killed:
            self.assertIn("kernels.a: answered", killed.stdout.readline())
            while self.result()["kernels.a"]["state"] != "answered":
                self.assertIsNone(killed.poll())
            left = descendants.below(killed.pid)
            os.kill(killed.pid, signal.SIGKILL)
        for process in left:
            os.kill(process, signal.SIGKILL)
        self.assertEqual(self.states(self.result()), {"kernels.a": "answered", "kernels.b": "not asked"})

    def test_where_the_smoke_test_fails_only_the_kernels_are_asked(self):
        files = {name: self.file(name, ("a", "fine")) for name in ("kernels", "no_sync", "steps", "verdicts")}
        smoke = self.file("smoke", ("a", "lambda _: Answer({'works': False}, False)"))
        by_id = self.asked(self.session(1000, smoke=smoke, **files))
        self.assertEqual(self.states(by_id), {"smoke.a": "answered", "kernels.a": "answered", "no_sync.a": "not asked", "steps.a": "not asked",
                                              "verdicts.a": "not asked"})
        self.assertIn("does not work on this GPU", by_id["steps.a"]["why"])

    def test_where_it_works_all_are(self):
        files = {name: self.file(name, ("a", "fine")) for name in ("steps", "verdicts")}
        smoke = self.file("smoke", ("a", "lambda _: Answer({'works': True}, False)"))
        self.assertEqual(set(self.states(self.asked(self.session(1000, smoke=smoke, **files))).values()), {"answered"})

    def test_a_file_that_cannot_list_its_questions_is_asked_all_the_same(self):
        broken = self.file("kernels", ("a", "fine"), last="if '--list' in sys.argv: sys.exit(1)\nanswers.main('', QUESTIONS)")
        self.assertEqual(self.states(self.asked(self.session(60, kernels=broken)))["kernels.a"], "answered")

    def test_a_result_that_cannot_be_written_ends_nothing(self):
        self.out.write_text("in the way")
        made = self.session(60, kernels=self.file("kernels", ("a", "fine")))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            made.ask_all()
        self.assertIn("kernels.a: answered", said.getvalue())
        self.assertIn("could not be written", said.getvalue())

    def test_a_machine_that_cannot_be_described_has_a_result_too(self):
        (self.work / "machine.json").write_text('{"gpu": ')
        self.assertEqual(self.states(self.asked(self.session(60, kernels=self.file("kernels", ("a", "fine"))))), {"kernels.a": "answered"})
        self.assertEqual(len(list(self.out.glob("unknown-gpu-*.json"))), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
