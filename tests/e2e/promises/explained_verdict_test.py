# SPDX-License-Identifier: Apache-2.0
"""Promise: a verdict can be followed, sentence by sentence, down to the records."""
import json
import subprocess
import unittest

from watched_job import NANWATCH, TIMEOUT_S, PromiseTest

PROGRAM = """
import torch

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(4, 1)

    def forward(self, inputs, padding):
        scores = self.score(inputs).squeeze(-1).masked_fill(padding, float("-inf"))
        return (scores.softmax(-1).unsqueeze(-1) * inputs).sum(1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.out = Attention(), torch.nn.Linear(4, 1)

    def forward(self, inputs, padding):
        return self.out(self.attention(inputs, padding))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    padding = torch.zeros(2, 3, dtype=torch.bool)
    padding[:, 2] = True
    if step == 2:
        padding[1] = True
    optimizer.zero_grad()
    model(torch.ones(2, 3, 4), padding).mean().backward()
    optimizer.step()
"""


class ExplainedVerdict(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.job = workplace.run_watched(workplace.program("masked_row", PROGRAM))
        cls.run_id = cls.job.verdict()["run"]["id"]

    def steps(self, about):
        explanation = json.loads(self.workplace.tool("report", self.run_id, "--explain", "1", "--json"))
        self.assertEqual((explanation["schema"], explanation["incident"]), ("nanwatch.explanation/1", 1))
        return [step for step in explanation["steps"] if step["about"] == about]

    def test_the_origin_is_named_with_its_place_and_the_mask_before_it_is_passed_over(self):
        (origin,) = self.steps("origin")
        self.assertEqual((origin["op"], origin["layer"], origin["step"]), ("aten::_softmax", "attention", 2))
        self.assertEqual(int(origin["ticket"]), int(self.job.verdict()["incidents"][0]["origin"]["ticket"]))
        self.assertIn("mask", origin["text"])
        self.assertIn("aten::masked_fill", [step["op"] for step in self.steps("earlier")])

    def test_every_link_of_the_chain_says_why_it_is_there(self):
        chain = self.job.verdict()["incidents"][0]["chain"][1:]
        links = self.steps("link")
        self.assertEqual([link["op"] for link in links], [finding["op"] for finding in chain])
        for link in links:
            self.assertIn(" is bad because ", link["text"])

    def test_reach_severity_and_pattern_are_accounted_for(self):
        incident = self.job.verdict()["incidents"][0]
        self.assertEqual(len(self.steps("reach")), len(incident["reach"]))
        self.assertIn("critical", self.steps("severity")[0]["text"])
        self.assertIn("softmax-fully-masked-row: class is inf_to_nan", self.steps("pattern")[0]["text"])

    def test_people_read_the_same_as_text(self):
        text = " ".join(self.workplace.tool("report", self.run_id, "--explain", "1").split())
        self.assertIn(self.steps("origin")[0]["text"], text)

    def test_an_incident_that_is_not_there_is_said(self):
        asked = subprocess.run([NANWATCH, "report", self.run_id, "--explain", "99"], env=self.workplace.watched,
                               capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual((asked.returncode, asked.stdout), (1, ""))
        self.assertIn("there is no incident 99", asked.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
