// SPDX-License-Identifier: Apache-2.0
// What is known of ATen ops by name, where the schema does not say it: a table of families. A rule
// about values needs a reason that holds for every input; each family states it.
#pragma once

#include <cstdint>
#include <string_view>

namespace nanwatch {

enum OpFamily : uint32_t {
  // Returns memory nobody has written yet: never looked at.
  kAllocates = 1u << 0,
  // Writes values drawn at random or counted up, all finite by definition of the distribution: not
  // looked at.
  kCreates = 1u << 1,
  // Writes one constant everywhere: the first element tells all.
  kFills = 1u << 2,
  // Puts a constant that was asked for among other values: a bad output with clean inputs is
  // `scalar`.
  kMasks = 1u << 3,
  // Brings values in from outside the ops (a DataLoader's shared memory, a literal, a file).
  kEnters = 1u << 4,
  // Only moves, selects or casts values: what comes out non-finite went in so, a narrowing cast
  // aside.
  kMoves = 1u << 5,
  // Cannot make a NaN of finite inputs (an infinity by overflow, yes).
  kNanProof = 1u << 6,
  // Overwrites its first argument without reading it.
  kOverwrites = 1u << 7,
  // Reads shapes, not values: no statement about its inputs follows from a clean output.
  kReadsMetadata = 1u << 8,
  // Hands a scalar to Python.
  kReadsScalar = 1u << 9,
  // Communicates: outputs are not there when the op ends.
  kCommunicates = 1u << 10,
  // Writes running statistics that its schema does not declare.
  kBatchNorm = 1u << 11,
  // GradScaler's two ops.
  kUnscales = 1u << 12,
  kUpdatesScale = 1u << 13,
  // Only the first output holds values of the model; the others are bookkeeping that may be -Inf
  // for empty or
  // masked rows by definition (log-sum-exp, CTC's alpha).
  kFirstOutputOnly = 1u << 14,
  // A collective whose results lie elsewhere than what was given in: the range that announces it
  // names only the latter.
  kHandsOut = 1u << 15,
  // One of these that does not return its results either.
  kKeepsResults = 1u << 18,
  // Compares numbers: torch.isnan(x) is x != x, torch.isfinite(x) begins with x == x.
  kCompares = 1u << 16,
  // Copies, and has an argument that says whether the host waits for it. Known by the schema.
  kMayNotWait = 1u << 17,
  // Asks which of two numbers is larger, as an early stop does; a NaN makes the answer false.
  kOrders = 1u << 20,
  // The last op of Tensor.numpy() and Tensor.tolist(): Python reads all values.
  kReadsAll = 1u << 19,
  // How optimizers let their state decay: in place, by a factor below 1 or towards the gradient.
  kDecaysState = 1u << 21,
  // A state times a number, or a gradient or its square added to a part of it: of finite values and
  // numbers it makes no NaN.
  kMixesIntoState = 1u << 22,
  // Puts its argument 2 among values. Python's x[mask] = -inf makes a tensor of the number for it.
  kPutsValue = 1u << 23,
  // Puts whole tensors one behind the other.
  kStacks = 1u << 24,
};

// Something is done at the end of these beside the look at their outputs.
inline constexpr uint32_t kNeedsEnd =
    kReadsScalar | kBatchNorm | kUnscales | kUpdatesScale | kHandsOut;

// Families of the op with this name ("aten::div", overload left out). Cold: called once per op.
uint32_t OpFamiliesOf(std::string_view name) noexcept;

// Whether Python may hand a number to it in the place of a tensor, as in x / n
// (should_allow_numbers_as_tensors in torch/csrc/utils/python_arg_parser.cpp).
bool MayTakeNumberAsTensor(std::string_view name) noexcept;

}  // namespace nanwatch
