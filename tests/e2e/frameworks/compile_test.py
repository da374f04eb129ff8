# SPDX-License-Identifier: Apache-2.0
"""torch.compile: a compiled region is named as such, what went into it is told from what it made, and the hint holds."""
import shutil
import unittest

from framework_job import FrameworkTest, HealthyCase, program, source_of

NAME = "compiled"
REGION = "Torch-Compiled Region"


@unittest.skipUnless(shutil.which("g++") or shutil.which("c++"), "no C++ compiler: torch.compile was NOT tried")
class Compile(HealthyCase, FrameworkTest):
    @classmethod
    def start(cls, workplace):
        # One cache for all, so that what was compiled once is not compiled again.
        cls.environment = {"TORCHINDUCTOR_CACHE_DIR": str(workplace.folder / "cache")}
        cls.bare = workplace.run_bare([*program(NAME), "model"], **cls.environment)
        cls.watched = workplace.run_watched([*program(NAME), "model"], **cls.environment)

    def faulty(self, what, fault, **environment):
        command = [*program(NAME), what, "--fault", fault]
        return self.workplace.run_watched(command, **self.environment, **environment)

    def assert_region(self, job, **expected):
        incident = self.assert_origin(job, step=4, rank=0, root="Net#0", **expected)
        self.assertTrue(incident["origin"]["op"].startswith(REGION), incident["origin"])
        return incident

    def assert_hint(self, incident):
        self.assertEqual(incident["pattern"]["id"], "inside-compiled-region")
        self.assertIn("TORCHDYNAMO_DISABLE=1", incident["pattern"]["fix"])

    def test_a_fault_inside_a_compiled_model_is_the_region_s(self):
        incident = self.assert_region(self.faulty("model", "inside"), kind="op", phase="forward", layer="", layer_type="Net")
        self.assertEqual(incident["origin"]["class"], "produce")
        self.assert_hint(incident)

    def test_rerun_eagerly_as_the_hint_says_the_op_is_named(self):
        self.assert_origin(self.faulty("model", "inside", TORCHDYNAMO_DISABLE="1"), op="aten::log", phase="forward",
                           layer="gate", layer_type="Gate", step=4, source=source_of(NAME, "# inside"))

    def test_a_compiled_layer_is_named_without_its_wrapper(self):
        for what in ("layer", "method"):
            with self.subTest(what):
                incident = self.assert_region(self.faulty(what, "inside"), kind="op", phase="forward", layer="gate",
                                              layer_type="Gate")
                self.assert_hint(incident)

    def test_an_op_that_a_region_calls_is_named_where_finite_values_went_into_it(self):
        for fault, op in (("inside", "aten::log"), ("before", "aten::div")):
            with self.subTest(fault):
                incident = self.assert_origin(self.faulty("eager", fault), kind="op", op=op, phase="forward", layer="",
                                              layer_type="Net", root="Net#0", step=4)
                self.assertEqual(incident["origin"]["class"], "produce")
                self.assertTrue(incident["origin"]["inputs_seen"], incident["origin"])

    def test_what_came_bad_into_a_region_is_not_the_region_s(self):
        self.assert_origin(self.faulty("layer", "before"), kind="op", op="aten::div", phase="forward", layer="shares",
                           layer_type="Shares", root="Net#0", step=4, source=source_of(NAME, "# before"))

    def test_a_nan_in_the_batch_of_a_compiled_model_is_the_data_s(self):
        incident = self.assert_region(self.faulty("model", "data"), kind="input_data", phase="forward", layer="")
        self.assertEqual(incident["pattern"]["id"], "nan-in-batch")

    def test_a_fault_in_the_backward_of_a_region_is_named_as_backward(self):
        incident = self.assert_region(self.faulty("model", "backward"), kind="op", phase="backward", layer="",
                                      layer_type="Net", autograd_node="CompiledFunctionBackward")
        self.assert_hint(incident)

    def test_a_compiled_function_around_the_model_is_a_region_of_no_layer(self):
        # A compiled function that is no module's has no return that we see: the call that begins a pass at it shows it.
        incident = self.assert_origin(self.faulty("step", "inside"), kind="op", phase="forward", step=4)
        self.assertTrue(incident["origin"]["op"].startswith(REGION), incident["origin"])
        self.assertIn("loss", incident["reach"])
        self.assert_hint(incident)


if __name__ == "__main__":
    unittest.main(verbosity=2)
