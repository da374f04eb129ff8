# SPDX-License-Identifier: Apache-2.0
"""Compares nanwatch with what people do by hand, on the programs with known verdicts, and prints the table of tests/bench/README.md.

  tests/corpus/compare.py                       all of programs/, with the nanwatch of build/release
  tests/corpus/compare.py --only c006,c029 -v   some of them, and what each method said

A method is judged by what it can say: nanwatch and the first bad op by op, phase and step (and the layer, in a column of its
own); hooks by module and step, where the origin is in a module; anomaly mode by node and step. Only programs whose origin is an
op count, because nothing else could be named by the others; of programs that must not alarm, all do. naive_methods.py has the
methods, expect.json what is accepted, score.py how names are compared.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import typing

import run
import score

NAMES = {
    "nanwatch": "nanwatch",
    "first_op": "first op with a non-finite output (TorchDispatchMode)",
    "forward_hooks": "forward hooks on every module",
    "anomaly_mode": "`torch.autograd.set_detect_anomaly`",
}
SAYS = {"nanwatch": "op, phase, step", "first_op": "op, phase, step", "forward_hooks": "module, step", "anomaly_mode": "node, step"}


class Judgement(typing.NamedTuple):
    """Of one method on one program whose origin is an op. None: it is not asked here."""
    right: bool | None
    with_layer: bool | None
    silent: bool


def what_was_said(out, expected, method):
    rank = (expected["origin"] or {}).get("rank") or 0
    return run.read_verdict(out / f"{expected['id']}.{method}.{rank}.json")


def plain(name):
    """SqrtBackward0 and aten::sqrt are the same name, when a node stands for its op."""
    return re.sub(r"(backward\d*|forward)$", "", re.sub(r"[^a-z0-9]", "", name.replace("aten::", "").lower()))


def judge_nanwatch(expected, verdict):
    incidents = (verdict or {}).get("incidents") or []
    if (verdict or {}).get("verdict") != "anomaly" or not incidents:
        return Judgement(False, False, True)
    fields = score.fields(expected, incidents[0])
    right = bool(fields["origin"] and fields["step"])
    return Judgement(right, right and fields["layer"], False)


def judge_naive(expected, method, said):
    origin = expected["origin"]
    layers = [score.lay(layer) for layer in score.al(origin["layer"])]
    in_module = any(layer is not None for layer in layers)
    if said is None:
        return Judgement(None if method == "forward_hooks" and not in_module else False, False if method == "first_op" else None, True)
    at_step = said["step"] in score.al(origin["step"])
    if method == "first_op":
        right = at_step and score.opok(said["op"], origin["ops"]) and said["phase"] in score.al(origin["phase"])
        return Judgement(right, right and score.lay(said["layer"]) in layers, False)
    if method == "forward_hooks":
        return Judgement(at_step and score.lay(said["layer"]) in layers if in_module else None, None, False)
    nodes = {plain(name) for name in origin.get("nodes") or origin["ops"]}
    return Judgement(at_step and plain(said["node"]) in nodes, None, False)


def share(values):
    asked = [value for value in values if value is not None]
    return f"{sum(asked)}/{len(asked)}" if asked else ""


def row(method, judgements, alarms):
    cells = [NAMES[method], SAYS[method], share(j.right for j in judgements), share(j.with_layer for j in judgements),
             str(sum(j.silent for j in judgements)), share(alarms)]
    return "| " + " | ".join(cells) + " |"


def compare(expectations, out, verbose):
    """Prints the table."""
    faulty = [e for e in expectations if "anomaly" in score.al(e["verdict"]) and "op" in score.al(e["origin"]["kind"])]
    healthy = [e for e in expectations if "anomaly" not in score.al(e["verdict"])]
    print(f"\n{len(faulty)} programs whose origin is an op, {len(healthy)} that must not alarm\n")
    print("| | is asked for | right | and the layer | said nothing | false alarms |\n|---|---|---|---|---|---|")
    details = []
    for method in NAMES:
        if method == "nanwatch":
            said = {e["id"]: run.read_verdict(out / f"{e['id']}.json") for e in expectations}
            judgements = [judge_nanwatch(e, said[e["id"]]) for e in faulty]
            alarms = [(said[e["id"]] or {}).get("verdict") == "anomaly" for e in healthy]
        else:
            said = {e["id"]: what_was_said(out, e, method) for e in expectations}
            judgements = [judge_naive(e, method, said[e["id"]]) for e in faulty]
            alarms = [said[e["id"]] is not None for e in healthy]
            details += [f"{e['id']} {method}: {said[e['id']]}" for e in expectations]
        print(row(method, judgements, alarms))
    if verbose:
        print("\n".join([""] + sorted(details)))


def main():
    arguments = run.parse_arguments(__doc__)
    expectations = run.chosen_programs(arguments)
    with tempfile.TemporaryDirectory(prefix="nanwatch-compare-") as scratch:
        out = (arguments.out or pathlib.Path(scratch)).resolve()
        out.mkdir(parents=True, exist_ok=True)
        run.run_programs(expectations, arguments, out)
        programs = [arguments.programs.resolve() / f"{e['id']}.py" for e in expectations]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH") and k not in ("RANK", "WORLD_SIZE")}
        subprocess.run([arguments.python, run.HERE / "naive_methods.py", out, str(arguments.jobs), *programs], env=environment, check=True)
        compare(expectations, out, arguments.verbose)


if __name__ == "__main__":
    main()
