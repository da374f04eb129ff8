// SPDX-License-Identifier: Apache-2.0
// Where segments and the daemon's own files are (CONTRACT, "Launching"), and whether these
// directories can be trusted. Every refusal is a sentence that says what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace nanwatch {

// The value of an environment variable, empty when unset; a parameter so that tests need not set
// any.
using Environment = std::function<std::string(const char* name)>;
[[nodiscard]] Environment ProcessEnvironment();

// NANWATCH_DIR, or the default directory of this user and place (proto/wire/place.h).
[[nodiscard]] Result<std::string> SegmentDirectoryPath(const Environment& environment);

// A directory for what the user's jobs write must belong to the user, be closed to others, and not
// be a symbolic link. kNotFound when it is absent: no job has run yet.
[[nodiscard]] Status CheckPrivateDirectory(const std::string& path);

// Creates the directory with mode 0700 when it is absent (but not its parents), then checks it.
[[nodiscard]] Status EnsureSegmentDirectory(const std::string& path);

struct StateDirectory {
  std::string path;
  std::string note;  // a sentence for the user when it is not at the usual path, else empty
};

// NANWATCH_STATE_DIR, else $XDG_STATE_HOME/nanwatch/HOST, else ~/.local/state/nanwatch/HOST; when
// that is on a network file system, /var/tmp/nanwatch-UID with a note. Creates nothing.
[[nodiscard]] Result<StateDirectory> StateDirectoryPath(const Environment& environment);

// Creates it and its parents (0700) when absent, and proves that a file can be written there. One
// that others may write to is refused, unless it holds nanwatch's files only and is neither sticky
// nor setgid: where `note` is given, as the daemon does, it is closed to them, and `note` says so.
[[nodiscard]] Status EnsureStateDirectory(const std::string& path, std::string* note = nullptr);

// Where the daemon keeps its files when the state directory cannot be used: in memory, gone at the
// next boot, bounded by kBesideBytesMax.
[[nodiscard]] std::string StateBesideSegments(const std::string& segment_dir);
inline constexpr uint64_t kBesideBytesMax = uint64_t{64} << 20;      // of the database
inline constexpr uint64_t kBesideEventBytesMax = uint64_t{2} << 20;  // of each of events.jsonl's

// True for NFS, SMB, Lustre, GPFS, BeeGFS, Ceph, AFS and FUSE, where SQLite's shared-memory index
// does not work between hosts. A path that does not exist yet is judged by its nearest existing
// parent.
[[nodiscard]] bool IsOnNetworkFileSystem(const std::string& path);

// Name of this host as the kernel has it.
[[nodiscard]] std::string HostName();

// Held by the daemon of this place for a segment directory; other places have their own.
[[nodiscard]] std::string DaemonLockPath(const std::string& segment_dir);
// Held by the daemon that writes the database in a state directory, whatever its place.
[[nodiscard]] std::string StateLockPath(const std::string& state_dir);
// How the names of this place's exit files end.
[[nodiscard]] std::string ExitSuffix();

// Files in the state directory.
[[nodiscard]] std::string DatabasePath(const std::string& state_dir);  // nanwatch.db
[[nodiscard]] std::string HumanLogPath(const std::string& state_dir);  // nanwatch.log
[[nodiscard]] std::string EventLogPath(const std::string& state_dir);  // events.jsonl

}  // namespace nanwatch
