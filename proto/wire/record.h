// SPDX-License-Identifier: Apache-2.0
// The records that travel from a job to the daemon, and the small enumerations both sides share.
//
// Vocabulary: a *record* is one fact about the job, written once, identified by its *ticket*, a
// number drawn from one counter of the process: tickets order everything that happened in it,
// across threads. A *value* is what one op call wrote, if any of it was not finite; its id is its
// record's ticket. A *site* is a place in the program where such values come from (op, layer,
// class, phase, ...); sites are few and stand in their own table (segment.h), so that a record only
// names one by number and a count per site survives when records are dropped.
//
// Everything here is plain memory: fixed-width integers and doubles, little-endian, no pointers,
// trivially copyable, sizes asserted. A reader copies first, and trusts nothing: every length,
// index and enumerator may hold anything at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace nanwatch::wire {

// ---- enumerations

// Enumerators are part of the wire format: numbers are never reused, new ones go to the end.

enum class ElementType : uint8_t {
  kNone = 0,  // not a type whose values can be non-finite, or one we do not read
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kComplex128 = 5,
  kComplex64 = 6,
  kComplex32 = 7,
  kFloat8E5M2 = 8,       // has Inf (0x7c) and NaN (above it)
  kFloat8E4M3Fn = 9,     // no Inf; NaN is 0x7f and 0xff
  kFloat8E5M2Fnuz = 10,  // no Inf; NaN is 0x80 alone
  kFloat8E4M3Fnuz = 11,  // no Inf; NaN is 0x80 alone
  kFloat8E8M0Fnu = 12,   // unsigned exponent; NaN is 0xff alone
};
inline constexpr uint8_t kElementTypeCount = 13;

enum class Phase : uint8_t { kOther = 0, kForward = 1, kBackward = 2, kOptimizer = 3 };

enum class FindingClass : uint8_t {
  kUnknown = 0,
  kProduce = 1,
  kInfToNan = 2,
  kScalar = 3,
  kPropagate = 4,
  kKilled = 5,
  kExternal = 6,
  kReceived = 7,
};

// What a value is to the program, if it is more than an activation.
enum class Target : uint8_t {
  kNone = 0,
  kInputData = 1,  // a tensor that entered an outermost module call or came from a DataLoader
  kParameter = 2,
  kBuffer = 3,
  kGradient = 4,        // a leaf's gradient
  kOptimizerState = 5,  // written inside an optimizer range, still alive after it, no parameter
  kUninitialised = 6,   // memory nobody is known to have written
};

enum class SourceKind : uint8_t {
  kNone = 0,
  kValue = 1,       // `value` is the id of an earlier value, `site` its site
  kExternal = 2,    // came from outside the ops; `target` says as what, `name` its name
  kCollective = 3,  // arrived by a collective; `value` is its sequence number, `name` its group
  kUnknown = 4,     // inputs were not seen
};

// Bits of the kinds of non-finite values in a tensor or a site.
inline constexpr uint8_t kHasNan = 1;
inline constexpr uint8_t kHasPosInf = 2;
inline constexpr uint8_t kHasNegInf = 4;

// A CollectiveRecord of this name: a bad value was written into memory that other processes have
// mapped. `sequence` is the file (shim/host/shared_mapping.h), `input` the value.
inline constexpr char kSharedMemory[] = "shared_memory";

enum class RecordKind : uint16_t {
  kPadding = 0,
  kValue = 1,
  kKill = 2,
  kPass = 3,
  kUpdate = 4,
  kScaler = 5,
  kEscape = 6,
  kCollective = 7,
  kEnd = 8,
  kLevel = 9,
  kKernels = 10,
  kCheckpoint = 11,  // checkpoint_record.h; from wire minor 11 on
};
inline constexpr uint16_t kRecordKindMax = 11;

// ---- parts

