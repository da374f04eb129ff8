// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "shim/entry/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kLinesMax = 8, kLineBytesMax = 2048 };

/* One write(2). It neither waits for a full pipe nor raises SIGPIPE in the host's thread. */
static void write_quietly(int fd, const char* text, size_t bytes) {
  struct pollfd ready = {.fd = fd, .events = POLLOUT};
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;

  sigset_t pipe_signal, before, pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  sigprocmask(SIG_BLOCK, &pipe_signal, &before); /* the calling thread's mask, on Linux */
  ssize_t written = write(fd, text, bytes);
  if (written < 0 && errno == EPIPE && !was_pending) {
    static const struct timespec kNoWait = {0, 0};
    sigtimedwait(&pipe_signal, NULL, &kNoWait);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
}

static bool is_named(const char* path) { return path != NULL && path[0] != '\0'; }

/* Opened for each line, so that the program never sees a descriptor of ours. */
static void append(const char* path, int creation, const char* text, size_t bytes) {
  int fd = open(path, O_WRONLY | O_APPEND | creation | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  if (fd < 0) return;
  write_quietly(fd, text, bytes);
  close(fd);
}

void messages_write(struct messages* messages, const char* line) {
  if (atomic_fetch_add(&messages->lines, 1) >= kLinesMax) return;
  snprintf(messages->last, sizeof messages->last, "%s", line);
  int saved_errno = errno;

  static const char kPrefix[] = "nanwatch: ";
  char text[kLineBytesMax];
  size_t room = sizeof text - sizeof kPrefix; /* for the newline, in place of the prefix's end */
  size_t length = strnlen(line, room);
  memcpy(text, kPrefix, sizeof kPrefix - 1);
  memcpy(text + sizeof kPrefix - 1, line, length);
  text[sizeof kPrefix - 1 + length] = '\n';
  size_t bytes = sizeof kPrefix + length;

  if (is_named(messages->log_path)) {
    append(messages->log_path, O_CREAT, text, bytes);
  } else {
    write_quietly(STDERR_FILENO, text, bytes);
  }
  if (is_named(messages->copy_path)) append(messages->copy_path, 0, text, bytes);
  errno = saved_errno;
}

void messages_answer(struct messages* messages, const char* line) {
  char text[64];
  size_t length = strnlen(line, sizeof text - 1);
  memcpy(text, line, length);
  text[length] = '\n';
  int saved_errno = errno;
  if (is_named(messages->copy_path)) append(messages->copy_path, 0, text, length + 1);
  errno = saved_errno;
}

void messages_writef(struct messages* messages, const char* format, ...) {
  char line[kLineBytesMax];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0) messages_write(messages, line);
}
