// SPDX-License-Identifier: Apache-2.0
// What happens in CUDA graphs: noted once, at the capture, and told at every replay.
//
// A capture computes nothing, and a replay calls no op. So what is noted while a stream captures is
// not told when its turn comes: it leaves the queue for the list of its graph, where it stays.
// Each replay is an event of its own in the queue, noted where the job asked for it (graph_calls.h)
// and answered when the stream has come past it. Then what its checks have found in this very
// replay is told, all events of the graph in the order of the capture, as if the ops had run there:
// class, sources, passes, leaves and updates follow from the same rules as everywhere, and clocks
// are those of the replay's place among the events around it.
//
//   capture:  ops -> queue -> list of the graph                    nothing is told
//   replay:   event in the queue --mark answered--> the list, told again with this replay's answers
//
// A replay in which nothing was found, while nothing bad is alive, tells its passes and updates
// alone. One that is clean clears what an earlier one has left in memory that all replays share.
//
// Which replay: the device counts them (device_checker.h). Of a check that finds something in
// several replays before any is told, the counts are those of the first; the kinds are taken to be
// the same.
//
// Passes. A pass that was captured is told with a number of its own each time; but not where the
// replay itself is part of a pass (the backward of make_graphed_callables): there its ops are ops
// of that one.
//
// Known limits. A graph whose replays nobody announces (a C++ program's own) is told when something
// is noticed and nothing more has been for a moment, ahead of all that is not told yet: the step
// may be one that ended before, several replays may be one, a clean one clears nothing, its updates
// are no steps, and what an update outside has spoilt meanwhile may seem to begin in the graph.
// Replays for which there was no room in the queue are told with the next one. Of memory that ops
// of a graph share, each op's output is known by its storage at the capture: a tensor made anew
// over it (outputs of torch.compile's graph trees) is another's, which the check of the region's
// outputs meets. A graph has the checks of the level at which it was captured. Graphs and their
// events are kept as long as the process runs.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/observe/gpu/queued_events.h"

namespace nanwatch {

struct ReplayEvent : QueuedEvent {
  uint64_t through;  // replays of the graph begun so far, this one the last
};

struct GpuGraph {
  struct Check {
    uint32_t slot;
    OpEvent* event;
  };
  struct PassNumber {
    uint64_t at_capture;
    uint64_t at_replay;
  };

  GpuChecks::Graph place;
  // With GpuGraphs::mutex held. `announced`: its replays are events.
  bool announced = false;
  uint64_t begun = 0;  // replays
  uint64_t launched = 0;

  // The rest is for the thread that tells.
  std::vector<QueuedEvent*> events;  // in the order in which they were noted
  std::vector<Check> checks;         // those of them that a launch answers
  std::vector<QueuedEvent*> others;  // passes, leaves and updates, told at every replay
  // What the sequence numbers of its ops stand for, in place of their threads' entries, which are
  // written over.
  std::deque<SequenceEntry> nodes;
  bool nodes_bad = false;  // some hold a value of an earlier replay
  std::vector<PassNumber> passes;
  uint64_t told = 0;  // replays
};

struct GpuGraphs {
  // As many bytes of events; what comes beyond is counted as unchecked.
  static constexpr uint64_t kBytesMax = uint64_t{64} << 20;

  std::mutex
      mutex;  // covers the next two, and what GpuGraph says; never held while anything is told
  std::unordered_map<uint32_t, GpuGraph*> by_key;
  std::unordered_map<const void*, GpuGraph*> by_object;  // Python's

  // The rest is for the thread that tells.
  std::map<std::pair<const SequenceEntry*, int64_t>, SequenceEntry*> nodes;  // of all graphs
  std::unordered_map<uint64_t, GpuGraph*> by_ticket;
  // Graphs that have found something unannounced, and when the first and the last of that was seen.
  std::vector<GpuGraph*> noticed;
  uint64_t noticed_first_ns = 0;
  uint64_t noticed_last_ns = 0;
  uint64_t bytes = 0;
  void* copy = nullptr;  // of the event that is told, with room for the largest
};

}  // namespace nanwatch
