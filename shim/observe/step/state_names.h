// SPDX-License-Identifier: Apache-2.0
// The parameters that an optimizer keeps its state for, by where the state lies.
#pragma once

#include <cstdint>
#include <span>

namespace nanwatch {

class Emitter;
class PythonBridge;

// `states` are storages of `optimizer`'s state (a torch.optim.Optimizer whose step is open on this
// thread); `names`, of the same size, gets the id of the name of each one's parameter, and keeps
// what it holds for those that are not found. Takes the GIL, as optimizer_tensors.h says.
void NameStates(PythonBridge& python, Emitter& emitter, const void* optimizer,
                std::span<const void* const> states, uint32_t* names) noexcept;

}  // namespace nanwatch