// Facts about where the job stood, taken when the record's op ended. The daemon makes `step`,
// `iteration` and `micro_step` of them (CONTRACT: vocabulary).
struct Clocks {
  // Completed optimizer ranges of four optimizer instances: of the first four that were seen, until
  // one has retired (optimizer_habit.h). Its place goes to the next instance that has none and
  // completes a range, so a count that falls, or grows by more than the ranges, is another's. While
  // more than four are at work, the others are counted in `optimizer_ranges` only.
  uint32_t optimizer_steps[4];
  uint32_t optimizer_ranges;  // completed outermost optimizer ranges, all instances
  uint32_t scaler_skips;      // updates that a GradScaler skipped
  uint32_t passes;            // backward passes that reached a leaf
  uint32_t micro_passes;      // of these, since the last completed range (or plain update)
  uint32_t plain_updates;     // steps taken without an optimizer object
  uint32_t optimizer_count;   // instances seen so far
};
static_assert(sizeof(Clocks) == 40 && std::is_trivially_copyable_v<Clocks>);

inline constexpr int kShapeDimsMax = 8;

// One tensor as it was checked. Counts are of elements (a complex element is bad if either part
// is).
struct TensorStats {
  uint8_t element_type;  // ElementType
  uint8_t ndim;          // true number of dimensions; only the first kShapeDimsMax are in `shape`
  uint8_t index;         // position among the op's outputs or inputs
  uint8_t target;        // Target
  uint32_t name;         // name id of the argument (inputs) or of the parameter/buffer, 0 unknown
  int64_t numel;
  uint64_t nan;
  uint64_t pos_inf;
  uint64_t neg_inf;
  double finite_min;  // over the finite elements; 0 when there are none
  double finite_max;
  double finite_mean;
  int64_t first_bad;  // row-major index over `shape` of the first non-finite element; -1: none
  int64_t shape[kShapeDimsMax];
  uint64_t value;  // the value this tensor holds, 0 none
};
static_assert(sizeof(TensorStats) == 144 && std::is_trivially_copyable_v<TensorStats>);

struct Source {
  // Of kExternal: code that nobody observes may have written it (minor 13).
  static constexpr uint32_t kWriterUnseen = 1;

  uint8_t kind;    // SourceKind
  uint8_t target;  // Target, for kExternal
  uint8_t kinds;   // kHasNan... found in the input
  uint8_t input;   // index of the input, 255 unknown
  uint32_t site;   // for kValue
  uint32_t name;   // name id: parameter, buffer, argument, process group
  uint32_t flags;  // kWriterUnseen
  // Value id; collective sequence number; of kExternal the file of shared memory that it lay in, 0
  // none (kSharedMemory).
  uint64_t value;
};
static_assert(sizeof(Source) == 24);

// ---- records

// Each begins with this header. `bytes` counts the whole record, header included.

struct RecordHeader {
  uint16_t kind;  // RecordKind
  uint16_t bytes;
  uint32_t thread : 29;  // small number of the thread within the process
  // Several threads have made steps so far, with optimizers of their own: the clocks may count
  // another training's. From wire minor 10 on.
  uint32_t threads_train : 1;
  // All outermost modules so far were called before the last optimizer range had completed: what is
  // found is of that range's training, or, with gradients, of the next one if that trains the same
  // model. From wire minor 9 on.
  uint32_t root_is_older : 1;
  uint32_t with_gradients : 1;
  uint64_t ticket;
  uint64_t time_ns;  // CLOCK_MONOTONIC
  Clocks clocks;
};
static_assert(sizeof(RecordHeader) == 64);

inline constexpr int kSourcesMax = 4;
inline constexpr int kOutputsMax = 3;
inline constexpr int kInputsMax = 4;

