# SPDX-License-Identifier: Apache-2.0
"""Compares what nanwatch said of a program with what the oracle says, field by field."""

# A child that is watched has made a step of its own before the program (watched_program.warm_up). It counts where no optimizer
# ever made one, because all were skipped.
STEPS_BEFORE = {"scaler": 1, "backward": 1}
FIELDS = ("verdict", "kind", "op", "class", "phase", "layer", "step")


def plain(op):
    """Without its namespace. A list op is one kernel for all its tensors or a loop over them: one computation under two names."""
    return (op or "").rpartition("::")[2].removeprefix("_foreach_")


def step_of(said):
    return said.get("step", -1) - STEPS_BEFORE.get(said.get("step_source"), 0)


def told_the_other_way(right, said):
    """NaN or Inf that an op wrote into a parameter or buffer on purpose: an op's constant or a bad parameter, both are true."""
    held = ("parameter", "buffer")
    result = {"step": step_of(said) == right["step"]}
    if right["kind"] in held:
        return result | {"kind": said.get("kind") == "op", "class": said.get("class") in ("scalar", "inf_to_nan")}
    return result | {"kind": said.get("kind") in held, "class": said.get("class") == "external"}


def is_named(right, said):
    """What came in from outside and was copied into a parameter or buffer may be told by the name of that."""
    return right["kind"] == "input_data" and right["op"][:1] == ["copy_"] and said.get("kind") in ("parameter", "buffer")


def compare(answer, verdict):
    """{field: agrees}; fields that the right answer does not have are left out."""
    if verdict is None:
        return {"verdict": False}
    result = {"verdict": verdict["verdict"] in answer["verdict"]}
    if "origin" not in answer:
        return result
    right = answer["origin"]
    said = (verdict["incidents"] or [{"origin": {}}])[0]["origin"]
    if right["constant"] and said.get("kind") != right["kind"]:
        return result | told_the_other_way(right, said)
    result["kind"] = said.get("kind") == right["kind"] or is_named(right, said)
    result["class"] = said.get("class") == right["class"]
    result["step"] = step_of(said) == right["step"]
    result["layer"] = (said.get("layer") or "") in right["layer"]
    if right["kind"] in ("parameter", "buffer"):
        # The name is the answer; the op that read it first is a detail.
        result["op"] = said.get("param") == right["param"]
        return result
    whole_update = right["kind"] == "optimizer" and (said.get("op") or "").startswith("Optimizer.step#")  # its ops were hidden
    result["op"] = whole_update or plain(said.get("op")) in [plain(op) for op in right["op"]]
    result["phase"] = said.get("phase") in right["phase"]
    return result


def matches(right, said):
    """`said` names the place that `right` is: what a person would look at. No layer is no wrong layer."""
    of_some_state = right["kind"] == "optimizer" and not right["param"]  # the oracle does not know whose
    if not said.get("layer") or of_some_state:
        said = said | {"layer": (right["layer"] or [""])[0]}
    # Before the first update every pass counts, and the oracle counts cycles.
    if said.get("step_source") == "backward" and step_of(said) > right["step"]:
        said = said | {"step": right["step"], "step_source": ""}
    result = compare({"verdict": ["anomaly"], "origin": right}, {"verdict": "anomaly", "incidents": [{"origin": said}]})
    return all(result.get(field, True) for field in ("kind", "op", "phase", "layer", "step"))


def levels_of(verdict):
    """At which levels steps were taken."""
    return verdict["coverage"]["steps_watched"]


def wrong_and_sure(answer, verdict):
    """What nanwatch claims without a reservation and the oracle does not confirm; "" if there is nothing.

    Where the oracle saw a bad value come in, an origin that came in is right wherever it was met first: before it there is only what no
    op of this process has done.
    """
    if verdict is None:
        return "no verdict"
    if "origin" not in answer:
        if verdict["verdict"] == "anomaly" and "anomaly" not in answer["verdict"] and verdict["incidents"][0]["origin"]["exact"]:
            return "a false alarm"
        return ""
    if verdict["verdict"] == "expected" and answer["reach"] == ["gradient"] and answer["skips"] and "canary" in levels_of(verdict):
        return ""  # a scaler skipped the update, and at canary nobody sees what made its gradient
    if verdict["verdict"] in ("clean", "expected"):
        return verdict["verdict"]
    if verdict["verdict"] == "unknown" or not verdict["incidents"]:
        return ""
    incident = verdict["incidents"][0]
    said = incident["origin"]
    right = [answer["origin"], *answer["others"]]
    if set(incident["reach"]) <= {"activation", "metric"}:
        right += answer["made"]  # a number that Python read: the oracle does not know which are
    if not said["exact"] or any(matches(each, said) for each in right):
        return ""
    return "wrong and exact"


def agrees(result):
    return all(result.values())


def origin_agrees(result):
    """What the goal is stated for: the class and the place of the origin."""
    return all(result.get(field, True) for field in ("verdict", "kind", "op", "class", "phase", "layer"))


def one_line(answer):
    """The right answer, for people."""
    if "origin" not in answer:
        return "|".join(answer["verdict"])
    right = answer["origin"]
    return (f"{right['kind']} {right['class']} {'|'.join(right['op'])} {right['param']} {'|'.join(sorted(set(right['phase'])))} "
            f"layer '{'|'.join(sorted(set(right['layer'])))}' step {right['step']} line {right['line']} reach {','.join(answer['reach'])}")


def said_line(verdict):
    if verdict is None:
        return "no verdict"
    if not verdict["incidents"]:
        return verdict["verdict"]
    incident = verdict["incidents"][0]
    said = incident["origin"]
    return (f"{verdict['verdict']}: {said.get('kind')} {said.get('class')} {said.get('op')} {said.get('param')} {said.get('phase')} "
            f"layer '{said.get('layer')}' step {said.get('step')} at {said.get('source')} reach {','.join(incident['reach'])}")
