// SPDX-License-Identifier: Apache-2.0
// What a fork needs so that the child can be observed from its first op on.
//
// A child gets an observer of its own (Observer::WakeInChild) and goes on using what it shares with
// its parent's memory: names of parameters, callbacks that libtorch knows. A lock over these that
// another thread of the parent holds at the fork would stay locked in the child for good. So the
// forking thread takes these locks before the fork, for 50 ms at most, and both sides give them
// back. A child of a fork that could not have them in time stays unobserved; so does one that raw
// clone() made, which runs no handlers, and every child of a process that has stepped down.
#pragma once

namespace nanwatch::forks {

// Once in a process image, before the first callback. False: there is no memory for handlers, and
// no child will be observed.
[[nodiscard]] bool InstallHandlers() noexcept;

// True once in a forked child that may be observed: the caller wakes it. Cheap everywhere else.
[[nodiscard]] bool TakeTurnToWake() noexcept;

}  // namespace nanwatch::forks
