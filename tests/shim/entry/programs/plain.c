// SPDX-License-Identifier: Apache-2.0
/* A program that is compiled for other libcs, too: opens the libraries that it is given, forks, and
 * says what came of it. Static programs open nothing. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef NANWATCH_TEST_STATIC
#include <dlfcn.h>
#endif

int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {
#ifndef NANWATCH_TEST_STATIC
    printf("open %s\n", dlopen(words[i], RTLD_NOW | RTLD_GLOBAL) != NULL ? "ok" : "failed");
#else
    printf("not opened: %s\n", words[i]);
#endif
  }
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(3);
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  return 7;
}
