// SPDX-License-Identifier: Apache-2.0
// Whether the gradients that an autograd node was handed are results of ops that were observed.
//
//   MulBackward0      runs aten::mul: its result was checked
//        |
//   ViewBackward0     a view: the same memory, nothing to check
//        |   <- a hook of the program's sees the gradient here, and may write into it
//   ExpBackward0      runs now
//
// Between the ops that computed a gradient and the node that reads it lie nodes that only hand it
// on. Where the program has put a hook on any of these, or where the gradient comes from a Function
// of the program's own, numpy or a kernel of its own may have written what no callback saw.
//
// Threads: any; asks about the node that the calling thread runs. Walks the graph of the pass:
// some 10 ms for 100,000 nodes, and allocates.
#pragma once

namespace nanwatch {

// True where all of them are; outside a backward pass, too. False where one may not be, or where
// that cannot be found out.
[[nodiscard]] bool GradientsComeFromOps() noexcept;

}  // namespace nanwatch
