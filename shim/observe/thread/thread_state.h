// SPDX-License-Identifier: Apache-2.0
// What each thread of the job keeps for the observer: the stack of open ops, the map from sequence
// numbers to the layers that made autograd nodes, and counters. No lock and no atomic on the way of
// a clean op: only the owning thread writes, others read counters and the map with relaxed loads.
#pragma once

#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "proto/wire/segment.h"
#include "shim/check/magnitude.h"
#include "shim/check/page_sample.h"
#include "shim/check/tensor_view.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/torch/op_table.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

// An input of an op as it was seen when the op began, while inputs are asked for. The tensor may be
// gone when the op ends, so the parts that matter are copied and the storage is held weakly.
struct InputSeen {
  WeakStorage storage;
  const c10::TensorImpl* impl;
  const void* data;
  int64_t numel;
  int64_t sizes[wire::kShapeDimsMax];
  int64_t strides[wire::kShapeDimsMax];
  uint64_t byte_begin;
  uint64_t byte_end;
  BadEntry bad;  // valid with kinds != 0 and known
  uint16_t argument;
  uint16_t place_in_list;  // of a list argument; kNoList: it is a tensor by itself
  wire::ElementType type;
  uint8_t ndim;
  int8_t gpu;        // as in PlainTensor
  uint8_t kinds;     // kHasNan... found when the op began; 0 clean
  bool known;        // `bad` says where it came from
  bool updated;      // the op writes it in place, having read it
  bool overwritten;  // the op writes it without reading
  bool requires_grad;
  bool is_result;  // autograd has a node that made it
  bool
      rewritten;  // the op reads it, and writes its memory by another argument or without saying so

  const wire::TensorStats* counted;  // as in TensorView

  static constexpr uint16_t kNoList = UINT16_MAX;

  // Everything but what is found out about its values: holds the storage weakly. `plain` has at
  // most kShapeDimsMax dimensions.
  void Copy(const PlainTensor& plain) noexcept;
  TensorView View() const noexcept { return {data, type, ndim, sizes, strides, numel, counted}; }
  PlainTensor Plain() const noexcept {
    return {impl,     static_cast<const c10::StorageImpl*>(storage.storage),
            View(),   byte_begin,
            byte_end, gpu};
  }
};

struct CollectiveName {
  char name[48] = {};     // "gloo:all_reduce"
  uint64_t sequence = 0;  // among those this process began
};

// One tensor that an op left bad, and where it stood among what the op wrote.
struct BadOutput {
  PlainTensor tensor;
  uint8_t index;
  bool requires_grad;
  bool came_in = false;  // written over, and bad before: the op computed nothing but finite numbers
  bool of_number = false;  // so it did, what it wrote over was finite, and nothing of that is left
};
inline constexpr int kBadOutputsMax = 8;

enum class FrameKind : uint8_t { kOp, kNode, kRange };

// Frames are filled for every op: what must be cleared each time stands together, in one word each.
struct alignas(128) Frame {
  const OpTraits* op;
  int64_t sequence;                   // of the autograd node this op may make; -1 none
  const c10::TensorImpl* checked[4];  // results of ops called from here that have been looked at
  const char* range_name;             // kRange, kNode: valid while the range is open
  const Layer* layer;                 // kNode: the layer whose forward made the node
  uint32_t scope_depth;               // kNode: module calls open when it began
  uint32_t inputs_begin;
  FrameKind kind;
  bool hides;  // ops called from here are parts of its own computation
  bool hidden;
  uint8_t checked_count;
  uint16_t inputs_count;
  uint64_t first_event;  // the event queue's next number when it began; unknown while that is off
  union {
    uint64_t cleared_flags;
    struct {
      bool inputs_seen;
      bool inputs_unread;  // one that may hold bad values could not be read
      bool scalar_bad;
      bool is_region;  // a compiled region
      bool child_bad;  // an op called from here has reported a bad value
      bool input_bad;
      bool kernels_pushed;  // `kernels` is the number of this op (op_kernels.h)
      bool may_be_late;     // what it leaves on the CPU comes from a GPU, and nobody waits for it
    };
  };
  uint64_t kernels;
};
static_assert(sizeof(Frame) == 128);

// What a sequence number stands for: the op that made (or was about to make) the autograd node.
struct SequenceEntry {
  std::atomic<int64_t> sequence;
  const Layer* layer;
  const OpTraits* op;
  ValueRef value;  // ticket 0: its result was clean
  uint32_t site;
  uint64_t note;  // of the op's result (gpu/op_note.h), if that stands for the same sequence number
};

