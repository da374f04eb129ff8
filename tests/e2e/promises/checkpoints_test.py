# SPDX-License-Identifier: Apache-2.0
"""Promise: with --vet-checkpoints each checkpoint is told clean or bad as it was when it was saved, and is the same file as without."""
import unittest

from watched_job import PromiseTest

PROGRAM = """
import copy, hashlib, io, os, pathlib, tempfile
import torch
from torch import nn, save
os.chdir(tempfile.mkdtemp())
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
average = torch.optim.swa_utils.AveragedModel(model)
for step in range(6):
    x = torch.randn(6, 4)
    if step == 4: x[0, 0] = float("nan")
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
    average.update_parameters(model)
    if step % 2: torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{step}.pt")
    if step == 2:
        save(model, pathlib.Path("whole.pt"))
        torch.save({name: value.clone() for name, value in average.state_dict().items()}, "average.pt")
        torch.save(obj=model.state_dict(), f="named.pt")
        with open("open.pt", "wb") as file: torch.save(model.state_dict(), file)
        torch.save(model.state_dict(), io.BytesIO())
        torch.save({"losses": torch.full((3,), float("nan"))}, "no_checkpoint.pt")
        half = copy.deepcopy(model).to(torch.bfloat16)
        half[0].weight.data[1] = float("inf")
        torch.save([half.state_dict()], "half.pt")
        class Average:
            def __init__(self): self.shadow = {name: value * float("nan") for name, value in model.state_dict().items()}
        torch.save({"model": model.state_dict(), "average": Average().__dict__}, "average_of_nothing.pt")
        mask = {"model": model.state_dict(), "best_loss": torch.tensor(float("inf")), "mask": torch.full((2, 2), -float("inf"))}
        torch.save(mask, "mask.pt")
        torch.save(mask, "again.pt")
        from safetensors.torch import save_file
    if step == 4: torch.save(model, "again.pt")
    if step == 3: save_file(model.state_dict(), "3.safetensors")
try:
    torch.save(model.state_dict(), "missing/x.pt")
except RuntimeError as error:
    print(type(error).__name__)
for name in sorted(os.listdir()):
    print(name, hashlib.sha256(open(name, "rb").read()).hexdigest())
print(torch.save.__name__, torch.save.__doc__ is not None)
"""


class Checkpoints(PromiseTest):
    @classmethod
    def start(cls, workplace):
        # Class names in a pickle are those of the program, whatever its file is called.
        program = workplace.program("saves", PROGRAM)
        cls.bare = workplace.run_bare(program)
        cls.watched = workplace.run_watched(program, ("--vet-checkpoints",))
        cls.off = workplace.run_watched(program)

    def test_the_files_are_the_same(self):
        self.assert_same(self.bare, self.watched)

    def test_each_is_told_as_it_was_when_it_was_saved(self):
        told = [(saved["file"], saved["state"], saved["step"]) for saved in self.watched.verdict()["checkpoints"]]
        self.assertEqual(told, [
            ("1.pt", "clean", 2), ("whole.pt", "clean", 3), ("average.pt", "clean", 3), ("named.pt", "clean", 3), ("open.pt", "clean", 3),
            ("", "clean", 3), ("half.pt", "bad", 3), ("average_of_nothing.pt", "bad", 3),
            ("mask.pt", "clean", 3), ("3.pt", "clean", 4), ("3.safetensors", "clean", 4), ("again.pt", "bad", 5),
            ("5.pt", "bad", 6),
            ("missing/x.pt", "failed", 6)])

    def test_a_bad_one_says_what_is_bad_in_it(self):
        saved = {saved["file"]: saved for saved in self.watched.verdict()["checkpoints"]}
        self.assertEqual((saved["half.pt"]["first_bad"], saved["half.pt"]["kinds"], saved["half.pt"]["bad"]), ("0.0.weight", ["pos_inf"], 1))
        self.assertEqual((saved["5.pt"]["first_bad"], saved["5.pt"]["kinds"]), ("model.0.weight", ["nan"]))
        self.assertEqual(saved["5.pt"]["tensors"], 16)  # four parameters, two moments and a step of each
        self.assertIn("the last clean checkpoint is 3.safetensors (after 4 steps)", self.watched.stderr())

    def test_without_the_option_nothing_is_told(self):
        self.assert_same(self.bare, self.off)
        self.assertEqual(self.off.verdict()["checkpoints"], [])


if __name__ == "__main__":
    unittest.main()
