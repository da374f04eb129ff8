// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/external_values.h"

#include "shim/check/scan.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/shared_files.h"

namespace nanwatch {

// What comes into the program comes with its memory. Parameters and buffers are read when their
// model is first called: the others were finite then.
bool ExternalValues::MayHaveUnseenWriter(const PlainTensor& tensor, wire::Target target) noexcept {
  BadEntry known;
  if (known_bad_.Find(tensor, &known)) return known.writer_unseen;
  return target != wire::Target::kInputData || !CameWithValues(*tensor.storage);
}

void ExternalValues::Remember(const PlainTensor& tensor, wire::Target target, const char* name,
                              Writer writer) noexcept {
  Emitter* emitter = segment_.Ensure();
  if (emitter != nullptr) Remember(tensor, target, InternText(*emitter, name), writer);
}

void ExternalValues::Remember(const PlainTensor& tensor, wire::Target target, uint32_t name,
                              Writer writer) noexcept {
  const bool may_be_brought = target == wire::Target::kInputData;
  const uint64_t file =
      may_be_brought ? shared_files_.BringerOf(tensor) : shared_files_.FileOf(tensor);
  // Any process that has mapped a shared file may write it at any time. And nobody saw what a
  // collective has brought being put there.
  const bool is_shared = file != 0 && may_be_brought;
  known_bad_.RememberExternal(
      tensor, {.target = target,
               .name = name,
               .shared_file = file,
               .writer_unseen =
                   writer != Writer::kKnown && (is_shared || MayHaveUnseenWriter(tensor, target))});
}

wire::Source ExternalValues::SourceOf(const NamedTensor& named, const NamedReading& bad) noexcept {
  wire::Source source{};
  source.kind = static_cast<uint8_t>(wire::SourceKind::kExternal);
  source.target = static_cast<uint8_t>(TargetOf(named));
  source.kinds = NonFiniteKinds(bad.tensor().view);
  source.input = 255;
  source.value = shared_files_.FileOf(bad.tensor());
  Emitter* emitter = segment_.Ensure();
  source.name = emitter != nullptr ? InternText(*emitter, named.name) : 0;
  if (MayHaveUnseenWriter(bad.tensor(), TargetOf(named))) {
    source.flags = wire::Source::kWriterUnseen;
  }
  return source;
}

}  // namespace nanwatch
