// SPDX-License-Identifier: Apache-2.0
/* The payload for 64-bit ARM; see payload_layout.h. It runs in the process, at any address. A thread
 * cannot be borrowed here: to go on where it was takes a register, and all may be in use. */
#include "tools/inject/payload_head.S"

    payload_head borrowed=0

/* Called in place of the hooked function, by any thread: loads, or not, and goes on there. */
    .p2align 4
hook:
    hint #34 /* bti c */
    stp x29, x30, [sp, #-96]!
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    ldr x0, block
    bl load
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #96
    ldr x16, original
    br x16

/* int pending(void*): called by Python's main thread between two instructions, GIL held. */
    .p2align 4
pending:
    hint #34
    stp x29, x30, [sp, #-16]!
    ldr x0, block
    bl load
    ldp x29, x30, [sp], #16
    mov w0, #0
    ret

/* load(block): by the one thread that claims it. */
    .p2align 4
load:
    ldr w9, [x0, #NANWATCH_BLOCK_STATE]
    cmp w9, #NANWATCH_STATE_ARMED
    b.ne 9f
    stp x29, x30, [sp, #-48]!
    stp x19, x20, [sp, #16]
    str x21, [sp, #32]
    mov x19, x0
1:  ldaxr w9, [x19]
    cmp w9, #NANWATCH_STATE_ARMED
    b.ne 8f
    mov w10, #NANWATCH_STATE_CLAIMED
    stlxr w11, w10, [x19]
    cbnz w11, 1b
    dmb ish /* the claim before the permission */
    ldr w9, [x19, #NANWATCH_BLOCK_PERMISSION]
    cmp w9, #1
    b.ne 7f
    mov x8, #172 /* getpid */
    svc #0
    ldr w9, [x19, #NANWATCH_BLOCK_PID]
    cmp w0, w9
    b.ne 7f
    ldr w0, [x19, #NANWATCH_BLOCK_TOOL] /* kill(tool, 0): ESRCH when it is gone */
    mov x1, #0
    mov x8, #129
    svc #0
    cmn x0, #3
    b.eq 7f
    mov w9, #NANWATCH_STATE_RUNNING
    str w9, [x19]
    ldr x9, [x19, #NANWATCH_BLOCK_ERRNO]
    blr x9
    mov x20, x0
    ldr w21, [x0]
    ldr x0, [x19, #NANWATCH_BLOCK_LIBRARY]
    mov w1, #2 /* RTLD_NOW */
    ldr x9, [x19, #NANWATCH_BLOCK_DLOPEN]
    blr x9
    cbz x0, 3f
    ldr x1, [x19, #NANWATCH_BLOCK_SYMBOL]
    ldr x9, [x19, #NANWATCH_BLOCK_DLSYM]
    blr x9
    cbz x0, 3f
    mov x9, x0
    ldr x0, [x19, #NANWATCH_BLOCK_LEVEL]
    ldr x1, [x19, #NANWATCH_BLOCK_DIRECTORY]
    ldr x2, [x19, #NANWATCH_BLOCK_ANSWERS]
    blr x9
    str w0, [x19, #NANWATCH_BLOCK_ANSWER]
    mov w9, #NANWATCH_STATE_DONE
    b 6f
3:  ldr x9, [x19, #NANWATCH_BLOCK_DLERROR]
    blr x9
    cbz x0, 5f
    add x1, x19, #NANWATCH_BLOCK_ERROR
    mov w2, #(NANWATCH_BLOCK_ERROR_BYTES - 1)
4:  ldrb w3, [x0], #1
    strb w3, [x1], #1
    subs w2, w2, #1
    b.eq 5f
    cbnz w3, 4b
5:  mov w9, #NANWATCH_STATE_FAILED
6:  str w21, [x20]
    stlr w9, [x19]
    b 8f
7:  mov w9, #NANWATCH_STATE_ABANDONED
    stlr w9, [x19]
8:  ldr x21, [sp, #32]
    ldp x19, x20, [sp, #16]
    ldp x29, x30, [sp], #48
9:  ret
nanwatch_payload_end:

    .section .note.GNU-stack, "", %progbits
