// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/python_frames.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

constexpr int kOptimizerFramesMax = 24;
constexpr int kStackFramesMax = 32;  // of the user's
constexpr size_t kPathMax = 1024;

// Frames that the interpreter itself owns hold no code of anybody: FRAME_OWNED_BY_CSTACK and later.
constexpr unsigned char kOwnedByInterpreter = 3;
// 3.14 keeps marks in the low bits of the references in a frame; objects are at least 8-byte
// aligned.
constexpr uintptr_t kReferenceMask = ~uintptr_t{7};

PyObj* ReferenceAt(const void* base, int offset) noexcept {
  return reinterpret_cast<PyObj*>(ReadAt<uintptr_t>(base, offset) & kReferenceMask);
}

bool EndsWith(const char* text, size_t length, const char* tail) noexcept {
  const size_t tail_length = strlen(tail);
  return length >= tail_length && memcmp(text + length - tail_length, tail, tail_length) == 0;
}

}  // namespace

bool PythonFrames::Prove() noexcept {
  proven_ = false;
  if (!text_.Prove(api_)) return false;
  if (!FrameLayout::Find(api_, &layout_)) return false;
  proven_ = ProveFrame();
  if (proven_) FindLibraryPaths();
  return proven_;
}

// Compares what is read here with what Python says of the frame that runs now.
bool PythonFrames::ProveFrame() noexcept {
  PyObj* current = api_.PyEval_GetFrame();  // borrowed
  if (current == nullptr) return false;
  PyObj* code = api_.PyFrame_GetCode(current);
  if (code == nullptr) return false;
  proven_ = true;  // lets Innermost read
  const Frame frame = Innermost();
  bool same = frame.code == code && Line(frame) == api_.PyFrame_GetLineNumber(current);
  const auto same_text = [&](const char* attribute, int offset) {
    PyObj* expected = api_.AttributeOrNull(code, attribute);
    same = same && expected != nullptr && expected == ReferenceAt(code, offset);
    if (expected != nullptr) api_.Py_DecRef(expected);
  };
  same_text("co_filename", layout_.code_filename);
  same_text("co_name", layout_.code_name);
  api_.Py_DecRef(code);
  return same;
}

void PythonFrames::FindLibraryPaths() {
  const auto directory_of = [this](const char* module_name) {
    PyObj* module = api_.LoadedModule(module_name);
    if (module == nullptr) return std::string();
    PyObj* file = api_.AttributeOrNull(module, "__file__");
    const char* text = api_.Text(file);
    std::string path = text == nullptr ? "" : text;
    if (file != nullptr) api_.Py_DecRef(file);
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
  };
  torch_dir_ = directory_of("torch");
  stdlib_dir_ = directory_of("os");
}

PythonFrames::Frame PythonFrames::SkipToCode(const unsigned char* frame) const noexcept {
  for (int i = 0; frame != nullptr && i < kFramesMax; ++i) {
    const bool interpreters_own =
        layout_.frame_owner >= 0 &&
        ReadAt<unsigned char>(frame, layout_.frame_owner) >= kOwnedByInterpreter;
    if (!interpreters_own) {
      PyObj* code = ReferenceAt(frame, layout_.frame_code);
      if (code != nullptr && code->type == api_.code_type) return {frame, code};
    }
    frame = ReadAt<const unsigned char*>(frame, layout_.frame_previous);
  }
  return {};
}

PythonFrames::Frame PythonFrames::Innermost() const noexcept {
  if (!proven_ || !api_.Running()) return {};
  const void* thread = api_.PyGILState_GetThisThreadState();
  if (thread == nullptr) return {};
  const auto* frame = ReadAt<const unsigned char*>(thread, layout_.thread_frame);
  if (frame != nullptr && layout_.cframe_frame >= 0) {
    frame = ReadAt<const unsigned char*>(frame, layout_.cframe_frame);
  }
  return SkipToCode(frame);
}

PythonFrames::Frame PythonFrames::Previous(const Frame& frame) const noexcept {
  return SkipToCode(ReadAt<const unsigned char*>(frame.address, layout_.frame_previous));
}

