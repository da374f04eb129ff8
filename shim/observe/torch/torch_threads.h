// SPDX-License-Identifier: Apache-2.0
// The threads in which torch's own ops run, for reading large memory.
#pragma once

namespace nanwatch {

// From now on large memory is read in these (shim/check/parallel.h), when the job has not forbidden
// them (torch.set_num_threads(1)), on threads that train. Within an op that runs in several
// threads, and in a forked child of this process, the calling thread reads alone: a child has no
// more of the pool than its locks, and its own ops may never need it. Once, before a second thread
// could read.
void ReadInTorchThreads() noexcept;

// The calling thread has made an update, and so has used torch's threads itself. Before that it may
// have none, and a job that has none may fork children that use theirs: made by us they would be
// missing there, and be waited for.
void RecordThreadTrains() noexcept;

}  // namespace nanwatch
