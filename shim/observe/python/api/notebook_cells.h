// SPDX-License-Identifier: Apache-2.0
// The cells of a notebook (an IPython shell): when one begins, and which one a line belongs to.
//
// IPython runs each cell as a file of its own, "/tmp/ipykernel_123/456.py" or
// "<ipython-input-7-...>". Its compiler keeps the number of the cell for each of these names
// (shell.compile._filename_map), which is where tracebacks have "Cell In[7]" from; and it calls
// what is in shell.events.callbacks["pre_run_cell"] before a cell is compiled. A function of ours
// is put there. It copies the names that are known by then into a table that is read without the
// GIL; a name that is not in it belongs to the cell that runs.
//
// Nothing is imported: a process whose sys.modules has no IPython is no notebook.
//
// Threads: TryInstall and what IPython calls hold the GIL; everything else any thread, no GIL.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class NotebookCells {
 public:
  // A cell begins, on its thread; may be null.
  explicit NotebookCells(const PythonApi& api, void (*on_begin)()) noexcept
      : api_(api), on_begin_(on_begin) {}
  NotebookCells(const NotebookCells&) = delete;
  NotebookCells& operator=(const NotebookCells&) = delete;

  // Once: does nothing where there is no shell, or one that is not built as is known here.
  void TryInstall();

  // When a model is called, which is long after the cell has its name.
  void Refresh() {
    if (epoch() != refreshed_) RefreshNow();
  }

  // Goes up with every cell that begins; 0: this is no notebook.
  [[nodiscard]] uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }
  // The number of the cell that runs, or ran last.
  [[nodiscard]] uint32_t running() const noexcept {
    return running_.load(std::memory_order_relaxed);
  }
  // The number of the cell of this file; 0: it is no cell's. `runs`: the file is known to be that
  // of the cell that runs now, which may have been run before under another number.
  [[nodiscard]] uint32_t NumberOf(std::string_view file, bool runs) const noexcept;

 private:
  static PyObj* OnCell(PyObj* self, PyObj* arguments);
  void Begin();
  void RefreshNow();
  [[nodiscard]] uint32_t CopyNames();  // the largest number
  void Add(std::string_view file, uint32_t number) noexcept;

  // Cells that were edited and run again have a new name each time. Those beyond are named as
  // Python has them.
  static constexpr size_t kNames = 4096;
  struct Name {
    std::atomic<uint64_t> hash{0};  // 0: unused; written last
    std::atomic<uint32_t> number{0};
  };

  const PythonApi& api_;
  void (*const on_begin_)();
  PyObj* shell_ = nullptr;  // owned, as is the next
  PyObj* numbers_ = nullptr;
  bool tried_ = false;
  uint32_t refreshed_ = 0;  // the epoch in which the running cell's number was read
  // What shell.execution_count has to be corrected by, to be the number of the cell that begins:
  // IPython 9 has counted it by then, earlier ones have not. Learned from the cell before.
  int32_t correction_ = 0;
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> running_{0};
  std::array<Name, kNames> names_;
};

}  // namespace nanwatch
