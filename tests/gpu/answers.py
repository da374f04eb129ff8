# SPDX-License-Identifier: Apache-2.0
"""What a question's answer looks like, and the command line that every file with questions has.

A question has an id, what it asks in words, and a function. Its answer is one JSON line, written as soon as it is known, so that
a crash loses one answer and no more:

  {"id": ..., "asks": ..., "state": "answered", "answer": ..., "goal": ..., "met": ..., "command": ...}
  {"id": ..., "asks": ..., "state": "not asked" | "failed", "why": ..., "command": ...}

A question that takes long tells what it has so far (arguments.so_far), as an answered line with "provisional": true, which the next one
replaces. A GPU that an answer has found out of order for this process is told by "gpu_lost": true.

A question that hangs ends the process when its time is over, and its stacks go to stderr: by --limit, which is shared out among the
questions by their weight. session.py then asks the others in a process of their own; after a failure too, since an error of
the GPU's stays with the process that it befell.

With --dry-run everything runs on the CPU, small, and what came out is thrown away: a dry run shows that the questions can be
asked, and measures nothing.
"""
import argparse
import contextlib
import dataclasses
import faulthandler
import json
import math
import os
import signal
import sys
import time
import traceback
import typing

import clocks

LATE = 1.5  # a question may take so many times its share; another is begun all the same
TIDYING_S = 5  # that what was begun by a question whose time is over may take to end


class CannotAsk(Exception):
    """Something that the question needs is not there; the message says what."""


@dataclasses.dataclass
class Answer:
    """`met` stays None where there is no goal, and where too little was asked to know."""
    value: typing.Any
    met: bool | None = None
    gpu_lost: bool = False  # for this process, which had better ask nothing more


@dataclasses.dataclass
class Question:
    id: str
    asks: str
    ask: typing.Callable[[argparse.Namespace], Answer]
    goal: str = ""
    weight: float = 1  # its share of the file's time, beside those of the others
    timed: bool = False  # its figures depend on the GPU's clock: it is brought up first, and told


def ask_one(question, arguments):
    line = {"id": question.id, "asks": question.asks, "command": f"{arguments.command} --only {question.id}"}
    if question.goal:
        line["goal"] = question.goal
    try:
        arguments.so_far = lambda answer: write(line | answered(answer) | {"provisional": True}, arguments)
        arguments.notes = {}  # of the question, for its line
        arguments.prepare(arguments)
        if question.timed and not arguments.dry_run:
            line["sm_clock_mhz"] = {"before": clocks.warmed_up()}
        answer = question.ask(arguments)
        json.dumps(answer.value)
        if "sm_clock_mhz" in line and not answer.gpu_lost:
            line["sm_clock_mhz"]["after"] = clocks.sm_clock_mhz()
    except CannotAsk as reason:
        return line | {"state": "not asked", "why": str(reason)}
    except Exception as error:  # One question's failure must not take the others with it.
        traceback.print_exc()
        return line | {"state": "failed", "why": f"{type(error).__name__}: {error}"[:600]}
    if arguments.dry_run:
        return line | {"state": "not asked", "why": "a dry run measures nothing"}
    return line | arguments.notes | answered(answer)


def answered(answer):
    return {"state": "answered", "answer": answer.value, "met": answer.met} | ({"gpu_lost": True} if answer.gpu_lost else {})


def write(line, arguments):
    """To the file of answers; of a dry run there are none."""
    if arguments.answers and not (arguments.dry_run and line["state"] == "answered"):
        with open(arguments.answers, "a") as file:
            file.write(json.dumps(line) + "\n")


def preload_words():
    """How this process was put under the library, if it was: what came out is not to be had without."""
    library = os.environ.get("LD_PRELOAD", "")
    if "libnanwatch" not in library:
        return []
    return [f"LD_PRELOAD={os.path.relpath(library)}", f"NANWATCH_LEVEL={os.environ.get('NANWATCH_LEVEL', '')}", "NANWATCH_DIR=$(mktemp -d)"]


@contextlib.contextmanager
def ended_after(seconds):
    """Ends the process when so many seconds are over, also where Python's own threads cannot run: with the stacks, and status 1."""
    if math.isfinite(seconds):
        faulthandler.dump_traceback_later(max(1.0, seconds), exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def ask_all(chosen, arguments):
    """Yields each one's line. What a question may take, and how much of it measuring, it finds in arguments.ends_at and .seconds."""
    file_ends_at, seconds = time.monotonic() + arguments.limit, arguments.seconds
    weights = sum(question.weight for question in chosen)
    for index, question in enumerate(chosen):
        arguments.seconds = seconds * question.weight / weights
        left = file_ends_at - time.monotonic()
        share = left * question.weight / sum(one.weight for one in chosen[index:])
        limit = min(left, LATE * share)
        arguments.ends_at = time.monotonic() + limit - TIDYING_S
        with ended_after(limit):
            yield ask_one(question, arguments)


def parser_of(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the questions and leave")
    parser.add_argument("--only", help="ids, separated by commas")
    parser.add_argument("--answers", metavar="FILE", help="append the answers here, one JSON object a line")
    parser.add_argument("--seconds", type=float, default=60, help="about how long all questions together may measure")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="when all have to be done")
    parser.add_argument("--stop-at-failure", action="store_true", help="ask no other after one that failed, or lost the GPU")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, small; no answer is kept")
    return parser


def main(description, questions, add_options=lambda parser: None):
    parser = parser_of(description)
    parser.set_defaults(prepare=lambda arguments: None)  # of a file: called before each question
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.list:
        for question in questions:
            print(question.id, question.asks, sep="\t")
        return
    arguments.command = " ".join([*preload_words(), "python3", sys.argv[0]])
    chosen = [q for q in questions if not arguments.only or q.id in arguments.only.split(",")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: out of time"))  # so that what was begun is tidied up
    failed = False
    for line in ask_all(chosen, arguments):
        failed |= line["state"] == "failed"
        print(f"{line['id']}: {line['state']}" + (f": {line['why']}" if "why" in line else ""), flush=True)
        write(line, arguments)
        if (failed or line.get("gpu_lost")) and arguments.stop_at_failure:
            break
    sys.exit(1 if failed else 0)
