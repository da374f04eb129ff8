// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/loader_fetch.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace nanwatch {
namespace {

constexpr char kFetchFile[] = "torch/utils/data/_utils/fetch.py";
constexpr char kCollateFile[] = "torch/utils/data/_utils/collate.py";
constexpr char kDatasetFile[] = "torch/utils/data/dataset.py";

constexpr size_t kHead = sizeof(PyObj);  // of an object; a size or a value follows
constexpr int kIntDigits = 24;           // of 30 bits each
constexpr int kListItems = 24;           // pointer to the items
constexpr int kTypeBytes = 32;           // PyTypeObject: behind the name

constexpr size_t kTupleMax = 4;
constexpr size_t kTextMax = 40;  // bytes of a key that are written; more are cut

template <typename T>
T FieldAt(const void* base, size_t offset) noexcept {
  T value;
  memcpy(&value, static_cast<const unsigned char*>(base) + offset, sizeof value);
  return value;
}

// The proof runs with the GIL held, once, and Python hands its function no pointer.
LoaderFetch* proving = nullptr;

constexpr const char* kProof[] = {"0",
                                  "1",
                                  "-7",
                                  "1073741823",
                                  "1073741824",
                                  "-4611686018427387904",
                                  "9223372036854775807",
                                  "-9223372036854775808",
                                  "'cat'",
                                  "(3, 'x')"};
constexpr char kProofText[] = R"(
def prove():
    indices = [0, 1, -7, 1073741823, 1073741824, -4611686018427387904, 9223372036854775807,
               -9223372036854775808, 'cat', (3, 'x')]
    [tell(idx) for idx in indices]
)";

}  // namespace

void LoaderFetch::Prove() {
  static PyMethod tell = {"nanwatch_proof", OnProof, kPyMethodOneArgument, nullptr};
  proven_ = false;
  proofs_ = 0;
  if (!frames_.proven() || proving != nullptr) return;
  const char* const int_name = PythonApi::NameOfType(api_.int_type);
  if (int_name == nullptr || strcmp(int_name, "int") != 0 ||
      FieldAt<size_t>(api_.int_type, kTypeBytes) != kIntDigits) {
    return;
  }
  const PyOwned told(api_, api_.PyCFunction_NewEx(&tell, nullptr, nullptr));
  const PyOwned prove(api_,
                      told ? api_.Define(kProofText, "prove", {{"tell", told.get()}}) : nullptr);
  if (!prove) return;
  proving = this;
  constexpr PyObj* kEnd = nullptr;
  const PyOwned done(api_, api_.PyObject_CallFunctionObjArgs(prove.get(), kEnd));
  proving = nullptr;
  if (!done) api_.PyErr_Clear();
  proven_ = done && proofs_ == std::size(kProof);
}

// Called by the comprehension of kProofText for each of its items.
PyObj* LoaderFetch::OnProof(PyObj*, PyObj*) {
  LoaderFetch& mine = *proving;
  const PythonFrames::Frame innermost = mine.frames_.Innermost();
  const bool own_frame = mine.frames_.Runs(innermost, "<listcomp>", "<nanwatch>");
  const PythonFrames::Frame frame = own_frame ? mine.frames_.Previous(innermost) : innermost;
  const PythonFrames::Frame callee = own_frame ? innermost : PythonFrames::Frame();
  Requested requested;
  if (frame.code != nullptr && mine.frames_.Runs(frame, "prove", "<nanwatch>")) {
    requested.indices = mine.frames_.Local(frame, "indices");
    requested.current = mine.CurrentIn(frame, callee, "<nanwatch>");
  }
  wire::LoaderSamples one{};
  wire::LoaderSamples all{};
  const auto is = [](const wire::LoaderSamples& samples, const char* literal) {
    const size_t length = strlen(literal);
    return samples.text_bytes > length && memcmp(samples.text, literal, length) == 0 &&
           samples.text[length] == '\n';
  };
  const bool same = requested.current != nullptr && requested.indices != nullptr &&
                    mine.Fill(requested, {}, &one) && one.count == 1 &&
                    one.of_batch == std::size(kProof) && is(one, kProof[mine.proofs_]) &&
                    mine.Fill({.indices = requested.indices}, {}, &all) &&
                    all.count == std::size(kProof) && is(all, kProof[0]);
  if (same) ++mine.proofs_;
  return mine.api_.NewNone();
}

bool LoaderFetch::ReadNow(const Rows& rows, wire::LoaderSamples* samples) const noexcept {
  Requested requested;
  return proven_ && Find(&requested) && Fill(requested, rows, samples);
}

// Up to Python 3.11 a comprehension has a frame of its own, behind the function's. Later ones keep
// its variable among the function's, where it is set only while the comprehension runs.
PyObj* LoaderFetch::CurrentIn(const PythonFrames::Frame& frame, const PythonFrames::Frame& callee,
                              const char* file_tail) const noexcept {
  if (callee.code != nullptr && frames_.Runs(callee, "<listcomp>", file_tail)) {
    return frames_.Local(callee, "idx");
  }
  return frames_.Local(frame, "idx");
}

