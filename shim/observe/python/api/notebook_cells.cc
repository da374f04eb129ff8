// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/notebook_cells.h"

#include <algorithm>

#include "proto/wire/hash.h"

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
NotebookCells* cells_of_process = nullptr;

// What IPython calls must take its argument, or none, as versions differ.
constexpr char kInstall[] =
    "def nanwatch_install(shell):\n"
    "    def nanwatch_cell(*arguments):\n"
    "        tell()\n"
    "    shell.events.callbacks['pre_run_cell'].append(nanwatch_cell)\n"
    "    return shell.compile._filename_map\n";

uint64_t HashOf(std::string_view text) { return wire::Fnv1a(text) | 1; }

// A cell that IPython has not compiled when the names were copied.
bool LooksLikeACell(std::string_view file) {
  return file.starts_with("<ipython-input-") || file.find("/ipykernel_") != std::string_view::npos;
}

}  // namespace

void NotebookCells::TryInstall() {
  if (tried_ || cells_of_process != nullptr) return;
  tried_ = true;
  const KeptError error(api_);
  PyObj* module = api_.LoadedModule("IPython.core.interactiveshell");
  if (module == nullptr) return;
  const PyOwned shell_class(api_, api_.AttributeOrNull(module, "InteractiveShell"));
  if (!shell_class) return;
  PyOwned shell(api_, api_.AttributeOrNull(shell_class.get(), "_instance"));
  if (!shell || shell.get() == api_.none) return;  // the library is there, and no shell
  static PyMethod tell = {"tell", OnCell, kPyMethodNoArguments, nullptr};
  const PyOwned told(api_, api_.PyCFunction_NewEx(&tell, nullptr, nullptr));
  if (!told) return;
  const PyOwned install(api_, api_.Define(kInstall, "nanwatch_install", {{"tell", told.get()}}));
  if (!install) return;
  cells_of_process = this;
  constexpr PyObj* kEnd = nullptr;
  PyOwned numbers(api_, api_.PyObject_CallFunctionObjArgs(install.get(), shell.get(), kEnd));
  if (!numbers || !api_.HasFlag(numbers.get(), kPyFlagDict)) {
    api_.PyErr_Clear();
    return;
  }
  shell_ = shell.release();
  numbers_ = numbers.release();
  // The cell that has imported torch runs.
  Begin();
}

PyObj* NotebookCells::OnCell(PyObj*, PyObj*) {
  NotebookCells& mine = *cells_of_process;
  const KeptError error(mine.api_);
  if (mine.numbers_ != nullptr) mine.Begin();
  return mine.api_.NewNone();
}

void NotebookCells::Begin() {
  const uint32_t said = running_.load(std::memory_order_relaxed);
  const uint32_t newest = CopyNames();
  const PyOwned count(api_, api_.AttributeOrNull(shell_, "execution_count"));
  const double counted = count ? api_.PyFloat_AsDouble(count.get()) : 0;
  api_.PyErr_Clear();
  const auto number = counted > 0 && counted < 1e9 ? static_cast<int32_t>(counted) : 0;
  if (epoch() == 0) {
    correction_ = static_cast<int32_t>(newest) - number;  // it runs already, and has its name
  } else if (newest != said) {
    correction_ += static_cast<int32_t>(newest) - static_cast<int32_t>(said);
  }
  running_.store(static_cast<uint32_t>(std::max(number + correction_, 0)),
                 std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_relaxed);
  if (on_begin_ != nullptr) on_begin_();
}

// Numbers only go up: the largest is that of the cell that runs.
void NotebookCells::RefreshNow() {
  const KeptError error(api_);
  refreshed_ = epoch();
  running_.store(CopyNames(), std::memory_order_relaxed);
}

uint32_t NotebookCells::CopyNames() {
  uint32_t largest = 0;
  ptrdiff_t at = 0;
  PyObj* name = nullptr;
  PyObj* number = nullptr;
  while (api_.PyDict_Next(numbers_, &at, &name, &number) != 0) {
    const char* const text = api_.Text(name);
    const double value = api_.PyFloat_AsDouble(number);
    api_.PyErr_Clear();
    if (text == nullptr || value < 1 || value >= 1e9) continue;
    Add(text, static_cast<uint32_t>(value));
    largest = std::max(largest, static_cast<uint32_t>(value));
  }
  return largest;
}

void NotebookCells::Add(std::string_view file, uint32_t number) noexcept {
  constexpr size_t kProbes = 32;
  const uint64_t hash = HashOf(file);
  for (size_t i = 0; i < kProbes; ++i) {
    Name& name = names_[((hash >> 1) + i) % kNames];
    const uint64_t held = name.hash.load(std::memory_order_relaxed);
    if (held != 0 && held != hash) continue;
    name.number.store(number, std::memory_order_relaxed);
    name.hash.store(hash, std::memory_order_release);
    return;
  }
}

uint32_t NotebookCells::NumberOf(std::string_view file, bool runs) const noexcept {
  if (epoch() == 0) return 0;
  if (runs) return running_.load(std::memory_order_relaxed);
  constexpr size_t kProbes = 32;
  const uint64_t hash = HashOf(file);
  for (size_t i = 0; i < kProbes; ++i) {
    const Name& name = names_[((hash >> 1) + i) % kNames];
    const uint64_t held = name.hash.load(std::memory_order_acquire);
    if (held == hash) return name.number.load(std::memory_order_relaxed);
    if (held == 0) break;
  }
  return LooksLikeACell(file) ? running_.load(std::memory_order_relaxed) : 0;
}

}  // namespace nanwatch
