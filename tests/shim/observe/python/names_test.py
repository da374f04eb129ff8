# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers are known by name, and what a call takes and returns is handed out."""

import collections
import dataclasses
import gc
import unittest

import torch
from torch import nn

import bridge

bridge.install()
bridge.watch_ops()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, **_):
        return self.encoder(x) * self.scale


class Passing(nn.Module):
    def forward(self, *args, **kwargs):
        return args[0] if args else None


def fresh(base):
    fresh.count += 1
    return type(f"{base.__name__}{fresh.count}", (base,), {})()


fresh.count = 0
X = torch.randn(3, 4)


class Names(unittest.TestCase):
    def setUp(self):
        self.model = fresh(Model)
        self.model(X)
        self.root = type(self.model).__name__ + "#0"
        bridge.said()

    def all_names(self):
        return sorted(line for line in bridge.names() if line.startswith(self.root + " "))

    def test_all_parameters_and_buffers_have_the_names_torch_gives_them(self):
        expected = [
            f"{self.root} {n} parameter {p.numel()} Float" for n, p in self.model.named_parameters()
        ]
        expected += [
            f"{self.root} {n} buffer {b.numel()} {'Long' if b.dtype == torch.long else 'Float'}"
            for n, b in self.model.named_buffers()
        ]
        self.assertEqual(self.all_names(), sorted(expected))

    def test_a_tensor_is_found_by_itself_and_by_its_storage(self):
        weight = self.model.encoder[0].weight
        self.assertEqual(bridge.name_of(weight), f"{self.root} encoder.0.weight parameter")
        self.assertEqual(
            bridge.name_of_storage(weight.detach()[1:]), f"{self.root} encoder.0.weight parameter"
        )
        self.assertEqual(
            bridge.name_of(self.model.encoder[1].running_var),
            f"{self.root} encoder.1.running_var buffer",
        )

    def test_another_tensor_has_no_name(self):
        self.assertEqual(bridge.name_of(X), "")
        self.assertEqual(bridge.name_of(self.model.scale.detach()), "")

    def test_a_parameter_used_twice_keeps_its_first_name(self):
        model = fresh(Model)
        model.tied = nn.Linear(4, 4)
        model.tied.weight = model.encoder[0].weight
        model(X)
        self.assertTrue(bridge.name_of(model.tied.weight).endswith("encoder.0.weight parameter"))

    def test_names_follow_a_conversion_to_another_type(self):
        self.model.double()
        self.model(X.double())
        self.assertEqual({line.split()[-1] for line in self.all_names()}, {"Double", "Long"})
        weight = self.model.encoder[0].weight
        self.assertEqual(
            bridge.name_of_storage(weight.detach()), f"{self.root} encoder.0.weight parameter"
        )

    def test_names_follow_a_parameter_that_was_replaced(self):
        replaced = nn.Parameter(torch.zeros(4, 4))
        self.model.encoder[0].weight = replaced
        for _ in range(20):
            self.model(X)
        self.assertEqual(bridge.name_of(replaced), f"{self.root} encoder.0.weight parameter")

    def test_a_dead_model_s_names_die_with_it(self):
        root = self.root
        del self.model
        gc.collect()
        fresh(Model)(X)
        self.assertEqual([line for line in bridge.names() if line.startswith(root + " ")], [])

    def test_no_tensor_is_kept_alive(self):
        weight = self.model.encoder[0].weight
        alive = collections.Counter(type(o).__name__ for o in gc.get_referrers(weight))
        self.assertEqual(alive["dict"], 1)
        self.assertEqual(weight._use_count() if hasattr(weight, "_use_count") else 1, 1)

    def test_a_storage_that_only_python_holds_is_not_read(self):
        # torch would take the GIL to share it, and callbacks must not.
        kept = self.model.encoder[0].weight.untyped_storage()
        self.model.encoder[0].weight = None
        self.assertIn(f"{self.root} encoder.0.weight parameter gone -", self.all_names())
        del kept

    def test_tensors_without_memory_have_names_but_nothing_to_read(self):
        with torch.device("meta"):
            model = fresh(Model)
        model(X.to("meta"))
        root = type(model).__name__ + "#0"
        self.assertEqual(
            {line.split()[-1] for line in bridge.names() if line.startswith(root)}, {"-"}
        )


@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    label: object


class Handed(unittest.TestCase):
    def handed(self, *args, **kwargs):
        bridge.said()
        Passing()(*args, **kwargs)
        return [line for line in bridge.said() if line.startswith("arguments")]

    def test_a_new_root_is_announced_once(self):
        bridge.said()
        model = fresh(Model)
        model(X), model(X)
        self.assertEqual(
            [line for line in bridge.said() if line.startswith("root")],
            [f"root {type(model).__name__}#0"],
        )

    def test_arguments_are_named_by_place_or_keyword(self):
        self.assertEqual(
            self.handed(torch.ones(2), 3, mask=torch.ones(5)), ["arguments args[0]:2 mask:5"]
        )

    def test_containers_are_searched(self):
        one, two = torch.ones(1), torch.ones(2)
        point = collections.namedtuple("Point", "x y")
        self.assertEqual(
            self.handed({"a": [one, (two,)]}), ["arguments args[0]['a'][0]:1 args[0]['a'][1][0]:2"]
        )
        self.assertEqual(self.handed(point(one, two)), ["arguments args[0][0]:1 args[0][1]:2"])
        self.assertEqual(
            self.handed(Batch(one, two)), ["arguments args[0].image:1 args[0].label:2"]
        )
        self.assertEqual(
            self.handed(collections.UserDict(a=one)), ["arguments args[0].data['a']:1"]
        )

    def test_endless_containers_come_to_an_end(self):
        ring = [torch.ones(1)]
        ring.append(ring)
        self.assertEqual(len(self.handed(ring)), 1)
        self.assertEqual(self.handed([torch.ones(1)] * 1000)[0].count(":1"), 64)

    def test_only_the_outermost_call_is_handed_out(self):
        bridge.said()
        nn.Sequential(nn.Linear(4, 4), nn.ReLU())(X)
        self.assertEqual(sum(line.startswith("arguments") for line in bridge.said()), 1)

    def test_a_compiled_module_hands_out_what_it_returns(self):
        compiled = torch.compile(nn.Linear(4, 4), backend="eager")
        compiled(X)
        bridge.said()
        compiled(input=X)
        self.assertEqual(
            [line for line in bridge.said() if line.startswith(("outputs", "of inputs"))],
            ["outputs 12", "of inputs input:12"],
        )

    def test_a_module_that_calls_a_compiled_function_hands_out_what_it_returns(self):
        function = torch.compile(lambda x: x * 2, backend="eager")

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self, x):
                return self.inner(x)["y"][:1]

        class Inner(nn.Module):
            def forward(self, x):
                return {"y": function(x)}

        outer = Outer()
        outer(X)
        bridge.said()
        outer(X)
        self.assertEqual(
            [line for line in bridge.said() if line.startswith("outputs")], ["outputs 12"]
        )


if __name__ == "__main__":
    unittest.main()
