// SPDX-License-Identifier: Apache-2.0
/* Checks, as an extension of Python's or by ctypes, that nobody changes what a thread has in its
 * registers: vectors, masks, x87, control words, the red zone. And a heartbeat, for what a process
 * that is stopped cannot have. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* Values stay in registers all the time; 0 when all are as they were. */
__attribute__((target("avx512f"), noinline)) static int spin_avx512(long rounds) {
  int bad = 0;
  const __m512i seed = _mm512_set_epi64(1, 2, 3, 4, 5, 6, 7, 8);
  for (long round = 0; round < rounds; ++round) {
    __asm__ volatile(
        "vmovdqu64 %[seed], %%zmm5\n\t"
        "vmovdqu64 %%zmm5, %%zmm31\n\t"
        "vpaddq %%zmm5, %%zmm5, %%zmm17\n\t"
        "movl $0xa5a5, %%eax\n\t"
        "kmovw %%eax, %%k3\n\t"
        "movq $0x1234567, -64(%%rsp)\n\t" /* the red zone */
        "movq $20000, %%rcx\n\t"
        "1: decq %%rcx\n\t"
        "jnz 1b\n\t"
        "vpaddq %[seed], %[seed], %%zmm6\n\t"
        "vpcmpneqq %%zmm6, %%zmm17, %%k1\n\t"
        "vpcmpneqq %[seed], %%zmm31, %%k2\n\t"
        "korw %%k1, %%k2, %%k1\n\t"
        "kmovw %%k1, %%eax\n\t"
        "orl %%eax, %[bad]\n\t"
        "kmovw %%k3, %%eax\n\t"
        "xorl $0xa5a5, %%eax\n\t"
        "orl %%eax, %[bad]\n\t"
        "movq -64(%%rsp), %%rax\n\t"
        "xorq $0x1234567, %%rax\n\t"
        "orl %%eax, %[bad]\n\t"
        : [bad] "+r"(bad)
        : [seed] "v"(seed)
        : "rax", "rcx", "memory", "cc", "xmm5", "xmm6", "xmm17", "xmm31", "k1", "k2", "k3");
  }
  return bad;
}

__attribute__((noinline)) static int spin_x87(long rounds) {
  int bad = 0;
  for (long round = 0; round < rounds; ++round) {
    uint16_t control = 0;
    uint32_t mxcsr = 0;
    /* Rounding toward zero, single precision, while three values lie on the stack. */
    const uint16_t wanted_control = 0x0c7f, usual_control = 0x037f;
    const uint32_t wanted_mxcsr = 0x7fc0, usual_mxcsr = 0x1f80;
    long double sum = 0;
    __asm__ volatile(
        "fldcw %[wc]\n\t"
        "ldmxcsr %[wm]\n\t"
        "fld1\n\tfldpi\n\tfldl2e\n\t"
        "movq $20000, %%rcx\n\t"
        "1: decq %%rcx\n\t"
        "jnz 1b\n\t"
        "faddp\n\tfaddp\n\tfstpt %[sum]\n\t"
        "fnstcw %[control]\n\t"
        "stmxcsr %[mxcsr]\n\t"
        "fldcw %[uc]\n\t"
        "ldmxcsr %[um]\n\t"
        : [sum] "=m"(sum), [control] "=m"(control), [mxcsr] "=m"(mxcsr)
        : [wc] "m"(wanted_control), [wm] "m"(wanted_mxcsr), [uc] "m"(usual_control),
          [um] "m"(usual_mxcsr)
        : "rcx", "cc", "memory", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)",
          "st(7)");
    bad |= control != wanted_control || (mxcsr & ~0x3fU) != (wanted_mxcsr & ~0x3fU);
    bad |= sum < 5.58L || sum > 5.59L; /* 1 + pi + log2 e */
  }
  return bad;
}

__attribute__((visibility("default"))) int nanwatch_spin(long rounds) {
  int bad = 0;
  for (long round = 0; round < rounds; ++round) {
    if (__builtin_cpu_supports("avx512f")) bad |= spin_avx512(1);
    bad |= spin_x87(1);
  }
  return bad;
}
#else
__attribute__((visibility("default"))) int nanwatch_spin(long rounds) {
  volatile double value = 1;
  for (long round = 0; round < rounds * 20000; ++round) value = value * 1.0;
  return value != 1;
}
#endif

static _Atomic long gap_ns;

static long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void* beat(void* nothing) {
  (void)nothing;
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = 500000};
  for (long before = now_ns();;) {
    nanosleep(&pause, NULL);
    const long now = now_ns();
    if (now - before > atomic_load(&gap_ns)) atomic_store(&gap_ns, now - before);
    before = now;
  }
  return NULL;
}

/* From here on the longest time between two beats, of half a millisecond, is kept. */
__attribute__((visibility("default"))) int nanwatch_heartbeat_start(void) {
  pthread_t thread;
  return pthread_create(&thread, NULL, &beat, NULL);
}
__attribute__((visibility("default"))) long nanwatch_heartbeat_gap_us(void) {
  return atomic_load(&gap_ns) / 1000;
}