bool LoaderFetch::Find(Requested* requested) const noexcept {
  PythonFrames::Frame inner[2];  // what the frame has called, and what that has called
  PythonFrames::Frame frame = frames_.Innermost();
  if (frame.code == nullptr) return false;
  bool found = false;
  // So far there is nothing but torch's collate functions: a program's own might have another
  // order, or give them a part of the batch.
  bool collates = true;
  const bool stacks = frames_.Runs(frame, "collate_tensor_fn", kCollateFile);
  // Arrays become tensors one by one before they are stacked: `array` of `arrays`.
  PyObj* array = nullptr;
  PyObj* arrays = nullptr;
  // The index at the array's place, if it has only one.
  const auto index_of_array = [&](PyObj* indices) -> PyObj* {
    const bool lists = (arrays->type == api_.list_type || arrays->type == api_.tuple_type) &&
                       indices != nullptr && indices->type == api_.list_type;
    const size_t size = lists ? FieldAt<size_t>(arrays, kHead) : 0;
    if (!lists || size != FieldAt<size_t>(indices, kHead)) return nullptr;
    size_t places = 0;
    size_t place = 0;
    for (size_t i = 0; i < size; ++i) {
      if (ItemOf(arrays, i) != array) continue;
      place = i;
      ++places;
    }
    return places == 1 ? ItemOf(indices, place) : nullptr;
  };
  for (int i = 0; frame.code != nullptr; ++i) {
    if (i == PythonFrames::kFramesMax) return false;
    if (frames_.Runs(frame, "fetch", kFetchFile)) {
      if (found) return false;
      found = true;
      requested->stacks = collates && stacks;
      requested->indices = frames_.Local(frame, "possibly_batched_index");
      requested->current = CurrentIn(frame, inner[0], kFetchFile);
      // Of a Subset: self, the indices and the comprehension's variable, and nothing else.
      constexpr size_t kLocalsOfSubset = 3;
      if (inner[0].code != nullptr && frames_.Runs(inner[0], "__getitems__", kDatasetFile) &&
          frames_.LocalCount(inner[0]) <= kLocalsOfSubset) {
        requested->current = CurrentIn(inner[0], inner[1], kDatasetFile);
      }
      if (collates && array != nullptr && arrays != nullptr) {
        requested->current = index_of_array(requested->indices);
      }
    }
    const bool converts = i <= 1 && frames_.Runs(frame, "collate_numpy_array_fn", kCollateFile) &&
                          (i == 0 || frames_.Runs(inner[0], "<listcomp>", kCollateFile));
    if (converts) {
      array = frames_.Local(i == 0 ? frame : inner[0], "b");
      arrays = frames_.Local(frame, "batch");
    }
    collates = collates && frames_.IsFrom(frame, kCollateFile);
    inner[1] = inner[0];
    inner[0] = frame;
    frame = frames_.Previous(frame);
  }
  return found && requested->indices != nullptr;
}

bool LoaderFetch::Fill(const Requested& requested, const Rows& rows,
                       wire::LoaderSamples* samples) const noexcept {
  *samples = {};
  PyObj* const indices = requested.indices;
  const bool is_list = indices->type == api_.list_type;
  const bool is_tuple = indices->type == api_.tuple_type;
  size_t used = 0;
  const auto add = [&](PyObj* index) {
    const size_t length =
        Write(index, samples->text + used, sizeof samples->text - 1 - used, /*depth=*/0);
    if (length == 0) return;
    used += length;
    samples->text[used++] = '\n';
    ++samples->count;
  };
  const size_t size = is_list || is_tuple ? FieldAt<size_t>(indices, kHead) : 0;
  samples->of_batch = static_cast<uint32_t>(std::min<size_t>(size, UINT32_MAX));
  if (requested.current != nullptr) {
    add(requested.current);
  } else if (is_list && requested.stacks && rows.count == size) {
    for (size_t i = 0; i < size && samples->count < wire::kLoaderSamplesMax; ++i) {
      PyObj* const item = rows.is_bad(rows.context, i) ? ItemOf(indices, i) : nullptr;
      if (item != nullptr) add(item);
    }
  } else if (is_list) {
    samples->flags = wire::LoaderSamples::kWholeBatch;
    for (size_t i = 0; i < std::min<size_t>(size, wire::kLoaderSamplesMax); ++i) {
      PyObj* const item = ItemOf(indices, i);
      if (item != nullptr) add(item);
    }
  } else if (!is_tuple) {  // a tuple may be a batch, or one index
    add(indices);
  }
  samples->text_bytes = static_cast<uint16_t>(used);
  return samples->count != 0;
}

PyObj* LoaderFetch::ItemOf(PyObj* sequence, size_t i) const noexcept {
  if (sequence->type == api_.tuple_type) {
    return FieldAt<PyObj*>(sequence,
                           static_cast<size_t>(frames_.tuple_items()) + i * sizeof(PyObj*));
  }
  const auto* const items = FieldAt<const void*>(sequence, kListItems);
  return items == nullptr ? nullptr : FieldAt<PyObj*>(items, i * sizeof(PyObj*));
}

