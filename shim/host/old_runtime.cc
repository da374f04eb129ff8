// SPDX-License-Identifier: Apache-2.0
// What newer headers of libstdc++ expect of the runtime and older runtimes lack: the observer
// brings its own. Hidden, as the rest of the process keeps what it has.
#include <new>

extern "C" {
// libstdc++ asks it whether a reference count may do without atomics; glibc has it from 2.32 on
// only. Always "no", which is right for a process that runs torch.
__attribute__((visibility("hidden"))) extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}

namespace nanwatch {

// std::__throw_bad_array_new_length, from GCC 11 (GLIBCXX_3.4.29) on only; torch 2.6 asks
// for 3.4.19. Its base class is thrown, as the class itself is from GLIBCXX_3.4.20 on. By its
// linker name: the headers have declared it as visible.
[[noreturn]] __attribute__((visibility("hidden"))) void ThrowBadArrayLength() __asm__(
    "_ZSt28__throw_bad_array_new_lengthv");
void ThrowBadArrayLength() { throw std::bad_alloc(); }

}  // namespace nanwatch
