"""write_results.py WORK OUT [--dry-run]: one result file of what scripts/gpu_check.sh left in WORK, as OUT/GPU-TIME.json, and .txt for people.

Every question is in it: with its answer, or with the reason why there is none. Of a dry run nothing is written, only said. Exit
status 1 when a question failed.
"""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

from answers import SCHEMA


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def machine():
    import torch
    gpu = torch.cuda.get_device_properties(0)
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"gpu": gpu.name, "gpu_memory_bytes": gpu.total_memory, "multiprocessors": gpu.multi_processor_count,
            "compute_capability": f"{gpu.major}.{gpu.minor}",
            "driver": first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
            "cpu": cpu.group(1) if cpu else "", "cores": os.cpu_count(), "linux": platform.release(),
            "python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}


def commit_of(work):
    """Of this tree, or where it came without its history, of the packed parts."""
    here = first_line(["git", "rev-parse", "HEAD"])
    return here or ((work / "commit").read_text().strip() if (work / "commit").exists() else "")


def rows_of(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def all_answers(work):
    """One line for each question, in the order in which they are listed."""
    given = [json.loads(line) for line in (work / "answers.jsonl").read_text().splitlines()] if (work / "answers.jsonl").exists() else []
    by_id = {line["id"]: line for line in given}
    endings = dict(rows_of(work / "endings.tsv"))
    return [by_id.get(name, {"id": name, "asks": asks, "state": "not asked",
                             "why": endings.get(name.split(".")[0], "its file was not run")})
            for name, asks in rows_of(work / "questions.tsv")]


def shown(value):
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def as_table(rows):
    cells = [list(rows[0])] + [[shown(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["    " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]


def as_lines(value, indent="  "):
    if isinstance(value, list) and value and all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value):
        return as_table(value)
    if not isinstance(value, dict):
        return [indent + shown(value)]
    if len(value) > 1 and all(isinstance(row, dict) and row and row.keys() == next(iter(value.values())).keys() for row in value.values()):
        return as_table([{"": name} | row for name, row in value.items()])
    lines = []
    for name, inner in value.items():
        if isinstance(inner, (dict, list)) and inner:
            lines += [f"{indent}{name}:", *as_lines(inner, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {shown(inner)}")
    return lines


def as_text(document):
    lines = [f"{name}: {value}" for name, value in document["machine"].items()] + [f"commit: {document['commit']}", ""]
    lines += [f"part {p['part']}: {p['state']}" + (f": {p['words']}" if p["words"] else "") for p in document["parts"]]
    for answer in document["answers"]:
        lines += ["", f"{answer['id']}: {answer['asks']}"]
        if answer["state"] != "answered":
            lines.append(f"  {answer['state']}: {answer['why']}")
            continue
        if answer.get("goal"):
            lines.append(f"  goal: {answer['goal']}: {'met' if answer['met'] else 'NOT MET'}")
        lines += as_lines(answer["answer"])
    return "\n".join(lines) + "\n"


def document_of(work, described):
    return {"schema": SCHEMA, "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit_of(work), "machine": described,
            "parts": [dict(zip(("part", "state", "words"), row)) for row in rows_of(work / "parts.tsv")], "answers": all_answers(work)}


def write(document, out):
    """Returns the path of the .json; the .txt lies beside it."""
    out.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^a-z0-9]+", "-", document["machine"]["gpu"].lower()).strip("-") + "-" + re.sub(r"[^0-9TZ]", "", document["taken"])
    (out / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    (out / f"{stem}.txt").write_text(as_text(document))
    return out / f"{stem}.json"


def main():
    work, out, dry_run = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "--dry-run" in sys.argv[3:]
    document = document_of(work, {"gpu": "none, a dry run"} if dry_run else machine())
    print("\n" + as_text(document))
    if not dry_run:
        print(f"gpu_check: {write(document, out)}")
    sys.exit(1 if any(answer["state"] == "failed" for answer in document["answers"]) else 0)


if __name__ == "__main__":
    main()
