// SPDX-License-Identifier: Apache-2.0
// A process group of gloo's carries tensors of the fake device, over the same bytes, and what can
// be seen of it is what ProcessGroupNCCL shows (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp,
// collective() and pointToPoint()): a range "nccl:all_reduce" with the tensors given in, inside the
// operator of c10d, on the calling thread. It ends when the collective is enqueued, and the values
// are there when it ends: later than on a GPU they cannot be.
//
// With NANWATCH_FAKE_COLLECTIVES=gloo an all-reduce shows what ProcessGroupGloo shows of a GPU's
// tensors (AsyncAllreduceCUDAWork): a range "gloo:all_reduce" that lasts until the result is there;
// in it a copy to pinned memory, on the calling thread; then, on another thread, the pinned memory
// is filled with the result, which nobody sees, and copied back, which is an op. All that the other
// thread does it does as late as it may: when the program waits for the work.
#include "tests/fakes/torch_cuda/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/torch_cuda/fake_device.h"
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

class GlooWork final : public c10d::Work {
 public:
  GlooWork(const c10::OperatorHandle& op, std::vector<IValue> arguments)
      : op_(op), arguments_(std::move(arguments)) {
    std::vector<IValue> given;
    AddTensors(arguments_[0], &given);
    if (range_.isActive()) {
      range_._setAsync();
      range_.before("gloo:all_reduce", c10::ArrayRef<const IValue>(given.data(), given.size()));
    }
    for (const IValue& tensor : given) {
      const at::Tensor& on_device = tensor.toTensor();
      at::Tensor pinned =
          at::empty(on_device.sizes(), on_device.options().device(at::kCPU).pinned_memory(true));
      pinned.copy_(on_device, /*non_blocking=*/true);
      carried_.emplace_back(on_device, pinned);
    }
  }
  bool isCompleted() override { return done_; }
  bool isSuccess() const override { return done_; }
  bool wait(std::chrono::milliseconds) override {
    std::call_once(once_, [this] { std::thread(&GlooWork::Run, this).join(); });
    return true;
  }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> results;
    for (const auto& [on_device, pinned] : carried_) results.push_back(on_device);
    return results;
  }

 private:
  void Run() {
    WaitForDevices();
    c10::List<at::Tensor> list;
    for (const auto& [on_device, pinned] : carried_) {
      list.push_back(
          at::from_blob(pinned.data_ptr(), pinned.sizes(), pinned.options().pinned_memory(false)));
    }
    torch::jit::Stack of_cpu(arguments_);
    of_cpu[0] = IValue(list);
    {
      const at::DisableRecordFunctionGuard unseen;
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &of_cpu);
      of_cpu.back().toCustomClass<c10d::Work>()->wait();
    }
    for (auto& [on_device, pinned] : carried_) on_device.copy_(pinned, /*non_blocking=*/true);
    range_.end();
    done_ = true;
  }

  const c10::OperatorHandle op_;
  std::vector<IValue> arguments_;
  at::RecordFunction range_{at::RecordScope::USER_SCOPE};
  std::vector<std::pair<at::Tensor, at::Tensor>> carried_;  // on the device, and pinned
  std::once_flag once_;
  std::atomic<bool> done_{false};
};

bool AsGloo(std::string_view op) {
  const char* const wanted = std::getenv("NANWATCH_FAKE_COLLECTIVES");
  return wanted != nullptr && std::string_view(wanted) == "gloo" && op == "c10d::allreduce_";
}

void Communicate(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Kind& kind = KindOf(op.operator_name().name);
  const auto count = static_cast<ptrdiff_t>(op.schema().arguments().size());
  const std::vector<IValue> arguments(stack->end() - count, stack->end());
  stack->erase(stack->end() - count, stack->end());

  if (AsGloo(kind.op)) {
    stack->push_back(arguments[0]);
    stack->push_back(c10::intrusive_ptr<c10d::Work>(c10::make_intrusive<GlooWork>(op, arguments)));
    return;
  }

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
