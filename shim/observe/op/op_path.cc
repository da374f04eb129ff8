// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/op_path.h"

#include "shim/observe/op/callbacks.h"

namespace nanwatch {

std::atomic<OpPath*> OpPath::current_{nullptr};

OpPath::OpPath(Activity is_active, const Others& those) noexcept
    : activity(is_active),
      input_tracking({&callbacks::Start, &callbacks::End, &callbacks::RangeStart,
                      &callbacks::RangeEnd, &callbacks::InputStart}),
      others(those) {}

}  // namespace nanwatch
