// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/job_images.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "tools/inject/elf_image.h"
#include "tools/inject/payload_layout.h"

namespace nanwatch {
namespace {

struct NamedImage {
  std::string_view file;
  ElfImage image;
};

bool IsLibc(std::string_view file) {
  return file.starts_with("libc.so.6") || file.starts_with("libc-2.");
}
bool IsOldLibdl(std::string_view file) {
  return file.starts_with("libdl.so.2") || file.starts_with("libdl-2.");
}
bool IsLoader(std::string_view file) { return file.starts_with("ld-"); }
bool HasPythonInName(std::string_view file) {
  return file.find("python") != std::string_view::npos;
}

// Every file of which the first byte is mapped. The program is the first.
std::vector<NamedImage> ReadImages(const TargetMemory& memory, const Mappings& mappings) {
  std::vector<NamedImage> images;
  for (const Mapping& mapping : mappings) {
    if (mapping.offset != 0 || !mapping.readable || !mapping.path.starts_with('/')) continue;
    std::optional<ElfImage> image = ElfImage::At(memory, mapping.begin);
    if (!image) continue;
    const std::string_view path = mapping.path;
    images.push_back({path.substr(path.rfind('/') + 1), *std::move(image)});
  }
  return images;
}

const ElfImage* FindPython(const std::vector<NamedImage>& images) {
  for (const NamedImage& named : images) {
    if ((HasPythonInName(named.file) || &named == &images.front()) &&
        named.image.Find("PyEval_SaveThread"))
      return &named.image;
  }
  return nullptr;
}

bool IsCode(const Mappings& mappings, uint64_t address) {
  const Mapping* mapping = MappingAt(mappings, address);
  return mapping != nullptr && mapping->executable;
}

// The function that a hook of a killed tool's goes on to; `address` itself when it is no such hook.
uint64_t BehindOldHook(const TargetMemory& memory, uint64_t address) {
  static const uint64_t hook_offset = 0x30;  // the same in all versions of this magic
  const uint64_t payload = address - hook_offset;
  if (memory.Get<uint64_t>(payload) != NANWATCH_HOOK_MAGIC) return address;
  return memory.Get<uint64_t>(payload + NANWATCH_PAYLOAD_ORIGINAL).value_or(0);
}

void AddSlots(const TargetMemory& memory, const Mappings& mappings, const ElfImage& image,
              std::string_view function, std::vector<CallSlot>& slots) {
  for (const uint64_t address : image.SlotsOf(function)) {
    const auto found = memory.Get<uint64_t>(address);
    if (!found || !IsCode(mappings, *found)) continue;
    const uint64_t behind = BehindOldHook(memory, *found);
    // Not resolved yet: it points to the image's own stub.
    if (!IsCode(mappings, behind) || image.Holds(behind)) continue;
    slots.push_back({.address = address, .function = behind, .found = *found});
  }
}

}  // namespace

JobFunctions FindJobFunctions(const TargetMemory& memory, const Mappings& mappings,
                              bool free_threaded, Room& room) {
  JobFunctions found;
  const std::vector<NamedImage> images = ReadImages(memory, mappings);
  const ElfImage* python = images.empty() ? nullptr : FindPython(images);
  if (python == nullptr) {
    found.problem = "its Python was not found in its memory";
    return found;
  }
  found.add_pending_call = python->Find("Py_AddPendingCall").value_or(0);
  for (const NamedImage& named : images) {
    if (!IsLibc(named.file) && !IsOldLibdl(named.file)) continue;
    const auto take = [&](uint64_t& into, std::string_view function) {
      if (into == 0) into = named.image.Find(function).value_or(0);
    };
    take(found.dlopen, "dlopen");
    take(found.dlsym, "dlsym");
    take(found.dlerror, "dlerror");
    take(found.errno_location, "__errno_location");
  }
  if (found.dlopen == 0 || found.dlsym == 0 || found.dlerror == 0 || found.errno_location == 0) {
    found.problem = "its libc has no dlopen";
    return found;
  }
  AddSlots(memory, mappings, *python, "pthread_mutex_lock", found.slots);
  if (free_threaded || found.slots.empty()) {
    for (const NamedImage& named : images) {
      if (HasPythonInName(named.file))
        AddSlots(memory, mappings, named.image, "PyEval_SaveThread", found.slots);
    }
  }
  if (found.slots.empty()) found.problem = "its Python calls nothing that can be hooked";
  const auto add_room = [&](const NamedImage& named) {
    const bool is_program = &named == &images.front();
    room.Add(named.image, mappings, !is_program && !IsLoader(named.file));
  };
  // What is never unloaded first.
  const auto stays = [&](const NamedImage& named) {
    return &named.image == python || IsLibc(named.file) || named.file.starts_with("libm.") ||
           named.file.starts_with("libtorch");
  };
  for (const NamedImage& named : images) {
    if (stays(named)) add_room(named);
  }
  for (const NamedImage& named : images) {
    if (!stays(named)) add_room(named);
  }
  return found;
}

}  // namespace nanwatch
