// SPDX-License-Identifier: Apache-2.0
// The launches of one device that are not known to be finished, and the streams that they are on.
//
// A launch holds a *slot*: a CheckResult and a LaunchScratch that are its alone until it is done.
//
//   free --Take--> taken --(launched) Push--> queued on its stream --Poll, finished--> free
//                    '---(not launched) Give-----------------------------------------> free
//
// How "finished" is known without asking CUDA. Every so often a launch has the kernel write its
// ticket to the stream's progress word. A stream runs its launches in the order in which they were
// made, so when the word is P, all that was launched before the launch with ticket P is done. Two
// threads may launch on one stream at once, and then the order of their tickets is not that of
// their launches. So a launch does not compare its own ticket: after it was made it notes which
// ticket will be drawn next. Whoever gets that one or a later one draws it afterwards and launches
// later still. Worked example: A draws 5; B draws 6, launches, notes 7; A launches, notes 7. Once
// the word is 7 or more both are done; at 6, which B's kernel wrote, A's may not have begun.
//
// The word itself only grows: a thread that tells the kernel to write it holds the stream's
// ReportRight from before it draws the ticket until the launch is made. Nobody waits for the right;
// who does not get it launches without. (Had A's kernel written 5 over B's 6, nobody would have
// known that 6 was reached, and a stream gone quiet would have kept its slots.) What is launched
// with the right in hand is done when the word is its own ticket or more: tickets that are written
// later were drawn later.
//
// Threads: Take, Give, StreamFor and Push from any, wait-free but for the retry of a
// compare-and-swap that another thread won. TakeQueued from one thread at a time.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace nanwatch::device {

inline constexpr uint32_t kNilSlot = ~uint32_t{0};
// Torch's pools hold 32 streams for each of up to four priorities; others are few.
inline constexpr uint32_t kStreamsMax = 192;

struct PendingLaunch {
  uint64_t ticket = 0;
  uint64_t finished_at = 0;            // done once the stream's progress word is this or more
  std::atomic<uint32_t> next_free{0};  // both links hold a slot number, or kNilSlot
  uint32_t next_queued = kNilSlot;
  bool measures = false;  // it tells measures, else perhaps sums
};

struct alignas(64) LaunchStream {
  std::atomic<uint64_t> key{0};              // 0: entry unused; never cleared
  std::atomic<uint32_t> incoming{kNilSlot};  // newest launch that TakeQueued has not taken over
  std::atomic<uint32_t> queued{0};           // launches not known to be finished
  std::atomic<uint32_t> unreported{0};       // launches since the last that writes progress
  std::atomic<uint64_t> reported_ns{0};      // CLOCK_MONOTONIC of that one's launch
  std::atomic<uint64_t> progress_wanted{0};  // largest finished_at of a launch
  std::atomic<uint64_t> progress_asked{0};   // largest ticket that the kernel was told to write
  std::atomic<bool> reporting{false};        // somebody holds the ReportRight
  std::atomic<bool> ask_again{false};        // for whoever holds it: somebody else has asked
  // Only for the thread that polls: launches in the order in which they were pushed.
  uint32_t oldest = kNilSlot;
  uint32_t newest = kNilSlot;
};

class ReportRight {
 public:
  ReportRight(LaunchStream& stream, bool wanted) noexcept
      : stream_(stream), held_(wanted && !stream.reporting.exchange(true)) {}
  ~ReportRight() {
    if (held_) stream_.reporting.store(false);
  }
  ReportRight(const ReportRight&) = delete;
  ReportRight& operator=(const ReportRight&) = delete;

  [[nodiscard]] bool Held() const noexcept { return held_; }

 private:
  LaunchStream& stream_;
  const bool held_;
};

class LaunchTable {
 public:
  // Null when there is no memory.
  [[nodiscard]] static std::unique_ptr<LaunchTable> Create(uint32_t slots) noexcept;

  [[nodiscard]] uint32_t Slots() const noexcept { return slots_; }
  [[nodiscard]] PendingLaunch& Launch(uint32_t slot) noexcept { return launches_[slot]; }
  [[nodiscard]] LaunchStream& Stream(uint32_t index) noexcept { return streams_[index]; }

  // kNilSlot when all are in use.
  [[nodiscard]] uint32_t Take() noexcept;
  void Give(uint32_t slot) noexcept;

  // Index of the stream with this key, which is not 0, made if it is new; kStreamsMax: table full.
  [[nodiscard]] uint32_t StreamFor(uint64_t key) noexcept;
  // Calls `visit(index)` for each stream that was made.
  template <class Visit>
  void ForEachStream(Visit&& visit) const noexcept {
    for (uint32_t word = 0; word < kWords; ++word) {
      for (uint64_t left = made_[word].load(std::memory_order_relaxed); left != 0;
           left &= left - 1) {
        visit(word * 64 + static_cast<uint32_t>(std::countr_zero(left)));
      }
    }
  }

  // Queues a launch that has been made. Its `ticket` and `finished_at` are filled.
  void Push(LaunchStream& stream, uint32_t slot) noexcept;

  // Moves what was pushed since the last call to the end of [oldest, newest].
  void TakeQueued(LaunchStream& stream) noexcept;

 private:
  LaunchTable() = default;

  static constexpr uint32_t kWords = (kStreamsMax + 63) / 64;

  uint32_t slots_ = 0;
  std::unique_ptr<PendingLaunch[]> launches_;
  LaunchStream streams_[kStreamsMax];
  std::atomic<uint64_t> made_[kWords] = {};  // a bit for each stream
  // Low half: the first free slot. High half: counts changes, so that a slot that was taken and
  // given back between another thread's look and its swap does not pass for untouched.
  alignas(64) std::atomic<uint64_t> free_{kNilSlot};
};

}  // namespace nanwatch::device
