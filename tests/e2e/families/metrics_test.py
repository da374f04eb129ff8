# SPDX-License-Identifier: Apache-2.0
"""NaN that the program reads as a number where no gradients are recorded, and losses that it checks and leaves out."""
from training import training
from watched_program import WatchedProgramTest, main

MODEL = "nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))"
VALIDATION = """
def validate(nothing=True):
    model.eval()
    with torch.no_grad():
        output, keep = model(torch.randn(4, 6)), torch.full((4,), not nothing)
        loss = F.mse_loss(output[keep], torch.randn(4, 2)[keep])
    model.train()
    return loss
"""
WAYS = {
    "item": "v.item()",
    "float": "float(v)",
    "format": "f'{v:.4f}'",
    "print": "print(v)",
    "print_many": "print(torch.stack([v, v]))",
    "str": "str(v)",
    "tolist": "v.tolist()",
    "tolist_many": "torch.stack([v, v]).tolist()",
    "numpy": "v.numpy()",
    "numpy_of_a_copy": "v.detach().cpu().numpy()",
    "numpy_array": "np.array(v)",
    "comparison": "bool(v < 1.0)",
    "best": "best = min(1.0, v)",
    "wider_type": "v.double().item()",
}
SKIPS = {
    "isfinite": "not torch.isfinite(loss)",
    "isnan": "torch.isnan(loss)",
    "item": "not math.isfinite(loss.item())",
    "float": "math.isnan(float(loss))",
    "comparison": "not (loss < 1e6)",
    "unequal_to_itself": "loss != loss",
    "detached": "not math.isfinite(loss.detach().item())",
    "copy": "not math.isfinite(loss.detach().clone().item())",
    "numpy": "np.isnan(loss.detach().numpy())",
    "tolist": "math.isnan(loss.tolist())",
}


def validated(read):
    return training(model=MODEL, prepare=VALIDATION, loss="F.mse_loss(model(x), torch.randn(4, 2))", after=read)


def checked(condition, gradients="torch.enable_grad()"):
    return training(model=MODEL, loss="torch.log(F.mse_loss(model(x), torch.randn(4, 2)) + (-1e3 if step == 3 else 1.0))",
                    backward=f"with {gradients}:\n    bad = {condition}\nif bad:\n    continue\nloss.backward()\nopt.step()")


class Metrics(WatchedProgramTest):
    def assert_metric(self, text, **origin):
        incident = self.assert_anomaly(text, **origin)
        self.assertEqual(incident["severity"], "warning")
        self.assertIn("metric", incident["reach"])

    def test_validation_loss_of_the_training_criterion_however_it_is_read(self):
        for name, read in WAYS.items():
            with self.subTest(name):
                self.assert_metric(validated(f"v = validate()\n{read}"), op="aten::mse_loss", step=1)

    def test_validation_losses_that_an_accumulator_sums_up_and_divides_later(self):
        for read in ("mean.item()", "print(mean)", "mean.tolist()"):
            with self.subTest(read):
                self.assert_metric(validated(f"""
                    total, count = torch.tensor(0.0), torch.tensor(0)
                    for batch in range(3):
                        with torch.no_grad():
                            total += validate(batch == 1) * 4
                            count += 4
                    mean = total / count
                    {read}"""), op="aten::mse_loss", step=1)

    def test_validation_under_inference_mode(self):
        self.assert_metric(training(model=MODEL, loss="F.mse_loss(model(x), torch.randn(4, 2))", after="""
            losses = []
            with torch.inference_mode():
                for rows in (4, 0, 4):
                    losses.append(F.mse_loss(model(torch.randn(rows, 6)), torch.randn(rows, 2)))
            torch.stack(losses).mean().item()"""), op="aten::mse_loss", step=1)

    def test_training_loss_that_the_program_checks_and_leaves_out(self):
        for name, condition in SKIPS.items():
            for gradients in ("torch.enable_grad()", "torch.no_grad()"):
                with self.subTest(name, gradients=gradients):
                    self.assert_no_alarm(checked(condition, gradients))

    def test_sound_validation(self):
        self.assert_no_alarm(validated("v = validate(False)\nprint(v)\nv.tolist(), v.numpy(), bool(v < 1.0)"), "clean")

    def test_missing_values_that_are_marked_with_nan_and_handed_on(self):
        self.assert_no_alarm(validated("""
            with torch.no_grad():
                marked = model(x).masked_fill(torch.rand(4, 2) < 0.5, float("nan"))
            np.nanmean(marked.numpy()), marked.tolist()"""))

    def test_nan_among_numbers_stands_for_a_class_that_is_absent(self):
        self.assert_no_alarm(validated("""
            with torch.no_grad():
                found = model(x).argmax(1)
                shares = torch.stack([((found == c) & (c < 2)).sum() / ((found == c) & (c < 2)).sum() for c in range(3)])
            np.nanmean(shares.numpy()), shares.tolist()"""))

    def test_check_for_nan_that_the_program_makes_of_a_validation_loss_is_no_reading(self):
        self.assert_no_alarm(validated("v = validate()\nif torch.isnan(v):\n    v = torch.zeros(())"))


if __name__ == "__main__":
    main()
