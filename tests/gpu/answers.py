"""What a question's answer looks like, and the command line that every file with questions has.

A question has an id, what it asks in words, and a function. Its answer is one JSON line, written as soon as it is known, so that
a crash loses one answer and no more:

  {"id": ..., "asks": ..., "state": "answered", "answer": ..., "goal": ..., "met": ..., "command": ...}
  {"id": ..., "asks": ..., "state": "not asked" | "failed", "why": ..., "command": ...}

With --dry-run everything runs on the CPU, small, and what came out is thrown away: a dry run shows that the questions can be
asked, and measures nothing.
"""
import argparse
import dataclasses
import json
import os
import signal
import sys
import traceback
import typing

SCHEMA = "nanwatch.gpu_check/1"


class CannotAsk(Exception):
    """Something that the question needs is not there; the message says what."""


@dataclasses.dataclass
class Answer:
    """`met` stays None where there is no goal."""
    value: typing.Any
    met: bool | None = None


@dataclasses.dataclass
class Question:
    id: str
    asks: str
    ask: typing.Callable[[argparse.Namespace], Answer]
    goal: str = ""


def ask_one(question, arguments):
    line = {"id": question.id, "asks": question.asks, "command": f"{arguments.command} --only {question.id}"}
    if question.goal:
        line["goal"] = question.goal
    try:
        answer = question.ask(arguments)
        json.dumps(answer.value)
    except CannotAsk as reason:
        return line | {"state": "not asked", "why": str(reason)}
    except Exception as error:  # One question's failure must not take the others with it.
        traceback.print_exc()
        return line | {"state": "failed", "why": f"{type(error).__name__}: {error}"[:600]}
    if arguments.dry_run:
        return line | {"state": "not asked", "why": "a dry run measures nothing"}
    return line | {"state": "answered", "answer": answer.value, "met": answer.met}


def preload_words():
    """How this process was put under the library, if it was: what came out is not to be had without."""
    library = os.environ.get("LD_PRELOAD", "")
    if "libnanwatch" not in library:
        return []
    return [f"LD_PRELOAD={os.path.relpath(library)}", f"NANWATCH_LEVEL={os.environ.get('NANWATCH_LEVEL', '')}", "NANWATCH_DIR=$(mktemp -d)"]


def main(description, questions, add_options=lambda parser: None):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the questions and leave")
    parser.add_argument("--only", help="ids, separated by commas")
    parser.add_argument("--answers", metavar="FILE", help="append the answers here, one JSON object a line")
    parser.add_argument("--seconds", type=float, default=60, help="about how long all questions together may take")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, small; no answer is kept")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.list:
        for question in questions:
            print(question.id, question.asks, sep="\t")
        return
    arguments.command = " ".join([*preload_words(), "python3", sys.argv[0]])
    chosen = [q for q in questions if not arguments.only or q.id in arguments.only.split(",")]
    arguments.seconds /= max(1, len(chosen))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: out of time"))  # so that what was begun is tidied up
    failed = False
    for question in chosen:
        line = ask_one(question, arguments)
        failed |= line["state"] == "failed"
        print(f"{question.id}: {line['state']}" + (f": {line['why']}" if "why" in line else ""), flush=True)
        if arguments.answers:
            with open(arguments.answers, "a") as file:
                file.write(json.dumps(line) + "\n")
    sys.exit(1 if failed else 0)
