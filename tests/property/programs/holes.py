# SPDX-License-Identifier: Apache-2.0
"""Random training programs with holes: places where nanwatch cannot look. A seed gives the source text of one, always the same.

  holes.py SEED [HOLE,HOLE...]   prints it; `python` runs it as it is, and needs NANWATCH (the tool) for changes of level

Each is a program of generate.py with one to three holes in it; HOLES names them all, with how often each is drawn. What is wrong with
the program stays what it was, or is made inside the hole. The oracle still sees every op of the process itself. Of a child or a thread
it sees what came back, as the training does.
"""
import random
import re
import sys

import generate

LEVELS = ("canary", "sampled", "idle")

# How often each is drawn, of 1000. `workers` only where the program has a DataLoader.
HOLES = {
    "hidden_forward": 200,      # ops of a forward that no callback sees
    "hidden_in_loop": 130,      # the same in the training loop
    "hidden_in_backward": 70,   # the same in a hook of the backward
    "numpy_write": 100,         # numpy writes into an activation
    "numpy_in_backward": 50,    # and into a gradient on its way
    "numpy_in_state": 50,       # and into what the optimizer keeps
    "levels": 160,              # the level changes between steps
    "levels_in_backward": 40,   # and in the middle of a backward
    "elsewhere": 140,           # batches come from children and threads (CARRIED)
    "raises_midway": 50,        # a list op raises after it has written the first tensor
    "many_bad_values": 15,      # more than are kept track of
    "slow_daemon": 15,          # more findings than the ring holds: nobody takes them out
    "workers": 70,              # batches come from a DataLoader's worker
}

# By what the batches of a program are made elsewhere. `spoil` computes; the others carry.
SPOIL = '''
AT, OP = {at}, "{op}"

def spoil(numbers):
    numbers = torch.as_tensor(numbers)
    with torch.no_grad():
        getattr(numbers.view(-1)[AT:AT + 1].sub_(100.0), OP)()
    return numbers.numpy()

'''
# A process of its own takes seconds to start.
RARE = {"spawned process": 0.05}
CARRIED = {
    "fork and pipe": '''
def carried(numbers):
    import os
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(writing, "wb") as file:
            file.write(spoil(numbers).tobytes())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        made = numpy.frombuffer(file.read(), numbers.dtype).reshape(numbers.shape).copy()
    os.waitpid(pid, 0)
    return made

''',
    "fork and shared memory": '''
def carried(numbers):
    import os
    shared = torch.from_numpy(numbers).share_memory_()
    pid = os.fork()
    if pid == 0:
        spoil(shared)
        os._exit(0)
    os.waitpid(pid, 0)
    return shared.numpy()

''',
    "process and queue": '''
def work(numbers, queue, taken):
    queue.put(torch.from_numpy(spoil(numbers)))
    taken.wait()  # it hands out the memory itself

def carried(numbers):
    import torch.multiprocessing
    context = torch.multiprocessing.get_context("fork")
    queue, taken = context.Queue(), context.Event()
    process = context.Process(target=work, args=(numbers, queue, taken))
    process.start()
    made = queue.get().clone().numpy()
    taken.set()
    process.join()
    return made

''',
    "list of numbers": '''
def carried(numbers):
    return numpy.array(torch.from_numpy(spoil(numbers)).tolist(), dtype=numbers.dtype)

''',
    "spawned process": '''
def carried(numbers):
    import subprocess, sys
    text = f"import numpy, sys, torch\\nnumbers = torch.frombuffer(bytearray(sys.stdin.buffer.read()), dtype=torch.{numbers.dtype})\\n"
    text += f"numbers[{AT}:{AT + 1}].sub_(100.0).{OP}()\\nsys.stdout.buffer.write(numbers.numpy().tobytes())"
    child = subprocess.run([sys.executable, "-c", text], input=numbers.tobytes(), stdout=subprocess.PIPE, check=True)
    return numpy.frombuffer(child.stdout, numbers.dtype).reshape(numbers.shape).copy()

''',
    "fork that trains": '''
def carried(numbers):
    import os
    shared = torch.from_numpy(numbers).share_memory_()
    pid = os.fork()
    if pid == 0:
        try:
            helper = nn.Linear(4, 4)
            helping = torch.optim.SGD(helper.parameters(), lr=0.1)
            for _ in range(3):
                helping.zero_grad()
                helper(torch.ones(2, 4)).pow(2).mean().backward()
                helping.step()
            spoil(shared)
            with torch.no_grad():
                shared.mul_(helper(torch.ones(1, 4)).sum() * 0 + 1)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return shared.numpy()

''',
    "pool of threads": '''
def carried(numbers):
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda part: torch.from_numpy(part.copy()).mul_(1.0).numpy(), list(numbers)))
        return pool.submit(spoil, numpy.stack(parts)).result()

''',
    "thread that trains": '''
def carried(numbers):
    import queue, threading
    made = queue.Queue()
    def work():
        weight = torch.ones(3, requires_grad=True)
        weight.pow(2).sum().backward()
        made.put(spoil(numbers + weight.grad[0].item() * 0))
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    taken = made.get()
    thread.join()
    return taken

''',
    "thread": '''
def carried(numbers):
    import threading
    made = []
    thread = threading.Thread(target=lambda: made.append(spoil(numbers)))
    thread.start()
    thread.join()
    return made[0]

''',
}
HIDE = "torch.autograd._enable_record_function(False)"
SHOW = "torch.autograd._enable_record_function(True)"
HIDDEN_HOOK = '''
def hidden(g):
    torch.autograd._enable_record_function(False)
    g = {made}
    torch.autograd._enable_record_function(True)
    return g

'''
FLOOD = '''
def flood():
    for line in range({count}):
        exec(compile("\\n" * line + "torch.log(-torch.ones(1))", "flood.py", "exec"))

'''
MIDWAY = """x = x * 1.0
try:
    torch._foreach_mul_([x.detach(), torch.zeros(2, dtype=torch.long)], {number})
except RuntimeError:
    pass"""