int PythonFrames::Line(const Frame& frame) const noexcept {
  const int offset = CodeOffset(frame);
  return offset < 0 ? ReadAt<int>(frame.code, layout_.code_first_line)
                    : api_.PyCode_Addr2Line(frame.code, offset);
}

bool PythonFrames::IsUserFile(const char* path) const noexcept {
  for (const char* made : {"<frozen ", "<eval_with_key>", "<nanwatch>"}) {
    if (strncmp(path, made, strlen(made)) == 0) return false;
  }
  if (!torch_dir_.empty() && strncmp(path, torch_dir_.c_str(), torch_dir_.size()) == 0)
    return false;
  if (!stdlib_dir_.empty() && strncmp(path, stdlib_dir_.c_str(), stdlib_dir_.size()) == 0) {
    // Installed packages lie inside the standard library's directory without being part of it.
    const char* rest = path + stdlib_dir_.size();
    return strncmp(rest, "site-packages/", 14) == 0 || strncmp(rest, "dist-packages/", 14) == 0;
  }
  return true;
}

bool PythonFrames::IsUserCode(const PyObj* code) const noexcept {
  PyObj* file = ReferenceAt(code, layout_.code_filename);
  const uintptr_t identity =
      (reinterpret_cast<uintptr_t>(code) ^ (reinterpret_cast<uintptr_t>(file) << 1)) &
      ~uintptr_t{1};
  std::atomic<uintptr_t>& known = known_codes_[(identity >> 4) % kKnownCodes];
  const uintptr_t seen = known.load(std::memory_order_relaxed);
  if ((seen & ~uintptr_t{1}) == identity) return (seen & 1) != 0;
  char path[kPathMax];
  const bool user = text_.Copy(file, path, sizeof path) != 0 && IsUserFile(path);
  known.store(identity | (user ? 1 : 0), std::memory_order_relaxed);
  return user;
}

// The innermost that is the user's, else the innermost of any kind.
PythonFrames::Frame PythonFrames::UserFrame() const noexcept {
  const Frame innermost = Innermost();
  Frame frame = innermost;
  for (int i = 0; frame.code != nullptr && i < kFramesMax; ++i, frame = Previous(frame)) {
    if (IsUserCode(frame.code)) return frame;
  }
  return innermost;
}

int PythonFrames::CodeOffset(const Frame& frame) const noexcept {
  // 3.10 counts code units of two bytes, and a frame being traced keeps its line in f_lineno, which
  // this ignores.
  if (layout_.code_instructions < 0) {
    return 2 * ReadAt<int>(frame.address, layout_.frame_instruction);
  }
  const auto* instruction = ReadAt<const unsigned char*>(frame.address, layout_.frame_instruction);
  const unsigned char* first =
      reinterpret_cast<const unsigned char*>(frame.code) + layout_.code_instructions;
  const ptrdiff_t distance = instruction - first;
  return distance < 0 || distance > INT32_MAX ? -1 : static_cast<int>(distance);
}

PythonFrames::Frame PythonFrames::UserCaller(const Frame& frame) const noexcept {
  Frame caller = Previous(frame);
  for (int i = 0; caller.code != nullptr && i < kFramesMax; ++i, caller = Previous(caller)) {
    if (IsUserCode(caller.code)) return caller;
  }
  return {};
}

// By texts, not by addresses: code that is compiled anew for every call (exec, notebooks) is the
// same code all the time.
uint32_t PythonFrames::UserCall() const noexcept {
  Frame frame = UserFrame();
  if (frame.code == nullptr) return 0;
  uint64_t hash = 0xCBF29CE484222325U;
  const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 0x100000001B3U; };
  if (cells_ != nullptr && cells_->epoch() != 0) mix(cells_->epoch());
  const int frames = whole_stacks() ? kStackFramesMax : 1;
  for (int i = 0; frame.code != nullptr && i < frames; ++i) {
    char text[kPathMax];
    for (const int offset : {layout_.code_filename, layout_.code_name}) {
      const size_t length = text_.Copy(ReferenceAt(frame.code, offset), text, sizeof text);
      for (size_t at = 0; at < length; ++at) mix(static_cast<unsigned char>(text[at]));
      mix(0);
    }
    mix(static_cast<uint32_t>(ReadAt<int>(frame.code, layout_.code_first_line)));
    mix(static_cast<uint32_t>(CodeOffset(frame)));
    if (i + 1 < frames) frame = UserCaller(frame);
  }
  return static_cast<uint32_t>(hash >> 32) | 1u;
}

