"""A whole step captured by torch.cuda.graph, the update with it; one replay meets a negative number."""
import torch
from logarithm import batch, network

model, _ = network()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)
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
    optimizer.step()
for step in range(10):
    inputs.copy_(batch(step))
    graph.replay()
torch.cuda.synchronize()
