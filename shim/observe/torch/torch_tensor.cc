// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/torch_tensor.h"

#include <ATen/SparseTensorImpl.h>

#include <algorithm>
#include <array>

#include "shim/observe/torch/alignment.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/torch_versions.h"

namespace nanwatch {
namespace {

constexpr std::array<wire::ElementType, static_cast<size_t>(c10::ScalarType::NumOptions)>
MakeElementTypes() {
  std::array<wire::ElementType, static_cast<size_t>(c10::ScalarType::NumOptions)> types{};
  auto set = [&types](c10::ScalarType from, wire::ElementType to) {
    types[static_cast<size_t>(from)] = to;
  };
  set(c10::ScalarType::Double, wire::ElementType::kFloat64);
  set(c10::ScalarType::Float, wire::ElementType::kFloat32);
  set(c10::ScalarType::Half, wire::ElementType::kFloat16);
  set(c10::ScalarType::BFloat16, wire::ElementType::kBFloat16);
  set(c10::ScalarType::ComplexDouble, wire::ElementType::kComplex128);
  set(c10::ScalarType::ComplexFloat, wire::ElementType::kComplex64);
  set(c10::ScalarType::ComplexHalf, wire::ElementType::kComplex32);
  set(c10::ScalarType::Float8_e5m2, wire::ElementType::kFloat8E5M2);
  set(c10::ScalarType::Float8_e4m3fn, wire::ElementType::kFloat8E4M3Fn);
  set(c10::ScalarType::Float8_e5m2fnuz, wire::ElementType::kFloat8E5M2Fnuz);
  set(c10::ScalarType::Float8_e4m3fnuz, wire::ElementType::kFloat8E4M3Fnuz);
#if NANWATCH_TORCH_HAS_E8M0
  set(c10::ScalarType::Float8_e8m0fnu, wire::ElementType::kFloat8E8M0Fnu);
#endif
  return types;
}
constexpr auto kElementTypes = MakeElementTypes();

// Functionality keys only: a backend key such as SparseCsrCPU carries the CPU backend's bit, and a
// set made of it would match every CPU tensor.
constexpr c10::DispatchKeySet kWrapperKeys(
    {c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
     c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::BatchedNestedTensor});
constexpr c10::DispatchKeySet kLayoutKeys({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                           c10::DispatchKey::NestedTensor,
                                           c10::DispatchKey::Quantized});
constexpr c10::DispatchKeySet kStrange = kWrapperKeys | kLayoutKeys;

wire::Unchecked ReasonOf(c10::DispatchKeySet keys) {
  if (keys.has(c10::DispatchKey::Python)) return wire::Unchecked::kFake;
  if (keys.has_any(kWrapperKeys)) return wire::Unchecked::kFunctorch;
  if (keys.has(c10::DispatchKey::NestedTensor)) return wire::Unchecked::kNested;
  if (keys.has(c10::DispatchKey::Quantized)) return wire::Unchecked::kQuantized;
  return wire::Unchecked::kSparse;
}

// Of a tensor whose storage does not hold its values, or not as they are.
//
// A sparse tensor in coordinates is a dense tensor of values beside their places. A gradient of
// such a kind (of an embedding) that nobody reads makes the optimizer look like the one who made
// the NaN that it applies. Compressed formats hold no gradients, and are not read.
Readable DescribeStrange(const c10::TensorImpl& impl, wire::ElementType type, PlainTensor* plain,
                         wire::Unchecked* reason) {
  const c10::DispatchKeySet keys = impl.key_set();
  if (type == wire::ElementType::kNone && !keys.has(c10::DispatchKey::Quantized)) {
    return Readable::kNothing;
  }
  if (keys.has(c10::DispatchKey::Sparse) && !keys.has_any(kWrapperKeys)) {
    // The sparse tensor keeps its values: what `plain` borrows outlives this reference.
    return DescribeTensor(static_cast<const at::SparseTensorImpl&>(impl).values(), plain, reason);
  }
  *reason = ReasonOf(keys);
  return Readable::kNo;
}

// Bytes from the first to past the last element that the strides reach, relative to the tensor's
// first element. Strides are never negative in LibTorch.
uint64_t ExtentElements(const c10::TensorImpl& impl) {
  uint64_t last = 0;
  const c10::IntArrayRef sizes = impl.sizes();
  const c10::IntArrayRef strides = impl.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    last += static_cast<uint64_t>(sizes[i] - 1) * static_cast<uint64_t>(strides[i]);
  }
  return last + 1;
}

}  // namespace

