// libstdc++ asks __libc_single_threaded whether a reference count may do without atomics. glibc has it from 2.32 on only,
// so the observer brings its own: always "no", which is right for a process that runs torch. Hidden, as the rest of the
// process keeps glibc's.
extern "C" {
__attribute__((visibility("hidden"))) extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}
