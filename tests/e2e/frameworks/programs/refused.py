# SPDX-License-Identifier: Apache-2.0
"""refused.py [--late]: for torchrun; trains nothing. Rank 1 makes a distribution of NaN, which refuses it. With `--late` it did so before, caught
the error, and dies of something else."""
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
outputs = torch.nn.Linear(4, 4)(torch.randn(8, 4))
if dist.get_rank() == 1:
    if "--late" in sys.argv:
        try:
            torch.distributions.Normal(torch.log(outputs.detach() - 100), 1.0)
        except ValueError:
            torch.distributions.Normal(torch.nan_to_num(torch.log(outputs.detach() - 100)), 1.0)
        raise RuntimeError("of something else")
    outputs = torch.log(outputs - 100)  # here
torch.distributions.Normal(outputs, 1.0).sample()
dist.barrier()
