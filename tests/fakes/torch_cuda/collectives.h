// SPDX-License-Identifier: Apache-2.0
// Collectives of tensors on the fake device, as NCCL's process group shows them. See
// collectives.cc.
#pragma once

namespace nanwatch::fake {

// After RedirectOperators, whose kernels for these operators they replace.
void InstallCollectives();

}  // namespace nanwatch::fake
