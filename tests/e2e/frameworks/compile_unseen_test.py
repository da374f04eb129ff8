# SPDX-License-Identifier: Apache-2.0
"""torch.compile: what a region does and no call of a module shows is not called a batch, or weights, from outside for certain."""
import shutil
import unittest

from framework_job import FrameworkTest, program

REGION = "Torch-Compiled Region"


@unittest.skipUnless(shutil.which("g++") or shutil.which("c++"), "no C++ compiler: torch.compile was NOT tried")
class CompileUnseen(FrameworkTest):
    @classmethod
    def start(cls, workplace):
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(workplace.folder / "cache")}
        cls.jobs = {what: workplace.run_watched([*program("compiled_unseen"), what], **environment)
                    for what in ("batch", "buffer", "statistics", "update", "metric")}

    def first(self, what):
        job = self.jobs[what]
        self.assertEqual(job.status(), 0, job.stderr())
        verdict = job.verdict()
        self.assertEqual(verdict["verdict"], "anomaly", job.stderr())
        incident = verdict["incidents"][0]
        self.assertFalse(incident["origin"]["exact"], incident["origin"])
        return incident

    def test_what_a_compiled_function_returned_is_no_batch_from_outside_for_certain(self):
        origin = self.first("batch")["origin"]
        self.assertEqual((int(origin["step"]), origin["unseen"]), (2, ["writer"]))

    def test_a_buffer_that_a_region_has_written_is_its_work(self):
        for what, name in (("buffer", "center"), ("statistics", "norm.running_var")):
            with self.subTest(what):
                incident = self.first(what)
                origin = incident["origin"]
                self.assertTrue(origin["op"].startswith(REGION), origin)
                self.assertEqual((origin["kind"], origin["class"], int(origin["step"])), ("op", "produce", 2))
                self.assertIn("buffer", incident["reach"])
                self.assertIn(name, [link["param"] for link in [origin, *incident["chain"]]])

    def test_weights_that_a_compiled_update_has_ruined_have_reached_the_parameters(self):
        incident = self.first("update")
        self.assertEqual((incident["origin"]["kind"], incident["severity"]), ("parameter", "critical"))
        self.assertIn("parameter", incident["reach"])

    def test_a_number_that_python_reads_of_a_compiled_function_is_a_metric(self):
        incident = self.first("metric")
        self.assertTrue(incident["origin"]["op"].startswith(REGION), incident["origin"])
        self.assertEqual((incident["severity"], incident["reach"]), ("warning", ["activation", "metric"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
