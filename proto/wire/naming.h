// SPDX-License-Identifier: Apache-2.0
// Names that cross a process boundary: environment variables, files in NANWATCH_DIR.
#pragma once

namespace nanwatch::wire {

inline constexpr char kEnvSwitch[] = "NANWATCH";   // "0": off
inline constexpr char kEnvDir[] = "NANWATCH_DIR";  // segments
inline constexpr char kEnvStateDir[] = "NANWATCH_STATE_DIR";
inline constexpr char kEnvJob[] = "NANWATCH_JOB";
inline constexpr char kEnvLevel[] = "NANWATCH_LEVEL";
// The former name of level `sampled`, which this release still takes, and what it then says.
inline constexpr char kFormerSampled[] = "layer";
inline constexpr char kFormerSampledNotice[] =
    "level 'layer' is called 'sampled' now; the old name works in this release only";
inline constexpr char kEnvBudget[] = "NANWATCH_BUDGET";
inline constexpr char kEnvIgnore[] = "NANWATCH_IGNORE";
inline constexpr char kEnvLog[] = "NANWATCH_LOG";  // the shim's own messages: a file, or "stderr"
inline constexpr char kEnvOnAnomaly[] = "NANWATCH_ON_ANOMALY";
inline constexpr char kEnvStats[] = "NANWATCH_STATS";      // steps between two snapshots; "0": none
inline constexpr char kEnvKernels[] = "NANWATCH_KERNELS";  // "1": the kernels of findings' ops
inline constexpr char kEnvVetCheckpoints[] =
    "NANWATCH_VET_CHECKPOINTS";  // "1": read what is saved, and say whether it is clean
// Percent of the steps that may be left unchecked to measure what the checks cost. "0" or unset:
// none.
inline constexpr char kEnvMeasure[] = "NANWATCH_MEASURE";
inline constexpr char kEnvRun[] = "NANWATCH_RUN";  // pid of the `nanwatch run` around the job
inline constexpr char kEnvGpu[] = "NANWATCH_GPU";  // "0": tensors of GPUs are left unchecked

inline constexpr char kDefaultDirPrefix[] = "/dev/shm/nanwatch-";  // + uid
// A segment: nw-<pid>-<nonce, 16 hex digits>.seg; the same with .tmp while it is being made.
inline constexpr char kSegmentPrefix[] = "nw-";
inline constexpr char kSegmentSuffix[] = ".seg";
inline constexpr char kSegmentTmpSuffix[] = ".tmp";
// How a command that `nanwatch run` started ended: <job>.exit, one JSON object, written by the
// tool.
inline constexpr char kExitSuffix[] = ".exit";
// A process of a job under `nanwatch run` for whose segment there was no room: an empty file
// <job>.<pid>.unwatched, counted and removed by the tool.
inline constexpr char kUnwatchedSuffix[] = ".unwatched";
// A `nanwatch run`: <job>.<random>.launcher, locked while it lives.
inline constexpr char kLauncherSuffix[] = ".launcher";
// Held (POSIX record lock) by the running daemon; holds its pid as text.
inline constexpr char kDaemonLock[] = "daemon.lock";
inline constexpr int kDirPathMax =
    180;  // longer ones are refused: a segment's path must stay under 255

}  // namespace nanwatch::wire
