// SPDX-License-Identifier: Apache-2.0
// What a snapshot consists of: the entries of the section kStats (stats_ring.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch::wire {

// A snapshot of an optimizer's parameters: a head, and one entry for each parameter that follows it
// in the ring (minor 3; stats_ring.h).
struct StatsHead {
  Clocks clocks;             // those that the ops of the step saw
  uint32_t optimizer;        // which one, in the order in which they were first seen
  uint32_t optimizer_class;  // name id: "AdamW"
  uint32_t interval;         // steps of the optimizer between two snapshots, as it was asked for
  uint32_t parameters;       // entries that follow
  uint32_t left_out;         // parameters beyond those that there is room for
  uint32_t on_gpu;           // left out because a GPU holds them that is not checked
  uint32_t unreadable;       // left out because of their layout or element type
  uint32_t layers;           // entries that follow those of the parameters
  uint64_t reserved[3];
};
static_assert(sizeof(StatsHead) == 96);

// Of a gradient all elements are read, of the parameter the sample of shim/check/element_sample.h:
// all of them, or at most 4,096 that depend on nothing but the number of elements.
struct StatsParameter {
  enum Flag : uint16_t {
    kHasGradient = 1,
    kGradientRead = 2,  // the five figures of the gradient are known
    kUpdateRead = 4,    // update_norm, weight_norm and sampled are known
    kEps = 8,           // the optimizer has an eps for it, a float
    kFused = 16,        // and updates it in one kernel
  };
  uint32_t name;      // name ids, 0 unknown
  uint32_t root;      // of the module that the name is relative to
  uint32_t position;  // in the optimizer's param_groups, counted through all of them
  uint32_t sampled;   // elements of the parameter that were compared
  uint64_t numel;
  double gradient_mean;  // as the step used it: read when the step had ended
  double gradient_std;   // of numel - 1, as torch.std has it; 0 for one element
  double gradient_max_abs;
  double gradient_norm;     // 2-norm
  uint64_t gradient_zeros;  // elements that are zero
  double update_norm;       // 2-norm over the sample of what the step added to the parameter
  double weight_norm;       // 2-norm over the same sample before the step
  double eps;
  uint8_t element_type;  // of the parameter
  uint8_t dims;
  uint16_t flags;
  uint32_t reserved;
};
static_assert(sizeof(StatsParameter) == 96);

// The forward ops of a layer since the snapshot before, as far as they were watched.
struct StatsLayer {
  double largest;  // magnitude in their results, of those of the narrowest type
  uint32_t layer;  // name ids
  uint32_t root;
  uint8_t element_type;
  uint8_t at_least;  // 1: of some of their elements only a sample was checked
  uint8_t reserved[6];
};
static_assert(sizeof(StatsLayer) == 24);

struct StatsEntry {
  enum Kind : uint32_t { kHead = 1, kParameter = 2, kLayer = 3 };
  std::atomic<uint64_t> sequence;  // as StepEntry's
  uint64_t time_ns;                // the snapshot's, CLOCK_MONOTONIC
  uint64_t snapshot;               // its number, from 0
  uint32_t kind;                   // Kind
  uint32_t reserved;
  unsigned char payload[96];  // a StatsHead, a StatsParameter or a StatsLayer
};
static_assert(sizeof(StatsEntry) == 128);

}  // namespace nanwatch::wire
