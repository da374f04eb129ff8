// SPDX-License-Identifier: Apache-2.0
// The observer proves itself before it is believed: built for another minor version of torch it
// would load, register, and silently see nothing.
#pragma once

namespace nanwatch {

// True if `torch_version` ("2.11.0+cu130") is of the minor version whose headers this was compiled
// with.
bool IsBuiltFor(const char* torch_version) noexcept;

// Lets an op make a NaN on this thread and tells whether it was seen. The callbacks must be
// registered.
bool ProveOnPlantedNan() noexcept;

}  // namespace nanwatch
