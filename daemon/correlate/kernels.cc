// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/kernels.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace nanwatch {
namespace {

constexpr size_t kNameBytesMax = 1024;

// What a name says a second time it says by reference, to a part that may itself refer to others:
// two of them double the length of what is said, and 46, in 240 characters, make ten megabytes.
// With these many it is some hundred kilobytes at most; most kernels of torch's have fewer.
constexpr int kReferencesMax = 20;

// "S_", "S1a_": references are these two, and to what a template was given, "T_". Letters of
// identifiers that look so are counted as well.
int References(std::string_view mangled) {
  int references = 0;
  for (size_t i = 0; i + 1 < mangled.size(); ++i) {
    if (mangled[i] != 'S' && mangled[i] != 'T') continue;
    size_t end = i + 1;
    while (end < mangled.size() && std::isalnum(static_cast<unsigned char>(mangled[end])) != 0) {
      ++end;
    }
    references += end < mangled.size() && mangled[end] == '_' ? 1 : 0;
  }
  return references;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "2at6native3fooI...": the identifiers up to the first part that is none, or, of a name that is
// not nested, the first; "" if there are none.
// "_GLOBAL__N_..." is how a namespace without a name is called.
std::string Qualified(std::string_view mangled, bool nested) {
  std::string name;
  while (!mangled.empty() && IsDigit(mangled.front())) {
    size_t length = 0;
    while (!mangled.empty() && IsDigit(mangled.front()) && length < kNameBytesMax) {
      length = length * 10 + static_cast<size_t>(mangled.front() - '0');
      mangled.remove_prefix(1);
    }
    if (length == 0 || length > mangled.size()) return "";
    const std::string_view part = mangled.substr(0, length);
    const bool nameless = part.starts_with("_GLOBAL__N_");
    name += (name.empty() ? "" : "::") + (nameless ? "(anonymous namespace)" : std::string(part));
    mangled.remove_prefix(length);
    if (!nested) return name;  // what follows are parameters
  }
  return name;
}

}  // namespace

std::string KernelName(const std::string& mangled) {
  if (!mangled.starts_with("_Z") || mangled.size() > kNameBytesMax) {
    return mangled.substr(0, kNameBytesMax);
  }
  if (References(mangled) <= kReferencesMax) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> demangled(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
    if (demangled != nullptr) return std::string(demangled.get()).substr(0, kNameBytesMax);
  }
  const bool nested = mangled.starts_with("_ZN");
  const std::string name = Qualified(std::string_view(mangled).substr(nested ? 3 : 2), nested);
  return name.empty() ? mangled : name + "<...>";
}

void AddKernels(const KernelsFact& kernels, Finding& origin) {
  origin.set_kernels_left_out(kernels.left_out());
  origin.set_kernels_lost(kernels.lost());
  if (kernels.has_records()) *origin.mutable_kernel_records() = kernels.records();
  for (const KernelsFact::Kernel& from : kernels.kernels()) {
    KernelTime& kernel = *origin.add_kernels();
    kernel.set_name(from.name().empty() ? "a kernel without a name" : KernelName(from.name()));
    kernel.set_count(from.count());
    kernel.set_nanoseconds(from.nanoseconds());
  }
}

}  // namespace nanwatch
