# SPDX-License-Identifier: Apache-2.0
"""Promise: what the user says is expected raises no alarm, whoever carries the rule; another fault still does."""
import json
import unittest

from watched_job import PromiseTest

PROGRAM = """
import sys
import torch

class Prior(torch.nn.Module):
    # How often each class was seen, as a logarithm: -inf, on purpose, for those that were not yet.
    def __init__(self):
        super().__init__()
        self.register_buffer("counts", torch.zeros(4))
        self.register_buffer("log_prior", torch.zeros(4))

    def forward(self, labels):
        self.counts += torch.bincount(labels, minlength=4)
        self.log_prior.copy_(torch.log(self.counts / self.counts.sum()))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.prior = Prior()
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, inputs, labels):
        self.prior(labels)
        return torch.nn.functional.cross_entropy(self.fc(inputs), labels)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 8), torch.tensor([0, 1]))
    if sys.argv[1:] == ["faulty"] and step == 2:
        loss = torch.sqrt(loss - 100)
    loss.backward()
    optimizer.step()
"""
RULE = "op=aten::log layer=prior phase=forward class=produce"
MALFORMED = "op=aten::log fase=forward"


class IgnoreRules(PromiseTest):
    @classmethod
    def start(cls, workplace):
        command = workplace.program("prior", PROGRAM)
        rules = workplace.folder / "nanwatch.ignore"
        rules.write_text(f"# classes that were not seen yet\n{RULE}\n")
        cls.jobs = {
            "bare": workplace.run_watched(command),
            "variable": workplace.run_watched(command, NANWATCH_IGNORE=RULE),
            "flag": workplace.run_watched(command, options=["--ignore", f"@{rules}"]),
            "elsewhere": workplace.run_watched(command, NANWATCH_IGNORE="op=aten::log layer=encoder"),
            "faulty": workplace.run_watched([*command, "faulty"], NANWATCH_IGNORE=RULE),
            "malformed": workplace.run_watched(command, options=["--ignore", MALFORMED]),
        }
        cls.preloaded = workplace.run_preloaded(command, NANWATCH_IGNORE=f"@{rules}", NANWATCH_JOB="preloaded")
        cls.unreadable = workplace.run_preloaded(command, NANWATCH_IGNORE="@/no/such/rules", NANWATCH_JOB="unreadable")

    def assert_expected(self, verdict):
        self.assertEqual(verdict["verdict"], "expected", verdict["incidents"])
        (incident,) = [i for i in verdict["incidents"] if i["expected_by"]]
        self.assertEqual(incident["expected_by"], RULE)
        self.assertEqual(incident["origin"]["op"], "aten::log")
        self.assertIn("buffer", incident["reach"])
        self.assertEqual(verdict["rule_problems"], [])

    def assert_log_alarms(self, verdict):
        self.assertEqual(verdict["verdict"], "anomaly")
        incident = verdict["incidents"][0]
        self.assertEqual((incident["origin"]["op"], incident["origin"]["layer"]), ("aten::log", "prior"))
        self.assertEqual(incident["expected_by"], "")

    def report(self, job, *options):
        self.assertEqual(job.status(), 0, job.stderr())
        return json.loads(self.workplace.tool("report", "--json", *options))

    def test_without_a_rule_it_is_an_anomaly(self):
        self.assert_log_alarms(self.jobs["bare"].verdict())

    def test_the_variable_makes_it_expected(self):
        self.assert_expected(self.jobs["variable"].verdict())

    def test_the_flag_makes_it_expected_and_the_report_says_by_which_rule(self):
        self.assert_expected(self.jobs["flag"].verdict())
        self.assertIn("EXPECTED", self.jobs["flag"].stderr())
        self.assertIn(RULE, " ".join(self.jobs["flag"].stderr().split()))

    def test_a_job_that_nothing_but_the_library_watches_carries_its_rules(self):
        self.assert_expected(self.report(self.preloaded, "preloaded"))

    def test_a_rule_given_later_is_as_good(self):
        run = self.jobs["bare"].verdict()["run"]["id"]
        self.assert_expected(self.report(self.jobs["bare"], run, "--ignore", RULE))
        self.assert_log_alarms(self.report(self.jobs["bare"], run))

    def test_a_rule_about_another_layer_changes_nothing(self):
        self.assert_log_alarms(self.jobs["elsewhere"].verdict())

    def test_another_fault_stays_an_anomaly(self):
        verdict = self.jobs["faulty"].verdict()
        self.assertEqual(verdict["verdict"], "anomaly")
        self.assertEqual(verdict["incidents"][0]["origin"]["op"], "aten::sqrt")
        self.assertEqual([i["expected_by"] for i in verdict["incidents"] if i["origin"]["op"] == "aten::log"], [RULE])

    def test_a_rule_that_makes_no_sense_is_named_and_the_job_runs(self):
        job = self.jobs["malformed"]
        self.assertEqual(job.status(), 0)
        self.assert_log_alarms(job.verdict())
        (problem,) = job.verdict()["rule_problems"]
        self.assertIn(MALFORMED, problem)
        self.assertIn("no field 'fase'", problem)
        self.assertEqual(job.stderr().count(f"nanwatch: {problem}"), 1, job.stderr())

    def test_rules_that_cannot_be_read_are_named(self):
        verdict = self.report(self.unreadable, "unreadable")
        self.assert_log_alarms(verdict)
        self.assertEqual(verdict["rule_problems"],
                         ["the rules in '/no/such/rules' are not applied: No such file or directory"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
