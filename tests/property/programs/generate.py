# SPDX-License-Identifier: Apache-2.0
"""Random training programs: a seed gives the source text of one, always the same.

  generate.py SEED        prints it; `python` runs it as it is

A program has a model of nested modules, each with a body of statements (statements.py), a loss, an optimizer and one to four
steps. Into about three of four a fault is planted at one place; into some of the others non-finite values that nothing is
wrong with. What becomes of it is not this file's to know: a fault may be repaired, masked or never reached, and the oracle finds
that out by running the program.
"""
import random
import re
import sys

import statements

PRELUDE = '''import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx, g):
        return g


class Divides(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 0)
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        (zero,) = ctx.saved_tensors
        return g / zero


class Overflows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return torch.exp(g.abs() + 100)


class Logs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        h = (x * 0).log_()
        return g + h


class Amplifies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return (g.abs() + 1) * 1e30 * 1e30

'''


def indent(text, levels=1):
    return "".join("    " * levels + line + "\n" for line in text.rstrip("\n").split("\n"))


class Layer:
    """One module class in the making."""

    def __init__(self, rng, name):
        self.rng = rng
        self.name = name
        self.init = []
        self.body = []

    def _attribute(self, expression, stem):
        name = f"{stem}{len(self.init)}"
        self.init.append((name, expression))
        return name

    def _slot(self, match):
        kind, expression = match.group(1), match.group(2)
        if kind == "P":
            return "self." + self._attribute(f"nn.Parameter({expression})", self.rng.choice(("weight", "gain", "p")))
        if kind == "B":
            name = f"buffer{len(self.init)}"
            self.init.append((None, f"self.register_buffer('{name}', {expression})"))
            return "self." + name
        return "self." + self._attribute(expression, self.rng.choice(("m", "layer", "proj", "part")))

    def add(self, text, condition=None):
        text = re.sub(r"@([PB]?)<(.*?)>@", self._slot, text)
        self.body.append(text if condition is None else f"if {condition}:\n" + indent(text))

    def add_child(self, child):
        self.add(f"x = @<{child.name}()>@(x)")

    def source(self):
        lines = [f"class {self.name}(nn.Module):", "    def __init__(self):", "        super().__init__()", "        self.n = 0"]
        for name, expression in self.init:
            lines.append(f"        self.{name} = {expression}" if name else f"        {expression}")
        lines += ["", "    def forward(self, x):"]
        if any("cols" in text for text in self.body):
            lines.append("        cols = torch.arange(D) % 3 == 1")
        text = "\n".join(lines) + "\n" + "".join(indent(part, 2) for part in self.body)
        return text + "        self.n += 1\n        return x\n"


