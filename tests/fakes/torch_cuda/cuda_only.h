// SPDX-License-Identifier: Apache-2.0
// Operators that only a GPU has, for the CPU. See cuda_only.cc.
#pragma once

namespace nanwatch::fake {

// Makes torch choose, for tensors on cuda, among operators that the fake has.
void ChooseKnownKernels();

}  // namespace nanwatch::fake
