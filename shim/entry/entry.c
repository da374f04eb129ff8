// SPDX-License-Identifier: Apache-2.0
/* libnanwatch.so, the library that LD_PRELOAD names: constructor, dlopen notifier, and the
 * process's one object of the shim.
 *
 *     constructor --> armed --(dlopen of a name with torch, libtorch is mapped)--> loader watch
 *     constructor, in a process that runs --> armed --(nanwatch_entry_attach)----> loader watch
 *     loader watch --> observer_load
 *
 * Lives in every process of the job, shells and compilers included, so until there is a sign of
 * torch it starts no thread, opens no file, allocates nothing and prints nothing. It never unsets
 * LD_PRELOAD: ranks are children too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "shim/entry/attach.h"
#include "shim/entry/fork_page.h"
#include "shim/entry/library_place.h"
#include "shim/entry/loader.h"
#include "shim/entry/loader_watch.h"
#include "shim/entry/mark.h"
#include "shim/entry/messages.h"
#include "shim/entry/observer_interface.h"
#include "shim/entry/observer_load.h"
#include "shim/entry/process_filter.h"
#include "shim/entry/settings.h"

#define NANWATCH_EXPORT __attribute__((visibility("default")))

/* How copies of this library find each other, whatever paths they were loaded from. */
struct nanwatch_marker {
  _Atomic uint32_t role;
};
enum { kUndecided = 0, kFirstCopy = 1, kQuietCopy = 2 };

/* The exported name may be bound to the first copy's marker; `own_marker` is always this copy's. */
static struct nanwatch_marker own_marker;
NANWATCH_EXPORT extern struct nanwatch_marker nanwatch_entry_marker
    __attribute__((alias("own_marker")));

/* What pthread_atfork is made of. The only symbol that we need and musl lacks; weak, because musl's
 * loader ends a process whose preloaded library asks for one that it does not have. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void* library) __attribute__((weak));
extern void* __dso_handle __attribute__((visibility("hidden")));

/* Called by the stub before each dlopen; returns the real one. */
void* nanwatch_before_dlopen(const char* name);

static struct {
  struct settings settings;
  struct messages messages;
  struct process_mark mark;
  char library_path[NANWATCH_PATH_MAX];
  struct NanwatchEntry entry;
  struct loader_watch watch;
  _Atomic(struct fork_page*) page; /* null until the first sign */
  _Atomic bool page_is_wiped_by_kernel;
  _Atomic bool armed;
  _Atomic bool attached; /* somebody has called nanwatch_entry_attach */
  char late_level[16];   /* "": there from the start */
  char late_directory[NANWATCH_PATH_MAX];
  char answers_path[NANWATCH_PATH_MAX];
} shim;

static void before_fork(void) { fork_gate_close(atomic_load(&shim.page)); }
static void after_fork_in_parent(void) { fork_gate_open(atomic_load(&shim.page)); }
static void after_fork_in_child(void) { fork_page_zero(atomic_load(&shim.page)); }

/* The first sign makes the page. If two threads come at once, one page stays. */
static bool make_page(void) {
  struct fork_page* none = NULL;
  if (atomic_load(&shim.page) != NULL) return true;
  bool wiped_by_kernel;
  struct fork_page* page = fork_page_make(&wiped_by_kernel);
  if (page == NULL) return false;
  shim.page_is_wiped_by_kernel = wiped_by_kernel;
  if (!atomic_compare_exchange_strong(&shim.page, &none, page)) {
    fork_page_free(page);
    return true;
  }
  __register_atfork(before_fork, after_fork_in_parent, wiped_by_kernel ? NULL : after_fork_in_child,
                    __dso_handle);
  return true;
}

static void say(const char* line) { messages_write(&shim.messages, line); }

static void see_sign_of_torch(void) {
  if (!atomic_load(&shim.watch.over)) mark_begin(&shim.mark);
  if (make_page()) loader_watch_sign(&shim.watch, atomic_load(&shim.page));
}

/* Watch thread. Returns whether the process is watched, or will be. */
static bool start_observer(const char* libtorch_path) {
  if (process_is_filtered()) {
    mark_remove(&shim.mark);
    return false;
  }
  mark_set(&shim.mark, "ended_early", NULL);
  const bool late = shim.late_level[0] != '\0';
  shim.entry = (struct NanwatchEntry){
      .struct_bytes = sizeof shim.entry,
      .interface_version = NANWATCH_INTERFACE_VERSION,
      .active = &atomic_load(&shim.page)->active,
      .active_is_wiped_by_kernel = shim.page_is_wiped_by_kernel,
      .library_path = shim.library_path,
      .say = say,
      .late_level = late ? shim.late_level : NULL,
      .late_directory = late ? shim.late_directory : NULL,
  };
  const bool started = observer_load(&shim.entry, libtorch_path, atomic_load(&shim.page),
                                     &shim.messages, &shim.mark);
  if (!started)
    mark_set_final(&shim.mark, "not_started",
                   shim.messages.last[0] != '\0' ? shim.messages.last : NULL);
  return started;
}

