// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#include "shim/check/scan.h"
#include "shim/host/quiet_thread.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
namespace {

// The end of it, in whole characters.
template <size_t N>
void CopyEnd(std::string_view text, char (&out)[N]) {
  if (text.size() >= N) text.remove_prefix(text.size() - (N - 1));
  while (!text.empty() && (text.front() & 0xC0) == 0x80) text.remove_prefix(1);
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = 0;
}

// "model.module.fc.weight" is "fc.weight" of a wrapped model, or of one in a dict.
bool EndsWithOneOf(const std::unordered_set<std::string_view>& names, std::string_view name) {
  for (;;) {
    if (names.contains(name)) return true;
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) return false;
    name.remove_prefix(dot + 1);
  }
}

// "optimizer.state.0.exp_avg".
bool IsOfOptimizer(std::string_view name) {
  return name.starts_with("state.") || name.find(".state.") != std::string_view::npos;
}

constexpr uint8_t kAnything = wire::kHasNan | wire::kHasPosInf | wire::kHasNegInf;

}  // namespace

Checkpoints::Part Checkpoints::PartOf(const SavedTensor& saved, const Names& parameters) const {
  const c10::TensorImpl* const impl = saved.tensor->unsafeGetTensorImpl();
  if (const NamedTensor* named = names_.FindByImpl(impl); named != nullptr)
    return named->kind == NamedTensorKind::kBuffer ? Part::kBuffer : Part::kParameter;
  if (names_.IsParameterObject(impl)) return Part::kParameter;
  if (IsOfOptimizer(saved.name)) return Part::kState;
  return EndsWithOneOf(parameters, saved.name) ? Part::kParameter : Part::kOther;
}

void Checkpoints::Begin(unsigned save, const SavedTensors& saved) {
  Save& mine = saves_[save];
  mine.found = {};
  mine.memory.clear();
  mine.is_checkpoint = false;
  mine.pid = getpid();
  Names parameters;
  names_.ForEach([&](const NamedTensor& tensor) {
    if (tensor.kind == NamedTensorKind::kParameter) parameters.insert(tensor.name);
  });
  bool holds_parameter = false;
  for (const SavedTensor& one : saved.tensors) {
    const Part part = PartOf(one, parameters);
    if (part == Part::kOther) continue;
    holds_parameter |= part == Part::kParameter;
    Add(one, part, &mine);
  }
  if (!holds_parameter) {
    mine.memory.clear();
    return;
  }
  mine.is_checkpoint = true;  // only now: where memory ran out before, nothing is said of it
  if (saved.left_out) mine.found.flags |= wire::CheckpointRecord::kLeftOut;
  const QuietSignals quiet;
  try {
    mine.reader = std::thread([&mine] { Read(&mine); });
  } catch (const std::system_error&) {  // no more threads: Wait reads
  }
}

void Checkpoints::Add(const SavedTensor& saved, Part part, Save* save) {
  wire::CheckpointRecord& found = save->found;
  PlainTensor plain{};
  wire::Unchecked reason{};
  const Readable readable = DescribeTensor(*saved.tensor, &plain, &reason);
  if (readable == Readable::kNothing) return;
  const bool is_run = readable == Readable::kYes && plain.gpu < 0 &&
                      saved.tensor->unsafeGetTensorImpl()->is_non_overlapping_and_dense();
  if (!is_run) {
    ++found.unread;
    if (plain.gpu >= 0) found.flags |= wire::CheckpointRecord::kOnGpu;
    return;
  }
  save->memory.push_back({saved.tensor->unsafeGetTensorImpl()->unsafe_storage(),
                          DataOf(*plain.storage), plain.byte_begin, plain.byte_end, plain.view.type,
                          part, saved.name});
}

// In pieces, so that one processor does it: the helpers of a large read are the program's own
// threads. Memory that is given back meanwhile is not read on.
void Checkpoints::Read(Save* save) noexcept {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 16;
  wire::CheckpointRecord& found = save->found;
  for (const Memory& memory : save->memory) {
    const c10::StorageImpl& storage = *memory.storage.unsafeGetStorageImpl();
    const size_t element = ElementBytes(memory.type);
    uint8_t kinds = 0;
    bool is_whole = memory.data != nullptr || memory.byte_begin == memory.byte_end;
    for (uint64_t at = memory.byte_begin; is_whole && at < memory.byte_end; at += kPieceBytes) {
      is_whole = DataOf(storage) == memory.data && memory.byte_end <= storage.nbytes();
      if (!is_whole) break;
      const auto count =
          static_cast<int64_t>(std::min(kPieceBytes, memory.byte_end - at) / element);
      const void* data = static_cast<const unsigned char*>(memory.data) + at;
      if (!HasNonFinite(memory.type, data, static_cast<size_t>(count))) continue;
      const int64_t stride = 1;
      kinds |= NonFiniteKinds(TensorView{data, memory.type, 1, &count, &stride, count});
      if ((kinds & wire::kHasNan) != 0) break;
    }
    if (!is_whole) {
      ++found.unread;
      continue;
    }
    ++found.read;
    found.bytes += memory.byte_end - memory.byte_begin;
    const uint8_t counts = memory.part == Part::kBuffer  ? wire::kHasNan
                           : memory.part == Part::kState ? kAnything
                                                         : wire::kHasNan | wire::kHasPosInf;
    if ((kinds & counts) == 0) continue;
    if (found.bad++ == 0) CopyEnd(memory.name, found.first_bad);
    found.kinds |= kinds;
  }
}

void Checkpoints::Wait(unsigned save) noexcept {
  Save& mine = saves_[save];
  if (mine.pid != getpid()) {
    new (&mine.reader) std::thread();  // it runs in the parent
    mine.is_checkpoint = false;
  } else if (mine.reader.joinable()) {
    mine.reader.join();
  } else if (mine.is_checkpoint) {
    Read(&mine);
  }
}

void Checkpoints::End(ThreadState* thread, unsigned save, const char* file, bool failed) noexcept {
  Save& mine = saves_[save];
  const bool is_checkpoint = mine.is_checkpoint;
  mine.is_checkpoint = false;
  mine.memory.clear();
  if (!is_checkpoint || thread == nullptr) return;
  Emitter* const emitter = segment_.Ensure();
  if (emitter == nullptr) return;
  wire::CheckpointRecord& record = mine.found;
  if (failed) record.flags |= wire::CheckpointRecord::kFailed;
  CopyEnd(file, record.file);
  record.header =
      records_.MakeHeader(thread, *emitter, wire::RecordKind::kCheckpoint, sizeof record);
  emitter->Emit(record.header);
}

}  // namespace nanwatch
