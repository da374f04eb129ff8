"""Random training programs with holes: places where nanwatch cannot look. A seed gives the source text of one, always the same.

  holes.py SEED        prints it; `python` runs it as it is, and needs NANWATCH (the tool) for changes of level

Each is a program of generate.py with one to three holes in it: ops that no callback sees, memory that numpy writes, batches that come
from a forked child or a worker, levels that change while it runs. What is wrong with it stays what it was, or is made inside the hole.
The oracle still sees every op of the process itself. Of a child it sees what came back, as the training does.
"""
import random
import re
import sys

import generate

LEVELS = ("canary", "layer", "idle")

# By what the batches of a program are made elsewhere. `spoil` computes; the others carry.
SPOIL = '''
def spoil(numbers):
    numbers = torch.as_tensor(numbers)
    with torch.no_grad():
        numbers.view(-1)[{at}:{at} + 1].sub_(100.0).{op}()
    return numbers.numpy()

'''
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
    def __init__(self, seed):
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
        new += [space + before] if before else []
        new += lines[first:last]
        new += [space + after] if after else []
        self.text = "\n".join(new + lines[last:])

    def hidden_forward(self):
        self.around(HIDE, SHOW, lambda all_blocks: self.rng.choice(all_blocks[:-1]))

    def hidden_in_loop(self):
        self.around(HIDE, SHOW, lambda all_blocks: all_blocks[-1])

    def numpy_write(self):
        what = self.rng.choice(("numpy.nan", "numpy.nan", "numpy.inf"))
        condition = self.rng.choice(("", "if self.n == 0: "))
        self.around("", f"{condition}x.detach().numpy().reshape(-1)[:1] = {what}", lambda all_blocks: self.rng.choice(all_blocks[:-1]))

    def levels(self):
        begin = self.rng.randrange(-1, 3)
        chosen = self.rng.choice(LEVELS)
        end = self.rng.choice((-1, begin + 1, begin + 2))
        lines = [f"if step == {begin}: attach('{chosen}')"] if begin >= 0 else []
        lines += [f"if step == {end}: attach('full')"] if end >= 0 else []
        self.text = self.text.replace("for step in range(STEPS):\n", "for step in range(STEPS):\n" +
                                      "".join(f"    {line}\n" for line in lines))
        start = f"attach('{chosen}')\n" if begin < 0 else ""
        self.text = self.text.replace("\ntorch.manual_seed(SEED)\n", ATTACH + start + "torch.manual_seed(SEED)\n", 1)
        self.parts.append(f"{chosen} from {begin} to {end}")

    def elsewhere(self):
        way = self.rng.choice(sorted(CARRIED))
        self.parts.append(way)
        made = re.search(r"^numbers = .*$", self.text, re.MULTILINE)
        functions = SPOIL.format(at=self.rng.randrange(8), op=self.rng.choice(("log_", "sqrt_", "acos_"))) + CARRIED[way]
        place = self.text.index("\ntorch.manual_seed(SEED)\n")
        self.text = (self.text[:place] + functions + self.text[place:made.end()] + "\nnumbers = carried(numbers)" + self.text[made.end():])

    def workers(self):
        self.text = self.text.replace("DataLoader(data, batch_size=N)", "DataLoader(data, batch_size=N, num_workers=1)")

    def punch(self):
        holes = {"hidden_forward": 30, "hidden_in_loop": 20, "numpy_write": 15, "levels": 25, "elsewhere": 20}
        if "DataLoader(data, batch_size=N)" in self.text:
            holes["workers"] = 10
        for name in dict.fromkeys(self.rng.choices(list(holes), list(holes.values()), k=self.rng.choice((1, 1, 2, 3)))):
            self.parts.append("hole:" + name)
            getattr(self, name)()
        return self.text, self.plan, self.parts


def generate_with_holes(seed):
    """(source text, what kind of fault was planned, what it was made of)"""
    return Puncher(seed).punch()


if __name__ == "__main__":
    print(generate_with_holes(int(sys.argv[1]))[0], end="")