// An entry as it stood once: its place may have been taken by another since.
struct SequenceRef {
  SequenceRef() = default;
  explicit SequenceRef(const SequenceEntry* now) noexcept
      : entry(now),
        sequence_plus_one(now != nullptr ? now->sequence.load(std::memory_order_relaxed) : 0) {}
  // Null: there was none, or it is gone.
  [[nodiscard]] const SequenceEntry* Get() const noexcept {
    const bool same =
        entry != nullptr && entry->sequence.load(std::memory_order_relaxed) == sequence_plus_one;
    return same ? entry : nullptr;
  }

  const SequenceEntry* entry = nullptr;
  int64_t sequence_plus_one = 0;
};

// The last clean output of one element, which may turn out to be a loss.
struct ScalarSeen {
  int64_t sequence_plus_one;  // of the op that made it; 0: none yet, as the memory comes
  uint64_t bits;              // the element, from the lowest byte on
  wire::ElementType type;

  void Remember(int64_t sequence, wire::ElementType type_seen, const void* data,
                size_t bytes) noexcept {
    sequence_plus_one = sequence + 1;
    type = type_seen;
    std::memcpy(&bits, data, std::min<size_t>(bytes, sizeof bits));
  }
};

// An op that left a clean result (trail.h).
struct TrailStep {
  const OpTraits* op;
  const Layer* layer;
  Magnitude magnitude;
  uint32_t iteration;
  wire::ElementType type;
  wire::Phase phase;
};

struct ThreadCounters {
  uint64_t ops_seen = 0;
  uint64_t tensors_checked = 0;
  uint64_t bytes_checked = 0;
  uint64_t values_bad = 0;
  uint64_t unchecked[wire::kUncheckedReasons] = {};
};

// What is known of a compiled region beside the ops that it calls.
struct RegionSeen {
  char name[48];       // "Torch-Compiled Region: 0/0"
  const Layer* layer;  // of a backward one: the layer whose forward was compiled
  bool is_backward;
  uint64_t first_event;  // Frame's, of its begin
  // The first bad value that went in, or that an op called from the region made; no kinds: none.
  wire::Source source;
  ValueRef value;
};

struct Doubt;
struct Moment;
struct Traced;

struct ThreadState {
  static constexpr uint32_t kFramesMax = 192;
  // A fused optimizer takes five lists of all parameters.
  static constexpr uint32_t kInputsMax = 4096;
  // More autograd nodes than one forward pass of a large model makes; older entries are
  // overwritten.
  static constexpr uint32_t kSequences = 1u << 15;
  static constexpr uint32_t kTrailSteps = 1u << 10;
  static_assert(kTrailSteps >= wire::kTrailOpsMax);

