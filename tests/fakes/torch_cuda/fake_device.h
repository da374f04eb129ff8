// SPDX-License-Identifier: Apache-2.0
// The fake device as libtorch sees it: device guard, streams, memory, random numbers, and the hooks
// by which libtorch_cpu asks for CUDA. Any thread.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace nanwatch::fake {

// Puts them in the place of the real ones. `devices` of them; the fake driver is set up as well.
void InstallDevice(int devices);

[[nodiscard]] c10::DeviceIndex CurrentDevice();
// Whether the program has reset it: nothing can be done there any more.
[[nodiscard]] bool IsGone(c10::DeviceIndex device);
// The fake driver's handle of the calling thread's current stream on its current device.
[[nodiscard]] void* CurrentStreamHandle();
// Host memory that says it lies on the current device.
[[nodiscard]] c10::Allocator* FakeAllocator();
// The generator that a CPU kernel can use in this one's place.
[[nodiscard]] at::Generator GeneratorOfCpu(const at::Generator& generator);

// What was launched on the calling thread's current stream, or on all streams, is now done and
// seen.
void WaitForCurrentStream();
void WaitForDevices();

}  // namespace nanwatch::fake
