// SPDX-License-Identifier: Apache-2.0
// libtorch's table of callbacks, as a fork leaves it.
//
// One lock covers the table (at::GlobalCallbackManager). Every thread takes it with its first op,
// after each change of the table, and with each node of a backward pass. A child that was forked
// while another thread held it can never have it: the change that is made in the child, and the
// next op of a thread that has not seen the last change, would wait for ever. So the forking thread
// looks at the table before it forks, and the child asks whether the lock is free before it makes a
// change.
#pragma once

namespace nanwatch::callback_table {

// On the thread that forks, before it does, while nobody changes the table: its ops in the child
// need the lock no more.
void SeeLastChange() noexcept;

// In a forked child: whether the lock can be had. Has a thread try, at the first call, and waits
// for it. Once that has stood before the lock for kPatienceMs it stays behind, and the answer is
// no. One caller at a time.
[[nodiscard]] bool IsFree() noexcept;
// The same without trying; false: nobody knows.
[[nodiscard]] bool IsKnownFree() noexcept;
// In the child, right behind a fork: what was known of the parent says nothing of it.
void Forget() noexcept;

inline constexpr int kPatienceMs = 50;

}  // namespace nanwatch::callback_table
