# SPDX-License-Identifier: Apache-2.0
"""Meets every unusual kind of tensor in ops that make a NaN or Inf where the kind can hold one, and prints what came of it."""
import torch
from torch import nn


def sparse():
    dense = torch.eye(3) - 1
    values = [torch.sqrt(kind(dense)) for kind in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr)]
    return values[0].coalesce().values(), values[1].values()


def quantised():
    value = torch.quantize_per_tensor(torch.arange(4.0), 0.1, 0, torch.quint8)
    return (value.int_repr(), torch.relu(value).dequantize())


def nested():
    strided = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], layout=torch.jagged)
    return tuple((strided * 2).unbind()) + ((jagged * 2).values(),)


def meta():
    return tuple(torch.log(torch.empty(3, 4, device="meta")).shape)


def fake():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return tuple(torch.log(torch.zeros(3, 4) @ torch.ones(4, 5)).shape)


def functorch():
    inputs = torch.tensor([[1.0, 4.0], [9.0, 16.0]])
    return (torch.func.vmap(torch.sqrt)(inputs), torch.func.grad(lambda value: value.sqrt().sum())(inputs),
            torch.func.jacrev(torch.sin)(inputs[0]), torch.func.jvp(torch.cos, (inputs,), (inputs,))[1])


def complex_numbers():
    return (torch.fft.fft(torch.arange(8.0)), torch.complex(torch.ones(3), torch.zeros(3)).exp(),
            torch.ones(2, dtype=torch.complex128).conj() * 2j)


def small_floats():
    kinds = [getattr(torch, name) for name in sorted(dir(torch)) if name.startswith("float8")]
    kinds += [torch.float16, torch.bfloat16]
    return tuple(torch.tensor([0.5, 1.0, 2.0]).to(kind).float() for kind in kinds)


def zero_size():
    return (torch.empty(0, 3).log(), torch.empty(0).sum(), torch.zeros(2, 0) @ torch.zeros(0, 2))


def expanded():
    return (torch.ones(3, 1).expand(3, 4) * 2, torch.ones(1).expand(5).cumsum(0))


def channels_last():
    torch.manual_seed(1)
    images = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    return (nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)(images).detach(), images.transpose(1, 3)[:, ::2].relu())


def mkldnn():
    return (torch.relu(torch.arange(-2.0, 2.0).to_mkldnn()).to_dense(),)


class Wrapped(torch.Tensor):
    """A subclass that takes part in dispatch and has no memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        plain = [value.inner if isinstance(value, cls) else value for value in arguments]
        result = function(*plain, **(keywords or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


def wrapped():
    return ((Wrapped(torch.ones(3)) * 2).exp().inner,)


def odd_scalars():
    return (torch.arange(3), torch.tensor([True, False]).logical_not(), torch.tensor([]), torch.tensor(5))


def replayed_over():
    """What torch.compile(mode="reduce-overhead") does to the outputs of a replay that is over: they may be handled, not read."""
    bad = torch.tensor([-1.0, 4.0]).log()
    stale = torch.ones(2) * 2
    torch._C._set_storage_data_ptr_access_error_msg(stale.untyped_storage()._cdata, "overwritten by a later replay")
    try:
        read = str((stale + bad).shape)
    except RuntimeError as error:
        read = str(error).splitlines()[0]
    return tuple(stale.view(2, 1).shape) + tuple(stale.detach().shape) + (read,)


def train_once():
    torch.manual_seed(2)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
    return (model.weight.detach(),)


for case in (sparse, quantised, nested, meta, fake, functorch, complex_numbers, small_floats, zero_size, expanded, channels_last,
             mkldnn, wrapped, odd_scalars, replayed_over, train_once):
    for value in case():
        print(case.__name__, value.tolist() if isinstance(value, torch.Tensor) else value)
