// What exactly is in a tensor that was found bad, for records and for the table of bad values.
#pragma once

#include <cstdint>

#include "shim/check/tensor_view.h"
#include "shim/classify/bad_values.h"
#include "shim/emit/emitter.h"

namespace nanwatch {

// All of `stats`, zeroed where nothing is known. `index`: which of the op's tensors it is.
void FillStats(const TensorView& view, uint8_t index, wire::TensorStats* stats) noexcept;

// Fills `elements` and `kinds`, both exact.
void CountBad(const TensorView& view, BadEntry* entry) noexcept;

// The name's id; 0 for none.
uint32_t InternText(Emitter& emitter, const char* text) noexcept;

}  // namespace nanwatch
