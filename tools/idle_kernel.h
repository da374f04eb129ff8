// SPDX-License-Identifier: Apache-2.0
// Whether a process is a notebook kernel (Jupyter, an IPython shell) that runs no cell now. It does
// nothing until somebody runs a cell, which may be never, so nobody should wait for it.
#pragma once

#include <cstdint>
#include <string>

namespace nanwatch {

// Of a command line as /proc has it, words ended by a null character.
[[nodiscard]] bool IsNotebookCommand(const std::string& cmdline);

// Polls one process from outside, without stopping it.
class IdleKernel {
 public:
  explicit IdleKernel(int pid);
  IdleKernel(int pid, bool is_notebook) : pid_(pid), is_notebook_(is_notebook) {}

  // True once its main thread has only waited for input in all polls of the last kIdleNs.
  [[nodiscard]] bool Look(uint64_t now_ns);
  [[nodiscard]] bool is_notebook() const { return is_notebook_; }

  static constexpr uint64_t kIdleNs = 300'000'000;

 private:
  int pid_;
  bool is_notebook_;
  uint64_t since_ns_ = 0;
  uint64_t ticks_ = 0;
};

}  // namespace nanwatch
