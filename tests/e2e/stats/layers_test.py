# SPDX-License-Identifier: Apache-2.0
"""What is told of a layer's activations is what torch says of them: the largest magnitude since the look before."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "promises"))

from watched_job import PromiseTest  # noqa: E402

EVERY = 4
LIMITS = {"float16": 65504, "float32": 3.4028234663852886e38}
PROGRAM = """
import json
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow, self.single = torch.nn.Linear(8, 8).half(), torch.nn.Linear(8, 4)
        self.silent = torch.nn.ReLU()

    def forward(self, inputs):
        half = self.narrow(inputs.half())
        single = self.single(half.float())
        self.seen = {"narrow": half.detach(), "single": single.detach()}
        return single.sum() + self.silent(-half.abs()).sum()

torch.manual_seed(2)
device = "cuda" if "cuda" in sys.argv else "cpu"
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
largest = []
for step in range(12):
    optimizer.zero_grad()
    loss = model((torch.randn(16, 8) * (step + 1)).to(device))
    loss.backward()
    optimizer.step()
    largest.append({name: seen.abs().max().item() for name, seen in model.seen.items()})
print(json.dumps(largest))
"""


class Layers(PromiseTest):
    @classmethod
    def start(cls, workplace):
        cls.job = workplace.run_watched(workplace.program("layers", PROGRAM), ("--level", "full", "--stats", str(EVERY)))
        assert cls.job.status() == 0, cls.job.stderr()
        cls.snapshots = json.loads(workplace.tool("report", "--stats", "--json"))["snapshots"]
        cls.made = json.loads(cls.job.stdout())

    def layers(self, snapshot):
        return {layer["layer"]: layer for layer in snapshot["layers"]}

    def test_the_largest_result_since_the_look_before_is_told(self):
        self.assertEqual([int(snapshot["step"]) for snapshot in self.snapshots], [0, 4, 8])
        begin = 0
        for snapshot in self.snapshots:
            end = int(snapshot["step"]) + 1
            for name, dtype in (("narrow", "float16"), ("single", "float32")):
                with self.subTest(step=end - 1, layer=name):
                    layer = self.layers(snapshot)[name]
                    largest = max(step[name] for step in self.made[begin:end])
                    self.assertEqual((layer["dtype"], layer["at_least"]), (dtype, False))
                    self.assertAlmostEqual(layer["largest"] / largest, 1, 5)
                    self.assertAlmostEqual(layer["headroom"] * largest / LIMITS[dtype], 1, 5)
            begin = end

    def test_a_layer_whose_results_are_all_zero_has_no_headroom_to_tell(self):
        layer = self.layers(self.snapshots[-1])["silent"]
        self.assertEqual((layer["largest"], layer["headroom"]), (0, None))

    def test_people_see_them_too(self):
        table = self.workplace.tool("report", "--stats")
        self.assertIn("LAYER", table)
        self.assertRegex(table, r"narrow +float16 +[\d.]+ +[\d,.e+]+\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