static void load_observer(const char* libtorch_path) {
  if (!start_observer(libtorch_path)) messages_answer(&shim.messages, "off");
}

/* Of copies in the global scope (several paths in LD_PRELOAD) the first one in it stays awake, in
 * whatever order constructors run. A copy that came by dlopen with RTLD_LOCAL is in nobody's scope;
 * it is found by its file name. */
static bool other_copy_is_first(void) {
  struct nanwatch_marker* first = loader_global_symbol("nanwatch_entry_marker");
  if (first != NULL && first != &own_marker) return true;

  char path[NANWATCH_PATH_MAX];
  unsigned long long no_adds = 0;
  if (!loader_find_object("libnanwatch.so", loader_object_path(&own_marker), path, &no_adds))
    return false;
  void* copy = loader_open(path, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
  struct nanwatch_marker* others =
      copy != NULL ? loader_symbol(copy, "nanwatch_entry_marker") : NULL;
  return others != NULL && atomic_load(&others->role) == kFirstCopy;
}

/* A program that is linked to libtorch has it mapped now. At start-up the loader runs constructors
 * without its lock, so a thread that opened libtorch here could run its constructors a second time
 * beside the main thread. Opening it on this thread first runs those that have not run yet, in
 * their right order, and then the watch thread finds them done. */
static bool look_for_mapped_libtorch(void) {
  char path[NANWATCH_PATH_MAX];
  unsigned long long no_adds = 0;
  if (!loader_find_object(NANWATCH_LIBTORCH, NULL, path, &no_adds)) return false;
  if (!libtorch_is_constructed(path)) return false;
  see_sign_of_torch();
  return true;
}

/* A copy that dlopen is just bringing is not in the scope that the process was started with. (An
 * RTLD_DEFAULT of its own would find itself in its own scope.) */
static bool came_by_dlopen(void) {
  void* program = loader_open(NULL, RTLD_LAZY);
  if (program == NULL || loader_symbol(program, "nanwatch_entry_marker") != NULL) return false;
  (void)loader_error(); /* the next dlerror() on this thread is the host's */
  return true;
}

__attribute__((constructor)) static void arm(void) {
  if (getauxval(AT_SECURE) != 0) return;
  if (__register_atfork == NULL) return; /* another libc, for which there is no observer */
  settings_read(&shim.settings);
  if (shim.settings.switched_off) return;
  if (other_copy_is_first()) {
    atomic_store(&own_marker.role, kQuietCopy);
    return;
  }
  atomic_store(&own_marker.role, kFirstCopy);
  if (!library_place_find(shim.library_path)) return;
  shim.messages.log_path = shim.settings.log_path;
  mark_read_environment(&shim.mark);
  shim.watch.found = load_observer;
  shim.watch.patience_ms = 60 * 1000;
  atomic_store(&shim.armed, true);
  if (!came_by_dlopen()) (void)look_for_mapped_libtorch();
}

static bool copy_text(char* to, size_t room, const char* text) {
  if (text == NULL || strlen(text) >= room) return false;
  memcpy(to, text, strlen(text) + 1);
  return true;
}

NANWATCH_EXPORT int nanwatch_entry_attach(const char* level, const char* directory,
                                          const char* answers) {
  if (getauxval(AT_SECURE) != 0) return NANWATCH_ATTACH_PRIVILEGED;
  if (shim.settings.switched_off) return NANWATCH_ATTACH_SWITCHED_OFF;
  /* A quiet copy, one that looks for itself, or a second call. */
  if (!atomic_load(&shim.armed) || atomic_load(&shim.watch.over)) return NANWATCH_ATTACH_ALREADY;
  if (atomic_exchange(&shim.attached, true)) return NANWATCH_ATTACH_ALREADY;
  int answer = NANWATCH_ATTACH_WRONG_USE;
  if (copy_text(shim.late_directory, sizeof shim.late_directory, directory) &&
      copy_text(shim.answers_path, sizeof shim.answers_path, answers) &&
      copy_text(shim.late_level, sizeof shim.late_level, level) && shim.late_level[0] != '\0') {
    shim.messages.copy_path = shim.answers_path;
    answer = NANWATCH_ATTACH_NO_TORCH;
    if (look_for_mapped_libtorch()) {
      const struct fork_page* page = atomic_load(&shim.page);
      answer = page != NULL && atomic_load(&page->watched) != 0 ? NANWATCH_ATTACH_BEGUN
                                                                : NANWATCH_ATTACH_FAILED;
    }
  }
  if (answer == NANWATCH_ATTACH_BEGUN) return answer;
  shim.late_level[0] = '\0';
  atomic_store(&shim.attached, false); /* the next one may do better */
  return answer;
}

void* nanwatch_before_dlopen(const char* name) {
  /* Also called before the constructor, by constructors that run earlier: not armed yet, and the
   * constructor looks itself. */
  int saved_errno = errno;
  if (atomic_load(&shim.armed) && name_is_sign(name)) see_sign_of_torch();
  void* real = loader_real_dlopen();
  errno = saved_errno;
  return real;
}