  // Why this thread's ops may not be of the ordinary kind, tested together.
  union {
    uint64_t attention_word;
    struct {
      uint32_t
          expose_hidden;  // ops left for which hidden ones are looked at: wrapper tensors are about
      bool busy;          // inside our own code: ops we might cause are not ours to judge
    };
  };
  uint32_t depth;       // open frames, may exceed kFramesMax
  uint32_t nodes_open;  // kNode frames among them
  uint32_t regions_open;
  bool region_holds_inputs;  // the outermost of them asked for inputs
  // Of the compiled region last begun on this thread, open or not (compiled_regions.h).
  RegionSeen region;
  uint64_t region_ended_after_ops;  // counters.ops_seen
  bool regions_unread;       // one ran that was no module's: nobody has read what it returned
  uint32_t optimizer_depth;  // open optimizer ranges
  // Of the backward pass in which the outermost of them was opened (a hook that updates a parameter
  // as soon as its gradient is there): torch's number plus one; 0: in none.
  int optimizer_pass_plus_one;
  uint32_t optimizer_index;
  bool optimizer_holds_inputs;     // the open range asked for inputs and has to let go of that
  bool optimizer_watches_ops;      // the open range had ops watched, which are not outside it
  bool optimizer_stopped;          // the open range is about to be left by our exception
  bool optimizer_is_of_torch;      // of the open range: it has computed no number by itself
  bool optimizer_factor_bad;       // a rate or the like of the open range's optimizer is not finite
  bool optimizer_parameters_read;  // the open range's, as it began (Gradients::parameters_read)
  uint32_t inputs_used;
  uint32_t armed_ops;  // ops since the last sweep of the table
  // Number of the op (counters.ops_seen) that has last written running statistics, plus one.
  uint64_t statistics_op_plus_one;
  bool proof;  // the self-proof runs on this thread
  bool proof_seen;
  int graph_task;           // id of the backward pass last seen on this thread, -1 none
  uint64_t pass;            // its number
  const Layer* node_layer;  // layer of the node last begun on this thread
  const char* node_name;
  uint32_t small_id;         // 1, 2, 3 ...
  uint64_t torch_thread_id;  // at::RecordFunction::currentThreadId()
  ThreadCounters counters;
  uint64_t trail_steps;     // noted so far
  ThreadState* next;        // all states ever made
  ThreadState* next_ended;  // in the queue of states whose thread has ended
  // Not null: this is no thread of the job but the one that the event queue tells its events on
  // (event_queue.h), and all that would be asked of the thread stands there.
  const Moment* told;
  // Not null: the clocks of that moment, where it is not of now.
  const wire::Clocks* told_clocks;
  // Not null: what is known of the inputs of the op that is told, which nobody asked for.
  const Traced* traced;
  const Doubt* doubt;  // about the op that is ending, of level sampled; null: none
  SampleTurns sample_turns;
  uint64_t last_bad_event;  // of the event queue's, in which an op of this thread was bad
  uint8_t last_gpu;         // index + 1 of the GPU that something was last checked on; 0: none
  void* last_stream;        // and its stream there
  void* batch;              // of results on a GPU, at level sampled (gpu/op_batches.h)
  void* batch_stream;       // of the last op that was to be in one,
  uint32_t batch_run;       // and ops in a row there
  ScalarSeen last_scalar;
  bool root_with_gradients;  // how autograd stood where a model was last called
  // The backward passes that had reached a leaf where the open update began, plus one; 0: not all
  // that it is given is known, or is finite. A closure makes the gradients anew.
  uint64_t given_finite_after_passes_plus_one;
  uint64_t told_loss;                     // of the loss that a model has returned (loss.cc)
  CollectiveName last_collective;         // that this thread began
  BadOutput bad_outputs[kBadOutputsMax];  // of the op that is ending
  Frame frames[kFramesMax];
  InputSeen inputs[kInputsMax];
  SequenceEntry sequences[kSequences];
  TrailStep trail[kTrailSteps];

  // True while this thread's ops are not of the ordinary kind: our own code runs, or wrapper
  // tensors are about.
  bool attention() const noexcept { return attention_word != 0; }
};

// The states of all threads. Memory comes from mmap, zeroed and touched only where used; states of
// ended threads are kept for a while, because backward passes ask for the sequences of threads that
// ran a forward and ended, and are reused after.
class ThreadStates {
 public:
  // The calling thread's state; nullptr when memory cannot be had (the thread is then not
  // observed).
  static ThreadState* Mine() noexcept {
    ThreadState* mine = current_;
    return __builtin_expect(mine != nullptr, 1) ? mine : Make();
  }
  // The same without making one: nullptr on a thread's first op.
  static ThreadState* Known() noexcept { return current_; }
  // The state of the thread that has this logical id, nullptr if it is unknown.
  static ThreadState* OfTorchThread(uint64_t torch_thread_id) noexcept;
  // The layer and op behind (thread, sequence number); nullptr when it has been overwritten.
  static SequenceEntry* FindSequence(uint64_t torch_thread_id, int64_t sequence) noexcept;
  static ThreadCounters Sum() noexcept;
  // Called on a thread that ends, with its state; null: nothing is.
  static void SetOnEnd(void (*on_end)(ThreadState* ending)) noexcept {
    on_end_.store(on_end, std::memory_order_relaxed);
  }
  // A state of no thread; its counters are summed with the others'. Null: no memory.
  static ThreadState* MakeForResolving() noexcept;
  // In a forked child: forget every other thread and start anew.
  static void AfterFork() noexcept;

 private:
  static ThreadState* Make() noexcept;
  static void OnThreadEnd(void* state);
  static inline std::atomic<void (*)(ThreadState*)> on_end_ = nullptr;
  // Initial-exec: one load, where the dynamic model costs two calls an op. Takes 8 bytes of static
  // TLS.
  static constinit thread_local ThreadState* current_ __attribute__((tls_model("initial-exec")));
};

// Marks the calling thread as being inside our own code, for a scope.
class BusyScope {
 public:
  explicit BusyScope(ThreadState* thread) noexcept : thread_(thread), before_(thread->busy) {
    thread_->busy = true;
  }
  ~BusyScope() { thread_->busy = before_; }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  ThreadState* thread_;
  bool before_;
};

}  // namespace nanwatch
