// SPDX-License-Identifier: Apache-2.0
// One boxed kernel stands at the key CUDA for every operator that has a real one there, or a CPU
// kernel in namespace aten:
//
//   arguments  tensor on cuda -> tensor on the CPU over the same bytes (also in lists), Device cuda
//              -> CPU, Generator, Storage likewise
//   call       the CPU's kernel, below autograd, unseen by RecordFunction: what it calls itself is
//              no business of a program on a GPU
//   arguments  sizes, strides, storages and resized memory are written back
//   results    an argument that is handed out again is the very tensor that came in; a view shares
//              the very StorageImpl of its base; fresh memory gets a storage on cuda
//
// While the calling thread's stream captures, the call is a node of the graph too (graphs.h).
//
// Composite operators without a real kernel for CUDA are left alone and decompose as they do on a
// GPU. The fake is more lenient than a GPU: tensors on the CPU may be mixed in.
#include "tests/fakes/torch_cuda/redirect.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/torch_cuda/fake_device.h"
#include "tests/fakes/torch_cuda/graphs.h"
#include "tests/fakes/torch_cuda/host_copies.h"
#include "tests/fakes/torch_cuda/memory.h"

namespace nanwatch::fake {
namespace {

using c10::IValue;

bool OnFake(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

struct KeptBytes {
  c10::Storage below;
  size_t taken;  // of the device's memory
};

void KeepStorage(void* context) {
  auto* kept = static_cast<KeptBytes*>(context);
  if (kept->taken != 0) GiveMemory(kept->taken);
  delete kept;
}

// The bytes of `storage` as a storage on another device; keeps it alive.
c10::Storage SameBytes(const c10::Storage& storage, c10::Device device, c10::Allocator* allocator) {
  void* data = storage.unsafeGetStorageImpl()->data_ptr().get();
  const size_t taken = device.is_cuda() ? storage.nbytes() : 0;
  if (taken != 0) TakeMemory(taken);
  c10::DataPtr pointer(data, new KeptBytes{storage, taken}, &KeepStorage, device);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            storage.nbytes(), std::move(pointer),
                                                            allocator, /*resizable=*/true));
}

// A tensor over `storage` with the shape of `like`, of one backend.
at::Tensor SameShape(const at::Tensor& like, c10::Storage storage, c10::DispatchKey backend) {
  c10::DispatchKeySet keys(backend);
  if (like._is_zerotensor()) keys = keys.add(c10::DispatchKey::ZeroTensor);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return at::Tensor(std::move(impl));
}

// `value` with `change(tensor)` in place of each tensor that it is or lists.
template <typename Change>
IValue WithTensors(const IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// One call's way to the CPU and back.
class Crossing {
 public:
  IValue In(const IValue& value) {
    if (value.isDevice() && value.toDevice().is_cuda()) {
      SeeDevice(value.toDevice());
      return c10::Device(c10::kCPU);
    }
    if (value.isStorage()) return InStorage(value.toStorage());
    if (value.isGenerator()) return GeneratorOfCpu(value.toGenerator());
    return WithTensors(value, [this](const at::Tensor& tensor) { return InTensor(tensor); });
  }

  // After the call, before Out().
  void WriteBack() {
    for (const auto& [original, alias, data, nbytes] : storages_) {
      c10::StorageImpl* changed = alias.unsafeGetStorageImpl();
      if (changed->data_ptr().get() == data && changed->nbytes() == nbytes) continue;
      c10::StorageImpl* to = original.unsafeGetStorageImpl();
      if (changed->data_ptr().get() != data) {
        // The alias keeps the new memory; its old pointer, which held the original, is gone.
        void* moved = changed->data_ptr().get();
        (void)to->set_data_ptr(
            c10::DataPtr(moved, new c10::Storage(alias), &KeepStorage, to->device()));
      }
      to->set_nbytes(changed->nbytes());
    }
    for (const auto& [original, alias] : tensors_) {
      c10::TensorImpl* to = original.unsafeGetTensorImpl();
      if (to->sizes() != alias.sizes() || to->strides() != alias.strides() ||
          to->storage_offset() != alias.storage_offset()) {
        to->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
      }
      c10::Storage storage = OutStorage(alias.storage());
      if (storage.unsafeGetStorageImpl() != to->unsafe_storage().unsafeGetStorageImpl()) {
        to->set_storage_keep_dtype(std::move(storage));
      }
    }
  }

  IValue Out(const IValue& value) {
    return WithTensors(value, [this](const at::Tensor& tensor) { return OutTensor(tensor); });
  }

  // Something on the CPU is read or written: the program would wait for the device.
  [[nodiscard]] const std::vector<at::Tensor>& of_cpu() const { return of_cpu_; }

  // For a graph, once the call has been written back: an argument of the CPU's kernel that keeps
  // memory of the device, but not the storage that the program knows it by.
  IValue Kept(const IValue& value) const {
    return WithTensors(value, [this](const at::Tensor& tensor) { return KeptTensor(tensor); });
  }

 private:
  // Memory that an operator made belongs to the CPU's storage below the device's.
  static c10::Storage MemoryOf(const c10::Storage& storage) {
    const c10::DataPtr& pointer = storage.unsafeGetStorageImpl()->data_ptr();
    const bool is_above = pointer.get_deleter() == &KeepStorage;
    const c10::Storage& below =
        is_above ? static_cast<const KeptBytes*>(pointer.get_context())->below : storage;
    return SameBytes(below, c10::kCPU, c10::GetAllocator(c10::kCPU));
  }

  at::Tensor KeptTensor(const at::Tensor& argument) const {
    for (const auto& [original, alias] : tensors_) {
      if (alias.is_same(argument)) {
        return SameShape(argument, MemoryOf(original.storage()), c10::DispatchKey::CPU);
      }
    }
    return argument;
  }

  struct Bytes {
    c10::Storage original;
    c10::Storage alias;
    const void* data;
    size_t nbytes;
  };

  void SeeDevice(c10::Device device) {
    if (!device_) device_ = device.has_index() ? device : c10::Device(c10::kCUDA, CurrentDevice());
  }

  at::Tensor InTensor(const at::Tensor& tensor) {
    if (!OnFake(tensor)) {
      if (tensor.defined()) of_cpu_.push_back(tensor);
      return tensor;
    }
    SeeDevice(tensor.device());
    for (const auto& [original, alias] : tensors_) {
      if (original.is_same(tensor)) return alias;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided,
                                "the fake CUDA device has dense tensors only");
    tensors_.emplace_back(tensor,
                          SameShape(tensor, InStorage(tensor.storage()), c10::DispatchKey::CPU));
    return tensors_.back().second;
  }

  c10::Storage InStorage(const c10::Storage& storage) {
    if (storage.device().type() != c10::kCUDA) return storage;
    for (const Bytes& known : storages_) {
      if (known.original.is_alias_of(storage)) return known.alias;
    }
    storages_.push_back({storage, SameBytes(storage, c10::kCPU, c10::GetAllocator(c10::kCPU)),
                         storage.unsafeGetStorageImpl()->data_ptr().get(), storage.nbytes()});
    return storages_.back().alias;
  }

  c10::Storage OutStorage(const c10::Storage& storage) {
    const c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    for (const Bytes& known : storages_) {
      if (known.alias.unsafeGetStorageImpl() == impl) return known.original;
    }
    for (const auto& [made, on_fake] : fresh_) {
      if (made.unsafeGetStorageImpl() == impl) return on_fake;
    }
    const c10::Device device = device_.value_or(c10::Device(c10::kCUDA, CurrentDevice()));
    fresh_.emplace_back(storage, SameBytes(storage, device, FakeAllocator()));
    return fresh_.back().second;
  }

  at::Tensor OutTensor(const at::Tensor& result) {
    if (!result.defined()) return result;
    for (const auto& [original, alias] : tensors_) {
      if (alias.is_same(result)) return original;
    }
    for (const at::Tensor& own : of_cpu_) {
      if (own.is_same(result)) return result;
      if (own.has_storage() && result.has_storage() && own.is_alias_of(result)) return result;
    }
    // Sparse and quantized results stay on the CPU.
    if (!result.is_cpu() || result.layout() != c10::kStrided || result.is_quantized())
      return result;
    return SameShape(result, OutStorage(result.storage()), c10::DispatchKey::CUDA);
  }

  std::optional<c10::Device> device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // the original, its alias
  std::vector<Bytes> storages_;
  std::vector<std::pair<c10::Storage, c10::Storage>> fresh_;  // the CPU's, ours
  std::vector<at::Tensor> of_cpu_;
};

enum class Waits { kNever, kAlways, kForCpuTensor };

// aten::copy_(Tensor self, Tensor src, bool non_blocking) between the device and pinned memory.
bool IsNotWaitedFor(const torch::jit::Stack& stack, size_t first) {
  const at::Tensor& to = stack[first].toTensor();
  const at::Tensor& from = stack[first + 1].toTensor();
  return stack[first + 2].toBool() && OnFake(to) != OnFake(from) &&
         IsPinnedRun(OnFake(to) ? from : to);
}

// Where a fake CUPTI asks for it: one kernel for each op that computes, "void
// at::native::sqrt_kernel<float>(float*)".
void LaunchKernelOf(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const auto is_view = [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  };
  const std::vector<c10::Argument>& results = op.schema().returns();
  if (fake_cuda_is_traced() == 0 || !name.starts_with("aten::") ||
      name.starts_with("aten::empty") || std::any_of(results.begin(), results.end(), is_view)) {
    return;
  }
  const std::string kernel = name.substr(6) + "_kernel";
  const std::string mangled = "_ZN2at6native" + std::to_string(kernel.size()) + kernel + "IfEEvPT_";
  fake_cuda_launch_named(CurrentStreamHandle(), mangled.c_str());
}

template <Waits kWaits>
void Redirect(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  fake_cuda_initialize();  // by the first operator, as torch does
  TORCH_CHECK(!IsGone(CurrentDevice()), "CUDA error: context is destroyed");
  Crossing crossing;
  const size_t first = stack->size() - op.schema().arguments().size();
  constexpr bool kCopies = kWaits == Waits::kForCpuTensor;
  const bool to_cpu = kCopies && !OnFake((*stack)[first].toTensor());
  const bool not_waited_for = kCopies && !IsCapturing() && IsNotWaitedFor(*stack, first);
  for (size_t i = first; i < stack->size(); ++i) (*stack)[i] = crossing.In((*stack)[i]);
  if (IsCapturing()) {
    TORCH_CHECK(kWaits != Waits::kAlways, "the fake CUDA device: ", op.operator_name(),
                " waits for the device, which a capture forbids");
    std::vector<IValue> arguments(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
    CallInCapture call(op, arguments);
    CallOnCpu(op, stack);
    crossing.WriteBack();
    for (IValue& argument : arguments) argument = crossing.Kept(argument);
    std::move(call).Record(std::move(arguments),
                           {stack->begin() + static_cast<ptrdiff_t>(first), stack->end()});
  } else if (to_cpu) {
    const at::Tensor to = (*stack)[first].toTensor();
    BeginCopyTo(to);
    CallOnCpu(op, stack);
    if (not_waited_for) ArriveLater(to);
  } else {
    const ReadByDevice arrived(crossing.of_cpu());
    CallOnCpu(op, stack);
    crossing.WriteBack();
    LaunchKernelOf(op);
  }
  for (size_t i = first; i < stack->size(); ++i) (*stack)[i] = crossing.Out((*stack)[i]);
  if (kWaits == Waits::kAlways || (kCopies && !not_waited_for && !crossing.of_cpu().empty())) {
    WaitForCurrentStream();
  }
}

void Refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the fake CUDA device has no ", op.operator_name());
}

// Those whose result the host must know before it goes on.
const std::set<std::string>& WaitingOperators() {
  static const auto* names = new std::set<std::string>{"aten::_local_scalar_dense",
                                                       "aten::equal",
                                                       "aten::nonzero",
                                                       "aten::masked_select",
                                                       "aten::_unique2",
                                                       "aten::unique_dim",
                                                       "aten::unique_consecutive",
                                                       "aten::is_set_to",
                                                       "aten::_assert_async",
                                                       "aten::bincount",
                                                       "aten::repeat_interleave"};
  return *names;
}

c10::KernelFunction KernelFor(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  const std::string& name = op.operator_name().name;
  const bool has_real = op.hasKernelForDispatchKey(Key::CUDA);
  const bool has_cpu = op.hasKernelForDispatchKey(Key::CPU);
  const bool has_any = has_cpu || op.hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
                       op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd) ||
                       op.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional);
  // Composite, and yet its kernel touches memory itself.
  if (name == "aten::copy_") {
    return c10::KernelFunction::makeFromBoxedFunction<&Redirect<Waits::kForCpuTensor>>();
  }
  if (!has_real && !(has_cpu && name.starts_with("aten::"))) return {};
  if (!has_any) return c10::KernelFunction::makeFromBoxedFunction<&Refuse>();
  if (WaitingOperators().contains(name)) {
    return c10::KernelFunction::makeFromBoxedFunction<&Redirect<Waits::kAlways>>();
  }
  return c10::KernelFunction::makeFromBoxedFunction<&Redirect<Waits::kNever>>();
}

}  // namespace

void RedirectOperators() {
  NoWarnings handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  auto& dispatcher = c10::Dispatcher::singleton();
  auto* handles = new std::vector<c10::RegistrationHandleRAII>;  // dropping one takes it back
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) continue;
    c10::KernelFunction kernel = KernelFor(*op);
    if (!kernel.isValid()) continue;
    handles->push_back(dispatcher.registerImpl(name, c10::DispatchKey::CUDA, std::move(kernel),
                                               std::nullopt, nullptr, "fake CUDA device"));
  }
}

}  // namespace nanwatch::fake
