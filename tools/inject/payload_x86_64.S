// SPDX-License-Identifier: Apache-2.0
/* The payload for x86-64; see payload_layout.h. It runs in the process, at any address. */
#include "tools/inject/payload_head.S"

    payload_head borrowed=(borrowed-nanwatch_payload_begin)

/* Called in place of the hooked function, by any thread: loads, or not, and goes on there. Vector
 * registers belong to nobody at a call; what may hold an argument is kept. */
    .p2align 4
hook:
    endbr64
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    pushq %rax /* the stack is aligned to 16 again */
    movq block(%rip), %rdi
    call load
    popq %rax
    popq %r9
    popq %r8
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    jmp *original(%rip)

/* int pending(void*): called by Python's main thread between two instructions, GIL held. */
    .p2align 4
pending:
    endbr64
    subq $8, %rsp
    movq block(%rip), %rdi
    call load
    addq $8, %rsp
    xorl %eax, %eax
    ret

/* load(block): by the one thread that claims it. */
    .p2align 4
load:
    cmpl $NANWATCH_STATE_ARMED, NANWATCH_BLOCK_STATE(%rdi)
    jne 9f
    pushq %rbx
    pushq %r12
    pushq %r13
    movq %rdi, %rbx
    movl $NANWATCH_STATE_ARMED, %eax
    movl $NANWATCH_STATE_CLAIMED, %ecx
    lock cmpxchgl %ecx, NANWATCH_BLOCK_STATE(%rbx)
    jne 8f
    cmpl $1, NANWATCH_BLOCK_PERMISSION(%rbx)
    jne 7f
    movl $39, %eax /* getpid */
    syscall
    cmpl NANWATCH_BLOCK_PID(%rbx), %eax
    jne 7f
    movl $62, %eax /* kill(tool, 0): ESRCH when it is gone */
    movl NANWATCH_BLOCK_TOOL(%rbx), %edi
    xorl %esi, %esi
    syscall
    cmpq $-3, %rax
    je 7f
    movl $NANWATCH_STATE_RUNNING, NANWATCH_BLOCK_STATE(%rbx)
    call *NANWATCH_BLOCK_ERRNO(%rbx)
    movq %rax, %r12
    movl (%rax), %r13d
    movq NANWATCH_BLOCK_LIBRARY(%rbx), %rdi
    movl $2, %esi /* RTLD_NOW */
    call *NANWATCH_BLOCK_DLOPEN(%rbx)
    testq %rax, %rax
    jz 3f
    movq %rax, %rdi
    movq NANWATCH_BLOCK_SYMBOL(%rbx), %rsi
    call *NANWATCH_BLOCK_DLSYM(%rbx)
    testq %rax, %rax
    jz 3f
    movq NANWATCH_BLOCK_LEVEL(%rbx), %rdi
    movq NANWATCH_BLOCK_DIRECTORY(%rbx), %rsi
    movq NANWATCH_BLOCK_ANSWERS(%rbx), %rdx
    call *%rax
    movl %eax, NANWATCH_BLOCK_ANSWER(%rbx)
    movl $NANWATCH_STATE_DONE, NANWATCH_BLOCK_STATE(%rbx)
    jmp 6f
3:  call *NANWATCH_BLOCK_DLERROR(%rbx)
    testq %rax, %rax
    jz 5f
    xorl %ecx, %ecx
4:  movb (%rax,%rcx), %dl
    movb %dl, NANWATCH_BLOCK_ERROR(%rbx,%rcx)
    incl %ecx
    cmpl $(NANWATCH_BLOCK_ERROR_BYTES - 1), %ecx
    je 5f
    testb %dl, %dl
    jnz 4b
5:  movl $NANWATCH_STATE_FAILED, NANWATCH_BLOCK_STATE(%rbx)
6:  movl %r13d, (%r12)
    jmp 8f
7:  movl $NANWATCH_STATE_ABANDONED, NANWATCH_BLOCK_STATE(%rbx)
8:  popq %r13
    popq %r12
    popq %rbx
9:  ret

/* Entered by the tool, between any two instructions of a thread: has Python call `pending` soon, and
 * goes on where the thread was, with all that it had. Keeps the red zone. Calls and returns are
 * paired and the last step is a jump, so a shadow stack stays right. No tracer is needed for it. */
    .p2align 4
borrowed:
    leaq -128(%rsp), %rsp
    pushfq
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rbx
    pushq %rbp
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    cld
    movq %rsp, %rbp
    movq block(%rip), %rbx
    movl NANWATCH_BLOCK_XSAVE_BYTES(%rbx), %ecx
    testl %ecx, %ecx
    jnz 1f
    subq $512, %rsp
    andq $-64, %rsp
    fxsave64 (%rsp)
    jmp 2f
1:  subq %rcx, %rsp
    andq $-64, %rsp
    xorl %eax, %eax
    movq %rax, 512(%rsp) /* the area's head, 64 bytes */
    movq %rax, 520(%rsp)
    movq %rax, 528(%rsp)
    movq %rax, 536(%rsp)
    movq %rax, 544(%rsp)
    movq %rax, 552(%rsp)
    movq %rax, 560(%rsp)
    movq %rax, 568(%rsp)
    movl $-1, %eax /* all that the system has enabled */
    movl $-1, %edx
    xsave64 (%rsp)
2:  fninit
    ldmxcsr NANWATCH_BLOCK_MXCSR(%rbx)
    call *NANWATCH_BLOCK_ERRNO(%rbx)
    movq %rax, %r12
    movl (%rax), %r13d
    movq NANWATCH_BLOCK_PENDING(%rbx), %rdi
    xorl %esi, %esi
    call *NANWATCH_BLOCK_ADD_PENDING(%rbx)
    movl %r13d, (%r12)
    cmpl $0, NANWATCH_BLOCK_XSAVE_BYTES(%rbx)
    jne 3f
    fxrstor64 (%rsp)
    jmp 4f
3:  movl $-1, %eax
    movl $-1, %edx
    xrstor64 (%rsp)
4:  movl $2, NANWATCH_BLOCK_LENT(%rbx)
    movq %rbp, %rsp
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rbp
    popq %rbx
    popq %rdx
    popq %rcx
    popq %rax
    popfq
    leaq 128(%rsp), %rsp
    jmp *resume(%rip)
nanwatch_payload_end:

    .section .note.GNU-stack, "", @progbits