ATTACH = '''
def attach(level):
    import os, subprocess
    subprocess.run([os.environ["NANWATCH"], "attach", str(os.getpid()), "--level", level, "--wait", "0"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

'''


def statements_in(lines, first, last):
    """(begin, end) of each statement of the block lines[first:last], with what is indented below it."""
    found = []
    indent = len(lines[first]) - len(lines[first].lstrip())
    for i in range(first, last):
        depth = len(lines[i]) - len(lines[i].lstrip())
        if lines[i].strip() and depth == indent:
            found.append([i, i + 1])
        elif found:
            found[-1][1] = i + 1
    return [(begin, end) for begin, end in found if not lines[begin].lstrip().startswith(("return", "else", "elif"))]


def blocks(lines):
    """(first, last) of each module's forward, and of the training loop's body."""
    found = []
    for i, line in enumerate(lines):
        if line == "    def forward(self, x):" or line.startswith("for step in range(STEPS):"):
            depth = len(line) - len(line.lstrip())
            last = i + 1
            while last < len(lines) and (not lines[last].strip() or len(lines[last]) - len(lines[last].lstrip()) > depth):
                last += 1
            found.append((i + 1, last))
    return found


class Puncher:
    def __init__(self, seed, holes):
        self.holes = holes
        self.rng = random.Random(f"holes {seed}")
        self.text, self.plan, self.parts = generate.generate(seed)
        self.parts = list(self.parts)

    def around(self, before, after, block):
        """Puts lines around one to three statements that stand together."""
        lines = self.text.split("\n")
        found = statements_in(lines, *block(blocks(lines)))
        begin = self.rng.randrange(len(found))
        end = min(len(found), begin + self.rng.randint(1, 3)) - 1
        first, last = found[begin][0], found[end][1]
        space = lines[first][:len(lines[first]) - len(lines[first].lstrip())]
        new = lines[:first]
        new += [space + line for line in before.split("\n")] if before else []
        new += lines[first:last]
        new += [space + line for line in after.split("\n")] if after else []
        self.text = "\n".join(new + lines[last:])

    def hidden_forward(self):
        self.around(HIDE, SHOW, lambda all_blocks: self.rng.choice(all_blocks[:-1]))

    def hidden_in_loop(self):
        self.around(HIDE, SHOW, lambda all_blocks: all_blocks[-1])

    def numpy_write(self):
        what = self.rng.choice(("numpy.nan", "numpy.nan", "numpy.inf"))
        condition = self.rng.choice(("", "if self.n == 0: "))
        self.around("", f"{condition}x.detach().numpy().reshape(-1)[:1] = {what}", lambda all_blocks: self.rng.choice(all_blocks[:-1]))

    def define(self, text):
        """Puts functions before the training, once each."""
        if text not in self.text:
            self.text = self.text.replace("\ntorch.manual_seed(SEED)\n", text + "torch.manual_seed(SEED)\n", 1)

    def in_backward(self, hook):
        """Has a hook see the gradient of an activation."""
        condition = self.rng.choice(("", "self.n == 0 and "))
        self.around("", f"if {condition}x.requires_grad: x.register_hook({hook})", lambda all_blocks: self.rng.choice(all_blocks[:-1]))

    def hidden_in_backward(self):
        self.define(HIDDEN_HOOK.format(made=self.rng.choice(("g * 1.0", "(g * 0).log()", "g / (g * 0)"))))
        self.in_backward("hidden")

    def numpy_in_backward(self):
        self.in_backward("lambda g: g.detach().numpy().reshape(-1)[:1].fill(numpy." + self.rng.choice(("nan", "inf")) + ")")

    def numpy_in_state(self):
        what = self.rng.choice(("nan", "inf"))
        at = self.rng.randrange(3)
        self.around(f"for kept in optimizer.state.values() if step >= {at} else ():\n    for held in kept.values():\n"
                    f"        if torch.is_tensor(held) and held.dim() > 0: held.detach().numpy().reshape(-1)[:1].fill(numpy.{what})", "",
                    lambda all_blocks: all_blocks[-1])

    def raises_midway(self):
        self.around(MIDWAY.format(number=self.rng.choice(("float('inf')", "1e38", "1.0"))), "",
                    lambda all_blocks: self.rng.choice(all_blocks[:-1]))

    def levels_in_backward(self):
        self.define(ATTACH)
        self.in_backward(f"lambda g: attach('{self.rng.choice(LEVELS)}')")
        if self.rng.random() < 0.5:
            self.around("", "attach('full')", lambda all_blocks: all_blocks[-1])

    def many_bad_values(self):
        self.around("", "hoard = torch._foreach_add(list(torch.full((9000,), float('nan')).unbind()), 1.0)", lambda all_blocks: all_blocks[-1])

    def slow_daemon(self):
        self.define(FLOOD.format(count=self.rng.choice((500, 3000))))
        self.around("", f"if step == {self.rng.randrange(2)}: flood()", lambda all_blocks: all_blocks[-1])

    def levels(self):
        begin = self.rng.randrange(-1, 3)
        chosen = self.rng.choice(LEVELS)
        end = self.rng.choice((-1, begin + 1, begin + 2))
        lines = [f"if step == {begin}: attach('{chosen}')"] if begin >= 0 else []
        lines += [f"if step == {end}: attach('full')"] if end >= 0 else []
        self.text = self.text.replace("for step in range(STEPS):\n", "for step in range(STEPS):\n" +
                                      "".join(f"    {line}\n" for line in lines))
        start = f"attach('{chosen}')\n" if begin < 0 else ""
        self.define(ATTACH)
        self.text = self.text.replace("torch.manual_seed(SEED)\n", start + "torch.manual_seed(SEED)\n", 1)
        self.parts.append(f"{chosen} from {begin} to {end}")

    def elsewhere(self):
        ways = sorted(CARRIED)
        way = self.rng.choices(ways, [RARE.get(name, 1) for name in ways])[0]
        self.parts.append(way)
        made = re.search(r"^numbers = .*$", self.text, re.MULTILINE)
        functions = SPOIL.format(at=self.rng.randrange(8), op=self.rng.choice(("log_", "sqrt_", "acos_"))) + CARRIED[way]
        place = self.text.index("\ntorch.manual_seed(SEED)\n")
        self.text = (self.text[:place] + functions + self.text[place:made.end()] + "\nnumbers = carried(numbers)" + self.text[made.end():])

    def workers(self):
        self.text = self.text.replace("DataLoader(data, batch_size=N)", "DataLoader(data, batch_size=N, num_workers=1)")

    def punch(self):
        holes = {name: HOLES[name] for name in self.holes}
        if "DataLoader(data, batch_size=N)" not in self.text and len(holes) > 1:
            holes.pop("workers", None)
        for name in dict.fromkeys(self.rng.choices(list(holes), list(holes.values()), k=self.rng.choice((1, 1, 2, 3)))):
            self.parts.append("hole:" + name)
            getattr(self, name)()
        return self.text, self.plan, self.parts


def generate_with_holes(seed, holes=tuple(HOLES)):
    """(source text, what kind of fault was planned, what it was made of)"""
    return Puncher(seed, holes).punch()


if __name__ == "__main__":
    chosen = sys.argv[2].split(",") if len(sys.argv) > 2 else tuple(HOLES)
    print(generate_with_holes(int(sys.argv[1]), chosen)[0], end="")