PythonFrames::UserPlace PythonFrames::UserPlaceNow() const noexcept {
  const Frame frame = UserFrame();
  if (frame.code == nullptr) return {};
  return {frame.code, CodeOffset(frame)};
}

// InteractiveShell.run_code runs a cell's code as a module. The cell that runs is the outermost.
bool PythonFrames::IsOfRunningCell(const Frame& frame) const noexcept {
  PyObj* const file = ReferenceAt(frame.code, layout_.code_filename);
  char text[kPathMax];
  Frame inner = frame;
  Frame found;
  for (int i = 0; inner.code != nullptr && i < kFramesMax; ++i) {
    const Frame outer = Previous(inner);
    if (outer.code == nullptr) break;
    const size_t name = text_.Copy(ReferenceAt(outer.code, layout_.code_name), text, sizeof text);
    if (EndsWith(text, name, "run_code")) {
      const size_t path =
          text_.Copy(ReferenceAt(outer.code, layout_.code_filename), text, sizeof text);
      if (EndsWith(text, path, "IPython/core/interactiveshell.py")) found = inner;
    }
    inner = outer;
  }
  if (found.code == nullptr) return false;
  PyObj* const running = ReferenceAt(found.code, layout_.code_filename);
  if (running == file) return true;
  char other[kPathMax];
  const size_t length = text_.Copy(file, text, sizeof text);
  return length != 0 && length == text_.Copy(running, other, sizeof other) &&
         memcmp(text, other, length) == 0;
}

// As snprintf counts: what it would take, which may be more than there is room for.
size_t PythonFrames::WriteLine(const Frame& frame, char* out, size_t size) const noexcept {
  char path[kPathMax];
  char function[128];
  text_.Copy(ReferenceAt(frame.code, layout_.code_filename), path, sizeof path);
  text_.Copy(ReferenceAt(frame.code, layout_.code_name), function, sizeof function);
  const char* slash = strrchr(path, '/');
  if (cells_ != nullptr && cells_->epoch() != 0) {
    const uint32_t cell = cells_->NumberOf(path, IsOfRunningCell(frame));
    if (cell != 0) {
      slash = nullptr;
      snprintf(path, sizeof path, "In[%u]", cell);
    }
  }
  const int length = snprintf(out, size, "%s:%d in %s", slash == nullptr ? path : slash + 1,
                              Line(frame), function);
  return length < 0 ? 0 : static_cast<size_t>(length);
}

size_t PythonFrames::UserSourceLine(char* out, size_t size) const noexcept {
  if (size == 0) return 0;
  out[0] = 0;
  Frame frame = UserFrame();
  if (frame.code == nullptr) return 0;
  size_t length = std::min(WriteLine(frame, out, size), size - 1);
  if (!whole_stacks()) return length;
  // Whole lines only, and always room to say that there were more.
  constexpr std::string_view kSeparator = wire::kSourceSeparator;
  constexpr std::string_view kMore = "...";
  frame = UserCaller(frame);
  for (int i = 1; frame.code != nullptr; ++i, frame = UserCaller(frame)) {
    char line[kPathMax];
    const size_t wanted = WriteLine(frame, line, sizeof line);
    const size_t reserved = 2 * kSeparator.size() + kMore.size() + 1;
    const bool fits =
        i < kStackFramesMax && wanted < sizeof line && length + wanted + reserved <= size;
    const std::string_view piece = fits ? std::string_view(line, wanted) : kMore;
    if (length + kSeparator.size() + piece.size() >= size) break;
    memcpy(out + length, kSeparator.data(), kSeparator.size());
    length += kSeparator.size();
    memcpy(out + length, piece.data(), piece.size());
    length += piece.size();
    out[length] = 0;
    if (!fits) break;
  }
  return length;
}