size_t LoaderFetch::Write(PyObj* index, char* out, size_t size, int depth) const noexcept {
  if (index->type == api_.int_type) return WriteInt(index, out, size);
  if (index->type == api_.tuple_type && depth == 0) return WriteTuple(index, out, size, depth + 1);
  if (api_.HasFlag(index, kPyFlagUnicode)) return WriteText(index, out, size);
  int64_t number = 0;
  if (IsNumpyInt(index, "numpy.int64", sizeof(int64_t))) {
    number = FieldAt<int64_t>(index, kHead);
  } else if (IsNumpyInt(index, "numpy.int32", sizeof(int32_t))) {
    number = FieldAt<int32_t>(index, kHead);
  } else {
    return 0;
  }
  const int length = snprintf(out, size, "%lld", static_cast<long long>(number));
  return length > 0 && static_cast<size_t>(length) < size ? static_cast<size_t>(length) : 0;
}

// The head, then the number itself: numpy's PyInt64ScalarObject and PyInt32ScalarObject.
bool LoaderFetch::IsNumpyInt(PyObj* object, const char* type, size_t bytes) const noexcept {
  if (api_.HasFlag(object, kPyFlagHeapType)) return false;
  const char* const name = PythonApi::NameOfType(object->type);
  return name != nullptr && strcmp(name, type) == 0 &&
         FieldAt<size_t>(object->type, kTypeBytes) >= kHead + bytes;
}

size_t LoaderFetch::WriteInt(PyObj* number, char* out, size_t size) const noexcept {
  constexpr size_t kDigitsMax = 3;
  constexpr int kDigitBits = 30;
  size_t digits = 0;
  bool negative = false;
  if (api_.minor >= 12) {  // the lowest two bits are the sign: 0 positive, 1 zero, 2 negative
    const auto tag = FieldAt<size_t>(number, kHead);
    digits = (tag & 3) == 1 ? 0 : tag >> 3;
    negative = (tag & 3) == 2;
  } else {
    const auto count = FieldAt<intptr_t>(number, kHead);
    negative = count < 0;
    digits = static_cast<size_t>(negative ? -count : count);
  }
  if (digits > kDigitsMax) return 0;
  unsigned __int128 magnitude = 0;
  for (size_t i = digits; i > 0; --i) {
    magnitude = magnitude << kDigitBits |
                FieldAt<uint32_t>(number, kIntDigits + (i - 1) * sizeof(uint32_t));
  }
  const auto limit = static_cast<unsigned __int128>(INT64_MAX) + (negative ? 1 : 0);
  if (magnitude > limit) return 0;
  const int length = snprintf(out, size, "%s%llu", negative ? "-" : "",
                              static_cast<unsigned long long>(magnitude));
  return length > 0 && static_cast<size_t>(length) < size ? static_cast<size_t>(length) : 0;
}

size_t LoaderFetch::WriteText(PyObj* text, char* out, size_t size) const noexcept {
  char copy[kTextMax + 8];
  const size_t length = frames_.text().Copy(text, copy, sizeof copy);
  if (length == 0) return 0;
  const bool cut = length > kTextMax;
  size_t end = std::min(length, kTextMax);
  while (cut && end > 0 && (copy[end] & 0xC0) == 0x80) --end;  // whole characters
  char* const first = out;
  const char* const last = out + size;
  const auto put = [&](char c) {
    if (out == last) return false;
    *out++ = c;
    return true;
  };
  bool fits = put('\'');
  for (size_t i = 0; fits && i < end; ++i) {
    const char c = copy[i];
    const char escaped = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c;
    if (escaped != c || c == '\'' || c == '\\') fits = put('\\');
    fits = fits && put(escaped);
  }
  fits = fits && put('\'');
  for (int dot = 0; cut && fits && dot < 3; ++dot) fits = put('.');
  return fits ? static_cast<size_t>(out - first) : 0;
}

size_t LoaderFetch::WriteTuple(PyObj* tuple, char* out, size_t size, int depth) const noexcept {
  const auto count = FieldAt<size_t>(tuple, kHead);
  if (count == 0 || count > kTupleMax || size < 3) return 0;
  size_t used = 0;
  out[used++] = '(';
  for (size_t i = 0; i < count; ++i) {
    PyObj* const item = ItemOf(tuple, i);
    const size_t room = size - used;
    const size_t length = item == nullptr ? 0 : Write(item, out + used, room, depth);
    if (length == 0 || length + 2 > room) return 0;
    used += length;
    out[used++] = ',';
    if (i + 1 < count) {
      out[used++] = ' ';
    } else if (count > 1) {
      out[used - 1] = ')';
    }
  }
  if (count > 1) return used;
  if (used == size) return 0;
  out[used++] = ')';
  return used;
}

}  // namespace nanwatch
