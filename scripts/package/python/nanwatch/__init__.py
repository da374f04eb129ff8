# SPDX-License-Identifier: Apache-2.0
"""nanwatch names the op that made a PyTorch job's first NaN or Inf. The programs do the work (`nanwatch run -- python
train.py`); this package starts them, and reads what they write:

    verdict = nanwatch.load_verdict("verdict.json")
    if verdict["verdict"] == "anomaly":
        print(verdict["incidents"][0]["origin"]["op"])
"""
from .verdict import Coverage, Finding, Incident, Pattern, RunInfo, TensorStats, Verdict, Warning, load_verdict

__all__ = ["Coverage", "Finding", "Incident", "Pattern", "RunInfo", "TensorStats", "Verdict", "Warning", "load_verdict"]
