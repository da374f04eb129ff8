// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Names as in proto/wire: naming.h and launch.h, which are C++. */
static const char kEnvDirectory[] = "NANWATCH_RUN_DIR=";
static const char kEnvJob[] = "NANWATCH_JOB=";
static const char kSuffix[] = ".unwatched";

static void copy_value(const char* entry, const char* name_and_equals, char* to, size_t room) {
  size_t length = strlen(name_and_equals);
  if (strncmp(entry, name_and_equals, length) != 0) return;
  if (strlen(entry + length) < room) memcpy(to, entry + length, strlen(entry + length) + 1);
}

void mark_read_environment(struct process_mark* mark) {
  if (environ == NULL) return;
  for (char** entry = environ; *entry != NULL; ++entry) {
    copy_value(*entry, kEnvDirectory, mark->directory, sizeof mark->directory);
    copy_value(*entry, kEnvJob, mark->job, sizeof mark->job);
  }
  if (mark->job[0] == '\0' || strchr(mark->job, '/') != NULL) mark->directory[0] = '\0';
}

static bool path_of(const struct process_mark* mark, char path[NANWATCH_PATH_MAX + 128]) {
  if (mark->directory[0] != '/') return false;
  int length = snprintf(path, NANWATCH_PATH_MAX + 128, "%s/%s.%d%s", mark->directory, mark->job,
                        getpid(), kSuffix);
  return length > 0 && length < NANWATCH_PATH_MAX + 128;
}

static void write_line(const struct process_mark* mark, const char* reason, const char* detail) {
  char path[NANWATCH_PATH_MAX + 128];
  char line[768];
  if (!path_of(mark, path)) return;
  int saved_errno = errno;
  int length = snprintf(line, sizeof line, "%s%s%s\n", reason, detail != NULL ? " " : "",
                        detail != NULL ? detail : "");
  if (length >= (int)sizeof line) length = (int)sizeof line - 1;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) {
    ssize_t written = write(fd, line, (size_t)length);
    (void)written; /* an empty mark says less, and not something else: see job_leftovers.h */
    close(fd);
  }
  errno = saved_errno;
}

void mark_begin(struct process_mark* mark) {
  if (mark->directory[0] == '\0') return;
  int pid = getpid();
  if (atomic_exchange(&mark->pid, pid) == pid) return;
  atomic_store(&mark->final, 0); /* in a child, its parent's */
  write_line(mark, "import_failed", NULL);
}

void mark_set(struct process_mark* mark, const char* reason, const char* detail) {
  if (mark->directory[0] == '\0' || atomic_load(&mark->final) != 0) return;
  atomic_store(&mark->pid, getpid());
  write_line(mark, reason, detail);
}

void mark_set_final(struct process_mark* mark, const char* reason, const char* detail) {
  mark_set(mark, reason, detail);
  atomic_store(&mark->final, 1);
}

void mark_remove(struct process_mark* mark) {
  char path[NANWATCH_PATH_MAX + 128];
  if (mark->directory[0] != '\0' && path_of(mark, path)) unlink(path);
}
