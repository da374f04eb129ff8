"""Forward and backward captured by torch.cuda.graph and replayed, the update eager; one replay meets a negative number."""
import torch
from logarithm import batch, network

model, optimizer = network()
inputs = batch(0)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
torch.cuda.current_stream().wait_stream(side)

optimizer.zero_grad(set_to_none=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(inputs).square().mean().backward()
for step in range(10):
    inputs.copy_(batch(step))
    graph.replay()
    optimizer.step()
torch.cuda.synchronize()