// An op wrote a bad value. Followed in memory by n_outputs, then n_inputs TensorStats.
struct ValueRecord {
  enum Flag : uint32_t {
    kInPlace = 1,
    kRecompute = 2,
    kInputsSeen = 4,  // inputs were checked; without it the class assumes that they were clean
    kWroteParameter = 8,
    kWroteBuffer = 16,
    kWroteOptimizerState = 32,
    kIsCompiledRegion = 64,
    kLate = 128,  // written after the fact, because something that descends from it mattered
    kInOptimizerRange = 256,
    kNeedsGradient =
        512,  // its first bad output is part of autograd's graph: a pass may begin at it
    // Found after the fact: it may have read bad values of which nothing is known, or not have read
    // those that its sources name. It is where the bad values were made, or behind that.
    kInexact = 1024,
    // Made while autograd recorded nothing (torch.no_grad, inference_mode), outside a backward pass
    // and an optimizer's step: validation, a metric, a moving average (minor 5).
    kWithoutGradients = 2048,
    // What stood out of sight, of a class that claims where its values came to be (minor 5):
    // not all inputs were read, or something that Python held was bad
    kUnseenInputs = 1u << 12,
    kUnseenLevel = 1u << 13,   // ops ran unchecked before: a lower level, or attached late
    kUnseenParent = 1u << 14,  // a forked child, to which its parent's bad values are not known
    kUnseenTable = 1u << 15,   // there were more bad values than are kept track of
    // ops ran unchecked before, so that the cost of the checks could be measured (minor 6)
    kUnseenMeasuring = 1u << 16,
    kHasSamples = 1u << 17,  // a LoaderSamples (loader_samples.h) follows the tensors (minor 7)
    // values were read in part only that it may have been given (minor 8)
    kUnseenSampled = 1u << 18,
    // Never in a record: what Source::kWriterUnseen says of an origin.
    kUnseenWriter = 1u << 19,
  };
  // The flags' highest byte: index + 1 of the GPU whose memory was written; 0: the CPU's.
  static constexpr int kGpuShift = 24;
  RecordHeader header;
  uint32_t site;
  uint32_t flags;
  uint32_t param;  // name id of the parameter or buffer written, 0 none
  uint8_t target;  // Target of what was written
  uint8_t n_sources;
  uint8_t n_outputs;
  uint8_t n_inputs;
  uint64_t pass;  // number of the backward pass it was written in, 0 none
  Source sources[kSourcesMax];
};
static_assert(sizeof(ValueRecord) == 64 + 24 + 96);

// Inputs were bad, every output clean, and the op reads values.
struct KillRecord {
  RecordHeader header;
  uint32_t site;  // a site of class kKilled
  uint8_t n_sources;
  uint8_t reserved[3];
  Source sources[kSourcesMax];
};
static_assert(sizeof(KillRecord) == 64 + 8 + 96);

// A backward pass ended (or, with kLeaf, a bad gradient reached a leaf in one still running).
struct PassRecord {
  // kScaled: a GradScaler has scaled the loss.
  enum Flag : uint32_t { kEnded = 1, kLeafBad = 2, kRootBad = 4, kRootUnknown = 8, kScaled = 16 };
  RecordHeader header;
  uint64_t pass;        // number of the pass, from 1
  uint64_t root_value;  // value id if the root's value was bad, else 0
  uint32_t root_op;     // name id of the op that made the root
  uint32_t root_layer;  // name id
  uint32_t root_site;   // site of root_value, 0 none
  uint32_t flags;
  uint32_t leaves;      // leaves that received a gradient
  uint32_t leaves_bad;  // of these, with a bad gradient
  uint8_t n_bad;        // entries used in `bad` and `bad_names`
  uint8_t reserved[7];
  Source bad[kSourcesMax];          // where the first bad leaf gradients came from
  uint32_t bad_names[kSourcesMax];  // name ids of those leaves, 0 unknown
};
static_assert(sizeof(PassRecord) == 64 + 48 + 96 + 16);

// An optimizer range ended while something bad was alive.
struct UpdateRecord {
  enum Flag : uint32_t { kSkipped = 1, kPlain = 2, kScanned = 4 };
  RecordHeader header;
  uint32_t optimizer;        // number of the instance
  uint32_t optimizer_class;  // name id
  uint32_t flags;
  uint32_t parameters_bad;
  uint32_t states_bad;
  uint8_t n_bad;
  uint8_t reserved[3];
  Source bad[kSourcesMax];          // the values now in the first bad parameters or states
  uint32_t bad_names[kSourcesMax];  // their names, 0 unknown
};
static_assert(sizeof(UpdateRecord) == 64 + 24 + 96 + 16);

struct ScalerRecord {
  enum Flag : uint32_t { kSkipped = 1, kScaleKnown = 2 };
  RecordHeader header;
  double scale_before;
  double scale_after;
  uint32_t flags;
  uint32_t skips_in_a_row;
};
static_assert(sizeof(ScalerRecord) == 64 + 24);

