// SPDX-License-Identifier: Apache-2.0
/* A program of the user's, steered by its arguments, which it follows in order and reports on
 * stdout:
 *
 *   open PATH          dlopen it
 *   open-by COPY PATH  dlopen PATH through the dlopen that the library COPY exports, COPY opened
 *                      first
 *   load PATH          dlopen it with RTLD_LOCAL
 *   deep LIBRARY PATH  dlopen LIBRARY with RTLD_DEEPBIND, and let its open_deep dlopen PATH
 *   during             threads that the fake libtorch saw while it was loaded, and on which it was
 *   threads            threads now
 *   said N             wait until NANWATCH_LOG holds N lines
 *   alone              wait until this thread is the only one
 *   active             the word that the observer set, at the address it gave in NANWATCH_LOG
 *   fork, clone        go on in a child (by fork, by the bare system call) and exit with its status
 *   old-kernel         let madvise(MADV_WIPEONFORK) fail from now on, as before Linux 4.14
 *   call PATH NAME     dlopen PATH and print what its function NAME returns
 *   attach LIBRARY LEVEL DIRECTORY ANSWERS
 *                      dlopen LIBRARY and call its nanwatch_entry_attach
 *   secure             AT_SECURE of this process
 *   pid                its process id
 *   exit N             leave at once
 *
 * Waits end after 20 s, with status 99. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void* (*dlopen_fn)(const char*, int);

static int thread_count(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  for (struct dirent* entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(tasks);
  return count;
}

/* The text of NANWATCH_LOG, "" while there is none. */
static const char* log_text(void) {
  static char text[16384];
  text[0] = '\0';
  const char* path = getenv("NANWATCH_LOG");
  int fd = path != NULL ? open(path, O_RDONLY) : -1;
  if (fd < 0) return text;
  ssize_t bytes = read(fd, text, sizeof text - 1);
  close(fd);
  text[bytes > 0 ? bytes : 0] = '\0';
  return text;
}

static bool log_has_lines(int wanted) {
  int lines = 0;
  for (const char* at = strchr(log_text(), '\n'); at != NULL; at = strchr(at + 1, '\n')) ++lines;
  return lines >= wanted;
}

static bool is_alone(int unused) {
  (void)unused;
  return thread_count() == 1;
}

static void wait_until(bool (*condition)(int), int argument) {
  static const struct timespec kPause = {.tv_sec = 0, .tv_nsec = 2 * 1000 * 1000};
  for (int pause = 0; pause < 30000; ++pause) {
    if (condition(argument)) return;
    nanosleep(&kPause, NULL);
  }
  printf("waited in vain\n");
  exit(99);
}

static void report_open(void* handle) { printf("open %s\n", handle != NULL ? "ok" : dlerror()); }

static void open_by_copy(const char* copy, const char* path) {
  void* library = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
  dlopen_fn its_dlopen = library != NULL ? (dlopen_fn)dlsym(library, "dlopen") : NULL;
  if (its_dlopen == NULL) {
    printf("no dlopen in %s: %s\n", copy, dlerror());
    exit(98);
  }
  report_open(its_dlopen(path, RTLD_NOW | RTLD_GLOBAL));
}

static void open_deep(const char* library, const char* path) {
  void* deep = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  void* (*function)(const char*) = deep != NULL ? dlsym(deep, "open_deep") : NULL;
  printf("deep %s\n", function != NULL && function(path) != NULL ? "ok" : dlerror());
}

static void report_during(void) {
  const int* threads = dlsym(RTLD_DEFAULT, "fake_torch_threads_during_load");
  const int* on_main = dlsym(RTLD_DEFAULT, "fake_torch_constructed_on_main");
  const int* constructed = dlsym(RTLD_DEFAULT, "fake_torch_constructed");
  if (threads == NULL) {
    printf("during: no fake libtorch\n");
    return;
  }
  printf("during threads=%d on_main=%d constructed=%d\n", *threads, *on_main, *constructed);
}

static void report_active(void) {
  const char* at = strstr(log_text(), "active_at=");
  volatile unsigned* active = at != NULL ? (volatile unsigned*)strtoul(at + 10, NULL, 16) : NULL;
  if (active == NULL) {
    printf("active: nobody said where\n");
    return;
  }
  printf("active %u\n", *active);
}

/* Returns in the child; the parent waits and leaves with the child's status. */
static void go_on_in_child(pid_t child) {
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

static void deny_wipe_on_fork(void) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 18 /* MADV_WIPEONFORK */, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 22 /* EINVAL */),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {.len = sizeof program / sizeof program[0], .filter = program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    printf("no seccomp here\n");
    exit(96);
  }
}

static void call_function(const char* path, const char* name) {
  void* library = dlopen(path, RTLD_NOW);
  const char* (*function)(void) = library != NULL ? dlsym(library, name) : NULL;
  printf("%s\n", function != NULL ? function() : dlerror());
}

static void attach(char** words) {
  void* library = dlopen(words[0], RTLD_NOW | RTLD_LOCAL);
  int (*function)(const char*, const char*, const char*) =
      library != NULL ? dlsym(library, "nanwatch_entry_attach") : NULL;
  printf("attach %d\n", function != NULL ? function(words[1], words[2], words[3]) : -1);
}

/* Follows one verb; returns how many arguments it took. */
static int follow(char** words) {
  const char* verb = words[0];
  if (strcmp(verb, "open") == 0) return report_open(dlopen(words[1], RTLD_NOW | RTLD_GLOBAL)), 2;
  if (strcmp(verb, "open-by") == 0) return open_by_copy(words[1], words[2]), 3;
  if (strcmp(verb, "load") == 0) return report_open(dlopen(words[1], RTLD_NOW | RTLD_LOCAL)), 2;
  if (strcmp(verb, "deep") == 0) return open_deep(words[1], words[2]), 3;
  if (strcmp(verb, "during") == 0) return report_during(), 1;
  if (strcmp(verb, "threads") == 0) return printf("threads %d\n", thread_count()), 1;
  if (strcmp(verb, "said") == 0) return wait_until(log_has_lines, atoi(words[1])), 2;
  if (strcmp(verb, "alone") == 0) return wait_until(is_alone, 0), 1;
  if (strcmp(verb, "active") == 0) return report_active(), 1;
  if (strcmp(verb, "fork") == 0) return go_on_in_child(fork()), 1;
  if (strcmp(verb, "clone") == 0) {
    return go_on_in_child((pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)), 1;
  }
  if (strcmp(verb, "old-kernel") == 0) return deny_wipe_on_fork(), 1;
  if (strcmp(verb, "call") == 0) return call_function(words[1], words[2]), 3;
  if (strcmp(verb, "attach") == 0) return attach(words + 1), 5;
  if (strcmp(verb, "secure") == 0) return printf("secure %lu\n", getauxval(AT_SECURE)), 1;
  if (strcmp(verb, "pid") == 0) return printf("pid %d\n", (int)getpid()), 1;
  if (strcmp(verb, "exit") == 0) _exit(atoi(words[1]));
  return 1; /* a word that only has to stand on the command line */
}

int main(int count, char** words) {
  setvbuf(stdout, NULL, _IONBF, 0);
  for (int at = 1; at < count;) at += follow(words + at);
  return 0;
}
