# SPDX-License-Identifier: Apache-2.0
"""Tensors for the check kernels: every element type, as bits, in every layout, with known bad elements in known places."""
import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Type:
    """Element type `code` is wire::ElementType of proto/wire/record.h; `part` is the integer that holds one part's bits."""
    name: str
    code: int
    dtype: torch.dtype
    part: torch.dtype
    nan: tuple
    inf: tuple = ()  # +Inf, -Inf
    parts: int = 1

    @property
    def bytes(self):
        return self.part.itemsize * self.parts

    @property
    def real(self):
        """What one part is."""
        return {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}.get(self.dtype, self.dtype)


_F64 = {"part": torch.int64, "nan": (0x7FF8 << 48, 0x7FF << 52 | 1), "inf": (0x7FF << 52, -(1 << 52))}
_F32 = {"part": torch.int32, "nan": (0x7FC00000, 0x7F800001, -1), "inf": (0x7F800000, -0x800000)}
_F16 = {"part": torch.int16, "nan": (0x7E00, 0x7C01, -1), "inf": (0x7C00, -0x400)}
TYPES = [
    Type("float64", 1, torch.float64, **_F64),
    Type("float32", 2, torch.float32, **_F32),
    Type("float16", 3, torch.float16, **_F16),
    Type("bfloat16", 4, torch.bfloat16, torch.int16, (0x7FC0, 0x7F81, -1), (0x7F80, -0x80)),
    Type("complex128", 5, torch.complex128, **_F64, parts=2),
    Type("complex64", 6, torch.complex64, **_F32, parts=2),
    Type("complex32", 7, torch.complex32, **_F16, parts=2),
    Type("float8_e5m2", 8, torch.float8_e5m2, torch.uint8, (0x7D, 0xFF), (0x7C, 0xFC)),
    Type("float8_e4m3fn", 9, torch.float8_e4m3fn, torch.uint8, (0x7F, 0xFF)),
    Type("float8_e5m2fnuz", 10, torch.float8_e5m2fnuz, torch.uint8, (0x80,)),
    Type("float8_e4m3fnuz", 11, torch.float8_e4m3fnuz, torch.uint8, (0x80,)),
    Type("float8_e8m0fnu", 12, torch.float8_e8m0fnu, torch.uint8, (0xFF,)),
]


@dataclasses.dataclass
class Layout:
    """Where a tensor's elements lie in a buffer; `dense` ones are told to the kernel as so many side by side."""
    name: str
    sizes: tuple
    strides: tuple
    offset: int = 0
    dense: bool = False

    @property
    def numel(self):
        count = 1
        for size in self.sizes:
            count *= size
        return count

    @property
    def is_one_run(self):
        """As the observer tells the kernel of those that are, in any order."""
        expected = 1
        for stride, size in sorted((stride, size) for size, stride in zip(self.sizes, self.strides) if size != 1):
            if stride != expected:
                return False
            expected *= size
        return True

    @property
    def extent(self):
        return self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides))

    def place_of(self, row):
        """Where in the buffer the element with this row-major index lies."""
        place = self.offset
        for size, stride in zip(reversed(self.sizes), reversed(self.strides)):
            row, index = divmod(row, size)
            place += index * stride
        return place


def layouts(n):
    """About `n` elements, side by side and otherwise."""
    side = max(1, int(n ** 0.5))
    tiles = max(1, n // 24)
    return [
        Layout("contiguous", (n,), (1,), dense=True),
        Layout("misaligned", (n,), (1,), offset=1, dense=True),
        Layout("every second", (n,), (2,), offset=1),
        Layout("transposed", (side, side), (1, side)),
        Layout("rows of a larger one", (side, side), (side + 3, 1), offset=2),
        Layout("expanded", (3, n), (0, 1)),
        Layout("channels last", (2, 3, 4, tiles), (12 * tiles, 1, 3 * tiles, 3)),
    ]


def finite_bits(kind, count, device, generator):
    """Bits of `count` finite elements, as a flat tensor of parts."""
    if kind.part is torch.uint8:
        # Up to 0x6f no 8-bit type has anything but numbers.
        return torch.randint(0, 0x70, (count * kind.parts,), dtype=torch.uint8, device=device, generator=generator)
    values = torch.randn(count * kind.parts, dtype=torch.float32, device=device, generator=generator)
    return values.to(kind.real).view(kind.part)


class Tensor:
    """A tensor over its own bits. Whatever lies between and around its elements is NaN, so that reading there is a false alarm."""

    AROUND = 16  # elements before and after, so that offset 0 is a multiple of 16 bytes

    def __init__(self, kind, layout, device, generator):
        self.kind, self.layout = kind, layout
        self.bits = torch.full(((layout.extent + 2 * self.AROUND) * kind.parts,), kind.nan[0], dtype=kind.part, device=device)
        own = self.own_parts()
        for dim, stride in enumerate(layout.strides):
            if stride == 0:
                own = own.narrow(dim, 0, 1)
        own.copy_(finite_bits(kind, own.numel() // kind.parts, device, generator).view(own.shape))

    @classmethod
    def repeated(cls, kind, count, device, generator):
        """A contiguous one whose elements come again and again: random bits would take several times its memory to make."""
        tensor = cls.__new__(cls)
        tensor.kind, tensor.layout = kind, Layout("contiguous", (count,), (1,), dense=True)
        padded, period = count + 2 * cls.AROUND, min(count, 1 << 20)
        tensor.bits = finite_bits(kind, period, device, generator).repeat(-(-padded // period))[:padded * kind.parts]
        return tensor

    def own_parts(self):
        """The tensor's own parts as integers, with one more dimension for the parts of an element."""
        parts = self.kind.parts
        return self.bits.as_strided((*self.layout.sizes, parts), (*(s * parts for s in self.layout.strides), 1),
                                    (self.AROUND + self.layout.offset) * parts)

    def plant(self, row, word, part=0):
        self.bits[(self.AROUND + self.layout.place_of(row)) * self.kind.parts + part] = word

    @property
    def data_ptr(self):
        return self.bits.data_ptr() + (self.AROUND + self.layout.offset) * self.kind.bytes

    def expected(self):
        """What torch says: counts, smallest bad row-major index, kinds, and the bounds of the finite parts."""
        values = self.own_parts().contiguous().view(self.kind.real)
        # 8-bit types convert to float32 wherever they convert at all.
        values = (values.to(torch.float32) if self.kind.real.itemsize == 1 else values).to(torch.float64).reshape(-1, self.kind.parts)
        nan, up, down = torch.isnan(values).any(1), torch.isposinf(values).any(1), torch.isneginf(values).any(1)
        bad = nan | up | down
        finite = values[~bad]
        counts = [int(nan.sum()), int(up.sum()), int(down.sum())]
        return {"nan": counts[0], "pos_inf": counts[1], "neg_inf": counts[2],
                "first_bad": int(bad.nonzero()[0]) if any(counts) else 2**64 - 1,
                "kinds": sum(bit for bit, count in zip((1, 2, 4), counts) if count),
                "finite_min": float(finite.min()) if finite.numel() else float("inf"),
                "finite_max": float(finite.max()) if finite.numel() else float("-inf")}
