# SPDX-License-Identifier: Apache-2.0
"""Questions about verdicts: is what went wrong on a GPU explained rightly, eager and in captured graphs, and what is healthy left alone?

Programs run whole, under `nanwatch run --level full`, as tests/corpus/run.py runs them. Those of tests/corpus were written for the CPU:
the GPU is made their default device from outside (watched.py), and those that cannot run so are named and not counted.
`--programs` takes another folder with programs and expect.json in the same form.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import answers
from answers import Answer, CannotAsk, Question
from watched import BARE_TIMEOUT_S, HERE, at_once, corpus, require, rows_of
from watched import add_options as add_watched_options


def verdicts_of(folder, ids, arguments, on_default_device, level="full"):
    """What was said of the programs of a folder; `ids` None: of all. At level sampled nine of ten have to be right."""
    rows, cannot, left_out = rows_of(folder, ids, arguments, on_default_device, level)
    wrong = {name: {field: told for field, told in row.items() if field not in ("right", "verdict")} for name, row in rows.items() if not row["right"]}
    if arguments.dry_run and (wrong or cannot or left_out):
        raise RuntimeError(f"not right even on the CPU: {wrong or cannot or left_out}")
    unchecked = {}
    for row in rows.values():
        for reason, count in row["gpu_tensors_unchecked"].items():
            unchecked[reason] = unchecked.get(reason, 0) + count
    right = len(rows) - len(wrong)
    return Answer({"right": right, "of": len(rows), "could_not_run": cannot, "left_out_for_time": left_out, "gpu_tensors_unchecked": unchecked,
                   "wrong": wrong},
                  bool(rows) and not left_out and (not wrong if level == "full" else 10 * right >= 9 * len(rows)))


def own(*ids):
    def asked(arguments):
        chosen = ids
        if arguments.dry_run:
            chosen = [name for name in ids if "graph" not in name and name != "reduce_overhead"]
            if not chosen:
                raise CannotAsk("graphs need a GPU")
        return verdicts_of(HERE / "programs", chosen, arguments, on_default_device=False)
    return asked


def known_programs(level):
    def asked(arguments):
        return verdicts_of(HERE.parent / "corpus/programs", ["c001", "c006"] if arguments.dry_run else None, arguments, on_default_device=True,
                           level=level)
    return asked


def given_programs(arguments):
    if arguments.programs is None:
        raise CannotAsk("no other folder of programs was given (--programs)")
    return verdicts_of(arguments.programs.resolve(), None, arguments, on_default_device=True)


def named_kernels(arguments):
    if arguments.dry_run:
        raise CannotAsk("kernels run on a GPU alone")
    require(arguments)
    command = [sys.executable, str(HERE / "programs/named_kernels.py")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH")}
    with tempfile.TemporaryDirectory() as name, at_once(1) as (_, groups):
        folder = pathlib.Path(name)
        environment |= {"NANWATCH_DIR": f"{name}/segments", "NANWATCH_STATE_DIR": name}
        os.mkdir(folder / "segments", 0o700)
        watching = [arguments.nanwatch.resolve(), "run", "--kernels", "--level", "full", "--verdict", folder / "verdict.json", "--"]
        ends = {}
        for way, before in (("bare", []), ("watched", watching)):
            with open(folder / f"{way}.out", "wb") as printed, open(folder / f"{way}.err", "wb") as said:
                ends[way] = groups.run([*before, *command], BARE_TIMEOUT_S, cwd=name, env=environment, stdin=subprocess.DEVNULL, stdout=printed,
                                       stderr=said)
        stop_daemon(name)
        saw = {way: (folder / f"{way}.out").read_text(errors="replace").strip() for way in ends}
        said = (folder / "watched.err").read_text(errors="replace").splitlines()
        origins = [incident["origin"] for incident in (corpus.read_verdict(folder / "verdict.json") or {"incidents": []})["incidents"]]
    named = [kernel for origin in origins if origin["op"] == "aten::log" for kernel in origin["kernels"]]
    value = {"kernels": named, "profiler_saw": saw["watched"], "profiler_saw_bare": saw["bare"], "exit_status": ends,
             "nanwatch_lines": [line for line in said if line.startswith("nanwatch:")], "log_ends": said[-20:]}
    right = [kernel for kernel in named if "log" in kernel["name"] and int(kernel["nanoseconds"]) > 0]
    undisturbed = ends == {"bare": 0, "watched": 0} and saw["bare"] == saw["watched"] and int(saw["bare"] or 0) > 0
    return Answer(value, bool(right) and undisturbed)


def stop_daemon(folder):
    try:
        os.kill(int((pathlib.Path(folder) / "segments/daemon.lock").read_text().split()[0]), signal.SIGTERM)
    except (OSError, ValueError, IndexError):
        pass  # None was started, or it has left.


HEALTHY = [entry["id"] for entry in json.loads((HERE / "programs/expect.json").read_text()) if entry["id"].startswith("healthy_")]
QUESTIONS = [
    Question("verdicts.eager", "is a NaN that an eager op makes on a GPU named by op, phase, layer and step?", own("eager"), "it is"),
    Question("verdicts.healthy", "do healthy steps of ResNet-50, GPT-2 and ViT give no alarm, with every tensor looked at?", own(*HEALTHY), "all",
             weight=2),
    Question("verdicts.graphs", "is a NaN that one replay of a captured graph makes named by op, layer and step?",
             own("cuda_graph", "graph_whole_step", "graphs_in_turn", "graphed_callables", "reduce_overhead"), "all", weight=2),
    Question("verdicts.kernels", "with --kernels, has the origin the kernels that its op ran, and a profiler started later all of its own?", named_kernels,
             "both", weight=2),
    Question("verdicts.corpus", "are the programs with known verdicts explained on a GPU as they are on a CPU?", known_programs("full"), "all that can run",
             weight=6),
    Question("verdicts.corpus_at_sampled", "and at level sampled?", known_programs("sampled"), "nine of ten", weight=4),
    Question("verdicts.programs", "are the programs of another folder?", given_programs, "all that can run"),
]


def add_options(parser):
    add_watched_options(parser)
    parser.add_argument("--programs", type=pathlib.Path, metavar="DIR")


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
