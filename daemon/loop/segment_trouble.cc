// SPDX-License-Identifier: Apache-2.0
// What SegmentIntake does about failures: when it tries again, and what it says of them.
#include <algorithm>

#include "daemon/loop/segment_intake.h"

namespace nanwatch {
namespace {

constexpr uint64_t kOpenRetryNs = kNsPerSecond;
constexpr int kRetryDoublingsMax = 6;  // about a minute
constexpr uint64_t kFailingGapNs = 5 * kNsPerSecond;
constexpr uint64_t kTroubleEveryNs = 60 * kNsPerSecond;

}  // namespace

void SegmentIntake::WaitAfter(const Status& why, Segment& segment) const {
  const int doublings = why.kind() == ErrorKind::kResources ? segment.waits++ : 0;
  segment.retry_at_ns =
      clock_.monotonic_ns() + (kOpenRetryNs << std::min(doublings, kRetryDoublingsMax));
}

Status SegmentIntake::Failed(const Status& why) {
  const uint64_t now_ns = clock_.monotonic_ns();
  retry_at_ns_ = now_ns + kOpenRetryNs;
  // Errors with so long between them are not one that lasts.
  if (failing_since_ns_ == 0 || now_ns - failed_at_ns_ > kFailingGapNs) failing_since_ns_ = now_ns;
  failed_at_ns_ = now_ns;
  ReportTrouble(why);
  return why;
}

void SegmentIntake::ReportTrouble(const Status& why) {
  if (why.kind() == ErrorKind::kResources) return ReportWaiting(why);
  const uint64_t now_ns = clock_.monotonic_ns();
  if (reported_trouble_at_ns_ != 0 && now_ns - reported_trouble_at_ns_ < kTroubleEveryNs) return;
  reported_trouble_at_ns_ = now_ns;
  const bool full = why.kind() == ErrorKind::kFull;
  listener_.Trouble(
      (full ? "the disk with the database is full: findings stay in the segments until there is "
              "space again ("
            : "the database cannot be written: findings stay in the segments until it can (") +
      why.message() + ")");
}

void SegmentIntake::ReportRecovery() {
  if (reported_trouble_at_ns_ == 0) return;
  listener_.Remark("the database can be written again; nothing in the segments was lost");
  reported_trouble_at_ns_ = 0;
}

void SegmentIntake::ReportWaiting(const Status& why) {
  const uint64_t now_ns = clock_.monotonic_ns();
  if (reported_waiting_at_ns_ != 0 && now_ns - reported_waiting_at_ns_ < kTroubleEveryNs) return;
  reported_waiting_at_ns_ = now_ns;
  listener_.Trouble("some segments wait to be read (" + why.message() +
                    "): they keep what they hold, and are tried again");
}

}  // namespace nanwatch
