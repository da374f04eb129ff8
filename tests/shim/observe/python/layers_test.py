# SPDX-License-Identifier: Apache-2.0
"""Every op runs in the layer that named_modules() would name."""

import asyncio
import gc
import threading
import unittest

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint

import bridge

bridge.install()
bridge.watch_ops()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Tower(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def paths(ops, op="aten::linear"):
    return [path for _, path, _ in ops.layer_of(op)]


def fresh(base, *args):
    """An instance of a subclass nobody has used, so that its root's ordinal is 0."""
    fresh.count += 1
    return type(f"{base.__name__}{fresh.count}", (base,), {})(*args)


fresh.count = 0
X = torch.ones(2, 4)


class Layers(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(bridge.depth(), 0)
        self.assertEqual(bridge.layer(), "-")

    def test_paths_types_and_root_are_those_of_named_modules(self):
        model = fresh(Tower)
        with bridge.Ops() as ops:
            model(X)
        root = type(model).__name__ + "#0"
        self.assertEqual(
            ops.layer_of("aten::linear"),
            [(root, "blocks.0.linear", "Linear"), (root, "blocks.1.linear", "Linear")],
        )

    def test_an_op_of_a_module_between_two_children_is_the_module_s_own(self):
        class Between(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                return self.b(torch.tanh(self.a(x)))

        with bridge.Ops() as ops:
            fresh(Between)(X)
        self.assertEqual([p for _, p, _ in ops.layer_of("aten::tanh")], [""])

    def test_roots_of_one_class_are_counted(self):
        first = fresh(Block)
        second = type(first)()
        with bridge.Ops() as ops:
            second(X), first(X), second(X)
        name = type(first).__name__
        self.assertEqual(
            [root for root, _, _ in ops.layer_of("aten::linear")],
            [name + "#0", name + "#1", name + "#0"],
        )

    def test_depth_and_layer_come_back_after_an_exception(self):
        class Failing(nn.Module):
            def forward(self, x):
                raise KeyError("no")

        with self.assertRaises(KeyError):
            nn.Sequential(nn.Sequential(Failing()))(X)
        self.assertEqual((bridge.depth(), bridge.layer()), (0, "-"))

    def test_a_wrapper_leaves_no_trace_in_the_path(self):
        model = fresh(Tower)
        model.blocks[1] = checkpoint_wrapper(model.blocks[1])
        for wrapped in (
            nn.DataParallel(torch.compiler.disable(model)),
            torch.compile(model, backend="eager"),
            model,
        ):
            with bridge.Ops() as ops, torch.compiler.set_stance("force_eager"):
                wrapped(X)
            self.assertEqual(
                [line[:2] for line in ops.layer_of("aten::linear")],
                [(type(model).__name__ + "#0", f"blocks.{i}.linear") for i in range(2)],
            )

    def test_a_wrapper_called_first_is_named_by_what_it_wraps(self):
        model = fresh(Tower)
        with bridge.Ops() as ops:
            checkpoint_wrapper(model)(X)
        self.assertEqual(
            ops.layer_of("aten::linear")[0],
            (type(model).__name__ + "#0", "blocks.0.linear", "Linear"),
        )

    def test_a_user_s_child_called_module_keeps_its_segment(self):
        class Holder(nn.Module):
            def __init__(self):
                super().__init__()
                self.module = Block()
                self._orig_mod = Block()

            def forward(self, x):
                return self._orig_mod(self.module(x))

        with bridge.Ops() as ops:
            fresh(Holder)(X)
        self.assertEqual(paths(ops), ["module.linear", "_orig_mod.linear"])

    def test_a_shared_module_keeps_its_first_name(self):
        model = fresh(Tower)
        model.blocks[1] = model.blocks[0]
        model.again = model.blocks[0]
        with bridge.Ops() as ops:
            model(X)
        self.assertEqual(paths(ops), ["blocks.0.linear", "blocks.0.linear"])

    def test_a_module_added_after_the_first_call_is_found(self):
        model = fresh(Tower)
        model(X)
        model.blocks.append(nn.Linear(4, 4))
        with bridge.Ops() as ops:
            model(X)
        self.assertEqual(paths(ops), ["blocks.0.linear", "blocks.1.linear", "blocks.2"])

    def test_a_module_that_was_replaced_is_found(self):
        model = fresh(Tower)
        model(X)
        model.blocks[0].linear = nn.Bilinear(4, 4, 4)
        model.blocks[0].forward = lambda x: model.blocks[0].linear(x, x)
        with bridge.Ops() as ops:
            model(X)
        self.assertEqual(ops.layer_of("aten::bilinear")[0][1:], ("blocks.0.linear", "Bilinear"))

    def test_a_module_registered_nowhere_is_its_caller_s_layer(self):
        class Hiding(nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden = [Block(), Block()]

            def forward(self, x):
                return self.hidden[1](self.hidden[0](x))

        holder = fresh(nn.Sequential, Hiding())
        for _ in range(3):
            with bridge.Ops() as ops:
                holder(X)
            self.assertEqual(
                ops.layer_of("aten::linear"), [(type(holder).__name__ + "#0", "0", "Hiding")] * 2
            )

    def test_a_child_called_by_itself_keeps_its_place_in_the_root(self):
        model = fresh(Tower)
        model(X)
        with bridge.Ops() as ops:
            model.blocks[1](X)
        self.assertEqual(paths(ops), ["blocks.1.linear"])

    def test_a_root_that_contains_an_earlier_one_takes_it_over(self):
        inner = fresh(Tower)
        inner(X)
        outer = fresh(nn.Sequential, inner)
        outer(X)
        with bridge.Ops() as ops:
            inner(X)
        self.assertEqual(
            ops.layer_of("aten::linear")[0],
            (type(outer).__name__ + "#0", "0.blocks.0.linear", "Linear"),
        )

    def test_a_module_that_is_never_called_is_no_root(self):
        class Training(nn.Module):  # As a LightningModule, whose training_step() calls self.model.
            def __init__(self):
                super().__init__()
                self.model = fresh(Tower)

            def step(self):
                return self.model(X)

        training = fresh(Training)
        with bridge.Ops() as ops:
            training.step()
        self.assertEqual(
            ops.layer_of("aten::linear"),
            [(type(training.model).__name__ + "#0", f"blocks.{i}.linear", "Linear") for i in range(2)],
        )

    def test_a_class_that_sharding_mixed_into_is_the_user_s_class_still(self):
        model = fresh(Tower)
        name = type(model).__name__
        # As fully_shard does it, without a process group.
        for module in (model, model.blocks[0].linear):
            cls = type(module)
            module.__class__ = type("FSDP" + cls.__name__, (FSDPModule, cls), {})
        with bridge.Ops() as ops:
            model(X)
        self.assertEqual(
            ops.layer_of("aten::linear"),
            [(name + "#0", f"blocks.{i}.linear", "Linear") for i in range(2)],
        )

    def test_two_roots_may_share_a_part_which_stays_the_first_one_s(self):
        shared = Block()
        first, second = fresh(nn.Sequential, shared), fresh(nn.Sequential, nn.Identity(), shared)
        with bridge.Ops() as ops:
            first(X), second(X), first(X)
        self.assertEqual(
            set(ops.layer_of("aten::linear")), {(type(first).__name__ + "#0", "0.linear", "Linear")}
        )

    def test_a_reused_address_is_not_taken_for_the_dead_module(self):
        for i in range(50):
            model = fresh(Tower, 1)
            with bridge.Ops() as ops:
                model(X)
            self.assertEqual(
                ops.layer_of("aten::linear"),
                [(type(model).__name__ + "#0", "blocks.0.linear", "Linear")],
            )
            del model
            gc.collect()

    def test_the_backward_pass_and_other_threads_have_their_own_stack(self):
        model = fresh(Tower)
        model(X)
        seen = []

        def work():
            seen.append(bridge.layer())
            with bridge.Ops() as ops:
                model(X)
            seen.extend(paths(ops))

        class Starting(nn.Module):
            def forward(self, x):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
                return x

        Starting()(X)
        self.assertEqual(seen, ["-", "blocks.0.linear", "blocks.1.linear"])

    def test_recomputation_in_backward_is_in_its_layer_again(self):
        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=False)

        model = fresh(Checkpointed)
        y = model(X.clone().requires_grad_())
        with bridge.Ops() as ops:
            y.sum().backward()
        self.assertEqual(paths(ops), ["block.linear"])

    def test_coroutines_that_interleave_between_calls_do_not_mix(self):
        model = fresh(Tower)

        async def call():
            for _ in range(3):
                model(X)
                await asyncio.sleep(0)

        async def both():
            await asyncio.gather(call(), call())

        asyncio.run(both())

    def test_scripted_modules_are_one_layer(self):
        scripted = torch.jit.script(Block())
        with bridge.Ops() as ops:
            scripted(X)
        self.assertEqual({path for path in paths(ops)}, {""})

    def test_the_source_line_is_the_user_s(self):
        model = fresh(Tower)
        with bridge.Ops() as ops:
            model(X)
        lines = {line[5] for line in ops.lines if line[0] == "aten::addmm"}
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines.pop(), r"^layers_test\.py:\d+ in forward$")

    def test_the_optimizer_of_a_step_is_found(self):
        model = nn.Linear(2, 2)
        for make in (lambda p: torch.optim.SGD(p, lr=0.1), torch.optim.AdamW, torch.optim.LBFGS):
            optimizer = make(model.parameters())

            def closure():
                optimizer.zero_grad()
                loss = model(torch.ones(1, 2)).sum()
                loss.backward()
                return loss

            optimizer.step(closure)
            self.assertEqual(bridge.last_optimizer(), id(optimizer))
            torch.optim.lr_scheduler.StepLR(optimizer, 1)
            optimizer.step(closure)
            self.assertEqual(bridge.last_optimizer(), id(optimizer))


if __name__ == "__main__":
    unittest.main()
