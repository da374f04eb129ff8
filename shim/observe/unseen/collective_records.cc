// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/collective_records.h"

#include <cstring>

#include "shim/observe/events/finding_record.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {
namespace {

// "gloo", the family of the process group. What one rank sends to one other is not numbered alike
// on both.
uint32_t GroupOf(Emitter& emitter, const CollectiveName& collective) {
  const char* colon = std::strchr(collective.name, ':');
  // Each op has a count of its own.
  if (colon == nullptr || colon[1] == ':' || std::strstr(colon, "recv") != nullptr) {
    return emitter.Intern(collective.name);
  }
  return emitter.Intern({collective.name, static_cast<size_t>(colon - collective.name)});
}

}  // namespace

void CollectiveRecords::Emit(ThreadState* thread, const CollectiveName& collective,
                             const wire::Source* input, ValueRef output) noexcept {
  Emitter* emitter = segment_.Ensure();
  if (emitter == nullptr) return;
  wire::CollectiveRecord record{};
  record.op = emitter->Intern(collective.name);
  record.group = GroupOf(*emitter, collective);
  record.sequence = collective.sequence;
  record.flags = (input != nullptr ? wire::CollectiveRecord::kInputBad : 0u) |
                 (output.ticket != 0 ? wire::CollectiveRecord::kOutputBad : 0u);
  if (input != nullptr) record.input = *input;
  record.output_value = output.ticket;
  record.header =
      records_.MakeHeader(thread, *emitter, wire::RecordKind::kCollective, sizeof record);
  emitter->Emit(record.header);
}

ValueRef CollectiveRecords::ReportReceived(ThreadState* thread, const PlainTensor& tensor,
                                           const CollectiveName& collective,
                                           const Layer* layer) noexcept {
  Emitter* emitter = segment_.Ensure();
  if (emitter == nullptr) return {};
  UnobservedWriter writer{};
  writer.op = collective.name;
  writer.layer = layer;
  writer.phase = wire::Phase::kOther;
  writer.finding_class = wire::FindingClass::kReceived;
  wire::Source source{};
  source.kind = static_cast<uint8_t>(wire::SourceKind::kCollective);
  source.value = collective.sequence;
  source.name = GroupOf(*emitter, collective);
  writer.Add(source, {});
  return writes_.Record(thread, tensor, writer);
}

}  // namespace nanwatch
