# SPDX-License-Identifier: Apache-2.0
"""Parameters that are bad, on a GPU: nothing is launched but one list in eight steps, and all is as before once they are good again."""
import json
import unittest

from gpu_job import GpuJobTest
from poisoned_training import BY_CANARY_ON_GPU, BY_OPS, END, FIRST, HEALS, LOADED, SECOND, incidents, program_text

LEVELS = {"canary": BY_CANARY_ON_GPU, "sampled": BY_OPS, "full": BY_OPS}
BEFORE, BAD, STEPS = 40, 200, 64
# What is launched, and read by that, in so many steps, of a model large enough to be read in several tiles.
COUNTING = """
import ctypes, json
big = torch.nn.Parameter(torch.zeros(1000, 300, device="cuda"))
model.register_parameter("big", big)
good["big"] = big.detach().clone()
cuda, fake = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
fake.fake_check_bytes_read.restype = ctypes.c_uint64
KERNELS = ("check_few", "check_many", "check_list", "sum_list", "measure_list", "compare_list", "add_step")
def work():
    return {name: cuda.fake_cuda_launches(b"nanwatch_" + name.encode()) for name in KERNELS} | {"bytes": fake.fake_check_bytes_read()}
counts, begun = {}, {}
"""
EACH = f"""
    torch.cuda.synchronize()
    for name, first in (("healthy", {BEFORE}), ("bad", {BAD})):
        if i == first: begun[name] = work()
        if i == first + {STEPS}: counts[name] = {{what: now - begun[name][what] for what, now in work().items()}}
    if i == {END} - 1: open("counts.json", "w").write(json.dumps(counts))
"""
# So that it is as bad as all others.
USES_BIG = """
model.second.register_forward_hook(lambda module, arguments, y: y + big.mean())
optimizer.add_param_group({'params': [big]})
"""


class PoisonedOnGpu(GpuJobTest):
    @classmethod
    def start(cls, workplace):
        def start(name, level, lag="0", **changes):
            return workplace.run_watched(cls.program(name, program_text(device="cuda", **changes)), ("--level", level), NANWATCH_FAKE_LAG=lag)
        cls.levels = {level: start(level, level, in_update=level == "canary") for level in LEVELS}
        # With answers that come some steps late, or when the program waits.
        cls.late = {level: start(f"late_{level}", level, "20", in_update=level == "canary", each="loss.item() if i % 3 == 0 else None")
                    for level in LEVELS}
        cls.heals = {heal: start(f"heals_{heal}", "full", heal=heal) for heal in HEALS}
        cls.counted = {level: start(f"counted_{level}", level, in_update=level == "canary", before=COUNTING + USES_BIG, each=EACH.strip())
                       for level in LEVELS}

    def test_a_fault_after_a_good_state_was_loaded_is_an_incident_of_its_own_at_every_level(self):
        for name, jobs in (("at once", self.levels), ("late", self.late)):
            for level, job in jobs.items():
                with self.subTest(name, level=level):
                    self.assertEqual(job.status(), 0, job.stderr())
                    self.assertEqual(incidents(job.verdict()), LEVELS[level])

    def test_a_good_state_is_noticed_whatever_brought_it(self):
        for heal, job in self.heals.items():
            with self.subTest(heal):
                self.assertEqual(incidents(job.verdict()), BY_OPS)

    def test_coverage_says_in_how_many_steps_nothing_was_checked(self):
        for level, job in self.levels.items():
            with self.subTest(level):
                coverage = job.verdict()["coverage"]
                unwatched = int(coverage["unchecked"].get("after_poisoned", 0))
                # An answer is told a step after it was given.
                self.assertAlmostEqual(unwatched, (LOADED - FIRST - 1) + (END - SECOND - 1), delta=4, msg=coverage)
                self.assertEqual(int(coverage["steps"]), END)

    def test_a_step_reads_no_more_than_one_list_in_eight_steps(self):
        for level, job in self.counted.items():
            with self.subTest(level):
                self.assertEqual(job.status(), 0, job.stderr())
                counts = json.loads(job.file("counts.json"))
                healthy, bad = counts["healthy"], counts["bad"]
                self.assertGreater(healthy["bytes"], 0)
                self.assertEqual((bad["check_list"], bad["sum_list"], bad["check_many"], bad["measure_list"], bad["compare_list"]),
                                 (STEPS // 8, 0, 0, 0, 0), counts)
                # A stream says how far it is.
                self.assertLessEqual(bad["check_few"] + bad["add_step"], STEPS // 8 * 2, counts)
                self.assertLess(bad["bytes"], healthy["bytes"] / 50, counts)


if __name__ == "__main__":
    unittest.main(verbosity=2)
