#include "shim/observe/scaler.h"

#include "shim/observe/inputs.h"
#include "shim/observe/tensor_stats.h"
#include "shim/observe/torch_tensor.h"

namespace nanwatch {
namespace {

// Argument 1 of the check is found_inf, written by the op. Without seen inputs nothing bad was
// alive, so the gradients were finite.
bool FoundInf(const ThreadState* thread, const Frame& frame) {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    double value = 0;
    if (input.argument == 1 && IsAlive(input) && ReadNumber(input.View(), &value))
      return value != 0;
  }
  return false;
}

}  // namespace

void OnScalerOp(Observer& observer, ThreadState* thread, Frame& frame,
                const at::RecordFunction& range) noexcept {
  BusyScope busy(thread);
  if ((frame.op->families & kUnscales) != 0) {
    observer.steps.OnUnscale(FoundInf(thread, frame));
    return;
  }
  double scale = 0;
  bool known = false;
  const auto& outputs = range.outputs();
  PlainTensor plain;
  wire::Unchecked reason;
  if (!outputs.empty() && outputs.back().isTensor() &&
      ReadTensor(outputs.back().toTensor(), &plain, &reason) == Readable::kYes) {
    known = ReadNumber(plain.view, &scale);
  }
  observer.steps.OnScaleUpdate(observer, thread, scale, known);
}

}  // namespace nanwatch
