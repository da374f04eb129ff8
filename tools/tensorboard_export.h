// SPDX-License-Identifier: Apache-2.0
// The series of a run as a file of TensorBoard's events: records of TFRecord, each a message Event
// with one number. Pure.
#pragma once

#include <string>

#include "daemon/report/page/run_series.h"
#include "verdict.pb.h"

namespace nanwatch {

// Tags: nanwatch/loss, /gradient_norm, /loss_scale, /learning_rate, /overhead, /seconds,
// /limit_share, /bad. Their step is that of the verdict document, or where the point lies where that is
// not known.
[[nodiscard]] std::string TensorBoardEvents(const Run& run, const RunSeries& series);

// "events.out.tfevents.<start>.<run>.nanwatch": TensorBoard finds files by this beginning.
[[nodiscard]] std::string TensorBoardFileName(const Run& run, const RunSeries& series);

// Castagnoli's, as TFRecord uses it.
[[nodiscard]] uint32_t Crc32c(std::string_view bytes);

}  // namespace nanwatch
