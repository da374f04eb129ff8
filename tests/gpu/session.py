# SPDX-License-Identifier: Apache-2.0
"""One call of scripts/gpu_check.sh: all that can be asked before one deadline, with a result file that is whole at every moment.

The caller may be killed when its own time is over, and what is not in --out then is lost. So the result files are written anew after every
answer, every file of questions has a limit that follows from the time that is left, and what a file leaves running is killed before the
next begins. A question that hangs, crashes or fails costs itself alone: the others of its file are asked in a process of their own.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import descendants
import evidence
import limited
import result
from parts import Parts
from result_text import GOALS

HERE = pathlib.Path(__file__).resolve().parent
# The most seconds that each file of questions is given, in the order in which they are asked; what one does not need, the later ones
# have. Of the long ones, where less is left, it is shared out in these proportions.
FILES = {"smoke": 90, "kernels": 120, "sums": 45, "measures": 45, "batches": 45, "no_sync": 60, "ends": 240, "steps": 300, "overhead": 150, "verdicts": 520, "build": 300}
OF_KERNELS = ("smoke", "kernels", "sums", "measures", "batches")  # these need no observer, but smoke
LONG = ("ends", "steps", "overhead", "verdicts", "build")
WORTHWHILE_S = 15  # with less left nothing is begun
MEASURING = 0.6  # of a file's time; the rest is for imports, models and the like
LIST_S_MAX, MACHINE_S_MAX = 90, 60


class Session:
    """`commands` has by file the command line that asks its questions, without the options that all files have."""

    def __init__(self, work, out, ends_at, commands, dry_run=False):
        self.work, self.out, self.ends_at, self.commands, self.dry_run = work, out, ends_at, commands, dry_run
        self.taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._published, self._said = None, set()

    def left(self):
        return self.ends_at - time.monotonic()

    # ---- what is there so far

    def document(self):
        return result.document_of(self.work, self.taken)

    def publish(self):
        """Writes the result files, where there is something new. Of a dry run there are none."""
        files = sorted(path for pattern in ("*.tsv", "*.jsonl", "machine.json") for path in self.work.glob(pattern))
        state = [(path.name, path.stat().st_size) for path in files]
        if state != self._published and not self.dry_run:
            self._write("the result", lambda: result.write(self.document(), self.out))
        self._published = state
        for name, answer in result.given_answers(self.work).items():
            if name not in self._said and not answer.get("provisional"):
                self._said.add(name)
                print(f"[{self.left():4.0f} s left] {name}: {answer['state']}" + (f": {answer['why'][:200]}" if "why" in answer else ""), flush=True)

    def keep_evidence(self):
        if not self.dry_run:
            self._write("the evidence", lambda: evidence.write(self.work, self.out / "evidence.tar.gz"))

    def _write(self, what, write):
        """What cannot be written now may be later, and is no reason to ask no more."""
        try:
            write()
        except Exception as error:
            print(f"gpu_check: {what} could not be written: {type(error).__name__}: {error}", flush=True)

    def end(self, key, state, why):
        """Why a question, or those of a file that have no answer, have none."""
        print(f"[{self.left():4.0f} s left] {key}: {why}", flush=True)
        with open(self.work / "endings.tsv", "a") as file:
            file.write(f"{key}\t{state}\t{why}\n")

    # ---- asking

    def list_questions(self):
        """All files at once: each imports torch. One that cannot be listed is asked all the same, by one name for all it has."""
        def listed(file):
            try:
                told = subprocess.run([*self.commands[file], "--list"], capture_output=True, text=True, timeout=min(LIST_S_MAX, self.left() / 3), check=True)
                return told.stdout
            except (OSError, subprocess.SubprocessError):
                return f"{file}.all\tall of tests/gpu/{file}.py, which does not list its questions\n"
        with concurrent.futures.ThreadPoolExecutor(len(self.commands)) as pool:
            (self.work / "questions.tsv").write_text("".join(pool.map(listed, self.commands)))

    def questions_of(self, file):
        return [name for name, _ in result.rows_of(self.work / "questions.tsv") if name.split(".")[0] == file]

    def limit_of(self, file, to_come):
        share = FILES[file] / sum(FILES[other] for other in to_come) if file in LONG else 1
        return min(FILES[file], self.left() * share)

    def ask(self, file, limit):
        """Asks the questions of a file: those behind one that hung, crashed or failed in another process. Each round settles one at least."""
        file_ends_at, pending = time.monotonic() + limit, self.questions_of(file)
        while pending:
            left = file_ends_at - time.monotonic()
            if left < WORTHWHILE_S:
                self.end(file, "not asked", f"left out for time: the {limit:.0f} s that its file had were over")
                return
            status = self._run(file, pending, left)
            given = result.given_answers(self.work)
            if pending == [f"{file}.all"] and any(name.split(".")[0] == file for name in given):
                self.end(pending.pop(), "not asked", "it stands for the questions of its file, which stand below")
            settled = [given[name] for name in pending if name in given and not given[name].get("provisional")]
            unanswered = [name for name in pending if given.get(name) not in settled]
            if unanswered and not any(answer["state"] == "failed" or answer.get("gpu_lost") for answer in settled):
                self.end(unanswered.pop(0), "failed", self._how_it_ended(file, status, left))
            pending = unanswered
            self.publish()

    def _run(self, file, questions, limit):
        options = ["--answers", self.work / "answers.jsonl", "--seconds", f"{MEASURING * limit:.1f}", "--limit", f"{limit - limited.GRACE_S:.1f}",
                   "--stop-at-failure"]
        if questions != [f"{file}.all"]:
            options += ["--only", ",".join(questions)]
        if self.dry_run:
            options.append("--dry-run")
        return limited.run([*self.commands[file], *options], limit, self.work / f"{file}.log", tick=self.publish)

    def _how_it_ended(self, file, status, limit):
        log = self.work / f"{file}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        if status is None:
            return f"its process was stopped after {limit:.0f} s"
        if any(line.startswith("Timeout (") for line in lines[-200:]):  # faulthandler's
            return "its time was over; where it was stands in the log"
        return f"its process ended with status {status}: {' | '.join(lines[-3:])[:300]}".replace("\t", " ")

    def why_not_observed(self):
        """"" or why questions about the observer are not worth their time."""
        if "smoke" not in self.commands or self.dry_run:
            return ""
        answer = next((one for one in self.document()["answers"] if one["id"].startswith("smoke.")), {"state": "not asked", "why": "it is not listed"})
        if answer["state"] != "answered":
            return f"the smoke test was {answer['state']}: {answer['why']}"[:400]
        return "" if answer["answer"]["works"] else "the smoke test says that the observer does not work on this GPU"

    def ask_all(self):
        files = list(self.commands)
        for index, file in enumerate(files):
            why_not = "" if file in (*OF_KERNELS, "build") else self.why_not_observed()
            limit = self.limit_of(file, files[index:])
            if why_not:
                self.end(file, "not asked", why_not)
            elif limit < WORTHWHILE_S:
                self.end(file, "not asked", "left out for time")
            else:
                self.ask(file, limit)
            self.publish()
            self.keep_evidence()

    # ---- the end

    def summary(self):
        def told(answer):
            if answer["state"] != "answered":
                return f"{answer['state']}: {answer['why'][:150]}"
            if answer.get("provisional"):
                return "answered as far as it came"
            return f"answered, goal {GOALS[answer['met']]}" if answer.get("goal") else "answered"
        return "\n".join(f"{answer['id']}: {told(answer)}" for answer in self.document()["answers"])

    def has_failed(self):
        return any(answer["state"] == "failed" for answer in self.document()["answers"])


# ---- the command line

def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/gpu"))
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(FILES), help="files of questions, separated by commas")
    parser.add_argument("--seconds", type=float, required=True, help="until the last answer")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def commands_of(arguments, segments):
    """By file that is asked for, in the order of FILES."""
    work, python = arguments.work, [sys.executable]
    preload = work / "prefix/lib/libnanwatch.so"
    watched = ["env", f"NANWATCH_DIR={segments}", f"NANWATCH_STATE_DIR={segments}/state", "NANWATCH_LEVEL=full",
               *([f"LD_PRELOAD={preload.resolve()}"] if preload.exists() else []), *python]
    tools, grid = ["--nanwatch", work / "prefix/bin/nanwatch"], ["--grid-for", work / "libgrid_for.so"]
    kept = ["--evidence", work / "evidence"]
    commands = {"smoke": [*python, "tests/gpu/smoke.py", *tools, *kept],
                "kernels": [*python, "tests/gpu/kernels.py", *grid],
                "sums": [*python, "tests/gpu/sums.py", *grid],
                "measures": [*python, "tests/gpu/measures.py", *grid],
                "batches": [*python, "tests/gpu/batches.py", *grid],
                "no_sync": [*watched, "tests/gpu/no_sync.py", *tools],
                "ends": [*python, "tests/gpu/ends.py", *tools],
                "steps": [*watched, "tests/gpu/steps.py", *tools, *grid],
                "overhead": [*python, "tests/gpu/overhead.py", *tools],
                "verdicts": [*python, "tests/gpu/verdicts.py", *tools, *kept, *(["--programs", arguments.programs] if arguments.programs else [])],
                "build": [*python, "tests/gpu/build.py", "--parts", arguments.parts, "--prefix", work / "built"]}
    wanted = arguments.only.split(",")
    unknown = [name for name in wanted if name not in FILES]
    if unknown:
        sys.exit(f"gpu_check: there are no questions '{unknown[0]}': {', '.join(FILES)}")
    return {file: commands[file] for file in FILES if file in wanted}


def prepare(arguments, segments, session):
    """All that is there before the first question; nothing of it can end the session."""
    limited.run([sys.executable, HERE / "machine.py", session.work / "machine.json"], min(MACHINE_S_MAX, session.left() / 4), session.work / "machine.log")
    session.list_questions()
    session.publish()
    Parts(arguments.parts, session.work, sys.executable, segments, session.left).put_together()
    session.commands = commands_of(arguments, segments)  # the preload library is there now


def print_questions(arguments):
    with tempfile.TemporaryDirectory() as work:
        session = Session(pathlib.Path(work), arguments.out, time.monotonic() + arguments.seconds, commands_of(arguments, pathlib.Path(work)))
        session.list_questions()
        print((session.work / "questions.tsv").read_text(), end="")


def clear(work):
    """Of what a call before has left there."""
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(work / "evidence", ignore_errors=True)
    for pattern in ("*.tsv", "*.jsonl", "*.log", "machine.json", "commit"):
        for path in work.glob(pattern):
            path.unlink()


def run(arguments, segments, began):
    session = Session(arguments.work, arguments.out, began + arguments.seconds, commands_of(arguments, segments), arguments.dry_run)
    try:
        clear(session.work)
        prepare(arguments, segments, session)
        session.ask_all()
    finally:
        descendants.kill_all()
        session.publish()
        session.keep_evidence()
    print(f"\n{session.summary()}\ngpu_check: " + ("a dry run: nothing is kept" if session.dry_run else str(session.out)))
    return 1 if session.has_failed() else 0


def main():
    began = time.monotonic()
    arguments = arguments_of()
    os.environ["PYTHONUNBUFFERED"] = "1"
    if arguments.dry_run:
        os.environ["OMP_NUM_THREADS"] = "1"  # tiny models on a busy machine would wait for each other's threads
    if arguments.list:
        print_questions(arguments)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu_check: stopped"))
    descendants.adopt()
    with tempfile.TemporaryDirectory() as segments:
        sys.exit(run(arguments, pathlib.Path(segments), began))


if __name__ == "__main__":
    main()
