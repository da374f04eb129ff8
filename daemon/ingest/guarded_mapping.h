// SPDX-License-Identifier: Apache-2.0
// A shared mapping of a file that somebody else may cut short at any moment. A plain mapping would
// end this process by SIGBUS at the next touch; here the missing page becomes a private page of
// zeros, which the readers of proto/wire take for "nothing there".
//
// Rejected: pread() of every piece (safe too, but the halves of proto/wire, which argue the memory
// order, work on memory), checking fstat() before a touch (a race remains), jumping out of the
// handler (leaks whatever was under construction).
//
// The handler for SIGBUS is installed with the first mapping and serves the whole process; faults
// elsewhere go on to the disposition that was found. Mappings may be made and read by any thread.
#pragma once

#include <boost/interprocess/mapped_region.hpp>

#include <cstddef>

#include "daemon/base/status.h"

namespace nanwatch {

// More than these at once are refused with kBusy; their files wait for their turn.
inline constexpr size_t kMappingsMax = 2048;

class GuardedMapping {
 public:
  // Maps the first `bytes` bytes of `fd`, which may be closed afterwards.
  static Result<GuardedMapping> Map(int fd, size_t bytes, bool writable);

  GuardedMapping(GuardedMapping&& other) noexcept;
  GuardedMapping& operator=(GuardedMapping&& other) noexcept;
  ~GuardedMapping();

  [[nodiscard]] unsigned char* data() const {
    return static_cast<unsigned char*>(region_.get_address());
  }
  [[nodiscard]] size_t size() const { return region_.get_size(); }

 private:
  GuardedMapping() = default;
  void Forget() noexcept;

  boost::interprocess::mapped_region region_;
  size_t guard_ = kMappingsMax;  // place in the handler's table
};

}  // namespace nanwatch
