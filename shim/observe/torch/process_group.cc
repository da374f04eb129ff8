// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/process_group.h"

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "shim/observe/torch/torch_versions.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

// As GroupRegistry.hpp has it. Weak: a torch without torch.distributed lacks it.
namespace c10d {
__attribute__((weak)) c10::intrusive_ptr<c10d::ProcessGroup> resolve_process_group(
    const std::string& group_name);
}  // namespace c10d

namespace nanwatch {
namespace {

// torch.distributed numbers its groups by names; init_process_group makes the first.
constexpr char kDefaultGroup[] = "0";

}  // namespace

GroupPlace PlaceInDefaultGroup() noexcept try {
  if (&c10d::resolve_process_group == nullptr) return {};
  const auto group = c10d::resolve_process_group(kDefaultGroup);
  if (!group.defined()) return {};
  return {group->getRank(), group->getSize()};
} catch (...) {
  return {};  // it says so by an exception that there is none
}

}  // namespace nanwatch
