// SPDX-License-Identifier: Apache-2.0
/* What the tool writes into the process: the layout that C++ and assembler share. Read by both, so
 * nothing but numbers.
 *
 * The payload is machine code without data of its own; it stands in room behind a text segment. The
 * block is its data and stands in room behind a segment of data. The block's state:
 *
 *      tool          a thread of the process that comes to the hook
 *   ARMED  ------->  CLAIMED ---> RUNNING ---> DONE or FAILED    the library is loaded
 *     ^                 |
 *     +-- ABANDONED <---+   not permitted (any more), another process (a fork), or no tool
 *
 * One thread claims, by compare and exchange. Then it reads the permission, which the tool takes
 * back before it reads the state: either the thread sees that, or the tool sees the claim. */
#ifndef NANWATCH_TOOLS_INJECT_PAYLOAD_LAYOUT_H_
#define NANWATCH_TOOLS_INJECT_PAYLOAD_LAYOUT_H_

#define NANWATCH_HOOK_MAGIC 0x31306b6f6f68776e /* "nwhook01" */

/* The payload's head, offsets from its first byte. */
#define NANWATCH_PAYLOAD_BLOCK 8     /* address of the block */
#define NANWATCH_PAYLOAD_ORIGINAL 16 /* what the hooked slot pointed to */
#define NANWATCH_PAYLOAD_RESUME 24   /* where a borrowed thread goes on */
#define NANWATCH_PAYLOAD_HOOK 32     /* 32 bits each: offsets of the entries */
#define NANWATCH_PAYLOAD_PENDING 36
#define NANWATCH_PAYLOAD_BORROWED 40 /* 0: none on this processor */

/* The block. */
#define NANWATCH_BLOCK_STATE 0
#define NANWATCH_BLOCK_PERMISSION 4 /* 1: go on */
#define NANWATCH_BLOCK_PID 8        /* the process, else it is a fork */
#define NANWATCH_BLOCK_TOOL 12      /* who asked; nothing happens when it is gone */
#define NANWATCH_BLOCK_DLOPEN 16
#define NANWATCH_BLOCK_DLSYM 24
#define NANWATCH_BLOCK_DLERROR 32
#define NANWATCH_BLOCK_ERRNO 40 /* __errno_location */
#define NANWATCH_BLOCK_LIBRARY 48
#define NANWATCH_BLOCK_SYMBOL 56
#define NANWATCH_BLOCK_LEVEL 64
#define NANWATCH_BLOCK_DIRECTORY 72
#define NANWATCH_BLOCK_ANSWERS 80
#define NANWATCH_BLOCK_ANSWER 88
#define NANWATCH_BLOCK_LENT 92        /* 1: a thread runs the borrowed entry, 2: it is back */
#define NANWATCH_BLOCK_ADD_PENDING 96 /* Py_AddPendingCall */
#define NANWATCH_BLOCK_PENDING 104    /* the pending entry */
#define NANWATCH_BLOCK_XSAVE_BYTES 112
#define NANWATCH_BLOCK_MXCSR 116
#define NANWATCH_BLOCK_ERROR 120 /* dlerror's words, ended by 0 */
#define NANWATCH_BLOCK_ERROR_BYTES 256
#define NANWATCH_BLOCK_TEXTS_BYTES 376 /* room for the texts, of which the library is the first */
#define NANWATCH_BLOCK_BYTES 384

#define NANWATCH_STATE_ARMED 1
#define NANWATCH_STATE_CLAIMED 2
#define NANWATCH_STATE_RUNNING 3
#define NANWATCH_STATE_DONE 4
#define NANWATCH_STATE_FAILED 5
#define NANWATCH_STATE_ABANDONED 6

#endif /* NANWATCH_TOOLS_INJECT_PAYLOAD_LAYOUT_H_ */
