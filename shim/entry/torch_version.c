// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/torch_version.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/entry/loader.h"

static bool is_version_character(char c) {
  return isalnum((unsigned char)c) || c == '.' || c == '+' || c == '-';
}

bool torch_version_from_text(const char* text, struct torch_version* version) {
  size_t length = 0;
  while (is_version_character(text[length])) ++length;
  if (length == 0 || length >= sizeof version->full) return false;

  size_t major = strspn(text, "0123456789");
  if (major == 0 || text[major] != '.') return false;
  size_t minor = strspn(text + major + 1, "0123456789");
  size_t until_minor = major + 1 + minor;
  if (minor == 0 || until_minor >= sizeof version->minor) return false;

  memcpy(version->full, text, length);
  version->full[length] = '\0';
  memcpy(version->minor, text, until_minor);
  version->minor[until_minor] = '\0';
  return true;
}

bool torch_version_from_python(const char* version_py, struct torch_version* version) {
  static const char kName[] = "__version__";
  for (const char* line = version_py; line != NULL;) {
    if (strncmp(line, kName, sizeof kName - 1) == 0) {
      const char* end = line + strcspn(line, "\n");
      const char* quote = line + strcspn(line, "'\"\n");
      return quote < end && torch_version_from_text(quote + 1, version);
    }
    line = strchr(line, '\n');
    if (line != NULL) ++line;
  }
  return false;
}

/* The first 4 KiB of `directory`/`name` as a string; false if it cannot be read. */
static bool read_start(const char* directory, const char* name, char text[4096]) {
  char path[NANWATCH_PATH_MAX + 32];
  if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t bytes = read(fd, text, 4095);
  close(fd);
  if (bytes <= 0) return false;
  text[bytes] = '\0';
  return true;
}

static bool version_beside(const char* libtorch_path, struct torch_version* version) {
  char directory[NANWATCH_PATH_MAX];
  const char* slash = strrchr(libtorch_path, '/');
  const char* file = slash != NULL ? slash + 1 : libtorch_path;
  snprintf(directory, sizeof directory, "%.*s", slash != NULL ? (int)(slash - libtorch_path) : 1,
           slash != NULL ? libtorch_path : ".");

  char text[4096];
  if (read_start(directory, "../version.py", text) && torch_version_from_python(text, version))
    return true;
  if (read_start(directory, "../build-version", text) && torch_version_from_text(text, version))
    return true;
  const char* suffix = strstr(file, ".so.");
  return suffix != NULL && torch_version_from_text(suffix + 4, version);
}

bool torch_version_of(const char* libtorch_path, struct torch_version* version) {
  if (version_beside(libtorch_path, version)) return true;
  char target[PATH_MAX];
  return realpath(libtorch_path, target) != NULL && version_beside(target, version);
}
