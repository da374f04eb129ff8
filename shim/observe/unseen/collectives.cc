// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/collectives.h"

#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/unseen/collective_records.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch {
namespace {

// One rank gives and the others take: bad values that nobody saw being written (loaded weights)
// must be told apart from those that come. Elsewhere a second check of everything given in would
// cost more than it can show.
bool GivesOneRanksOwn(const char* name) { return std::strstr(name, ":broadcast") != nullptr; }

}  // namespace

struct Collectives::Context : at::ObserverContext {
  std::shared_ptr<CollectiveResult> back;  // what was given in, as it comes back
  wire::Source input{};                    // the first bad tensor given in
  bool input_bad = false;

  // The range's end may go by unseen: on a thread that has no state of ours, or inside a callback.
  ~Context() override { back->abandoned.store(true, std::memory_order_relaxed); }
};

bool IsCollective(const char* name) noexcept {
  if (std::strncmp(name, "gloo:", 5) != 0 && std::strncmp(name, "nccl:", 5) != 0 &&
      std::strncmp(name, "mpi:", 4) != 0) {
    return false;
  }
  // Barriers carry nothing; what a send gives away comes back to nobody here.
  return std::strstr(name, "barrier") == nullptr && std::strstr(name, "send") == nullptr;
}

void AddOnGpu(const LateFacts& late, const c10::IValue& value, GpuTensors* tensors) {
  if (!late.On()) return;
  if (value.isTensor()) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(value.toTensor(), &plain, &reason) == Readable::kYes && plain.gpu >= 0) {
      tensors->Add(plain, wire::Target::kNone, nullptr);
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) AddOnGpu(late, item, tensors);
  }
}

void Collectives::RecordGiven(const at::TensorBase& tensor, Context* context) {
  InputSeen* seen = context->back->Add(tensor);
  if (seen == nullptr) return;
  wire::Source source{};
  ValueRef value;
  const bool known =
      uses_.tracking.armed() && uses_.known_bad.SourceOf(seen->Plain(), &source, &value);
  if (!known && !GivesOneRanksOwn(context->back->collective.name)) return;
  seen->kinds = NonFiniteKinds(seen->View());
  if (!known || seen->kinds == 0 || context->input_bad) return;
  source.kinds = seen->kinds;
  context->input = source;
  context->input_bad = true;
}

std::unique_ptr<at::ObserverContext> Collectives::Begin(ThreadState* thread,
                                                        const at::RecordFunction& range) noexcept
    try {
  CollectiveName name;
  std::strncpy(name.name, range.name(), sizeof name.name - 1);
  name.sequence = begun_.fetch_add(1, std::memory_order_relaxed) + 1;
  thread->last_collective = name;
  // Counted in any case: ranks know a collective by its number.
  if (uses_.poison.Ignores() || uses_.level.off_to_measure()) return nullptr;
  auto back = std::make_shared<CollectiveResult>(name, uses_.clock.completed());
  auto context = std::make_unique<Context>();
  context->back = back;
  GpuTensors on_gpu(uses_.late, thread, /*counts=*/false);
  for (const c10::IValue& value : range.inputs()) {
    if (!value.isTensor()) continue;
    RecordGiven(value.toTensor(), context.get());
    AddOnGpu(uses_.late, value, &on_gpu);
  }
  uses_.late.Enqueue(thread, CollectiveTensors{name, on_gpu.list(), /*given_in=*/true});
  uses_.results.RecordBegun(*back);
  if (!back->tensors.empty()) uses_.results.Open(std::move(back));
  return context;
} catch (...) {
  return nullptr;
}

void Collectives::End(ThreadState* thread, at::ObserverContext* context) noexcept {
  auto& collective = *static_cast<Context*>(context);
  if (collective.back->tensors.empty()) return;
  const ValueRef received = uses_.results.Close(thread, collective.back);
  if (uses_.poison.Ignores() || (!collective.input_bad && received.ticket == 0)) return;
  uses_.records.Emit(thread, collective.back->collective,
                     collective.input_bad ? &collective.input : nullptr, received);
}

}  // namespace nanwatch
