# SPDX-License-Identifier: Apache-2.0
"""Steps and iterations where a GradScaler skips updates: `step` counts updates that were made, `iteration` all of them."""
from watched_program import WatchedProgramTest, main

PROGRAM = """
import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
optimizers = [{optimizers}]
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 60, growth_interval=10 ** 9)
for i in range({bad} + 3):
    for optimizer in optimizers:
        optimizer.zero_grad()
    for part in range({parts}):
        loss = model(torch.randn(4, 6)).pow(2).mean() / {parts}
        if i in {skips} and part == {parts} - 1:
            loss = loss / loss.detach() * 3e38  # finite, and infinite with the scale
        if i == {bad} and part == {bad_part}:
            loss = loss / torch.zeros(())
        scaler.scale(loss).backward()
    for optimizer in optimizers:
{update}
    scaler.update()
"""
SGD = "torch.optim.SGD(model.parameters(), lr=1e-3)"
ONE_OR_TWO = {
    "one": SGD,
    "fused": "torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)",
    "two": "torch.optim.SGD(model[0].parameters(), lr=1e-3), torch.optim.Adam(model[2].parameters(), lr=1e-3)",
}
PATTERNS = {
    "ten in a row": range(3, 13),
    "ten at the start": range(10),
    "one": [4],
    "every other": range(1, 20, 2),
    "the last before it": [15, 16, 17],
    "bursts": [0, 1, 2, 7, 8, 13, 14, 15],
}
BAD = 18


class Skips(WatchedProgramTest):
    def assert_clocks(self, skips, optimizers=SGD, parts=1, bad_part=0, update="scaler.step(optimizer)"):
        text = PROGRAM.format(optimizers=optimizers, skips=list(skips), parts=parts, bad=BAD, bad_part=bad_part,
                              update="\n".join("        " + line for line in update.split("\n")))
        skipped = sum(i < BAD for i in skips)
        incident = self.assert_anomaly(text, op="aten::div", phase="forward")
        self.assertEqual({name: int(incident["origin"][name]) for name in ("step", "iteration", "micro_step")},
                         {"step": BAD - skipped, "iteration": BAD, "micro_step": bad_part})

    def test_patterns_of_skips_with_one_and_several_optimizers(self):
        for name, skips in PATTERNS.items():
            for which, optimizers in ONE_OR_TWO.items():
                with self.subTest(name, optimizers=which):
                    self.assert_clocks(skips, optimizers)

    def test_patterns_of_skips_with_accumulated_gradients(self):
        for name, skips in PATTERNS.items():
            with self.subTest(name):
                self.assert_clocks(skips, parts=3, bad_part=1)

    def test_gradients_that_are_unscaled_and_clipped_before(self):
        for name, skips in PATTERNS.items():
            with self.subTest(name):
                self.assert_clocks(skips, update="scaler.unscale_(optimizer)\n"
                                                 "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nscaler.step(optimizer)")


if __name__ == "__main__":
    main()