// A non-finite scalar went to Python, or was compared where a loss is made.
struct EscapeRecord {
  RecordHeader header;
  uint32_t site;   // where it was read: a site of op aten::_local_scalar_dense, or of a comparison
  uint32_t flags;  // bit 0: the value was made by the same op and layer as an earlier backward
                   // root, and needs a gradient
  double value;
  Source source;
};
static_assert(sizeof(EscapeRecord) == 64 + 16 + 24);

// A collective took in or brought back a bad value.
struct CollectiveRecord {
  enum Flag : uint32_t { kInputBad = 1, kOutputBad = 2, kInputSeen = 4 };
  RecordHeader header;
  uint32_t op;     // name id
  uint32_t group;  // name id
  uint64_t sequence;
  uint32_t flags;
  uint32_t reserved;
  Source input;
  uint64_t output_value;  // id of the value record of class kReceived, 0 none
};
static_assert(sizeof(CollectiveRecord) == 64 + 24 + 24 + 8);

// What is checked has changed.
struct LevelRecord {
  enum class Why : uint8_t {
    kUnknown = 0,
    kAsked = 1,      // by a tool
    kDeadline = 2,   // what a tool asked for has run out
    kBudget = 3,     // `auto` chose by what it measured
    kSuspicion = 4,  // `auto` saw something that may come before a non-finite value
    kQuiet = 5,      // nothing came of it
    kOnGpu = 6,      // nobody had asked for a level, and the job uses a GPU (minor 4)
  };
  RecordHeader header;
  uint8_t from;  // Level
  uint8_t to;
  uint8_t why;
  uint8_t reserved0;
  uint32_t full_every;      // `auto`: one step in so many is watched in full; 0: none
  double overhead_percent;  // `auto`: measured of the steps before; negative: not known
  double budget_percent;    // negative: none
  uint64_t control;         // the request in force, 0 none
};
static_assert(sizeof(LevelRecord) == 64 + 32);

// One kernel's share of what an op ran.
struct KernelTime {
  uint32_t name;   // name id of the mangled name, 0 unknown
  uint32_t count;  // launches
  uint64_t nanoseconds;
};
static_assert(sizeof(KernelTime) == 16);

inline constexpr int kKernelsMax = 6;

// The kernels that the op of a finding ran on its GPU, where they were asked for; written once they
// are known, which is after the finding's own record.
struct KernelsRecord {
  RecordHeader header;  // the clocks and the time are those of the finding
  uint64_t value;       // ticket of the finding's record
  uint64_t lost;        // what the process has learnt too late or not at all about kernels, so far
  uint8_t n_kernels;    // entries used, those that took longest first
  uint8_t left_out;     // kernels of other names, beyond those that there is room for
  uint8_t reserved[6];
  KernelTime kernels[kKernelsMax];
};
static_assert(sizeof(KernelsRecord) == 64 + 24 + 96);

struct EndRecord {
  enum class How : uint32_t { kUnknown = 0, kExit = 1, kFork = 2 };
  // By an exception that nobody caught, Ctrl-C aside; its message may have spoken of values that
  // are not finite. Older observers: kNot, and no kByBadValue; older readers take that for kNot.
  enum class Failed : uint32_t { kNot = 0, kByException = 1, kByBadValue = 2 };
  RecordHeader header;
  uint32_t how;
  uint32_t failed;
};
static_assert(sizeof(EndRecord) == 72);

inline constexpr size_t kRecordBytesMax =
    sizeof(ValueRecord) + (kOutputsMax + kInputsMax) * sizeof(TensorStats);

// ---- slots

// A record lies in the finding ring as one or more 64-byte slots: a head and its continuations,
// reserved together, committed by one store. The first word of a slot is the ring's, the rest
// carries the record.

inline constexpr size_t kSlotBytes = 64;
inline constexpr size_t kSlotPayloadBytes = 56;
inline constexpr size_t kRecordSlotsMax =
    (kRecordBytesMax + kSlotPayloadBytes - 1) / kSlotPayloadBytes;

constexpr size_t SlotsFor(size_t record_bytes) {
  return (record_bytes + kSlotPayloadBytes - 1) / kSlotPayloadBytes;
}

}  // namespace nanwatch::wire
