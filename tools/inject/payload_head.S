// SPDX-License-Identifier: Apache-2.0
/* The head of a payload, as payload_layout.h lays it out; included by the payload of each processor.
 * Defines the labels `block`, `original` and `resume`; `hook` and `pending` are the payload's own.
 * `borrowed` is the offset of its entry of that name, 0 where it has none. */
#include "tools/inject/payload_layout.h"

    .macro payload_head borrowed
    .section .rodata
    .globl nanwatch_payload_begin
    .globl nanwatch_payload_end
    .hidden nanwatch_payload_begin
    .hidden nanwatch_payload_end
    .p2align 6
nanwatch_payload_begin:
    .quad NANWATCH_HOOK_MAGIC
block:
    .quad 0
original:
    .quad 0
resume:
    .quad 0
    .long hook - nanwatch_payload_begin
    .long pending - nanwatch_payload_begin
    .long \borrowed
    .long 0
    .endm
