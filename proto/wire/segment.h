// SPDX-License-Identifier: Apache-2.0
// The segment: one file in shared memory per observed process, written by the job, read by the
// daemon and the tools. It is all that the two sides know of each other.
//
//   offset 0        SegmentHeader         written once, before the file gets its final name
//   then sections, in the order of the header's directory; a reader skips unknown types:
//     kLive         LiveBlock             what the job is doing now; overwritten
//     kControl      ControlBlock          written by the tools, acknowledged in the live block
//     kFindings     RingHeader + slots    records (record.h); newest dropped and counted when full
//     kSteps        StepRingHeader +      one per step; oldest overwritten
//                   StepEntry[]
//     kFirst        FirstFinding[64]      the first distinct findings; never evicted
//     kReach        FirstReach[8]         first time of each kind of reach; never evicted
//     kSites        SiteTableHeader +     places; append-only, with counts
//                   SiteEntry[]
//     kNames        NameTableHeader +     strings; append-only
//                   entries + text
//     kTelemetry    StepRingHeader +      one per step, beside kSteps
//                   TelemetryEntry[]
//     kBlobs        IgnoreSection         the user's rules (ignore_section.h)
//     kTrail        StepRingHeader +      the ops before a finding; oldest overwritten
//                   TrailEntry[]
//     kStats        StepRingHeader +      parameters, every so many steps (stats_ring.h)
//                   StatsEntry[]
//
// States of the file (who may make the transition):
//   "<name>.tmp"  --(job: header complete, rename)-->  "<name>.seg"  --(job dies or exits)-->  dead
//   dead  --(daemon: everything committed to its database, unlink)-->  gone
// A ".tmp" whose process is dead is garbage and is removed by the daemon.
//
// Dead means all three of: nobody holds the POSIX record lock on byte 0 of the file; no process
// with the header's (boot id, pid, start time) lives; the heartbeat is old or, same host and pid
// namespace, moot.
//
// The file is as long as its header says and may have holes: a writer of minor 5 makes pages for a
// part of a section before it first stores to it (section_room.h). Reading through a mapping makes
// a page of a hole too, so a reader reaches only for what was published. The capacity of a ring may
// become smaller while the ring is in its first lap, never again.
//
// Memory order: a field declared std::atomic is published by a release store after what it covers
// was written, and read with acquire. Everything else is either written before the file gets its
// name, or lies behind such a field. Alignment of every section is 64 bytes. The job never reads
// back anything that it needs for its own safety, except ring cursors, which it clamps.
//
// The reader assumes nothing about the writer: it may have crashed, be older or newer, or be
// hostile. Sizes come from fstat and are checked against the directory; all else is copied, then
// validated.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/wire/record.h"
#include "proto/wire/stats_entry.h"

