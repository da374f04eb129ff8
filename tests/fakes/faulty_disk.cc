// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/faulty_disk.h"

#include <sqlite3.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <set>

namespace nanwatch {
namespace {

struct State {
  mutable std::mutex mutex;
  uint64_t calls = 0;
  uint64_t syncs = 0;
  uint64_t fail_at = 0;  // 0: never
  bool lasting = false;
  FaultyDisk::Fault fault = FaultyDisk::Fault::kIo;
  std::string fail_only;
  bool fail_syncs = false;
  uint32_t sync_delay_ms = 0;
  std::set<std::string> unsynced;
};

State state;
sqlite3_vfs* real_vfs;
sqlite3_vfs faulty_vfs;
sqlite3_io_methods methods;

// Followed in memory by the real file.
struct File {
  sqlite3_file base;
  const char* name;  // SQLite keeps it as long as the file is open
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

sqlite3_file* Real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real(); }

std::string NameOf(sqlite3_file* file) {
  const char* name = reinterpret_cast<File*>(file)->name;
  return name == nullptr ? "" : name;
}

// SQLITE_OK, or how this call fails.
int NextCall(int io_error, const std::string& name) {
  const std::lock_guard lock(state.mutex);
  if (name.find(state.fail_only) == std::string::npos) return SQLITE_OK;
  const uint64_t call = ++state.calls;
  const bool fails =
      state.fail_at != 0 && (state.lasting ? call >= state.fail_at : call == state.fail_at);
  if (!fails) return SQLITE_OK;
  if (state.fault == FaultyDisk::Fault::kDeath) kill(getpid(), SIGKILL);
  if (state.fault == FaultyDisk::Fault::kMemory) return SQLITE_IOERR_NOMEM;
  return state.fault == FaultyDisk::Fault::kFull ? SQLITE_FULL : io_error;
}

int Write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 at) {
  if (const int failed = NextCall(SQLITE_IOERR_WRITE, NameOf(file)); failed != SQLITE_OK)
    return failed;
  {
    const std::lock_guard lock(state.mutex);
    state.unsynced.insert(NameOf(file));
  }
  return Real(file)->pMethods->xWrite(Real(file), bytes, count, at);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (const int failed = NextCall(SQLITE_IOERR_TRUNCATE, NameOf(file)); failed != SQLITE_OK)
    return failed;
  return Real(file)->pMethods->xTruncate(Real(file), size);
}

int Sync(sqlite3_file* file, int flags) {
  if (const int failed = NextCall(SQLITE_IOERR_FSYNC, NameOf(file)); failed != SQLITE_OK)
    return failed;
  uint32_t delay_ms = 0;
  {
    const std::lock_guard lock(state.mutex);
    if (state.fail_syncs) return SQLITE_IOERR_FSYNC;
    ++state.syncs;
    state.unsynced.erase(NameOf(file));
    delay_ms = state.sync_delay_ms;
  }
  if (delay_ms != 0) usleep(delay_ms * 1'000);
  return Real(file)->pMethods->xSync(Real(file), flags);
}

int Close(sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); }
int Read(sqlite3_file* file, void* to, int count, sqlite3_int64 at) {
  return Real(file)->pMethods->xRead(Real(file), to, count, at);
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Real(file)->pMethods->xFileSize(Real(file), size);
}
int Lock(sqlite3_file* file, int level) { return Real(file)->pMethods->xLock(Real(file), level); }
int Unlock(sqlite3_file* file, int level) {
  return Real(file)->pMethods->xUnlock(Real(file), level);
}
int CheckReservedLock(sqlite3_file* file, int* held) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), held);
}
int FileControl(sqlite3_file* file, int what, void* argument) {
  return Real(file)->pMethods->xFileControl(Real(file), what, argument);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int DeviceCharacteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
}
int ShmMap(sqlite3_file* file, int region, int bytes, int extend, void volatile** to) {
  return Real(file)->pMethods->xShmMap(Real(file), region, bytes, extend, to);
}
int ShmLock(sqlite3_file* file, int offset, int count, int flags) {
  return Real(file)->pMethods->xShmLock(Real(file), offset, count, flags);
}
void ShmBarrier(sqlite3_file* file) { Real(file)->pMethods->xShmBarrier(Real(file)); }
int ShmUnmap(sqlite3_file* file, int remove) {
  return Real(file)->pMethods->xShmUnmap(Real(file), remove);
}

