// SPDX-License-Identifier: Apache-2.0
// Autograd nodes: a backward pass runs them, and what they call are its ops. A node stands in the
// stack of frames like an op, with the layer whose forward made it; the outermost one of a pass
// that was not seen before begins it.
#pragma once

#include <ATen/record_function.h>

#include <memory>

namespace nanwatch::callbacks {

std::unique_ptr<at::ObserverContext> NodeStart(const at::RecordFunction& node);
void NodeEnd();

}  // namespace nanwatch::callbacks
