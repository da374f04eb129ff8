// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/checkpoints.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <unordered_set>

#include "shim/check/scan.h"
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

// A thread that takes no signal from the program's.
template <typename Work>
std::thread QuietThread(Work work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(work);
  } catch (const std::system_error&) {  // no more threads: the caller does it
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// One processor's worth, in pieces: the helpers of a large read are the program's own threads.
bool IsBad(const PlainTensor& plain) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 16;
  if (!plain.IsDense()) return HasNonFinite(plain.view);
  const size_t element = ElementBytes(plain.view.type);
  const auto* at = static_cast<const unsigned char*>(plain.storage->data()) + plain.byte_begin;
  const size_t per_piece = kPieceBytes / element;
  for (auto left = static_cast<size_t>(plain.view.numel); left != 0;) {
    const size_t count = std::min(left, per_piece);
    if (HasNonFinite(plain.view.type, at, count)) return true;
    at += count * element;
    left -= count;
  }
  return false;
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

}  // namespace

bool Checkpoints::IsCheckpoint(const SavedTensors& saved) const {
  const auto is_known = [this](const SavedTensor& one) {
    const c10::TensorImpl* const impl = one.tensor->unsafeGetTensorImpl();
    return names_.FindByImpl(impl) != nullptr || names_.IsParameterObject(impl);
  };
  if (std::any_of(saved.tensors.begin(), saved.tensors.end(), is_known)) return true;
  std::unordered_set<std::string_view> parameters;
  names_.ForEach([&](const NamedTensor& tensor) {
    if (tensor.kind == NamedTensorKind::kParameter) parameters.insert(tensor.name);
  });
  return std::any_of(saved.tensors.begin(), saved.tensors.end(),
                     [&](const SavedTensor& one) { return EndsWithOneOf(parameters, one.name); });
}

void Checkpoints::Begin(unsigned save, const SavedTensors& saved) {
  Save& mine = saves_[save];
  mine.found = {};
  mine.tensors.clear();
  if (!IsCheckpoint(saved)) return;
  if (saved.left_out) mine.found.flags |= wire::CheckpointRecord::kLeftOut;
  mine.tensors.reserve(saved.tensors.size());
  for (const SavedTensor& one : saved.tensors) mine.tensors.push_back({*one.tensor, one.name});
  mine.reader = QuietThread([&mine] { Read(&mine); });
}

void Checkpoints::Read(Save* save) noexcept {
  wire::CheckpointRecord& found = save->found;
  for (const Saved& one : save->tensors) {
    PlainTensor plain{};
    wire::Unchecked reason{};
    const Readable readable = DescribeTensor(one.tensor, &plain, &reason);
    if (readable == Readable::kNothing) continue;
    if (readable == Readable::kNo || plain.gpu >= 0) {
      ++found.unread;
      if (readable == Readable::kYes) found.flags |= wire::CheckpointRecord::kOnGpu;
      continue;
    }
    ++found.read;
    found.bytes += BytesOf(plain.view);
    if (!IsBad(plain)) continue;
    if (found.bad++ == 0) CopyEnd(one.name, found.first_bad);
    found.kinds |= NonFiniteKinds(plain.view);
  }
}

void Checkpoints::End(ThreadState* thread, unsigned save, const char* file, bool failed) noexcept {
  Save& mine = saves_[save];
  if (mine.reader.joinable()) {
    mine.reader.join();
  } else {
    Read(&mine);
  }
  const bool is_checkpoint = !mine.tensors.empty();
  mine.tensors.clear();
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
