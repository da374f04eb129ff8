// SPDX-License-Identifier: Apache-2.0
// The trainings of a notebook's kernel, each with a verdict of its own: the second one, in a cell
// that was fixed and run again, must not be hidden by what the first one left.
#pragma once

#include <vector>

#include "daemon/correlate/lineage.h"
#include "verdict.pb.h"

namespace nanwatch {

// Adds them where a process had more than one. The verdict has its incidents. `watched`: nothing
// keeps a run without incidents from being called clean.
void AddTrainings(const std::vector<Lineage>& runs, bool watched, Verdict& verdict);

}  // namespace nanwatch
