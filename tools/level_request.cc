// SPDX-License-Identifier: Apache-2.0
#include "tools/level_request.h"

#include "daemon/base/clock.h"
#include "proto/wire/control.h"

namespace nanwatch {

Result<LevelRequest> LevelRequest::Send(const std::string& segment_path, wire::Level level,
                                        uint64_t for_ns, bool stacks) {
  Result<SegmentFile> file = SegmentFile::Open(segment_path, /*writable=*/true);
  if (!file.ok()) return file.status();
  const SegmentFile::Section& section = file->section(wire::SectionType::kControl);
  if (section.bytes < sizeof(wire::ControlBlock)) {
    return Status(ErrorKind::kUnsupported,
                  "the process runs an observer that cannot be asked to change its level");
  }
  if (stacks && file->header().wire_minor < wire::kWireMinorOfStacks) {
    return Status(ErrorKind::kUnsupported,
                  "the process runs an observer that is too old for --stacks; nothing was changed");
  }
  auto& control = *reinterpret_cast<wire::ControlBlock*>(section.data);
  LevelRequest request(*std::move(file), wire::Level::kIdle);
  request.before_ = static_cast<wire::Level>(request.live().level.load(std::memory_order_relaxed));
  const uint64_t deadline_ns = for_ns == 0 ? 0 : SystemClock().monotonic_ns() + for_ns;
  request.generation_ =
      wire::ControlRequest::From(wire::RequestLevel(control, level, deadline_ns,
                                                    stacks ? wire::ControlRequest::kStacks : 0))
          .generation;
  return request;
}

const wire::LiveBlock& LevelRequest::live() const {
  return *reinterpret_cast<const wire::LiveBlock*>(file_.section(wire::SectionType::kLive).data);
}

bool LevelRequest::IsApplied() const {
  const uint64_t applied = live().control_applied.load(std::memory_order_acquire);
  // Generations wrap round.
  const uint32_t behind = wire::ControlRequest::From(applied).generation - generation_;
  return applied != 0 && static_cast<int32_t>(behind) >= 0;
}

bool LevelRequest::IsLost() const {
  return file_.LinkCount() == 0 || live().state.load(std::memory_order_relaxed) ==
                                       static_cast<uint32_t>(wire::LiveState::kExited);
}

}  // namespace nanwatch
