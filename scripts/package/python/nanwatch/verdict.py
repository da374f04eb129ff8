# SPDX-License-Identifier: Apache-2.0
"""The verdict document, nanwatch.verdict/1, as `nanwatch run --verdict FILE` and `nanwatch report --json` write it.

A later release may add fields, here and there; it takes none away. Numbers that are not known are None."""
import json
import os
from typing import Any, Dict, List, Optional, TypedDict, Union

SCHEMA = "nanwatch.verdict/1"

RunInfo = TypedDict("RunInfo", {
    "id": str, "job": str, "attempt": int, "command": List[str], "host": str, "pid": int, "rank": int, "world_size": int, "torch": str,
    "device": str, "level": str, "started_at": str, "ended_at": Optional[str], "exit_code": Optional[int], "signal": Optional[int],
    "program": str, "python": str, "directory": str, "late": bool,
})

Coverage = TypedDict("Coverage", {
    "steps": int, "ops_seen": int, "tensors_checked": int, "bytes_checked": int, "unchecked": Dict[str, int], "lost_events": int,
    "overhead_percent": Optional[float], "overhead_interval": Optional[List[float]], "steps_watched": Dict[str, int], "records_thinned": int,
    "step_summaries_lost": int,
})

TensorStats = TypedDict("TensorStats", {
    "index": int, "dtype": str, "shape": List[int], "numel": int, "nan": int, "pos_inf": int, "neg_inf": int, "finite_min": Any,
    "finite_max": Any, "finite_mean": Any, "first_bad_index": List[int], "role": str,
})

Pattern = TypedDict("Pattern", {"id": str, "cause": str, "fix": str, "evidence": str})

Finding = TypedDict("Finding", {
    "kind": str, "class": str, "inputs_seen": bool, "exact": bool, "unseen": List[str], "candidates": List[Dict[str, Any]], "op": str,
    "phase": str, "autograd_node": str, "layer": str, "layer_type": str, "root": str, "param": str, "step": int, "step_source": str,
    "iteration": int, "micro_step": int, "updates": int, "rank": int, "device": str, "source": str, "callers": List[str],
    "outputs": List[TensorStats], "inputs": List[TensorStats], "run": str, "ticket": Any, "recompute": bool, "reach": str,
    "kernels": List[Dict[str, Any]], "kernels_left_out": int, "kernels_lost": int, "kernel_records": Any, "training": int, "samples": Any,
}, total=False)

Incident = TypedDict("Incident", {
    "severity": str, "origin": Finding, "chain": List[Finding], "reach": List[str], "pattern": Optional[Pattern], "count": int,
    "first_step": int, "last_step": int, "gradients": int, "parameters": int, "expected_by": str, "trail": List[Dict[str, Any]],
    "history": List[Dict[str, Any]], "ended_job": bool, "losses_before": List[Any], "gradient_norms_before": List[Any], "capsule": Any,
    "replay": Any, "ranks": List[int],
}, total=False)

Warning = TypedDict("Warning", {
    "id": str, "severity": str, "step": int, "iteration": int, "ended_step": Optional[int], "steps_before": Optional[int], "evidence": str,
    "cause": str, "fix": str, "numbers": Dict[str, Any], "run": str, "rank": int, "processes": int, "family": str, "param": str,
}, total=False)

SavedCheckpoint = TypedDict("SavedCheckpoint", {
    "file": str, "state": str, "step": int, "saved_at": str, "tensors": int, "bad": int, "unread": int, "first_bad": str,
    "kinds": List[str], "on_gpu": bool, "rank": int, "run": str,
}, total=False)

Verdict = TypedDict("Verdict", {
    "schema": str, "verdict": str, "run": RunInfo, "runs": List[RunInfo], "coverage": Coverage, "incidents": List[Incident],
    "rule_problems": List[str], "warnings": List[Warning], "stats": Any, "unknown_because": Any, "unwatched": List[Dict[str, Any]],
    "trainings": List[Dict[str, Any]], "checkpoints": List[SavedCheckpoint],
}, total=False)


def load_verdict(path: Union[str, "os.PathLike[str]"]) -> Verdict:
    """Reads the document. OSError: the file cannot be read. ValueError: it holds something else, or the document of a
    release that this one does not understand."""
    with open(path, encoding="utf-8") as file:
        try:
            document = json.load(file)
        except json.JSONDecodeError as error:
            raise ValueError(f"{os.fspath(path)} is no JSON document: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        found = f"a document of type {schema!r}" if schema else "no document of nanwatch"
        raise ValueError(f"{os.fspath(path)} is {found}; {SCHEMA} is what 'nanwatch run --verdict FILE' writes")
    return document