namespace nanwatch::wire {

inline constexpr uint64_t kSegmentMagic = 0x48435441574e414eull;  // the bytes "NANWATCH"
inline constexpr uint16_t kWireMajor = 1;   // a change that an old reader would misread
inline constexpr uint16_t kWireMinor = 13;  // additions that an old reader may ignore
inline constexpr uint16_t kWireMinorOfStacks =
    3;  // from which on ControlRequest::kStacks is heeded

// clang-format off
enum class SectionType : uint32_t {
  kLive = 1, kControl = 2, kFindings = 3, kSteps = 4, kFirst = 5, kReach = 6,
  kSites = 7, kNames = 8, kStats = 9, kTrail = 10, kBlobs = 11, kTelemetry = 12,
};
// clang-format on

struct SectionEntry {
  uint32_t type;    // SectionType
  uint32_t stride;  // bytes of one element, 0 where elements have no fixed size
  uint64_t offset;  // from the start of the file, a multiple of 64
  uint64_t size;    // bytes
};
static_assert(sizeof(SectionEntry) == 24);

inline constexpr int kSectionsMax = 24;

enum class Level : uint8_t { kIdle = 0, kCanary = 1, kSampled = 2, kFull = 3, kAuto = 4 };
// kIdle to kFull, which a step can be watched at; kAuto chooses between them.
inline constexpr int kWatchedLevels = 4;

// Texts are UTF-8, cut to fit, always ended by a NUL.
struct SegmentHeader {
  uint64_t magic;
  uint16_t wire_major;
  uint16_t wire_minor;
  uint32_t header_bytes;  // sizeof(SegmentHeader) of the writer
  uint64_t file_bytes;
  uint64_t nonce;                 // random; the run's id is its hexadecimal form
  uint64_t started_real_ns;       // CLOCK_REALTIME at creation
  uint64_t started_monotonic_ns;  // CLOCK_MONOTONIC at the same moment
  uint64_t process_start_ticks;   // field 22 of /proc/self/stat
  uint64_t pid_namespace;         // inode of /proc/self/ns/pid
  int32_t pid;                    // as the process sees it
  int32_t pid_outer;  // as the outermost visible namespace sees it (first NSpid), else pid
  int32_t parent_pid;
  int32_t rank;  // 0 when alone
  int32_t local_rank;
  int32_t world_size;   // 1 when alone
  int32_t attempt;      // restart count
  int32_t forked_from;  // pid of the observed process that this one was forked from, else 0
  uint8_t level;        // Level at start
  uint8_t late;         // 1: the process ran already; its steps are counted from then (minor 3)
  uint8_t reserved0[2];
  uint32_t section_count;
  SectionEntry sections[kSectionsMax];
  char boot_id[40];  // /proc/sys/kernel/random/boot_id
  char job[64];      // NANWATCH_JOB, else a job id of Slurm, torchrun, Kubernetes or MPI, else ""
  char host[64];
  char torch_version[32];
  char python_version[12];  // "" in a C++ program; 16 until minor 5, of which 4 were never used
  uint32_t place;           // place.h: who shares the file system and sees the process; 0 unknown
  char program[256];        // what a person would call the job: train.py, or the executable's name
  // Arguments, each ended by a NUL, as many as fit; behind them, where there is room for all of it,
  // the directory that the process was in, ended by a NUL (minor 12).
  char command[1024];
  uint32_t command_bytes;
  int32_t awaited_by;  // pid of the `nanwatch run` that reads it at the job's end, else 0 (minor 5)
};
static_assert(sizeof(SegmentHeader) % 8 == 0);

// Reasons why a tensor was not checked; one counter each.
enum class Unchecked : uint32_t {
  kSparse = 0,
  kQuantized = 1,
  kNested = 2,
  kMeta = 3,
  kFake = 4,  // FakeTensor and other wrapper subclasses without memory of their own
  kFunctorch = 5,
  kOtherDevice = 6,
  kUninitialised = 7,  // outputs that are allocations
  kAsync = 8,          // receive buffers and the like, not yet filled when the op ends
  kAuxiliary = 9,      // outputs that hold non-finite values by definition
  kWrittenUnseen =
      10,  // arguments written by an op that returns nothing, while inputs were not asked for
  kTooDeep = 11,        // nesting beyond our frames
  kOpaque = 12,         // mkldnn and other opaque storage
  kAfterPoisoned = 13,  // steps, not tensors: parameters were bad, and nothing was checked
  kGpuNotReady = 14,    // the GPU's checker was not up yet, cannot be, or has stepped down
  kGpuBusy = 15,        // more checks were under way, or are in CUDA graphs, than there is room for
};
inline constexpr int kUncheckedReasons = 16;

// What the job is doing now. Each field is one atomic; a reader gets a recent value of each, not a
// snapshot, except clocks and loss, which stand under `sequence` (odd while being written; retry
// when it changed).
struct LiveBlock {
  std::atomic<uint64_t> heartbeat_ns;  // CLOCK_MONOTONIC of the last publication
  std::atomic<uint64_t> ops_seen;
  std::atomic<uint64_t> tensors_checked;
  std::atomic<uint64_t> bytes_checked;
  std::atomic<uint64_t> values_bad;      // op calls seen to write a bad value (shim/README.md)
  std::atomic<uint64_t> values_dropped;  // records that the ring had no room for
  std::atomic<uint64_t> names_dropped;   // names that found the table full
  std::atomic<uint64_t> sites_dropped;
  // Until minor 5: ticks spent in our callbacks, sampled, and those of the steps they were sampled
  // in. Not written any more: they left out most of what watching costs.
  std::atomic<uint64_t> own_cycles;
  std::atomic<uint64_t> step_cycles;
  std::atomic<uint64_t> unchecked[kUncheckedReasons];
  std::atomic<uint64_t> control_applied;  // the control word in force
  std::atomic<uint32_t> state;            // LiveState
  std::atomic<uint32_t> level;            // Level in force
  std::atomic<uint32_t> sequence;
  std::atomic<uint32_t> gpus;  // bit i: tensors of GPU i are checked (minor 2)
  Clocks clocks;
  double loss;  // last backward root that was a scalar; NaN until known
  uint64_t loss_known;
  std::atomic<uint64_t> last_clean_collective;
  std::atomic<uint64_t> tickets;  // tickets drawn so far
  // Steps published while ops went unwatched (kIdle), by the canary, at `sampled`, in full.
  std::atomic<uint64_t> steps_watched[kWatchedLevels];
  // Percent by which the checks make a step longer, as bits of doubles: median, low, high. Valid
  // once there are pairs in `measuring` (minor 6).
  std::atomic<uint64_t> overhead[3];
  // Bits 0 to 47: steps whose checks were off so that their cost can be measured; 48 to 62: pairs
  // of blocks behind `overhead`; 63: the checks are off now, and nothing was read since (minor 6).
  std::atomic<uint64_t> measuring;
};
enum class LiveState : uint32_t { kStarting = 0, kWatching = 1, kSteppedDown = 2, kExited = 3 };

struct ControlBlock {
  std::atomic<uint64_t> request;      // generation << 32 | level << 8 | flags; by compare-and-swap
  std::atomic<uint64_t> deadline_ns;  // CLOCK_MONOTONIC at which the request falls back, 0 never
  uint64_t reserved[6];
};
static_assert(sizeof(ControlBlock) == 64);

struct StepEntry {
  std::atomic<uint64_t> sequence;  // 2 * (index + 1) when complete, odd while being written
  uint64_t time_ns;
  Clocks clocks;
  double loss;
  uint64_t ops_seen;
  uint64_t tensors_checked;
  uint64_t bytes_checked;
  uint64_t values_bad;
  // Bit 0: loss known, bit 1: skipped by a scaler, bit 2: parameters are bad; from kPlaceShift on,
  // three bits: the optimizer's place in Clocks::optimizer_steps, from 1, 0: it has none (before
  // this was told, its number was its place).
  uint32_t flags;
  uint32_t optimizer;  // number of the instance; that of a retired one is given away after 32
};
static_assert(sizeof(StepEntry) == 104);
inline constexpr int kPlaceShift = 8;

// What was read of the training in a step, as far as it was seen (`known`).
struct TelemetryEntry {
  enum Known : uint32_t {
    kLoss = 1,
    kGradientNorm = 2,
    kScale = 4,
    kStepTime = 8,
    kGradients = 16,
    kNearLimit = 32,
    kLearningRate = 64,  // minor 12, as the next
    kOverhead = 128,
  };
  std::atomic<uint64_t> sequence;  // as StepEntry's
  uint64_t time_ns;                // StepEntry's
  uint64_t step_ns;                // since the entry before, CLOCK_MONOTONIC
  double loss;                     // the last one seen since the entry before
  double gradient_norm;            // 2-norm over all gradients that the optimizer was given
  double scale;                    // GradScaler's, after the step
  uint32_t gradients;              // parameters of the optimizer that had a gradient
  uint32_t gradients_missing;      // that had none
  uint32_t gradients_zero;         // whose gradient was zero throughout
  uint32_t gradients_bad;          // whose gradient held a non-finite value
  uint32_t known;                  // Known bits
  uint32_t level;                  // Level in force when the step ended
  // The forward result in a layer that came nearest to its type's largest number, if one came
  // within a 64th of it (minor 3).
  double near_largest;  // magnitude
  uint32_t near_op;     // name ids
  uint32_t near_layer;
  uint32_t near_type;      // ElementType
  float overhead_percent;  // as measured by then: LiveBlock::overhead
  double learning_rate;    // of the optimizer's first group, as the update used it
};
static_assert(sizeof(TelemetryEntry) == 104);

// An op that left a clean result.
struct TrailOp {
  enum Known : uint8_t {
    kNothing = 0,
    kExact = 1,    // `largest` is the largest magnitude in the result
    kAtLeast = 2,  // the largest of a sample of its elements
  };
  double largest;
  uint32_t op;  // name ids
  uint32_t layer;
  uint32_t iteration;  // steps of any kind that were complete before it
  uint8_t known;       // Known
  uint8_t phase;       // Phase
  uint8_t element_type;
  uint8_t reserved;
};
static_assert(sizeof(TrailOp) == 24);
inline constexpr int kTrailOpsMax = 1000;
inline constexpr int kTrails = 8;

// The last ops of a thread before a finding of its own that may be an origin (minor 3).
struct TrailEntry {
  std::atomic<uint64_t> sequence;  // as StepEntry's
  uint64_t time_ns;                // CLOCK_MONOTONIC
  uint64_t ticket;                 // its own
  uint64_t value;                  // ticket of the finding's record
  uint32_t count;                  // ops, the oldest first
  uint32_t reserved;
  TrailOp ops[kTrailOpsMax];
};
static_assert(sizeof(TrailEntry) == 40 + 24 * kTrailOpsMax);

struct StepRingHeader {
  std::atomic<uint64_t> written;  // entries written so far; entry i lies at i % capacity
  uint64_t capacity;
  uint64_t reserved[6];
};
static_assert(sizeof(StepRingHeader) == 64);

// How far the job is with an entry of kFirst, kReach or kSites. Readers take complete ones only. In
// the segment of a foreign process it may be any number.
enum EntryState : uint32_t { kEntryFree = 0, kEntryBeingWritten = 1, kEntryComplete = 2 };

inline constexpr int kFirstFindingsMax = 64;
struct FirstFinding {
  std::atomic<uint32_t> state;  // EntryState
  uint32_t bytes;
  unsigned char record[(kRecordBytesMax + 8 + 63) / 64 * 64 - 8];
};
static_assert(sizeof(FirstFinding) % 64 == 0);

enum class Reach : uint32_t {
  kActivation = 0,
  kLoss = 1,
  kGradient = 2,
  kParameter = 3,
  kOptimizerState = 4,
  kBuffer = 5,
  kMetric = 6,  // concluded from an EscapeRecord; the job never writes it
};
inline constexpr int kReachKinds = 8;
struct FirstReach {
  std::atomic<uint32_t> state;  // EntryState
  uint32_t name;                // parameter, buffer, or 0
  uint64_t value;               // ticket of the value that got there
  uint64_t ticket;              // ticket of the moment
  Clocks clocks;
};
static_assert(sizeof(FirstReach) == 64);

inline constexpr char kSourceSeparator[] = " < ";

// A place from which bad values come. All but the counters are written before `state` becomes
// kEntryComplete.
struct SiteEntry {
  std::atomic<uint32_t> state;  // EntryState
  uint32_t op;                  // name ids, 0 unknown
  uint32_t layer;
  uint32_t layer_type;
  uint32_t root;
  uint32_t node;    // autograd node in which the op ran
  uint32_t source;  // "model.py:41 in forward"; with ControlRequest::kStacks the callers follow,
                    // innermost first, kSourceSeparator between two, "..." where they were cut
  uint8_t phase;    // Phase
  uint8_t finding_class;
  uint8_t kinds;    // kHasNan... in what was written
  uint8_t outputs;  // bit i: output i was bad
  uint32_t flags;   // ValueRecord::Flag bits that belong to the place (recompute, in place)
  uint32_t param;   // name id of what it writes, for optimizer and buffer writes
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> last_ticket;
  std::atomic<uint64_t> first_ticket;  // 0 until first_clocks are written
  Clocks first_clocks;
  Clocks last_clocks;  // torn reads possible: a hint, not evidence
  uint64_t reserved[2];
};
static_assert(sizeof(SiteEntry) == 160);
struct SiteTableHeader {
  std::atomic<uint32_t> used;  // entries handed out; ids are 1-based: entry id - 1
  uint32_t capacity;
  uint64_t reserved[7];
};
static_assert(sizeof(SiteTableHeader) == 64);

struct NameTableHeader {
  std::atomic<uint32_t> count;       // names handed out; ids are 1-based
  uint32_t capacity;                 // of the index
  std::atomic<uint32_t> bytes_used;  // of the text area
  uint32_t bytes_capacity;
  uint64_t reserved[6];
};
static_assert(sizeof(NameTableHeader) == 64);
// Then capacity x NameEntry, then the text area.
struct NameEntry {
  std::atomic<uint32_t> length_plus_one;  // 0: not yet written
  uint32_t offset;                        // in the text area
};
static_assert(sizeof(NameEntry) == 8);

struct RingHeader {
  alignas(64) std::atomic<uint64_t> reserved_slots;  // job: slots handed out so far
  std::atomic<uint64_t> records_dropped;             // job: records that found no room
  alignas(64) std::atomic<uint64_t> released_slots;  // daemon: slots that may be written again
  alignas(64) uint64_t capacity;                     // slots, a power of two
  uint64_t reserved[7];
};
static_assert(sizeof(RingHeader) == 192);

struct alignas(64) Slot {
  std::atomic<uint64_t> commit;  // head: absolute slot number + 1; continuation or unfinished: 0
  unsigned char payload[kSlotPayloadBytes];
};
static_assert(sizeof(Slot) == kSlotBytes);

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

}  // namespace nanwatch::wire
