"""Questions about verdicts: is what went wrong on a GPU explained rightly, eager and in captured graphs, and what is healthy left alone?

Programs run whole, under `nanwatch run --level full`, as tests/corpus/run.py runs them. Those of tests/corpus were written for the CPU:
the GPU is made their default device from outside (default_cuda/), and those that cannot run so are named and not counted.
`--programs` takes another folder with programs and expect.json in the same form.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from unittest import mock

import torch

import answers
from answers import Answer, CannotAsk, Question

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "corpus"))
import run as corpus  # noqa: E402

BARE_TIMEOUT_S = 60
PYTHON = [sys.executable]
corpus.TIMEOUT_S = 90
# What programs die of whose tensors are on two devices; a program may also end badly because it should.
OF_THE_DEVICE = ("device", "cuda", "CUDA", "numpy", "can't convert")


def bare_environment(arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH")}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE / "default_cuda"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment["GPU_CHECK_DEVICE"] = "cpu" if arguments.dry_run else "cuda"
    return environment


def why_it_cannot_run(program, environment):
    """"" or the last words of a program that cannot run with the GPU as its default device, bare."""
    with tempfile.TemporaryDirectory() as workplace:
        try:
            ran = subprocess.run([sys.executable, program], cwd=workplace, env=environment, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, errors="replace", timeout=BARE_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"did not end within {BARE_TIMEOUT_S} s, bare"
    words = ran.stderr.strip().splitlines()[-1:] or [f"exit status {ran.returncode}"]
    return words[0][:200] if ran.returncode != 0 and any(word in words[0] for word in OF_THE_DEVICE) else ""


def verdicts_of(folder, ids, arguments, on_default_device, level="full"):
    """What was said of the programs of a folder; `ids` None: of all. At level layer nine of ten have to be right."""
    if not arguments.dry_run and not torch.cuda.is_available():
        raise CannotAsk("no GPU")
    if not arguments.nanwatch.exists():
        raise CannotAsk(f"{arguments.nanwatch} is not there")
    environment = bare_environment(arguments)
    settings = argparse.Namespace(launcher=None, nanwatch=arguments.nanwatch, python=sys.executable, programs=folder, level=level, jobs=arguments.jobs,
                                  only=",".join(ids) if ids else None, without="")
    expectations = corpus.chosen_programs(settings)
    cannot = {}
    if on_default_device:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            programs = [folder / f"{e['id']}.py" for e in expectations]
            cannot = {e["id"]: why for e, why in zip(expectations, pool.map(lambda p: why_it_cannot_run(p, environment), programs)) if why}
    asked = [e for e in expectations if e["id"] not in cannot]
    with tempfile.TemporaryDirectory() as name:
        out = pathlib.Path(name)
        with mock.patch.dict(os.environ, environment if on_default_device else {}):
            troubles = corpus.run_programs(asked, settings, out)
        rows = {e["id"]: row_of(e, corpus.read_verdict(out / f"{e['id']}.json"), troubles.get(e["id"], "")) for e in asked}
    wrong = {name: row for name, row in rows.items() if not row["right"]}
    if arguments.dry_run and (wrong or cannot):
        raise RuntimeError(f"not right even on the CPU: {wrong or cannot}")
    return Answer({"right": len(rows) - len(wrong), "of": len(rows), "could_not_run": cannot, "wrong": wrong,
                   "gpu_tensors_unchecked": sum(row["gpu_tensors_unchecked"] for row in rows.values())},
                  bool(rows) and (not wrong if level == "full" else 10 * (len(rows) - len(wrong)) >= 9 * len(rows)))


def row_of(expected, verdict, trouble):
    judged = corpus.judge(expected, verdict)
    unchecked = ((verdict or {}).get("coverage") or {}).get("unchecked") or {}
    # Not one tensor of a GPU may have been passed over: what is not looked at is healthy, too.
    passed_over = int(unchecked.get("other_device", 0))
    return {"right": all(judged.values()) and passed_over == 0 and not trouble, "gpu_tensors_unchecked": passed_over,
            "not_right": [field for field, right in judged.items() if not right], "said": corpus.describe(verdict), "trouble": trouble}


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
    if not torch.cuda.is_available():
        raise CannotAsk("no GPU")
    if not arguments.nanwatch.exists():
        raise CannotAsk(f"{arguments.nanwatch} is not there")
    command = [*PYTHON, str(HERE / "programs/named_kernels.py")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH")}
    with tempfile.TemporaryDirectory() as name:
        verdict = pathlib.Path(name) / "verdict.json"
        environment |= {"NANWATCH_DIR": f"{name}/segments", "NANWATCH_STATE_DIR": name}
        os.mkdir(f"{name}/segments", 0o700)
        watching = [arguments.nanwatch, "run", "--kernels", "--level", "full", "--verdict", verdict, "--"]
        bare, watched = (subprocess.run([*before, *command], cwd=name, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                        text=True, errors="replace", timeout=BARE_TIMEOUT_S, check=False) for before in ([], watching))
        stop_daemon(name)
        origins = [incident["origin"] for incident in (corpus.read_verdict(verdict) or {"incidents": []})["incidents"]]
    named = [kernel for origin in origins if origin["op"] == "aten::log" for kernel in origin["kernels"]]
    value = {"kernels": named, "profiler_saw": watched.stdout.strip(), "profiler_saw_bare": bare.stdout.strip(),
             "said": [line for line in watched.stderr.splitlines() if line.startswith("nanwatch:")]}
    right = [kernel for kernel in named if "log" in kernel["name"] and int(kernel["nanoseconds"]) > 0]
    undisturbed = bare.returncode == watched.returncode == 0 and bare.stdout == watched.stdout and int(bare.stdout) > 0
    return Answer(value, bool(right) and undisturbed)


def stop_daemon(folder):
    try:
        os.kill(int((pathlib.Path(folder) / "segments/daemon.lock").read_text().split()[0]), signal.SIGTERM)
    except (OSError, ValueError, IndexError):
        pass  # None was started, or it has left.


HEALTHY = [entry["id"] for entry in json.loads((HERE / "programs/expect.json").read_text()) if entry["id"].startswith("healthy_")]
QUESTIONS = [
    Question("verdicts.eager", "is a NaN that an eager op makes on a GPU named by op, phase, layer and step?", own("eager"), "it is"),
    Question("verdicts.healthy", "do healthy steps of ResNet-50, GPT-2 and ViT give no alarm, with every tensor looked at?", own(*HEALTHY), "all"),
    Question("verdicts.graphs", "is a NaN that one replay of a captured graph makes named by op, layer and step?",
             own("cuda_graph", "graph_whole_step", "graphs_in_turn", "graphed_callables", "reduce_overhead"), "all"),
    Question("verdicts.kernels", "with --kernels, has the origin the kernels that its op ran, and a profiler started later all of its own?", named_kernels,
             "both"),
    Question("verdicts.corpus", "are the programs with known verdicts explained on a GPU as they are on a CPU?", known_programs("full"), "all that can run"),
    Question("verdicts.corpus_at_layer", "and at level layer?", known_programs("layer"), "nine of ten"),
    Question("verdicts.programs", "are the programs of another folder?", given_programs, "all that can run"),
]


def add_options(parser):
    parser.add_argument("--nanwatch", type=pathlib.Path, default=pathlib.Path("build/gpu/prefix/bin/nanwatch"))
    parser.add_argument("--programs", type=pathlib.Path, metavar="DIR")
    parser.add_argument("-j", "--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)), help="programs at a time")


if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
