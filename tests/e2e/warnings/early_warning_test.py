# SPDX-License-Identifier: Apache-2.0
"""A training that goes bad over many steps is warned of at least three steps before its first non-finite value, at the levels full and
canary, once while it lasts; and the warning reaches everybody: the report, the document, the daemon's two logs and `nanwatch tail`."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import PromiseTest  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "going_bad.py"
STEPS_BEFORE_MIN = 3
# What warns of it.
EXPECTED = {
    "learning_rate_ramp": {"full": "training-diverging", "canary": "training-diverging"},
    "learning_rate_too_high": {"full": "training-diverging", "canary": "training-diverging"},
    "momentum": {"full": "training-diverging", "canary": "training-diverging"},
    "scaler_sinks": {"full": "scaler-sinking", "canary": "training-diverging"},
    "vanishing": {"full": "gradients-zero", "canary": "gradients-zero"},
    "slow_vanishing": {"full": "gradient-vanishing", "canary": "gradient-vanishing"},
    "dead_relus": {"full": "gradients-zero", "canary": "gradients-zero"},
    # Level canary does not see activations.
    "half_activations": {"full": "activation-overflow-ahead"},
    "forgotten_layer": {"full": "parameters-without-gradient", "canary": "parameters-without-gradient"},
}


class EarlyWarning(PromiseTest):
    @classmethod
    def start(cls, workplace):
        # One after the other by pairs: they share two cores with the daemon.
        cls.jobs = {}
        for name in EXPECTED:
            for level in EXPECTED[name]:
                cls.jobs[name, level] = workplace.run_watched([sys.executable, PROGRAM, name], options=["--level", level])
            for level in EXPECTED[name]:
                cls.jobs[name, level].status()

    def warnings(self, name, level):
        job = self.jobs[name, level]
        self.assertEqual(job.status(), 0, job.stderr())
        self.assertIn("the loss is", job.stdout())
        verdict = job.verdict()
        self.assertEqual(verdict["verdict"], "anomaly", verdict)
        return [warning for warning in verdict["warnings"] if warning["id"] == EXPECTED[name][level]]

    def test_comes_at_least_three_steps_before_the_first_bad_value(self):
        for name, levels in EXPECTED.items():
            for level in levels:
                with self.subTest(name=name, level=level):
                    warnings = self.warnings(name, level)
                    self.assertEqual(len(warnings), 1, warnings)
                    warning = warnings[0]
                    print(f"{name:24} {level:7} {warning['steps_before']:>4} steps before: {warning['evidence']}", flush=True)
                    self.assertGreaterEqual(warning["steps_before"], STEPS_BEFORE_MIN)
                    self.assertEqual(warning["severity"], "info" if warning["family"] == "missing" else "warning")
                    self.assertIn(f"step {warning['step']}", warning["evidence"])
                    self.assertTrue(warning["cause"] and warning["fix"])
                    self.assertNotIn("?", warning["evidence"])

    def test_the_report_at_the_end_of_the_run_tells_it_under_the_origin(self):
        for name in EXPECTED:
            steps = self.warnings(name, "full")[0]["steps_before"]
            report = " ".join(self.jobs[name, "full"].stderr().split())
            self.assertIn(f"{steps} steps before: ", report)
            self.assertLess(report.index(" origin "), report.index(" before it "))

    def test_the_logs_have_each_warning_once_and_the_incident_after_it(self):
        log = (self.workplace.state / "nanwatch.log").read_text().splitlines()
        events = [json.loads(line) for line in (self.workplace.state / "events.jsonl").read_text().splitlines()]
        for name, levels in EXPECTED.items():
            for level in levels:
                with self.subTest(name=name, level=level):
                    warning = self.warnings(name, level)[0]
                    lines = [line for line in log if warning["run"][:8] in line]
                    told = [line for line in lines if f" {warning['severity']} going_bad.py" in line and warning["cause"][:30] in line]
                    told_events = [event for event in events if event["event"] == "warning" and event["run"] == warning["run"] and
                                   event["warning"]["family"] == warning["family"]]
                    self.assertEqual(len(told_events), 1, lines)
                    self.assertEqual(int(told_events[0]["warning"]["step"]), warning["step"])
                    if told_events[0]["warning"]["id"] == warning["id"]:  # else it was joined since
                        self.assertEqual(len(told), 1, lines)

    def test_tail_has_a_line_of_it(self):
        for name in EXPECTED:
            warning = self.warnings(name, "full")[0]
            lines = self.workplace.tool("tail", warning["run"]).splitlines()
            self.assertEqual(sum(warning["evidence"] in line for line in lines), 1, lines)
            first = next(i for i, line in enumerate(lines) if line.startswith(warning["severity"]))
            incident = next(i for i, line in enumerate(lines) if line.startswith("ANOMALY"))
            self.assertLess(first, incident)
            objects = [json.loads(line) for line in self.workplace.tool("tail", warning["run"], "--json").splitlines()]
            self.assertEqual([o["step"] for o in objects if o["event"] == "warning" and o["id"] == warning["id"]], [warning["step"]])


if __name__ == "__main__":
    unittest.main()
