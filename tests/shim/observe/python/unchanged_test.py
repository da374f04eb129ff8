# SPDX-License-Identifier: Apache-2.0
"""What torch and Python do with torch.nn.Module.__call__ is as it was before it was replaced."""

import copy
import inspect
import io
import pickle
import shutil
import unittest
from unittest import mock

import torch
from torch import nn

import bridge

original = nn.Module.__call__
bridge.install()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Calling(nn.Module):
    """Goes through super().__call__."""

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)

    def forward(self, x):
        return x + bridge.depth()


class Unchanged(unittest.TestCase):
    def setUp(self):
        self.assertIsNot(nn.Module.__call__, original)
        torch.manual_seed(0)
        self.model = Model()
        self.x = torch.randn(3, 4)
        self.expected = self.model(self.x)

    def tearDown(self):
        self.assertEqual(bridge.depth(), 0)

    def test_torch_compile_makes_one_graph_without_breaks(self):
        torch._dynamo.reset()
        report = torch._dynamo.explain(self.model)(self.x)
        self.assertEqual((report.graph_count, report.graph_break_count), (1, 0))

    def test_torch_compile_takes_the_full_graph_forward_and_backward(self):
        torch._dynamo.reset()
        compiled = torch.compile(self.model, backend="eager", fullgraph=True)
        y = compiled(self.x)
        torch.testing.assert_close(y, self.expected)
        y.sum().backward()
        self.assertIsNotNone(self.model.first.weight.grad)
        with torch._dynamo.config.patch(error_on_recompile=True):
            compiled(self.x)

    @unittest.skipIf(shutil.which("g++") is None, "inductor needs a compiler")
    def test_torch_compile_with_inductor_takes_the_full_graph(self):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(self.model, fullgraph=True)(self.x), self.expected)

    def test_module_compile_works_in_place(self):
        torch._dynamo.reset()
        self.model.compile(backend="eager", fullgraph=True)
        torch.testing.assert_close(self.model(self.x), self.expected)

    def test_torch_export_exports(self):
        exported = torch.export.export(self.model, (self.x,))
        torch.testing.assert_close(exported.module()(self.x), self.expected)

    def test_fx_traces_and_puts_our_descriptor_back(self):
        before = nn.Module.__call__
        traced = torch.fx.symbolic_trace(self.model)
        self.assertIs(nn.Module.__call__, before)
        self.assertEqual(
            [n.target for n in traced.graph.nodes if n.op == "call_module"], ["first", "second"]
        )
        torch.testing.assert_close(traced(self.x), self.expected)

    def test_jit_script_compiles(self):
        torch.testing.assert_close(torch.jit.script(self.model)(self.x), self.expected)

    def test_jit_trace_traces(self):
        torch.testing.assert_close(torch.jit.trace(self.model, self.x)(self.x), self.expected)

    def test_deepcopy_copies_modules_and_returns_the_method_itself(self):
        torch.testing.assert_close(copy.deepcopy(self.model)(self.x), self.expected)
        self.assertIs(copy.deepcopy(nn.Module.__call__), nn.Module.__call__)

    def test_pickle_carries_modules_and_the_method(self):
        stream = io.BytesIO()
        torch.save(self.model, stream)
        stream.seek(0)
        torch.testing.assert_close(torch.load(stream, weights_only=False)(self.x), self.expected)
        text = pickle.dumps(nn.Module.__call__)
        self.assertIs(pickle.loads(text), nn.Module.__call__)
        self.assertNotIn(b"nanwatch", text)

    def test_functional_call_uses_the_given_parameters(self):
        zeros = {name: torch.zeros_like(p) for name, p in self.model.named_parameters()}
        result = torch.func.functional_call(self.model, zeros, (self.x,))
        self.assertEqual(result.abs().sum().item(), 0)

    def test_vmap_and_func_grad_transform_a_module(self):
        torch.testing.assert_close(torch.vmap(self.model)(self.x), self.expected)
        parameters = dict(self.model.named_parameters())
        gradients = torch.func.grad(
            lambda p: torch.func.functional_call(self.model, p, (self.x,)).sum()
        )(parameters)
        self.assertEqual(set(gradients), set(parameters))

    def test_the_profiler_names_modules_with_stacks(self):
        with torch.profiler.profile(with_stack=True, with_modules=True) as profile:
            self.model(self.x)
        names, left = set(), profile.profiler.kineto_results.experimental_event_tree()
        while left:
            event = left.pop()
            names.add(event.name)
            left.extend(event.children)
        for module in ("nn.Module: Model_0", "nn.Module: Linear_0", "nn.Module: Linear_1"):
            self.assertIn(module, names)

    def test_an_exception_leaves_as_it_was_raised(self):
        with self.assertRaisesRegex(RuntimeError, "mat1 and mat2"):
            self.model(torch.randn(3, 5))

    def test_missing_arguments_raise_type_errors(self):
        with self.assertRaisesRegex(TypeError, "forward"):
            self.model()
        with self.assertRaises(TypeError):
            nn.Module.__call__()

    def test_super_call_reaches_the_descriptor(self):
        self.assertEqual(Calling()(0), 1)

    def test_mock_replaces_and_restores(self):
        before = nn.Module.__call__
        with mock.patch.object(nn.Module, "__call__", lambda self, x: "mocked"):
            self.assertEqual(self.model(self.x), "mocked")
        self.assertIs(nn.Module.__dict__["__call__"], before)
        torch.testing.assert_close(self.model(self.x), self.expected)

    def test_forward_hooks_run(self):
        seen = []
        with self.model.first.register_forward_hook(lambda *a: seen.append(1)):
            self.model(self.x)
        self.assertEqual(seen, [1])

    def test_inspect_sees_the_original_function(self):
        self.assertEqual(inspect.signature(nn.Module.__call__), inspect.signature(original))
        self.assertEqual(
            inspect.signature(self.model),
            inspect.Signature.from_callable(original.__get__(self.model)),
        )
        self.assertEqual(inspect.getsource(nn.Module.__call__), inspect.getsource(original))
        self.assertTrue(inspect.isroutine(nn.Module.__call__))

    def test_every_attribute_is_the_original_function_s(self):
        for name in (
            "__code__",
            "__name__",
            "__qualname__",
            "__module__",
            "__doc__",
            "__globals__",
            "__defaults__",
            "__kwdefaults__",
            "__annotations__",
            "__dict__",
            "__closure__",
        ):
            self.assertEqual(getattr(nn.Module.__call__, name), getattr(original, name), name)
        self.assertEqual(repr(nn.Module.__call__), repr(original))
        with self.assertRaisesRegex(
            AttributeError, "'function' object has no attribute 'nonesuch'"
        ):
            nn.Module.__call__.nonesuch

    def test_attributes_set_on_it_stay(self):
        nn.Module.__call__.mark = 1
        self.assertEqual((nn.Module.__call__.mark, original.mark), (1, 1))
        del nn.Module.__call__.mark
        self.assertFalse(hasattr(original, "mark"))

    def test_a_bound_method_is_a_method_of_the_descriptor(self):
        method = self.model.__call__
        self.assertEqual((method.__self__, method.__func__), (self.model, nn.Module.__call__))
        torch.testing.assert_close(method(self.x), self.expected)
        torch.testing.assert_close(nn.Module.__call__(self.model, self.x), self.expected)

    def test_swapping_tensors_of_named_parameters_is_allowed(self):
        other = nn.Parameter(torch.zeros(8, 4))
        torch.utils.swap_tensors(self.model.first.weight, other)
        self.assertEqual(self.model.first.weight.abs().sum().item(), 0)


if __name__ == "__main__":
    unittest.main()
