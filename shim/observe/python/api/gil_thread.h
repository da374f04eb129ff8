// SPDX-License-Identifier: Apache-2.0
// The GIL, for an op's callback.
//
// torch releases the GIL around an op, and a library that calls torch may hold a lock of its own
// then. A thread that has the GIL may be waiting for that lock: who waits for the GIL in the op
// would wait for ever. So another thread waits, and the op's thread does only for so long.
#pragma once

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

// Calls `fn(context)` with the GIL held: on this thread where it has the GIL, else on a thread that
// is made for it, while this one waits. Whether it was called; `milliseconds` is how long it may
// take until the GIL is had, as of DoneWithin. Once `fn` has begun it is waited for. Any thread;
// false also where no thread can be made.
[[nodiscard]] bool CallWithGil(const PythonApi& api, int milliseconds, void (*fn)(void* context),
                               void* context) noexcept;

}  // namespace nanwatch
