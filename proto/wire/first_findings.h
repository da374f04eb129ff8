// SPDX-License-Identifier: Apache-2.0
// The two sections that nothing evicts: the first distinct findings, and the first time each kind
// of reach happened. They keep promise 3 for a job that ran for hours before anybody read it.
//
// An entry goes 0 free, 1 being written, 2 complete; the 2 is stored with release after all else,
// and never changes again. A job that dies in between leaves a 1: no entry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "proto/wire/ring.h"
#include "proto/wire/segment.h"
#include "proto/wire/shared_words.h"

namespace nanwatch::wire {

// ---- the job's half

// Any thread, turns taken by a private mutex. Does not own the sections, which must be zero.
class FirstWriter {
 public:
  FirstWriter(FirstFinding* findings, FirstReach* reaches) noexcept
      : findings_(findings), reaches_(reaches) {}

  // False when all kFirstFindingsMax places are taken, or the record is no record.
  bool Keep(const RecordHeader& record) noexcept {
    if (record.bytes < sizeof(RecordHeader) || record.bytes > kRecordBytesMax) return false;
    const std::lock_guard lock(mutex_);
    if (kept_ == kFirstFindingsMax) return false;
    if (copies_ != nullptr) std::memcpy(copies_[kept_].bytes, &record, record.bytes);
    Fill(findings_[kept_++], &record, record.bytes);
    return true;
  }

  // Does something the first time only, for each kind.
  void Reached(Reach reach, uint64_t value, uint64_t ticket, uint32_t name,
               const Clocks& clocks) noexcept {
    const auto kind = static_cast<uint32_t>(reach);
    if (kind >= kReachKinds) return;
    FirstReach& place = reaches_[kind];
    if (place.state.load(std::memory_order_relaxed) != kEntryFree)
      return;  // without the mutex, nearly always
    const std::lock_guard lock(mutex_);
    if (reached_[kind].known) return;
    reached_[kind] = {true, name, value, ticket, clocks};
    Fill(place, reached_[kind]);
  }

  // After the sections' content was lost and their memory zeroed: writes all of it again. No other
  // thread is inside.
  void Restore() noexcept {
    for (int i = 0; i < kept_ && copies_ != nullptr; ++i) {
      Fill(findings_[i], copies_[i].bytes, copies_[i].header().bytes);
    }
    for (uint32_t kind = 0; kind < kReachKinds; ++kind) {
      if (reached_[kind].known) Fill(reaches_[kind], reached_[kind]);
    }
  }

 private:
  struct KnownReach {
    bool known = false;
    uint32_t name = 0;
    uint64_t value = 0;
    uint64_t ticket = 0;
    Clocks clocks{};
  };

  static void Fill(FirstFinding& place, const void* record, uint32_t bytes) noexcept {
    place.state.store(kEntryBeingWritten, std::memory_order_relaxed);
    place.bytes = bytes;
    StoreWords(place.record, record, bytes);
    place.state.store(kEntryComplete, std::memory_order_release);
  }
  static void Fill(FirstReach& place, const KnownReach& reach) noexcept {
    place.state.store(kEntryBeingWritten, std::memory_order_relaxed);
    place.name = reach.name;
    place.value = reach.value;
    place.ticket = reach.ticket;
    StoreWords(&place.clocks, &reach.clocks, sizeof reach.clocks);
    place.state.store(kEntryComplete, std::memory_order_release);
  }

  FirstFinding* findings_;
  FirstReach* reaches_;
  std::mutex mutex_;
  int kept_ = 0;
  // The same where nobody else can write.
  std::unique_ptr<RecordCopy[]> copies_{new (std::nothrow) RecordCopy[kFirstFindingsMax]};
  KnownReach reached_[kReachKinds];
};

// ---- the daemon's half

// True with a copy whose header's `bytes` and `kind` are in range, if the place holds a complete
// record.
[[nodiscard]] inline bool ReadFirstFinding(const FirstFinding& place, RecordCopy& out) noexcept {
  if (place.state.load(std::memory_order_acquire) != kEntryComplete) return false;
  static_assert(sizeof(place.record) <= sizeof(RecordCopy) ||
                kRecordBytesMax <= sizeof(RecordCopy));
  LoadWords(out.bytes, place.record, kRecordBytesMax);
  const RecordHeader& header = out.header();
  return header.bytes >= sizeof(RecordHeader) && header.bytes <= kRecordBytesMax &&
         header.kind != 0 && header.kind <= kRecordKindMax;
}

// A private copy of one FirstReach.
struct ReachFacts {
  uint32_t name = 0;
  uint64_t value = 0;
  uint64_t ticket = 0;
  Clocks clocks{};
};

[[nodiscard]] inline std::optional<ReachFacts> ReadFirstReach(const FirstReach& place) noexcept {
  if (place.state.load(std::memory_order_acquire) != kEntryComplete) return {};
  ReachFacts facts;
  uint64_t words[3];  // state and name, value, ticket
  LoadWords(words, &place, sizeof words);
  static_assert(offsetof(FirstReach, name) == SecondHalfOf(0));
  static_assert(offsetof(FirstReach, value) == 8 && offsetof(FirstReach, ticket) == 16);
  facts.name = SecondHalf(words[0]);
  facts.value = words[1];
  facts.ticket = words[2];
  LoadWords(&facts.clocks, &place.clocks, sizeof facts.clocks);
  return facts;
}

}  // namespace nanwatch::wire
