// SPDX-License-Identifier: Apache-2.0
// The own thread's Python frames, read without the GIL.
//
// A thread that runs an op or a callback is inside a C call of its own innermost frame, so that
// frame and those below it cannot change; only fields of code objects that never change are read,
// and PyCode_Addr2Line. The GIL is never taken: a thread that waits for it in a callback stalls for
// as long as another one keeps it. Where things stand in a frame is written down (frame_layout.h).
// Whatever is used is proven against Python's own answer when
// the bridge is installed; unproven means "no frames", never a guess.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/observe/python/api/frame_layout.h"
#include "shim/observe/python/api/notebook_cells.h"
#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/api/python_text.h"

namespace nanwatch {

class PythonFrames {
 public:
  // `cells` may be null: files are then named as Python has them.
  explicit PythonFrames(const PythonApi& api, const NotebookCells* cells = nullptr) noexcept
      : api_(api), cells_(cells) {}

  // GIL held, inside a frame: picks the layout and proves it. False: frames stay unread.
  bool Prove() noexcept;
  [[nodiscard]] bool proven() const noexcept { return proven_; }

  // "model.py:88 in forward" for the innermost frame that is neither torch's nor the standard
  // library's, else for the innermost of any kind. Returns the length, 0 when there is none; always
  // terminates `out`. Any thread, no GIL; 2 us.
  //
  // In a notebook's cell the file is the cell: "In[7]:6 in forward".
  //
  // While whole stacks are wanted, the user's frames that called it follow, as many as fit:
  // "model.py:88 in forward < train.py:12 in step < train.py:40 in main"; 2 us each.
  size_t UserSourceLine(char* out, size_t size) const noexcept;

  // The same frame's place in its code as a number: alike for the same call of the user's, 0 when
  // there is none. While whole stacks are wanted: those frames' places, alike for the same stack.
  // In a notebook, another one in each cell that runs.
  // Any thread, no GIL; some hundred ns a frame.
  [[nodiscard]] uint32_t UserCall() const noexcept;

  // Any thread.
  void WantWholeStacks(bool on) noexcept { whole_stacks_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool whole_stacks() const noexcept {
    return whole_stacks_.load(std::memory_order_relaxed);
  }

  // Where that frame stands, for those who keep what they have once been told of a place: the code
  // object's address and the byte in its code; null when there is no frame. Any thread, no GIL.
  struct UserPlace {
    const void* code = nullptr;
    int offset = 0;
  };
  [[nodiscard]] UserPlace UserPlaceNow() const noexcept;

  // Whether this thread is in a call of a torch.nn.Module. Any thread, no GIL.
  [[nodiscard]] bool IsInModuleCall() const noexcept;

  // Inside an "Optimizer.step#..." range's callback: the optimizer that opened it, as an identity;
  // null when not found. Any thread, no GIL.
  [[nodiscard]] const void* OptimizerOnThisThread() const noexcept;
  // How many optimizers' steps this thread is in. Any thread, no GIL; 50 ns a frame.
  [[nodiscard]] uint32_t OptimizersOnThisThread() const noexcept;

  // ---- the own thread's frames one by one. Without code: there is none. No GIL.
  struct Frame {
    const unsigned char* address = nullptr;
    PyObj* code = nullptr;
  };
  static constexpr int kFramesMax = 256;  // a chain longer than this is not searched to its end
  [[nodiscard]] Frame Innermost() const noexcept;
  [[nodiscard]] Frame Previous(const Frame& frame) const noexcept;
  // Whether the frame runs a function of this name, from a file whose path ends so.
  [[nodiscard]] bool Runs(const Frame& frame, const char* function,
                          const char* file_tail) const noexcept;
  [[nodiscard]] bool IsFrom(const Frame& frame, const char* file_tail) const noexcept;
  // The value of a local variable, borrowed; null: it is not set, or there is none of that name. A
  // variable that closures share is a cell.
  [[nodiscard]] PyObj* Local(const Frame& frame, const char* name) const noexcept;
  [[nodiscard]] size_t LocalCount(const Frame& frame) const noexcept;
  [[nodiscard]] int tuple_items() const noexcept { return layout_.tuple_items; }
  [[nodiscard]] const PythonText& text() const noexcept { return text_; }

 private:
  [[nodiscard]] Frame SkipToCode(const unsigned char* frame) const noexcept;
  [[nodiscard]] Frame UserFrame() const noexcept;
  // The next of the user's frames outside of `frame`; without code when there is none.
  [[nodiscard]] Frame UserCaller(const Frame& frame) const noexcept;
  [[nodiscard]] bool IsOptimizerStep(const PyObj* code) const noexcept;
  size_t WriteLine(const Frame& frame, char* out, size_t size) const noexcept;
  [[nodiscard]] bool IsOfRunningCell(const Frame& frame) const noexcept;
  [[nodiscard]] int CodeOffset(const Frame& frame) const noexcept;  // bytes; -1 unknown
  [[nodiscard]] int Line(const Frame& frame) const noexcept;
  [[nodiscard]] bool IsUserFile(const char* path) const noexcept;
  [[nodiscard]] bool IsUserCode(const PyObj* code) const noexcept;
  bool ProveFrame() noexcept;
  void FindLibraryPaths();

  const PythonApi& api_;
  const NotebookCells* const cells_;
  FrameLayout layout_;
  PythonText text_;
  bool proven_ = false;
  std::atomic<bool> whole_stacks_{false};
  // What IsUserCode found out: code ^ file name, the lowest bit the answer. Objects are 8-byte
  // aligned.
  static constexpr size_t kKnownCodes = 512;
  mutable std::atomic<uintptr_t> known_codes_[kKnownCodes] = {};
  std::string torch_dir_;  // with a trailing slash
  std::string stdlib_dir_;
};

}  // namespace nanwatch
