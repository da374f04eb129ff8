// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/library_place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool library_place_find(char path[NANWATCH_PATH_MAX]) {
  static const char kInThisLibrary = 0;
  const char* named = loader_object_path(&kInThisLibrary);
  if (named == NULL) return false;
  size_t used = 0;
  if (named[0] != '/') {
    if (getcwd(path, NANWATCH_PATH_MAX - 1) == NULL) return false;
    used = strlen(path);
    path[used++] = '/';
  }
  size_t length = strlen(named);
  if (used + length >= NANWATCH_PATH_MAX) return false;
  memcpy(path + used, named, length + 1);
  return true;
}

static bool observer_beside(const char* library, const char* minor,
                            char observer[NANWATCH_PATH_MAX]) {
  const char* slash = strrchr(library, '/');
  int folder = slash != NULL ? (int)(slash - library) : 0;
  int length = snprintf(observer, NANWATCH_PATH_MAX, "%.*s/nanwatch/libnanwatch_observer-%s.so",
                        folder, library, minor);
  return length < NANWATCH_PATH_MAX && access(observer, F_OK) == 0;
}

bool library_place_observer(const char* library, const char* minor,
                            char observer[NANWATCH_PATH_MAX]) {
  char target[PATH_MAX];
  if (observer_beside(library, minor, observer)) return true;
  if (realpath(library, target) != NULL && observer_beside(target, minor, observer)) return true;
  (void)observer_beside(library, minor, observer); /* the place to name */
  return false;
}
