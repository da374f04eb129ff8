# SPDX-License-Identifier: Apache-2.0
"""The first question: does the observer work on this GPU at all? The others about it are not worth their time where it does not."""
import answers
from answers import Answer, CannotAsk, Question
from watched import HERE, add_options, corpus, rows_of

PROGRAM = "eager"
SMOKE_S_MAX = 60
corpus.TIMEOUT_S = SMOKE_S_MAX


def works(row):
    """Whether the job ended well and most tensors on a GPU were looked at, until its end; what is said of it may still be wrong."""
    unchecked = row["gpu_tensors_unchecked"]
    return (row["exit_code"] == 0 and row["tensors_checked"] > unchecked.get("gpu_not_ready", 0) and not unchecked.get("other_device")
            and not row["stepped_down"])


def eager(arguments):
    """A NaN by an eager op, told as it is, with what the observer says of the device."""
    rows, _, left_out = rows_of(HERE / "programs", [PROGRAM], arguments)
    if left_out:
        raise CannotAsk("its time was over")
    row = rows[PROGRAM]
    verdict = row.pop("verdict") or {}
    value = {"works": works(row), "device": (verdict.get("run") or {}).get("device"), "level": (verdict.get("run") or {}).get("level"),
             "coverage": verdict.get("coverage"), **row}
    if arguments.dry_run and not row["right"]:
        raise RuntimeError(f"not right even on the CPU: {value}")
    return Answer(value, row["right"])


QUESTIONS = [Question("smoke.eager", "does the observer look at tensors on this GPU, and explain one NaN?", eager, "it does")]

if __name__ == "__main__":
    answers.main(__doc__, QUESTIONS, add_options)
