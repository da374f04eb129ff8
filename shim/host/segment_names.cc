// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_names.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "proto/wire/hash.h"
#include "proto/wire/naming.h"

namespace nanwatch {

uint64_t Nonce() noexcept {
  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) == sizeof nonce && nonce != 0) return nonce;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  nonce = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
  return (nonce ^ static_cast<uint64_t>(getpid()) << 40) * wire::kGoldenRatio | 1;
}

FileNames NamesFor(int32_t pid, uint64_t nonce) noexcept {
  FileNames names;
  const auto number = static_cast<unsigned long long>(nonce);
  std::snprintf(names.tmp, sizeof names.tmp, "%s%d-%016llx%s", wire::kSegmentPrefix, pid, number,
                wire::kSegmentTmpSuffix);
  std::snprintf(names.seg, sizeof names.seg, "%s%d-%016llx%s", wire::kSegmentPrefix, pid, number,
                wire::kSegmentSuffix);
  return names;
}

}  // namespace nanwatch
