# SPDX-License-Identifier: Apache-2.0
"""A result document in words, for people."""
import json

GOALS = {None: "not known: not all was asked", True: "met", False: "NOT MET"}


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
    lines = [f"{name}: {value}" for name, value in document["machine"].items()]
    for call in document["calls"]:
        lines += ["", f"call of {call['taken']}, commit {call['commit']}"]
        lines += [f"part {p['part']}: {p['state']}" + (f": {p['words']}" if p["words"] else "") for p in call["parts"]]
    for answer in document["answers"]:
        lines += ["", f"{answer['id']}: {answer['asks']}"]
        if answer["state"] != "answered":
            lines += [f"  {line}" for line in f"{answer['state']}: {answer['why']}".splitlines()]
            continue
        if answer.get("provisional"):
            lines.append(f"  as far as it came: {answer.get('cut_off', 'it was cut off')}")
        if "kernels_from" in answer:
            lines.append(f"  kernels: {answer['kernels_from']}")
        if answer.get("goal"):
            lines.append(f"  goal: {answer['goal']}: {GOALS[answer['met']]}")
        if "sm_clock_mhz" in answer:
            lines.append(f"  SM clock, MHz: {answer['sm_clock_mhz']}")
        lines += as_lines(answer["answer"])
    return "\n".join(lines) + "\n"
