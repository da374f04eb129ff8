# SPDX-License-Identifier: Apache-2.0
"""Which step it was, where a process trains one model after another, however short the last training is.

Optimizers share a step only if they take turns. One that never acts again once another has begun has a training of its own.
"""
from trainings_test import ADVERSARIES, DIV, NET
from watched_program import WatchedProgramTest, main

# Trains so many steps in each of the trainings; step `bad` of training `of` divides by zero.
TRAININGS = """
for number, steps in enumerate({steps}):
    model = Net()
    train(model, torch.optim.{optimizer}(model.parameters(), lr=1e-4), steps, bad={bad} if number == {of} else -1)
"""


# A model that a logarithm of zero ruins in its third step, or that stays good.
SPOILED = """
import torch, torch.nn as nn
torch.manual_seed(0)
def train(spoil):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        x = torch.ones(8, 4) * float(not spoil or step != 2)
        optimizer.zero_grad()
        model(x.log()).square().mean().backward()
        optimizer.step()
    return model
"""


def trainings(steps, of, bad, optimizer="SGD"):
    return TRAININGS.format(steps=steps, of=of, bad=bad, optimizer=optimizer)


class Consecutive(WatchedProgramTest):
    def assert_step(self, text, step, **origin):
        return self.assert_anomaly(NET + text, step=step, **{"exact": True, **DIV, **origin})

    def assert_steps_of_each(self, steps, places):
        for of, bad in places:
            with self.subTest(steps=steps, training=of, bad=bad):
                self.assert_step(trainings(steps, of, bad), bad)

    def test_second_training_is_shorter(self):
        self.assert_steps_of_each((30, 10), ((0, 2), (0, 29), (1, 0), (1, 3)))

    def test_second_training_is_much_shorter(self):
        self.assert_steps_of_each((30, 5), ((0, 2), (0, 29), (1, 0), (1, 3)))
        self.assert_steps_of_each((30, 2), ((0, 2), (0, 29), (1, 0), (1, 1)))

    def test_second_training_is_longer(self):
        self.assert_steps_of_each((5, 30), ((0, 2), (0, 4), (1, 0), (1, 3)))

    def test_trainings_of_the_same_short_length(self):
        self.assert_steps_of_each((4, 4), ((0, 2), (1, 0), (1, 2)))

    def test_folds_of_a_few_steps(self):
        self.assert_steps_of_each((3,) * 5, ((0, 1), (2, 2), (3, 1), (4, 2)))
        self.assert_steps_of_each((2,) * 9, ((0, 1), (4, 1), (7, 1), (8, 1)))

    def test_folds_of_which_one_is_longer(self):
        self.assert_steps_of_each((6, 20, 5, 3), ((0, 4), (1, 17), (2, 4), (3, 2)))

    def test_single_step_of_another_optimizer_after_a_training(self):
        # A critic that is updated thirty times before the generator looks the same.
        self.assert_step(trainings((30, 1), 0, 2), 2, exact=False, unseen=["turns"])
        self.assert_step(trainings((30, 1), 1, 0), 0)
        self.assert_step(trainings((40, 1), 0, 2), 2)

    def test_what_is_found_behind_the_last_step_belongs_to_that_training(self):
        text = """
for number, divisor in enumerate((0.0, 1.0)):
    model = Net()
    train(model, torch.optim.SGD(model.parameters(), lr=1e-4), 3)
    with torch.no_grad():
        print((model(torch.randn(4, 6)).mean() * 0 / divisor).item())
"""
        incident = self.assert_anomaly(NET + text, op="aten::div", step=3, training=1, phase="other")
        self.assertEqual(["activation", "metric"], sorted(incident["reach"]))

    def test_first_step_of_a_new_model_under_a_criterion_of_before(self):
        text = """
class Ratio(nn.Module):
    def forward(self, x, divisor):
        return (x / divisor).pow(2).mean()


ratio = Ratio()
for number in range(2):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(3):
        optimizer.zero_grad()
        ratio(model(torch.randn(4, 6)), float(number == 0 or step != 0)).backward()
        optimizer.step()
"""
        self.assert_anomaly(NET + text, op="aten::div", step=0, training=2, exact=True)

    def test_first_step_of_another_optimizer_of_the_same_model_may_be_the_one_before(self):
        again = "train(model, torch.optim.SGD(model.parameters(), lr=1e-4), 3"
        self.assert_anomaly(NET + f"model = Net()\n{again})\n{again}, bad=0)\n", op="aten::div", exact=False, unseen=["turns"])

    def test_warm_up_then_another_optimizer_of_the_same_model(self):
        for after, bad in ((0, 3), (5, 3), (3, 1)):
            with self.subTest(after=after, bad=bad):
                self.assert_step(f"""
model = Net()
train(model, torch.optim.Adam(model.parameters()), 20, bad={-1 if after else bad})
train(model, torch.optim.SGD(model.parameters(), lr=1e-4), {after or 4}, bad={bad if after else -1})
""", bad)

    def test_both_optimizers_are_made_before_the_first_step(self):
        self.assert_step("""
model = Net()
first, second = torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters(), lr=1e-4)
train(model, first, 20, bad=7)
train(model, second, 3)
""", 7)

    def test_short_training_after_adversaries(self):
        for bad_cycle, bad_after, step in ((3, -1, 3), (-1, 2, 2)):
            with self.subTest(step=step):
                self.assert_step(ADVERSARIES + f"""
for step in range(6):
    train(critic, of_critic, 5, bad=3 if step == {bad_cycle} else -1)
    train(generator, of_generator, 1)
model = Net()
train(model, torch.optim.SGD(model.parameters(), lr=1e-4), 4, bad={bad_after})
""", step)

    def test_adversaries_after_a_short_training(self):
        for bad_before, bad_cycle, step in ((2, -1, 2), (-1, 2, 2)):
            with self.subTest(step=step):
                self.assert_step(f"""
model = Net()
train(model, torch.optim.SGD(model.parameters(), lr=1e-4), 4, bad={bad_before})
""" + ADVERSARIES + f"""
for step in range(4):
    train(critic, of_critic, 3, bad=1 if step == {bad_cycle} else -1)
    train(generator, of_generator, 1)
""", step)

    def test_adversaries_for_each_fold(self):
        for fold in range(3):
            with self.subTest(fold=fold):
                self.assert_step("for fold in range(3):" + ADVERSARIES.replace("\n", "\n    ") + f"""
    for step in range(4):
        train(critic, of_critic, 2, bad=1 if (fold, step) == ({fold}, 2) else -1)
        train(generator, of_generator, 1)
""", 2)