wire::ElementType ElementTypeOf(c10::ScalarType type) noexcept {
  const auto index = static_cast<size_t>(type);
  return index < kElementTypes.size() ? kElementTypes[index] : wire::ElementType::kNone;
}

bool IsWrapper(const c10::TensorImpl& impl) noexcept {
  return impl.key_set().has_any(kWrapperKeys);
}

__attribute__((hot)) bool ReadDense(const at::TensorBase& tensor, DensePlain* plain) noexcept {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // The storage itself and not has_storage(), which is virtual; the undefined tensor has none.
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(impl->key_set().has_any(kStrange) || storage == nullptr ||
                   storage->device_type() != c10::DeviceType::CPU)) {
    return false;
  }
  const wire::ElementType type = ElementTypeOf(c10::typeMetaToScalarType(impl->dtype()));
  // A tensor of symbolic size (torch.compile traces with them) throws when it is asked for its
  // size.
  if (C10_UNLIKELY(impl->has_symbolic_sizes_strides())) return false;
  const int64_t numel = impl->numel();
  if (C10_UNLIKELY(type == wire::ElementType::kNone || numel <= 0 || !impl->is_contiguous())) {
    return false;
  }
  const auto* data = static_cast<const char*>(DataOf(*storage));
  const size_t element_bytes = ElementBytes(type);
  const uint64_t begin = static_cast<uint64_t>(impl->storage_offset()) * element_bytes;
  const uint64_t bytes = static_cast<uint64_t>(numel) * element_bytes;
  if (C10_UNLIKELY(data == nullptr || begin + bytes > storage->nbytes())) return false;
  *plain = {data + begin, static_cast<size_t>(numel), bytes, type};
  return true;
}

bool ReadDenseOnGpu(const at::TensorBase& tensor, PlainTensor* plain) noexcept {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (impl->key_set().has_any(kStrange) || storage == nullptr ||
      storage->device_type() != c10::DeviceType::CUDA || impl->has_symbolic_sizes_strides()) {
    return false;
  }
  const wire::ElementType type = ElementTypeOf(c10::typeMetaToScalarType(impl->dtype()));
  const int64_t numel = impl->numel();
  if (type == wire::ElementType::kNone || numel <= 0 || !impl->is_non_overlapping_and_dense()) {
    return false;
  }
  const void* data = DataOf(*storage);
  const size_t element_bytes = ElementBytes(type);
  plain->byte_begin = static_cast<uint64_t>(impl->storage_offset()) * element_bytes;
  plain->byte_end = plain->byte_begin + static_cast<uint64_t>(numel) * element_bytes;
  if (data == nullptr || IsMisaligned(data, type) || plain->byte_end > storage->nbytes()) {
    return false;
  }
  const c10::IntArrayRef sizes = impl->sizes();
  plain->impl = impl;
  plain->storage = storage;
  plain->gpu = std::max<int8_t>(storage->device().index(), 0);
  plain->view = TensorView{static_cast<const char*>(data) + plain->byte_begin,
                           type,
                           static_cast<int32_t>(sizes.size()),
                           sizes.data(),
                           impl->strides().data(),
                           numel};
  return true;
}

Readable ReadTensor(const at::TensorBase& tensor, PlainTensor* plain,
                    wire::Unchecked* reason) noexcept {
  const Readable described = DescribeTensor(tensor, plain, reason);
  if (C10_LIKELY(described != Readable::kYes || plain->gpu < 0)) return described;
  *reason = wire::Unchecked::kOtherDevice;
  return Readable::kNo;
}