class Generator:
    """Draws one program. `parts` tells what was drawn, for tables of agreement."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.seed = seed
        self.steps = self.rng.choice((1, 1, 2, 2, 3, 4))
        self.at = self.rng.randrange(self.steps)  # when the fault strikes
        self.layers = []
        self.parts = []
        # How the loop is made: with a GradScaler, a gradient penalty, or two optimizers, together or in turn.
        self.way = self.rng.choices(("plain", "scaler", "penalty", "together", "in turn"), (60, 14, 10, 8, 8))[0]
        self.plan = self.rng.choices(("forward", "loss", "batch", "parameter", "buffer", "optimizer", "harmless", "healthy"),
                                     (52, 6, 8, 6, 4, 7, 10, 7))[0]

    def some(self, probability):
        return self.rng.random() < probability

    def pick(self, statements_of_a_kind, label):
        name = self.rng.choice(sorted(statements_of_a_kind))
        self.parts.append(f"{label}:{name}")
        return statements_of_a_kind[name]

    # ---- the model

    def healthy(self, layer):
        if self.some(0.12):
            layer.add(self.pick(statements.HARMLESS, "harmless"))
        else:
            layer.add(self.pick(statements.HEALTHY, "healthy"))

    def fault(self, layer):
        condition = None
        kind = self.rng.random()
        if kind < 0.4:
            condition = f"self.n == {self.at}"
        elif kind < 0.6:
            condition = f"self.n >= {self.at}"
        layer.add(self.pick(statements.FAULTS, "fault"), condition)
        if self.some(0.3):
            layer.add(self.pick(statements.REPAIRS, "repair"))

    def layer(self, depth, with_fault):
        layer = Layer(self.rng, f"{self.rng.choice(('Block', 'Stage', 'Unit'))}{len(self.layers)}")
        self.layers.append(layer)
        count = self.rng.randint(1, 4)
        place = self.rng.randrange(count + 1) if with_fault else -1
        child_has_it = with_fault and depth > 0 and self.some(0.6)
        children = self.rng.randint(1, 2) if depth > 0 and (child_has_it or self.some(0.6)) else 0
        for i in range(count + 1):
            if i == place:
                if child_has_it:
                    layer.add_child(self.layer(depth - 1, True))
                else:
                    self.fault(layer)
            elif children > 0 and self.some(0.4):
                children -= 1
                layer.add_child(self.layer(depth - 1, False))
            else:
                self.healthy(layer)
        return layer

    def model(self):
        root = Layer(self.rng, "Model")
        blocks = [self.layer(2, False) for _ in range(self.rng.randint(1, 2))]
        if self.plan == "forward":
            blocks[self.rng.randrange(len(blocks))] = self.layer(2, True)
        root.add("x = @<nn.Linear(D, D)>@(x)")
        if self.some(0.3):
            root.add("x = @<nn.Sequential(" + ", ".join(f"{b.name}()" for b in blocks) + ")>@(x)")
        else:
            for block in blocks:
                root.add_child(block)
        if self.plan == "harmless" or self.some(0.1):
            root.add(self.pick(statements.HARMLESS, "harmless"))
        if self.plan == "buffer":
            root.add("x = x + @B<torch.zeros(D)>@")
        if self.some(0.7):
            root.add("x = @<nn.Linear(D, D)>@(x)")
        return root

    # ---- data

    def batches(self):
        way = self.rng.choice(("numpy", "list", "randn", "loader"))
        lines = ["numbers = numpy.random.default_rng(SEED).standard_normal((STEPS, 2, N, D)).astype('float32')"]
        if self.plan == "batch":
            where = self.rng.choice(("0, 0, 0", "0, :, 0", "0", "0, 0", "0, 0, 0", "1, 0, 0"))
            what = self.rng.choice(("numpy.nan", "numpy.nan", "numpy.inf", "-numpy.inf"))
            self.parts.append(f"batch:{way}:{where}:{what}")
            lines.append(f"numbers[{self.at}, {where}] = {what}")
            if way == "randn":
                way = "numpy"
        if way == "loader":
            lines.append("data = torch.utils.data.TensorDataset(torch.from_numpy(numbers[:, 0].reshape(-1, D)), "
                         "torch.from_numpy(numbers[:, 1].reshape(-1, D)))")
            lines.append("batches = iter(torch.utils.data.DataLoader(data, batch_size=N))")
            read = "x, y = next(batches)"
        elif way == "list":
            read = "x, y = (torch.tensor(part.tolist()) for part in numbers[step])"
        elif way == "randn":
            read = "x, y = torch.randn(N, D), torch.randn(N, D)"
        else:
            read = "x, y = (torch.from_numpy(part) for part in numbers[step])"
        return lines, read

    # ---- training

    def optimizer(self, parameters="model.parameters()"):
        if self.plan == "optimizer":
            text, has_fused = self.pick(statements.OPTIMIZER_FAULTS, "optimizer"), True
        elif self.some(0.8):
            text, has_fused = self.pick(statements.OPTIMIZERS, "optimizer"), True
        else:
            text, has_fused = self.pick(statements.OPTIMIZERS_PLAIN, "optimizer"), False
        if self.way == "scaler" and "momentum" in text:
            has_fused = False  # skipped in its first step, it leaves its momentum in memory that nobody wrote (torch 2.11)
        way = self.rng.choice(("", "", ", foreach=True", ", fused=True" if has_fused else ", foreach=True"))
        self.parts.append("way" + way)
        return text.format(way).replace("model.parameters()", parameters)

    def optimizers(self):
        """Lines that make `optimizers`; the last of them closes a step."""
        if self.way not in ("together", "in turn"):
            return [f"optimizer = {self.optimizer()}", "optimizers = [optimizer]"]
        return ["halves = list(model.parameters())[::2], list(model.parameters())[1::2]",
                f"optimizers = [{self.optimizer('halves[0]')}, {self.optimizer('halves[1]')}]"]

    def spoil(self):
        """Lines that make a parameter or a buffer bad before a step, seen or unseen by an op."""
        what = self.rng.choice(("nan", "nan", "inf"))
        if self.plan == "parameter":
            choose = f"t = list(model.parameters())[{self.rng.randrange(1000)} % len(list(model.parameters()))].detach()"
        else:
            choose = "t = dict(model.named_buffers())[[n for n, _ in model.named_buffers() if '.' not in n][-1]]"
        way = self.rng.choice(("numpy", "fill", "copy", "state_dict"))
        self.parts.append(f"spoil:{self.plan}:{way}:{what}")
        write = {
            "numpy": f"t.numpy().reshape(-1)[0] = numpy.{what}",
            "fill": f"t.view(-1)[0] = float('{what}')",
            "copy": f"t.copy_(torch.full_like(t, float('{what}')))",
            "state_dict": "state = {k: v.clone() for k, v in model.state_dict().items()}\n"
                          f"numpy.copyto(t.numpy(), numpy.{what})\n"
                          "model.load_state_dict(model.state_dict())",
        }[way]
        return choose + "\nwith torch.no_grad():\n" + indent(write)

    def loss(self):
        if self.plan != "loss":
            return self.pick(statements.LOSSES, "loss")
        bad = self.pick(statements.LOSS_FAULTS, "loss fault")
        if self.some(0.4):
            return bad
        good = self.pick(statements.LOSSES, "loss")
        return f"if step == {self.at}:\n{indent(bad)}else:\n{indent(good)}"

    def clear(self):
        if self.way == "together":
            return "model.zero_grad()"
        return self.rng.choice(("optimizer.zero_grad()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)",
                                "model.zero_grad()"))

    def penalty(self):
        norm = self.rng.choice(("g.norm(2, 1)", "g.pow(2).sum(1).sqrt()", "torch.sqrt((g * g).sum(1) + 1e-6)"))
        self.parts.append("penalty:" + norm)
        return ("(g,) = torch.autograd.grad(out.sum(), x, create_graph=True, allow_unused=True)\n"
                f"g = torch.zeros_like(x) if g is None else g\npenalty = 0.1 * ({norm} - 1).pow(2).mean()")

    def forward_and_backward(self):
        """Lines of one pass, and how often it is made before an update."""
        passes = self.rng.choice((1, 1, 1, 1, 1, 2))
        lines = []
        if self.way == "penalty":
            lines += ["x = x.requires_grad_()", "out = model(x)", self.penalty()]
        else:
            lines += ["out = model(x)"] if self.some(0.8) else ["out = model(x * 1.0)"]
        lines += ["h, x = x, out\n" + self.loss() + "\nx = h"]
        if self.way == "penalty":
            lines.append("loss = loss + penalty")
        loss = "loss" if passes == 1 else "(loss / 2)"
        lines.append(f"scaler.scale({loss}).backward()" if self.way == "scaler" else f"{loss}.backward()")
        block = "\n".join(lines)
        return block if passes == 1 else f"for micro in range({passes}):\n" + indent(block)

    def clip(self):
        kind = self.rng.random()
        if kind < 0.12:
            return ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
        if kind < 0.2:
            return ["nn.utils.clip_grad_value_(model.parameters(), 1.0)"]
        if kind < 0.25:
            return ["norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()"]
        return []

    def update(self):
        """Lines of one cycle: gradients are made and applied."""
        lines = [self.clear(), self.forward_and_backward()]
        clip = self.clip()
        if self.way == "scaler":
            if clip or self.some(0.2):
                lines += ["scaler.unscale_(optimizer)", *clip]
            return lines + ["scaler.step(optimizer)", "scaler.update()"]
        lines += clip
        if self.way == "together":
            return lines + ["for optimizer in optimizers:\n    optimizer.step()"]
        return lines + ["optimizer.step()"]

    def loop(self, read):
        lines = [read]
        if self.plan in ("parameter", "buffer"):
            lines.append(f"if step == {self.at}:\n" + indent(self.spoil()))
        cycle = self.update()
        lines += ["for optimizer in optimizers:\n" + indent("\n".join(cycle))] if self.way == "in turn" else cycle
        if self.some(0.1):
            lines.append("with torch.no_grad():\n    for e, p in zip(average, model.parameters()):\n        e.lerp_(p, 0.1)")
        if self.some(0.1):
            lines.append("model.eval()\nwith torch.no_grad():\n    model(x)\nmodel.train()")
        return "\n".join(lines)

    def program(self):
        root = self.model()
        data, read = self.batches()
        loop = self.loop(read)
        width = self.rng.choice((4, 4, 8))
        parts = ", ".join(p for p in self.parts if not p.startswith("healthy:"))
        text = f"# seed {self.seed}: {self.plan}, {self.way}; {parts}\n" + PRELUDE
        text += f"\nSEED, D, H, N, STEPS = {self.seed}, {width}, {width // 2}, {self.rng.choice((2, 3, 4))}, {self.steps}\n\n\n"
        # Children come before the classes that hold them.
        text += "\n\n".join(layer.source() for layer in [*reversed(self.layers), root])
        lines = ["", "", "torch.manual_seed(SEED)", "unused = nn.Parameter(torch.ones(3))", "unused.grad = torch.zeros(3)",
                 "criterion = nn.MSELoss()", *data, "model = Model()"]
        if "average" in loop:
            lines.append("average = [p.detach().clone() for p in model.parameters()]")
        lines += self.optimizers()
        if self.way == "scaler":
            lines.append(f"scaler = torch.amp.GradScaler('cpu', init_scale=2.0 ** {self.rng.randint(2, 14)})")
        lines.append("for step in range(STEPS):")
        return text + "\n".join(lines) + "\n" + indent(loop)


def generate(seed):
    """(source text, what kind of fault was planned, what it was made of)"""
    generator = Generator(seed)
    text = generator.program()
    return text, f"{generator.plan}, {generator.way}", generator.parts


if __name__ == "__main__":
    print(generate(int(sys.argv[1]))[0], end="")