int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  file->pMethods = nullptr;
  if (const int failed = NextCall(SQLITE_IOERR, name == nullptr ? "" : name); failed != SQLITE_OK)
    return failed;
  auto* ours = reinterpret_cast<File*>(file);
  ours->name = name;
  const int code = real_vfs->xOpen(real_vfs, name, ours->real(), flags, flags_out);
  if (ours->real()->pMethods != nullptr) file->pMethods = &methods;
  return code;
}

int Delete(sqlite3_vfs*, const char* name, int sync_directory) {
  if (const int failed = NextCall(SQLITE_IOERR_DELETE, name); failed != SQLITE_OK) return failed;
  return real_vfs->xDelete(real_vfs, name, sync_directory);
}

void Describe() {
  methods = {2,
             Close,
             Read,
             Write,
             Truncate,
             Sync,
             FileSize,
             Lock,
             Unlock,
             CheckReservedLock,
             FileControl,
             SectorSize,
             DeviceCharacteristics,
             ShmMap,
             ShmLock,
             ShmBarrier,
             ShmUnmap,
             nullptr,
             nullptr};
  faulty_vfs = *real_vfs;
  faulty_vfs.szOsFile = static_cast<int>(sizeof(File)) + real_vfs->szOsFile;
  faulty_vfs.zName = "faulty";
  faulty_vfs.pNext = nullptr;
  faulty_vfs.xOpen = Open;
  faulty_vfs.xDelete = Delete;
}

}  // namespace

FaultyDisk::FaultyDisk() {
  real_vfs = sqlite3_vfs_find("unix");
  Describe();
  sqlite3_vfs_register(&faulty_vfs, /*makeDflt=*/1);
  Heal();
  FailOnly("");
  DelaySyncs(0);
  FailSyncs(false);
  const std::lock_guard lock(state.mutex);
  state.calls = state.syncs = 0;
  state.unsynced.clear();
}

FaultyDisk::~FaultyDisk() {
  sqlite3_vfs_unregister(&faulty_vfs);
  sqlite3_vfs_register(real_vfs, /*makeDflt=*/1);
}

void FaultyDisk::FailAt(uint64_t nth, Fault fault, bool lasting) {
  const std::lock_guard lock(state.mutex);
  state.fail_at = state.calls + nth;
  state.fault = fault;
  state.lasting = lasting;
}

void FaultyDisk::Heal() {
  const std::lock_guard lock(state.mutex);
  state.fail_at = 0;
}

void FaultyDisk::FailOnly(const std::string& infix) {
  const std::lock_guard lock(state.mutex);
  state.fail_only = infix;
}

void FaultyDisk::FailSyncs(bool fail) {
  const std::lock_guard lock(state.mutex);
  state.fail_syncs = fail;
}

void FaultyDisk::DelaySyncs(uint32_t milliseconds) {
  const std::lock_guard lock(state.mutex);
  state.sync_delay_ms = milliseconds;
}

uint64_t FaultyDisk::calls() const {
  const std::lock_guard lock(state.mutex);
  return state.calls;
}

uint64_t FaultyDisk::syncs() const {
  const std::lock_guard lock(state.mutex);
  return state.syncs;
}

bool FaultyDisk::HasUnsynced(const std::string& suffix) const {
  const std::lock_guard lock(state.mutex);
  for (const std::string& name : state.unsynced) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

}  // namespace nanwatch
