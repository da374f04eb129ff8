// SPDX-License-Identifier: Apache-2.0
// Whether the inputs of an op were finite that nobody has read.
//
// While nothing bad is known to be alive, ops do not hand over their inputs, and the first bad
// result is taken for made: every value that an observed op has written was finite. That holds only
// as far as ops are observed. numpy, another process, a kernel of the program's own, an op that
// raised half-way, or one that ran while the level was lower write without a word. So what Python
// holds is read once more before the op is called the origin for certain: the arguments of the call
// are among it. So is what the autograd node that runs has saved.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class PythonBridge;

class UnreadInputs {
 public:
  // `python` outlives it.
  explicit UnreadInputs(PythonBridge& python) noexcept : python_(python) {}

  enum class Answer : uint8_t {
    kFinite,   // all that Python holds, the op's results left out
    kBad,      // something of it is not: it may have been an input
    kUnknown,  // not all could be read
  };

  struct Seen {
    Answer answer = Answer::kUnknown;
    // One of zeros alone, as large as the result, is among them: 0 / 0 may have been computed.
    bool zeros = false;
  };

  // After an op that wrote `outputs`, before any other. Takes the GIL and some milliseconds, in all
  // at most kBudgetNs a process; then, and in a program without Python, the answer is kUnknown.
  [[nodiscard]] Seen Check(const BadOutput* outputs, int count) noexcept;

  struct Given {
    const BadOutput* outputs;
    int count;
    uint8_t kinds;  // what is bad in them
  };
  // After such an op that cannot have made what is bad: whether Python holds something that is bad
  // in the same way, and all of that came in (`came_in`). Takes the GIL and time as Check does.
  [[nodiscard]] bool CameIn(const Given& given,
                            bool (*came_in)(void* context, const PlainTensor& tensor),
                            void* context) noexcept;

  // After an op that cast to float32, with an infinite result: whether Python holds a finite tensor
  // of float64 that the result is the cast of, number by number. In all at most kCastBudgetNs a
  // process.
  [[nodiscard]] bool HoldCastFrom(const BadOutput& output) noexcept;

  static constexpr uint64_t kBudgetNs = 2'000'000'000;
  static constexpr uint64_t kCastBudgetNs = 500'000'000;
  // Tensors above this are not read, nor more than this in one look.
  static constexpr uint64_t kBytesMax = uint64_t{256} << 20;

 private:
  PythonBridge& python_;
  std::atomic<uint64_t> spent_ns_{0};
  std::atomic<uint64_t> spent_on_casts_ns_{0};
};

}  // namespace nanwatch
