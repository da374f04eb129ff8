// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/open_store.h"

#include <string>

#include "daemon/base/directories.h"
#include "daemon/ingest/launch_of_process.h"
#include "daemon/loop/listener.h"
#include "daemon/store/outbox_marker.h"
#include "daemon/store/outbox_options.h"

namespace nanwatch {
namespace {

Result<Store> OpenLimitedStore(const DaemonOptions& options, Store::WhenDamaged when_damaged) {
  Result<Store> store = Store::OpenForWriting(DatabasePath(options.state_dir), when_damaged);
  if (!store.ok() || options.database_bytes_max == 0) return store;
  if (Status limited = store->LimitSize(options.database_bytes_max); !limited.ok()) return limited;
  return store;
}

}  // namespace

Result<Store> OpenStore(const DaemonOptions& options, Store::WhenDamaged when_damaged,
                        const Clock& clock, Listener& listener) {
  Result<Store> store = OpenLimitedStore(options, when_damaged);
  if (!store.ok()) return store;
  if (!options.outbox) {
    if (Status left = store->LeaveOutbox(clock.real_ns()); !left.ok())
      listener.Trouble("the outbox cannot be switched off: " + left.message());
    return store;
  }
  OutboxOptions outbox = {
      .launch_of = LaunchOfProcess,
      .on_damage = [&listener](const std::string& sentence) { listener.Trouble(sentence); }};
  if (options.database_bytes_max != 0) outbox.bytes_max = options.database_bytes_max / 4;
  const Result<std::string> note = store->KeepOutbox(clock.real_ns(), outbox);
  if (!note.ok()) {
    const bool is_off = IsOutboxDamage(note.status());
    listener.Trouble((is_off ? "the outbox is damaged, and the fleet hears nothing of this host: "
                             : "the outbox cannot be opened; it is tried again with each write: ") +
                     note.status().message());
  } else if (!note->empty()) {
    listener.Remark(*note);
  }
  return store;
}

}  // namespace nanwatch
