# SPDX-License-Identifier: Apache-2.0
"""Question: how many kernels a training step on a GPU launches for us, at each level?

  tests/bench/overhead/gpu_launches.py [--levels idle,canary,sampled,full] [--models mlp,transformer] [--stats N]

On the fake CUDA device (tests/fakes/torch_cuda), whose driver counts the launches: a number, no time. Those are the checks;
the ops' own are not counted. Healthy runs of 120 steps, of which the last is printed: after 100, canary reads what updates have
written and watches no op of them.
--stats 1: the step is one of a snapshot of parameters and layers, as one in a hundred is.
--gate: exits 1 where a step has more launches than it may have, or none; of canary and sampled.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

# Of a step, however they are divided.
LAUNCHES_MAX = {("mlp", "canary"): 4, ("mlp", "sampled"): 13, ("transformer", "canary"): 4, ("transformer", "sampled"): 28}
ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("NANWATCH_BUILD") or ROOT / "build/release")
PROGRAM = """
import ctypes, sys, torch, torch.nn as nn
driver = ctypes.CDLL("libcuda.so.1")
driver.fake_cuda_calls.restype = ctypes.c_size_t
driver.fake_cuda_set_logging(1)
def launches():
    return driver.fake_cuda_calls(b"cuLaunchKernel")
class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 128)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 4)
        self.head = nn.Linear(128, 100)
    def forward(self, x):
        return self.head(self.blocks(self.embed(x))).flatten(0, 1)
torch.manual_seed(0)
if sys.argv[1] == "mlp":
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())], nn.Linear(256, 64))
    x, y = torch.randn(64, 256), torch.randint(0, 64, (64,))
else:
    model = Transformer()
    x, y = torch.randint(0, 100, (8, 32)), torch.randint(0, 100, (256,))
model = model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(120):
    begin = launches()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    forward = launches()
    loss.backward()
    backward = launches()
    optimizer.step()
print("launches", forward - begin, backward - forward, launches() - backward, launches() - begin)
"""


def measure(model, level, stats, folder):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NANWATCH_")} | {
        "NANWATCH_DIR": str(folder / "segments"), "NANWATCH_STATE_DIR": str(folder / "state"), "NANWATCH_LEVEL": level, "NANWATCH_STATS": stats,
        "NANWATCH_FAKE_TORCH_CUDA": str(BUILD / "tests/fakes/torch_cuda/libfake_torch_cuda.so"),
        "LD_PRELOAD": str(BUILD / "lib/libnanwatch.so")}
    for name in ("segments", "state"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    ran = subprocess.run([sys.executable, ROOT / "tests/fakes/torch_cuda/run.py", program, model], env=environment,
                         capture_output=True, text=True, check=True)
    return next(line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("launches "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="idle,canary,sampled,full")
    parser.add_argument("--models", default="mlp,transformer")
    parser.add_argument("--stats", default="")
    parser.add_argument("--gate", action="store_true")
    arguments = parser.parse_args()
    failures = []
    print("| model | level | forward | backward | update | all |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="nanwatch-bench-") as folder:
        for model in arguments.models.split(","):
            for level in arguments.levels.split(","):
                launches = measure(model, level, arguments.stats, pathlib.Path(folder))
                print("|", model, "|", level, "|", " | ".join(launches), "|", flush=True)
                if arguments.gate and (model, level) in LAUNCHES_MAX and not 0 < int(launches[-1]) <= LAUNCHES_MAX[model, level]:
                    failures.append(f"{model}, {level}: {launches[-1]} launches, of at most {LAUNCHES_MAX[model, level]}")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
