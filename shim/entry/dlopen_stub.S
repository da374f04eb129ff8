// SPDX-License-Identifier: Apache-2.0
/* The exported dlopen: tells nanwatch_before_dlopen() the file name, then jumps to the real dlopen,
 * whose address that function returned.
 *
 * It must be a jump and not a call: the loader resolves $ORIGIN and RUNPATH against the library
 * that holds the return address, and after a call that would be this one. In C a tail call depends
 * on the optimiser (at -O0 there is none), hence assembler. */

#if defined(__x86_64__)

#ifdef __CET__
/* Marks the object, so that our presence does not switch indirect-branch tracking off. */
#include <cet.h>
#else
#define _CET_ENDBR endbr64
#endif

    .text
    .globl dlopen
    .type dlopen, @function
    .p2align 4
dlopen:
    .cfi_startproc
    _CET_ENDBR
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp /* a call wants the stack aligned to 16 */
    .cfi_adjust_cfa_offset 8
    call nanwatch_before_dlopen
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size dlopen, .-dlopen

#elif defined(__aarch64__)

    .text
    .globl dlopen
    .type dlopen, %function
    .p2align 4
dlopen:
    .cfi_startproc
    hint #34 /* bti c; a no-op where the processor has none */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov x29, sp
    stp x0, x1, [sp, #16]
    bl nanwatch_before_dlopen
    mov x16, x0 /* br by way of x16 may land on a bti c */
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size dlopen, .-dlopen

#ifdef __ARM_FEATURE_BTI_DEFAULT
    .section .note.gnu.property, "a", %note
    .p2align 3
    .long 4, 16, 5
    .asciz "GNU"
    .long 0xc0000000, 4, 1, 0 /* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI */
#endif

#else
#error "libnanwatch.so needs a dlopen stub for this processor: add it here"
#endif

    .section .note.GNU-stack, "", %progbits
