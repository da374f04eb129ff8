// SPDX-License-Identifier: Apache-2.0
// Whether enough of a job was watched to call it clean or expected. Where it was not, the verdict
// is `unknown`, and the document names the reason (`unknown_because`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// The reason why a job without an anomaly gets the verdict `unknown`; "" where enough was watched.
// The first that holds, in this order:
//   switched_off       `nanwatch run` was called with NANWATCH=0,
//   not_preloaded      or could not preload the library
//   no_room            a process that loaded torch had no space for its segment,
//   no_observer        has a torch that there is no observer for,
//   not_started        or has an observer that could not be loaded or did not trust itself
//   no_ops             nothing but a process that loaded torch and ran no op,
//   ended_early        one that ended before nanwatch could say what it did,
//   import_failed      or one that began to import torch and never loaded libtorch
//   no_run             no process of the job loaded torch, as far as nanwatch could see
//   nothing_checked    processes were observed, and no tensor was ever checked
//   device_not_checked more tensors on a device went unchecked than were checked in all
//   records_lost       findings were dropped, torn or damaged
//   records_left_out   there were more records than a verdict takes
//   values_not_kept    bad values were counted, and no record of them is left (no `incidents`)
//   steps_not_checked  some steps ran at level `idle` that level `auto` did not choose and that
//                      were not off to measure the overhead; or a process ended in steps that
//                      were left out for one of the two, so that nobody read what they left
// Where none of these holds, correlate.cc may give killed_in_bad_step or died_in_bad_step
// (death_rule.h), skip_not_explained or skip_not_seen (scaler_rule.h), update_not_seen (unapplied_rule.h), or
// not_followed (follow_rule.h). A fleet's answer gives ranks_not_heard, ranks_behind,
// runs_left_out, findings_missing or launch_by_clocks (daemon/gather/fleet_verdict.h).
// The first five hold beside processes that were observed, too; the next three only without any.
// `auto` leaves out steps by design and returns to the parameters they wrote, if only when the job
// ends, so its idle steps give no other reason; the report says how many there were.
[[nodiscard]] std::string UnknownBecause(const std::vector<RunFacts>& runs, const Verdict& verdict);

// Tensors on a GPU, or another device, that went unchecked because of where they are.
[[nodiscard]] uint64_t UncheckedOnDevices(const Coverage& coverage);
// Steps at level `idle`; all steps that were watched in one way or another are `steps_watched`.
[[nodiscard]] uint64_t IdleSteps(const Coverage& coverage);
// Those of them whose checks were off so that their cost could be measured.
[[nodiscard]] uint64_t StepsOffToMeasure(const Coverage& coverage);
// Steps of all processes that the observer counted, idle ones included.
[[nodiscard]] uint64_t CountedSteps(const Coverage& coverage);

}  // namespace nanwatch
