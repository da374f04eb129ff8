// SPDX-License-Identifier: Apache-2.0
// Which samples a DataLoader is fetching on the calling thread, read from its Python frames.
//
// `fetch` of torch/utils/data/_utils/fetch.py has the index, or the batch's list of indices, as its
// argument, and in `[self.dataset[idx] for idx in ...]` the current one as `idx`. A Subset has the
// same comprehension in its __getitems__. Only these are read; where two loaders are at work, one
// within the other, nothing is said. torch's own collate functions stack samples in the order of
// their indices: row 2 of what they make is the third index.
//
// Read without the GIL, as python_frames.h explains: the frames of this thread, and what they hold,
// stand still. The list of indices belongs to the loader, which does not change it meanwhile. No
// Python code runs. What is read is proven against a comprehension of our own; unproven means
// "nothing known".
#pragma once

#include <cstddef>

#include "proto/wire/loader_samples.h"
#include "shim/observe/python/api/python_frames.h"

namespace nanwatch {

class LoaderFetch {
 public:
  LoaderFetch(const PythonApi& api, const PythonFrames& frames) noexcept
      : api_(api), frames_(frames) {}

  // GIL held, after the frames are proven.
  void Prove();

  // A tensor that tensors may have been stacked to just now.
  struct Rows {
    size_t count = 0;
    bool (*is_bad)(const void* context, size_t row) = nullptr;
    const void* context = nullptr;
  };
  // Fills in what is being fetched; false: nothing, or nothing that can be named. Any thread, no
  // GIL; some hundred ns, and 50 ns a frame.
  [[nodiscard]] bool ReadNow(const Rows& rows, wire::LoaderSamples* samples) const noexcept;

 private:
  struct Requested {
    PyObj* indices = nullptr;  // of the batch, or one index
    PyObj* current = nullptr;  // the one of these that is fetched now; null: not known
    bool stacks = false;       // torch's collate function stacks one tensor of each sample
  };
  static PyObj* OnProof(PyObj* self, PyObj* arguments);
  [[nodiscard]] bool Find(Requested* requested) const noexcept;
  [[nodiscard]] PyObj* CurrentIn(const PythonFrames::Frame& frame,
                                 const PythonFrames::Frame& callee,
                                 const char* file_tail) const noexcept;
  [[nodiscard]] bool Fill(const Requested& requested, const Rows& rows,
                          wire::LoaderSamples* samples) const noexcept;
  [[nodiscard]] PyObj* ItemOf(PyObj* sequence, size_t i) const noexcept;
  // The length of the literal; 0: it does not fit, or the object has another type.
  size_t Write(PyObj* index, char* out, size_t size, int depth) const noexcept;
  size_t WriteInt(PyObj* number, char* out, size_t size) const noexcept;
  size_t WriteText(PyObj* text, char* out, size_t size) const noexcept;
  size_t WriteTuple(PyObj* tuple, char* out, size_t size, int depth) const noexcept;
  [[nodiscard]] bool IsNumpyInt(PyObj* object, const char* type, size_t bytes) const noexcept;

  const PythonApi& api_;
  const PythonFrames& frames_;
  bool proven_ = false;
  size_t proofs_ = 0;  // of the items of the proof's list, those that were read as they are
};

}  // namespace nanwatch
