// SPDX-License-Identifier: Apache-2.0
// This process's place among those that torch.distributed has brought together.
#pragma once

namespace nanwatch {

struct GroupPlace {
  int rank = 0;
  int size = 0;  // 0: there is no group, or this torch cannot say
};

// Of the first default group of the process (init_process_group). Any thread, no GIL.
[[nodiscard]] GroupPlace PlaceInDefaultGroup() noexcept;

}  // namespace nanwatch