class Together(WatchedProgramTest):
    """What takes turns shares the steps as before."""

    def assert_step(self, text, step, **origin):
        return self.assert_anomaly(NET + text, step=step, **DIV, **origin)

    def test_adversaries_that_end_in_their_second_cycle(self):
        self.assert_step(ADVERSARIES + """
train(critic, of_critic, 5)
train(generator, of_generator, 1)
train(critic, of_critic, 4, bad=2)
""", 1, exact=False, unseen=["turns"])

    def test_adversaries_from_their_second_cycle_on(self):
        for cycles in (2, 3):
            with self.subTest(cycles=cycles):
                self.assert_step(ADVERSARIES + f"""
for step in range({cycles}):
    train(critic, of_critic, 5, bad=3 if step == 1 else -1)
    train(generator, of_generator, 1)
""", 1)

    def test_two_optimizers_in_one_step(self):
        self.assert_step("""
model = Net()
first, second = torch.optim.Adam(model.enc.parameters()), torch.optim.SGD(model.out.parameters(), lr=1e-4)
for step in range(2):
    backward(model, float(step != 1))
    first.step(), second.step()
""", 1)

    def test_accumulated_gradients_in_two_trainings(self):
        for of in (0, 1):
            with self.subTest(training=of):
                self.assert_step(f"""
for number, steps in enumerate((12, 4)):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(steps):
        for micro in range(3):
            model(torch.randn(4, 6), float((number, step, micro) != ({of}, 2, 1))).pow(2).mean().backward()
        optimizer.step(), optimizer.zero_grad()
""", 2, micro_step=1)

    def test_closures_of_lbfgs_after_a_training(self):
        for of in (0, 1):
            with self.subTest(training=of):
                self.assert_step(f"""
model = Net()
train(model, torch.optim.Adam(model.parameters()), 20, bad={2 if of == 0 else -1})
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
for step in range(4):
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 6), float(({of}, step) != (1, 2))).pow(2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
""", 2)

    def test_optimizer_that_joins_later(self):
        for bad in (7, 30):
            with self.subTest(bad=bad):
                self.assert_step(f"""
model = Net()
first, second = torch.optim.SGD(model.enc.parameters(), lr=1e-4), torch.optim.SGD(model.out.parameters(), lr=1e-4)
for step in range(40):
    backward(model, float(step != {bad}))
    first.step()
    if step >= 20:
        second.step()
""", bad)

    def test_folds_in_threads_of_their_own_leave_the_step_in_doubt(self):
        # The bad batch of the second fold, after three steps of its own and nine of the first.
        text = """
import threading
turns = [threading.Event() for _ in range(3)]

def first_fold():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    train(model, optimizer, 9)
    turns[0].set()
    turns[1].wait(60)
    train(model, optimizer, 2)
    turns[2].set()

def second_fold():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    turns[0].wait(60)
    train(model, optimizer, 3)
    turns[1].set()
    turns[2].wait(60)
    train(model, optimizer, 1, bad=0)

folds = [threading.Thread(target=fold) for fold in (first_fold, second_fold)]
for fold in folds: fold.start()
for fold in folds: fold.join()
"""
        incident = self.assert_anomaly(NET + text, exact=False, **DIV)
        self.assertIn("turns", incident["origin"]["unseen"])

    # Its modules are gone, and a model that is good has trained since.
    def test_weights_of_a_ruined_model_that_are_used_later_are_of_the_same_incident(self):
        for keep in ("model.state_dict()", "{name: value.clone() for name, value in model.state_dict().items()}"):
            with self.subTest(keep):
                verdict = self.verdict_of(SPOILED + f"""
model = train(True)
kept = {keep}
del model
train(False)
model = nn.Linear(4, 1)
model.load_state_dict(kept)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).square().mean().backward()
    optimizer.step()
""")
                told = [i["origin"]["op"] for i in verdict["incidents"] if i["severity"] != "info"]
                self.assertEqual(told, ["aten::log"])

    # The first model is still there, and bad.
    def test_fault_of_a_second_model_beside_a_ruined_one_is_an_incident(self):
        verdict = self.verdict_of("""
import torch, torch.nn as nn
torch.manual_seed(0)
def train(model, loss_of, steps):
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        scores = model(torch.randn(4, 3)).sigmoid()
        optimizer.zero_grad()
        loss_of(scores, step).backward()
        optimizer.step()
models = [nn.Linear(3, 1) for _ in range(3)]
train(models[0], lambda scores, step: -(scores * (step != 2)).log().mean(), 4)
train(models[1], lambda scores, step: scores.mean(), 4)
train(models[2], lambda scores, step: (scores * (step != 3) / (scores * (step != 3)).sum()).square().sum(), 6)
""")
        told = {i["origin"]["op"] for i in verdict["incidents"] if i["severity"] == "critical"}
        self.assertEqual(told, {"aten::log", "aten::div"})

    def test_checkpoint_of_a_ruined_model_is_of_its_incident(self):
        verdict = self.verdict_of(SPOILED + """
import io
file = io.BytesIO()
torch.save(train(True).state_dict(), file)
train(False)
file.seek(0)
model = nn.Linear(4, 1)
model.load_state_dict(torch.load(file))
model(torch.ones(2, 4)).mean().item()
""")
        told = [i["origin"]["op"] for i in verdict["incidents"] if i["severity"] != "info"]
        self.assertEqual(told, ["aten::log"])

    # Of three clients the second goes bad. Its model is gone by the time that weights are averaged, and a third has trained since.
    def test_average_over_clients_of_which_one_was_ruined_is_of_its_incident(self):
        for copy in ("model.state_dict()", "copy.deepcopy(model.state_dict())"):
            with self.subTest(copy):
                verdict = self.verdict_of(f"""
import copy, torch, torch.nn as nn
torch.manual_seed(0)
shared = nn.Linear(4, 1)
for turn in range(3):
    weights = []
    for client in range(3):
        model = copy.deepcopy(shared)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            x = torch.ones(8, 4) * float((turn, client, step) != (0, 1, 2))
            optimizer.zero_grad()
            model(x.log()).square().mean().backward()
            optimizer.step()
        weights.append({copy})
    shared.load_state_dict({{name: sum(one[name] for one in weights) / 3 for name in weights[0]}})
""")
                told = [i["origin"]["op"] for i in verdict["incidents"] if i["severity"] != "info"]
                self.assertEqual(told, ["aten::log"])

    # Each counts for itself, and nobody can say whose count is meant.
    def test_models_that_train_by_turns_of_several_steps_leave_the_step_in_doubt(self):
        incident = self.assert_anomaly("""
import torch, torch.nn as nn
torch.manual_seed(0)
models = [nn.Linear(4, 1) for _ in range(3)]
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
for turn in range(3):
    for number, (model, optimizer) in enumerate(zip(models, optimizers)):
        for step in range(2):
            x = torch.ones(8, 4) * float((turn, number, step) != (1, 1, 1))
            optimizer.zero_grad()
            model(x.log()).square().mean().backward()
            optimizer.step()
""", op="aten::log", exact=False)
        self.assertIn("turns", incident["origin"]["unseen"])

    def test_a_bad_checkpoint_after_a_training_is_the_parameter_and_no_batch(self):
        text = """
import io
train(Net(), torch.optim.SGD(Net().parameters(), lr=1e-4), 3)
healthy = Net()
train(healthy, torch.optim.SGD(healthy.parameters(), lr=1e-4), 3)
saved = {name: tensor.clone() for name, tensor in healthy.state_dict().items()}
saved["enc.weight"].numpy()[0, 1] = float("nan")
file = io.BytesIO()
torch.save(saved, file)
file.seek(0)
model = Net()
model.load_state_dict(torch.load(file))
train(model, torch.optim.SGD(model.parameters(), lr=1e-4), 3)
"""
        incident = self.assert_anomaly(NET + text, kind="parameter", param="enc.weight", op="aten::addmm", step=0, phase="forward")
        self.assertEqual({link["op"] for link in incident["chain"]} & {"aten::copy_", "aten::set_"}, set())

    # Bad data that happens to be as large as a parameter of the first model, which is ruined and gone, is its own fault.
    def test_bad_batch_of_a_second_model_is_an_incident_of_its_own(self):
        text = "import numpy as np, torch, torch.nn as nn\ntorch.manual_seed(0)\n"
        for name, model, shape in (("first", "nn.Linear(8, 3)", (3, 8)), ("second", "nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))", (8, 3))):
            text += f"""
def {name}():
    model, rng = {model}, np.random.default_rng(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(6):
        x = rng.normal(size={shape}).astype("f4")
        x[1] += np.nan if step == 3 else 0
        loss = model(torch.from_numpy(x)).square().mean()
        optimizer.zero_grad(), loss.backward(), optimizer.step()
{name}()
"""
        verdict = self.verdict_of(text)
        found = [(each["origin"]["kind"], each["origin"]["source"].split()[-1]) for each in verdict["incidents"]]
        self.assertEqual(found, [("input_data", "first"), ("input_data", "second")])


if __name__ == "__main__":
    main()