// torch/nn/modules/module.py: Module.__call__ is _wrapped_call_impl, which calls _call_impl.
bool PythonFrames::IsInModuleCall() const noexcept {
  char text[kPathMax];
  Frame frame = Innermost();
  for (int i = 0; frame.code != nullptr && i < kFramesMax; ++i, frame = Previous(frame)) {
    const size_t name = text_.Copy(ReferenceAt(frame.code, layout_.code_name), text, sizeof text);
    if (!EndsWith(text, name, "_call_impl")) continue;
    const size_t path =
        text_.Copy(ReferenceAt(frame.code, layout_.code_filename), text, sizeof text);
    if (EndsWith(text, path, "torch/nn/modules/module.py")) return true;
  }
  return false;
}

// torch/optim/optimizer.py: profile_hook_step's `def wrapper(*args, **kwargs)` opens the range.
bool PythonFrames::IsOptimizerStep(const PyObj* code) const noexcept {
  char text[kPathMax];
  if (text_.Copy(ReferenceAt(code, layout_.code_name), text, sizeof text) != 7 ||
      strcmp(text, "wrapper") != 0) {
    return false;
  }
  const size_t length = text_.Copy(ReferenceAt(code, layout_.code_filename), text, sizeof text);
  return EndsWith(text, length, "torch/optim/optimizer.py");
}

// Local 0 is the tuple `args`, whose item 0 is the optimizer.
const void* PythonFrames::OptimizerOnThisThread() const noexcept {
  Frame frame = Innermost();
  for (int i = 0; frame.code != nullptr && i < kOptimizerFramesMax; ++i, frame = Previous(frame)) {
    if (!IsOptimizerStep(frame.code)) continue;
    if (ReadAt<int>(frame.code, layout_.code_arg_count) != 0) return nullptr;
    PyObj* args = ReferenceAt(frame.address, layout_.frame_locals);
    if (args == nullptr || !api_.HasFlag(args, kPyFlagTuple) || api_.PyTuple_Size(args) < 1)
      return nullptr;
    return ReferenceAt(args, layout_.tuple_items);
  }
  return nullptr;
}

bool PythonFrames::Runs(const Frame& frame, const char* function,
                        const char* file_tail) const noexcept {
  char text[kPathMax];
  const size_t name = text_.Copy(ReferenceAt(frame.code, layout_.code_name), text, sizeof text);
  return name != 0 && strcmp(text, function) == 0 && IsFrom(frame, file_tail);
}

bool PythonFrames::IsFrom(const Frame& frame, const char* file_tail) const noexcept {
  char text[kPathMax];
  const size_t path = text_.Copy(ReferenceAt(frame.code, layout_.code_filename), text, sizeof text);
  return EndsWith(text, path, file_tail);
}

size_t PythonFrames::LocalCount(const Frame& frame) const noexcept {
  constexpr int kTupleSize = 16;  // behind the head of an object, as in every version
  constexpr size_t kLocalsMax = 4096;
  const PyObj* const names = ReferenceAt(frame.code, layout_.code_local_names);
  if (names == nullptr || names->type != api_.tuple_type) return 0;
  return std::min(ReadAt<size_t>(names, kTupleSize), kLocalsMax);
}

PyObj* PythonFrames::Local(const Frame& frame, const char* name) const noexcept {
  const PyObj* const names = ReferenceAt(frame.code, layout_.code_local_names);
  const size_t count = LocalCount(frame);
  for (size_t i = 0; i < count; ++i) {
    const int offset = static_cast<int>(i * sizeof(PyObj*));
    char text[64];
    if (text_.Copy(ReferenceAt(names, layout_.tuple_items + offset), text, sizeof text) != 0 &&
        strcmp(text, name) == 0) {
      return ReferenceAt(frame.address, layout_.frame_locals + offset);
    }
  }
  return nullptr;
}

uint32_t PythonFrames::OptimizersOnThisThread() const noexcept {
  uint32_t open = 0;
  Frame frame = Innermost();
  for (int i = 0; frame.code != nullptr && i < kFramesMax; ++i, frame = Previous(frame)) {
    open += IsOptimizerStep(frame.code);
  }
  return open;
}

}  // namespace nanwatch
