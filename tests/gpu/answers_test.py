# SPDX-License-Identifier: Apache-2.0
"""What becomes of answers: none is lost, none is made up."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import answers
import result
from answers import Answer, CannotAsk, Question


def cannot(_):
    raise CannotAsk("there is no such thing here")


def fails(_):
    raise RuntimeError("a kernel's words")


QUESTIONS = [
    Question("one.number", "how much?", lambda _: Answer({"figure": 1.5}, met=False), "2 or more"),
    Question("one.cannot", "can it?", cannot),
    Question("one.fails", "does it?", fails),
    Question("one.odd", "what is it?", lambda _: Answer({"set": {1}})),
    Question("one.table", "which?", lambda _: Answer([{"type": "float32", "ratio": 0.912345}, {"type": "float16", "ratio": 0.5}], met=True), "0.4"),
    Question("one.cut", "are all?", lambda _: Answer({"left_out": 3}), "all"),
]
TAKEN = "2026-01-02T03:04:05Z"
MACHINE = {"gpu": "A GPU (80 GB)", "cores": 2}


class Answers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def ask(self, *options):
        """Runs a file's main with QUESTIONS; its status and the lines that it left."""
        path = self.work / "answers.jsonl"
        words = ["one.py", "--answers", str(path), *options]
        with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with self.assertRaises(SystemExit) as end:
                answers.main("one", QUESTIONS)
        return end.exception.code, {line["id"]: line for line in map(json.loads, path.read_text().splitlines())}

    def document(self):
        (self.work / "questions.tsv").write_text("".join(f"{q.id}\t{q.asks}\n" for q in QUESTIONS) + "two.lost\twhere is it?\nthree.none\twhat?\n")
        (self.work / "endings.tsv").write_text("two.lost\tfailed\tits process ended with status -11\nthree\tnot asked\tleft out for time\n")
        (self.work / "parts.tsv").write_text("observer\tmissing\tand none was packed\n")
        (self.work / "machine.json").write_text(json.dumps(MACHINE))
        return result.document_of(self.work, TAKEN)

    def test_each_question_leaves_a_line_whatever_the_others_do(self):
        status, lines = self.ask()
        self.assertEqual(status, 1)
        self.assertEqual({name: line["state"] for name, line in lines.items()},
                         {"one.number": "answered", "one.cannot": "not asked", "one.fails": "failed", "one.odd": "failed", "one.table": "answered",
                          "one.cut": "answered"})
        self.assertEqual((lines["one.number"]["answer"], lines["one.number"]["met"]), ({"figure": 1.5}, False))
        self.assertEqual(lines["one.cannot"]["why"], "there is no such thing here")
        self.assertIn("a kernel's words", lines["one.fails"]["why"])
        self.assertEqual(lines["one.number"]["command"], "python3 one.py --only one.number")

    def test_only_what_is_asked_for_is_asked(self):
        status, lines = self.ask("--only", "one.number")
        self.assertEqual((status, list(lines)), (0, ["one.number"]))

    def test_a_dry_run_leaves_no_figure(self):
        _, lines = self.ask("--dry-run")
        self.assertTrue(all("answer" not in line for line in lines.values()), lines)
        self.assertEqual(lines["one.number"]["why"], "a dry run measures nothing")

    def test_a_question_without_a_line_is_in_the_result_with_how_its_file_ended(self):
        self.ask()
        by_id = {answer["id"]: answer for answer in self.document()["answers"]}
        self.assertEqual(list(by_id), [q.id for q in QUESTIONS] + ["two.lost", "three.none"])
        self.assertEqual((by_id["two.lost"]["state"], by_id["two.lost"]["why"]), ("failed", "its process ended with status -11"))
        self.assertEqual((by_id["three.none"]["state"], by_id["three.none"]["why"]), ("not asked", "left out for time"))

    def test_a_line_that_was_cut_off_costs_one_answer(self):
        self.ask()
        with open(self.work / "answers.jsonl", "a") as file:
            file.write('{"id": "two.lost", "ans')
        self.assertEqual({answer["id"]: answer["state"] for answer in self.document()["answers"]}["one.number"], "answered")

    def test_a_run_that_left_nothing_has_a_result_too(self):
        self.assertTrue(all("answer" not in answer and answer["why"] for answer in self.document()["answers"]))

    def test_both_files_are_written_and_named_after_the_machine(self):
        self.ask()
        path = result.write(self.document(), self.work / "results")
        self.assertRegex(path.name, r"^a-gpu-80-gb-20260102T030405Z\.json$")
        document, text = json.loads(path.read_text()), path.with_suffix(".txt").read_text()
        self.assertEqual((document["schema"], document["machine"]), ("nanwatch.gpu_check/2", MACHINE))
        for words in ("cores: 2", "part observer: missing: and none was packed", "goal: 2 or more: NOT MET", "goal: 0.4: met",
                      "figure: 1.5", "float32  0.9123", "failed: RuntimeError: a kernel's words", "not asked: there is no such thing here"):
            self.assertIn(words, text)
        self.assertIn("goal: all: not known: not all was asked", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