Readable DescribeTensor(const at::TensorBase& tensor, PlainTensor* plain,
                        wire::Unchecked* reason) noexcept {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // The undefined tensor is a singleton without a data type.
  if (!tensor.defined()) return Readable::kNothing;
  const wire::ElementType type = ElementTypeOf(c10::typeMetaToScalarType(impl->dtype()));
  if (C10_UNLIKELY(impl->key_set().has_any(kStrange))) {
    return DescribeStrange(*impl, type, plain, reason);
  }
  if (type == wire::ElementType::kNone) return Readable::kNothing;
  if (C10_UNLIKELY(!impl->has_storage())) {
    *reason = wire::Unchecked::kOpaque;
    return Readable::kNo;
  }
  if (C10_UNLIKELY(impl->has_symbolic_sizes_strides())) {
    *reason = wire::Unchecked::kMeta;
    return Readable::kNo;
  }
  const int64_t numel = impl->numel();
  if (numel <= 0) return Readable::kNothing;
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const void* data = DataOf(*storage);
  const c10::Device device = storage->device();
  if (C10_UNLIKELY(data == nullptr || !(device.is_cpu() || device.is_cuda()))) {
    *reason = data == nullptr ? wire::Unchecked::kMeta : wire::Unchecked::kOtherDevice;
    return Readable::kNo;
  }
  plain->gpu = -1;
  if (C10_UNLIKELY(!device.is_cpu())) {
    // Offsets within a storage are whole elements.
    if (IsMisaligned(data, type)) {
      *reason = wire::Unchecked::kOpaque;
      return Readable::kNo;
    }
    plain->gpu = std::max<int8_t>(device.index(), 0);
  }
  const size_t element_bytes = ElementBytes(type);
  const auto offset = static_cast<uint64_t>(impl->storage_offset());
  const uint64_t extent =
      C10_LIKELY(impl->is_contiguous()) ? static_cast<uint64_t>(numel) : ExtentElements(*impl);
  plain->byte_begin = offset * element_bytes;
  plain->byte_end = (offset + extent) * element_bytes;
  // A storage that was resized under a tensor (FSDP does it) no longer covers it.
  if (C10_UNLIKELY(plain->byte_end > storage->nbytes())) {
    *reason = wire::Unchecked::kMeta;
    return Readable::kNo;
  }
  plain->impl = impl;
  plain->storage = storage;
  plain->view = TensorView{static_cast<const char*>(data) + plain->byte_begin,
                           type,
                           static_cast<int32_t>(impl->dim()),
                           impl->sizes().data(),
                           impl->strides().data(),
                           numel};
  return Readable::kYes;
}

bool IsAllZero(const at::TensorBase& tensor, int64_t numel_max) noexcept {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || impl->key_set().has_any(kStrange) || !impl->has_storage() ||
      impl->has_symbolic_sizes_strides() || impl->numel() <= 0 || impl->numel() > numel_max ||
      !impl->is_non_overlapping_and_dense()) {
    return false;
  }
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto size = static_cast<uint64_t>(impl->dtype().itemsize());
  const uint64_t begin = static_cast<uint64_t>(impl->storage_offset()) * size;
  const uint64_t bytes = static_cast<uint64_t>(impl->numel()) * size;
  const auto* data = static_cast<const unsigned char*>(DataOf(*storage));
  if (data == nullptr || !storage->device().is_cpu() || begin + bytes > storage->nbytes()) {
    return false;
  }
  const bool has_sign = size > 1 && tensor.is_floating_point();
  for (uint64_t i = 0; i < bytes; ++i) {
    const bool sign = has_sign && (i + 1) % size == 0;
    if (data[begin + i] != 0 && !(sign && data[begin + i] == 0x80)) return false;
  }
  return true;
}

}  // namespace nanwatch
