// A process group of gloo's carries tensors of the fake device, over the same bytes, and what can
// be seen of it is what ProcessGroupNCCL shows (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp,
// collective() and pointToPoint()): a range "nccl:all_reduce" with the tensors given in, inside the
// operator of c10d, on the calling thread. It ends when the collective is enqueued, and the values
// are there when it ends: later than on a GPU they cannot be.
#include "tests/fakes/torch_cuda/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/torch_cuda/redirect.h"

namespace nanwatch::fake {
namespace {

using c10::IValue;

struct Kind {
  std::string_view op;
  const char* range;
  size_t given;  // the argument that is given in
};

constexpr Kind kKinds[] = {
    {"c10d::allreduce_", "nccl:all_reduce", 0},
    {"c10d::broadcast_", "nccl:broadcast", 0},
    {"c10d::allgather_", "nccl:all_gather", 1},
    {"c10d::_allgather_base_", "nccl:_all_gather_base", 1},
    {"c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", 1},
    {"c10d::send", "nccl:send", 0},
    {"c10d::recv_", "nccl:recv", 0},
};

const Kind& KindOf(std::string_view op) {
  for (const Kind& kind : kKinds) {
    if (kind.op == op) return kind;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the fake CUDA device has no ", op);
}

// The same with tensors on the CPU over the same bytes; the tensors on cuda among them go to
// `seen`.
IValue OnCpu(const IValue& value, std::vector<at::Tensor>* seen) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.is_cuda()) return value;
    seen->push_back(tensor);
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                         tensor.options().device(at::kCPU));
  }
  if (!value.isList()) return value;
  const c10::List<IValue> from = value.toList();
  c10::impl::GenericList list(from.elementType());
  for (const IValue& item : value.toListRef()) list.push_back(OnCpu(item, seen));
  return IValue(list);
}

void AddTensors(const IValue& value, std::vector<IValue>* tensors) {
  if (value.isTensor()) tensors->push_back(value);
  if (!value.isList()) return;
  for (const IValue& item : value.toListRef()) AddTensors(item, tensors);
}

// Its future is what DDP waits for.
c10::intrusive_ptr<c10d::Work> DoneWork(const std::vector<at::Tensor>& results) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{results[0].device()});
  future->markCompleted(IValue(results));
  return c10d::Work::create_from_future(future);
}

void Communicate(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Kind& kind = KindOf(op.operator_name().name);
  const auto count = static_cast<ptrdiff_t>(op.schema().arguments().size());
  const std::vector<IValue> arguments(stack->end() - count, stack->end());
  stack->erase(stack->end() - count, stack->end());

  std::vector<IValue> given;
  AddTensors(arguments[kind.given], &given);
  at::RecordFunction range(at::RecordScope::USER_SCOPE);
  if (range.isActive())
    range.before(kind.range, c10::ArrayRef<const IValue>(given.data(), given.size()));

  std::vector<at::Tensor> tensors;
  torch::jit::Stack of_cpu;
  for (const IValue& argument : arguments) of_cpu.push_back(OnCpu(argument, &tensors));
  {
    const at::DisableRecordFunctionGuard unseen;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &of_cpu);
    of_cpu.back().toCustomClass<c10d::Work>()->wait();
  }
  if (op.schema().returns().size() == 2) stack->push_back(arguments[0]);
  std::vector<at::Tensor> results;
  std::vector<IValue> handed_out;
  AddTensors(arguments[0], &handed_out);
  for (const IValue& tensor : handed_out) results.push_back(tensor.toTensor());
  stack->push_back(DoneWork(results));
}

// DistributedDataParallel takes the time of its steps; the real one asks the CUDA runtime.
class NoTimer final : public c10d::Timer {
  std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

}  // namespace

void InstallCollectives() {
  NoWarnings handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  auto& dispatcher = c10::Dispatcher::singleton();
  auto* handles = new std::vector<c10::RegistrationHandleRAII>;  // dropping one takes it back
  for (const Kind& kind : kKinds) {
    handles->push_back(
        dispatcher.registerImpl({std::string(kind.op), ""}, c10::DispatchKey::CUDA,
                                c10::KernelFunction::makeFromBoxedFunction<&Communicate>(),
                                std::nullopt, nullptr, "fake CUDA device"));
  }
  c10d::TimerRegistry()->Register(
      c10::DeviceType::CUDA, [](c10::Device) { return std::make_unique<NoTimer>(); },
      c10::REGISTRY_PREFERRED);
}

}  // namespace nanwatch::fake
