# SPDX-License-Identifier: Apache-2.0
"""Which step it was, where a program has several optimizers: at once, or one after another.

The step is that of the optimizer that closes the cycle at the time, as a person who reads the program counts it.
"""
from training import BEGIN, layer
from watched_program import WatchedProgramTest, main

DIV = {"kind": "op", "op": "aten::div", "class": "produce", "phase": "forward", "layer": "odd"}

NET = BEGIN + layer("return h / given[0]") + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.odd, self.out = nn.Linear(6, 8), Odd(), nn.Linear(8, 2)

    def forward(self, x, d=1.0):
        return self.out(self.odd(torch.tanh(self.enc(x)), d))


def backward(model, d=1.0):
    model.zero_grad()
    model(torch.randn(4, 6), d).pow(2).mean().backward()


def train(model, optimizer, steps, bad=-1):
    for step in range(steps):
        backward(model, float(step != bad))
        optimizer.step()
"""

ADVERSARIES = """
critic, generator = Net(), Net()
of_critic, of_generator = torch.optim.AdamW(critic.parameters()), torch.optim.AdamW(generator.parameters())
"""
# The second acts in every so many steps of the first.
RARE = """
often, seldom = Net(), Net()
of_often, of_seldom = torch.optim.SGD(often.parameters(), lr=1e-3), torch.optim.SGD(seldom.parameters(), lr=1e-3)
for step in range({steps}):
    train(often, of_often, 1, bad=0 if step == 107 else -1)
    if step % {every} == {every} - 1:
        train(seldom, of_seldom, 1)
"""


class Trainings(WatchedProgramTest):
    def assert_step(self, text, step, **origin):
        self.assert_anomaly(NET + text, step=step, **DIV, **origin)

    def test_second_optimizer_of_one_model_after_the_first(self):
        self.assert_step("""
model = Net()
train(model, torch.optim.Adam(model.parameters()), 40)
train(model, torch.optim.SGD(model.parameters(), lr=1e-3), 50, bad=23)
""", 23, training=2)

    def test_first_step_of_the_second_optimizer(self):
        self.assert_step("""
model = Net()
train(model, torch.optim.Adam(model.parameters()), 40)
train(model, torch.optim.SGD(model.parameters(), lr=1e-3), 50, bad=0)
""", 0)

    def test_first_of_two_trainings(self):
        self.assert_step("""
model = Net()
train(model, torch.optim.Adam(model.parameters()), 40, bad=17)
model = Net()
train(model, torch.optim.SGD(model.parameters(), lr=1e-3), 50)
""", 17, training=1)

    def test_job_that_ends_soon_after_its_second_training_began(self):
        self.assert_step("""
model = Net()
train(model, torch.optim.Adam(model.parameters()), 40)
train(model, torch.optim.SGD(model.parameters(), lr=1e-3), 8, bad=7)
""", 7)

    def test_critic_that_is_updated_five_times(self):
        self.assert_step(ADVERSARIES + """for step in range(12):
    train(critic, of_critic, 5)
    train(generator, of_generator, 1, bad=0 if step == 9 else -1)
""", 9, training=0)

    def test_critic_that_is_updated_five_times_goes_bad(self):
        self.assert_step(ADVERSARIES + """for step in range(12):
    train(critic, of_critic, 5, bad=3 if step == 6 else -1)
    train(generator, of_generator, 1)
""", 6)

    def test_adversaries_after_a_pretraining(self):
        self.assert_step("""
critic, generator = Net(), Net()
train(generator, torch.optim.Adam(generator.parameters()), 60)
of_critic, of_generator = torch.optim.AdamW(critic.parameters()), torch.optim.AdamW(generator.parameters())
for step in range(80):
    train(critic, of_critic, 5, bad=3 if step == 70 else -1)
    train(generator, of_generator, 1)
""", 70)

    def test_two_that_alternate(self):
        self.assert_step("""
one, other = Net(), Net()
of_one, of_other = torch.optim.SGD(one.parameters(), lr=1e-3), torch.optim.SGD(other.parameters(), lr=1e-3)
for step in range(30):
    train(one, of_one, 1, bad=0 if step == 19 else -1)
    train(other, of_other, 1)
""", 19)

    def test_one_that_is_rare_beside_one_that_is_busy(self):
        # Of every fortieth step: below 1/32 of the busy one's, so the busy one's steps are told.
        self.assert_step(RARE.format(steps=150, every=40), 107)

    def test_one_that_acts_every_twentieth_step_closes_the_cycle(self):
        self.assert_step(RARE.format(steps=130, every=20), 5)

    def test_fifth_of_five_models_each_with_its_own_optimizer(self):
        self.assert_step("""
for fold in range(5):
    model = Net()
    train(model, torch.optim.AdamW(model.parameters()), 10, bad=7 if fold == 4 else -1)
""", 7)

    def test_search_over_forty_learning_rates(self):
        self.assert_step("""
kept = []
for trial in range(40):
    model = Net()
    kept.append(torch.optim.SGD(model.parameters(), lr=1e-6 * (trial + 1)))
    train(model, kept[-1], 12, bad=5 if trial == 36 else -1)
""", 5)

    def test_optimizer_made_where_another_one_stood(self):
        # Its neighbors live on, so allocators give its memory to one of the next objects of that size.
        self.assert_step("""
import weakref


def empty(count):
    return [torch.optim.SGD.__new__(torch.optim.SGD) for _ in range(count)]


model = Net()
before, optimizer, after = empty(500), *empty(1), empty(500)
optimizer.__init__(model.parameters(), lr=1e-3)
train(model, optimizer, 20)
address, seen = id(optimizer), weakref.ref(optimizer)
del optimizer
assert seen() is None, "the first optimizer lives on"
there = [made for made in empty(500) if id(made) == address]
assert len(there) == 1, "this allocator gave its memory to none of 500 objects"
there[0].__init__(model.parameters(), lr=1e-3)
train(model, there[0], 20, bad=11)
""", 11)

    def test_one_optimizer_for_each_of_many_parameters(self):
        self.assert_step("""
model = Net()
optimizers = [torch.optim.SGD([p], lr=1e-3) for _ in range(3) for p in model.parameters()]
for step in range(20):
    backward(model, float(step != 13))
    for optimizer in optimizers:
        optimizer.step()
""", 13)


if __name__ == "__main__":
    main()
