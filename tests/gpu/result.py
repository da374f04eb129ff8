# SPDX-License-Identifier: Apache-2.0
"""The result document: what a call of scripts/gpu_check.sh left in its work folder, and several such documents as one.

  {"schema", "machine", "calls": [{"taken", "commit", "parts"}], "answers": [{... as answers.py has it, "call": index in calls}]}

Every question is in it: with its answer, or with the reason why there is none. Nothing here needs torch or a GPU, so that a document can
be made whatever became of them.
"""
import json
import pathlib
import re

from machine import first_line
from result_text import as_text

SCHEMA = "nanwatch.gpu_check/2"
# Of two lines about one question the one with the higher rank stays, of equals the later one. An answer that was cut off is more than none.
RANKS = {"not asked": 0, "failed": 1, "answered": 3}
CUT_OFF = 2


def rank_of(answer):
    return CUT_OFF if answer.get("provisional") else RANKS[answer["state"]]


def commit_of(work):
    """Of the packed parts, which were told what they were made of, and where this tree has a history that says otherwise, its own: what
    carries a tree to another machine may make a history for it."""
    here = first_line(["git", "describe", "--always", "--dirty", "--abbrev=40"])
    packed = (work / "commit").read_text().strip() if (work / "commit").exists() else ""
    return f"{packed} (the parts), {here} (this tree)" if packed and here and packed != here else packed or here


def rows_of(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def given_answers(work):
    """By id, whole lines only: the last one may still be being written."""
    path, by_id = work / "answers.jsonl", {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            answer = json.loads(line)
            by_id[answer["id"]] = answer
        except ValueError:
            continue
    return by_id


def all_answers(work):
    """One line for each question, in the order in which they are listed."""
    given, endings = given_answers(work), {key: (state, why) for key, state, why in rows_of(work / "endings.tsv")}
    answers = []
    for name, asks in rows_of(work / "questions.tsv"):
        state, why = endings.get(name) or endings.get(name.split(".")[0]) or ("not asked", "its file was not run")
        answer = given.pop(name, {"id": name, "asks": asks, "state": state, "why": why})
        answers.append(answer | ({"cut_off": why} if answer.get("provisional") and name in endings else {}))
    return answers + list(given.values())


def machine_of(work):
    try:
        return json.loads((work / "machine.json").read_text())
    except (OSError, ValueError):
        return {"gpu": "unknown GPU"}


def document_of(work, taken):
    call = {"taken": taken, "commit": commit_of(work), "parts": [dict(zip(("part", "state", "words"), row)) for row in rows_of(work / "parts.tsv")]}
    return {"schema": SCHEMA, "machine": machine_of(work), "calls": [call], "answers": [answer | {"call": 0} for answer in all_answers(work)]}


def merged(documents):
    """As one, in the order of the first; all of one kind of machine."""
    gpus = sorted({document["machine"]["gpu"] for document in documents})
    if len(gpus) > 1:
        raise ValueError(f"these are results of different GPUs: {', '.join(gpus)}")
    calls, by_id = [], {}
    for document in sorted(documents, key=lambda one: one["calls"][0]["taken"]):
        for answer in document["answers"]:
            known = by_id.get(answer["id"])
            if known is None or rank_of(answer) >= rank_of(known):
                by_id[answer["id"]] = answer | {"call": answer["call"] + len(calls)}
        calls += document["calls"]
    order = [answer["id"] for answer in documents[0]["answers"]]
    order += [name for name in by_id if name not in order]
    return {"schema": SCHEMA, "machine": documents[0]["machine"], "calls": calls, "answers": [by_id[name] for name in order]}


def write(document, out):
    """Returns the path of the .json; the .txt lies beside it. Both are there whole or not at all, whenever this is ended."""
    out.mkdir(parents=True, exist_ok=True)
    taken = re.sub(r"[^0-9TZ]", "", document["calls"][0]["taken"])
    stem = re.sub(r"[^a-z0-9]+", "-", document["machine"]["gpu"].lower()).strip("-") + "-" + taken
    # The first needs no more than that the document is one, should the second fail.
    replace(out / f"{stem}.json", json.dumps(document, indent=1) + "\n")
    replace(out / f"{stem}.txt", as_text(document))
    return out / f"{stem}.json"


def replace(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def merge_files(paths, out):
    return write(merged([json.loads(pathlib.Path(path).read_text()) for path in paths]), out)
