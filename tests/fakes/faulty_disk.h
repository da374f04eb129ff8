// SPDX-License-Identifier: Apache-2.0
// A disk under SQLite that fails when it is told to. Stands before the real one (a VFS of SQLite
// that is its default while the object lives); one at a time.
//
// Counted are the calls that change something: write, truncate, sync, open, delete. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace nanwatch {

class FaultyDisk {
 public:
  enum class Fault : uint8_t {
    kIo,      // EIO
    kFull,    // ENOSPC
    kMemory,  // SQLite's own "out of memory"
    kDeath,   // the process ends, as by SIGKILL
  };

  FaultyDisk();
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;
  ~FaultyDisk();

  // The `nth` call from now (1 is the next) fails, and with `lasting` all that follow until Heal.
  void FailAt(uint64_t nth, Fault fault, bool lasting);
  void Heal();
  // Only calls on files whose names contain this fail; "": all.
  void FailOnly(const std::string& infix);
  // All syncs fail, and nothing else.
  void FailSyncs(bool fail);
  // Each sync takes so much longer.
  void DelaySyncs(uint32_t milliseconds);

  // Since the object was made.
  [[nodiscard]] uint64_t calls() const;
  [[nodiscard]] uint64_t syncs() const;
  // Whether anything was written to a file whose name ends so that was not synced since.
  [[nodiscard]] bool HasUnsynced(const std::string& suffix) const;
};

}  // namespace nanwatch
