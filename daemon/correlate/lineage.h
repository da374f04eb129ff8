// The graph of bad values of one run, walked once in ticket order: for every value where it came
// from, and every moment at which one reached a loss, a gradient, an update, a parameter or a
// buffer.
//
//   records by ticket:   value 7   value 9 <- 7   pass: root 9, leaf 12 <- 9   update <- 12
//   nodes:               7 (origin: itself)   9 (origin: 7)   12 (origin: 7)
//   events:              loss at 9   gradient at 12   parameter at 15
//
// Edges only point to smaller tickets, so one pass over the records is enough and a forged cycle
// cannot be walked. A value without a record is known by its site at most; it becomes a node of its
// own that takes its place in the chain from the last recorded value of that site.
//
// Once a parameter is bad, everything after it is bad because of that: values that come in from
// the bad parameter, and values whose inputs were not looked at, go to the origin of what made it
// bad.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/correlate/incident_key.h"
#include "daemon/correlate/origin.h"
#include "daemon/correlate/step_clock.h"
#include "proto/wire/segment.h"
#include "verdict.pb.h"

namespace nanwatch {

// Why a value has the origin that it has; told by reasons.h.
enum class Because : uint8_t {
  kUnseen,             // the chain breaks off here
  kMadeOfFinite,       // its inputs were looked at and finite
  kMadeAssumedFinite,  // its inputs were not looked at, and nothing bad was alive
  kHabit,              // -Inf alone, as the same place made in an earlier step
  kConstant,           // asked for
  kCameIn,             // from outside the ops, or by a collective
  kFromSource,         // a bad input has that origin
  kNanOfMask,          // only masks came in, and a NaN went out
  kInfToNanHere,       // Inf became NaN, and what came in is not recorded
  kPoisoned,           // inputs not looked at, and a parameter was bad by then
  kUnderBadRoot,       // its backward pass began at a bad loss
  kTwin,               // not recorded itself: as the last value of its place
};

struct ValueNode {
  uint64_t ticket = 0;
  const Site* site = nullptr;      // null: not even the place is known
  const Record* record = nullptr;  // null: suppressed or lost
  const Clocks* clocks = nullptr;
  int origin = -1;  // index into origins()
  int via =
      -1;  // the source that leads to the origin; -1: this node is it, or the chain breaks off
  uint32_t kinds = 0;
  Because because = Because::kUnseen;
};

struct ReachEvent {
  // By what we know it.
  enum class How : uint8_t { kRoot, kLeaf, kUpdate, kWrite, kEscape, kFirstReach };

  wire::Reach reach = wire::Reach::kActivation;
  uint64_t ticket = 0;
  const Clocks* clocks = nullptr;
  int node = -1;  // -1: what got there is not known
  int origin = -1;
  std::string name = {};  // parameter, buffer or leaf; "" unknown
  How how = How::kRoot;
  uint32_t count = 0;  // leaves or parameters that were bad at that moment
  uint64_t pass = 0;
  bool deliberate = false;  // a constant was written into a parameter or buffer on purpose
  bool excused = false;     // a GradScaler took care of it (scaler_rule.h)
};

// A bad value that this run gave into a collective.
struct Sending {
  std::string group;
  uint64_t sequence = 0;
  int origin = -1;
};

// The records of a run, by ticket; of several with the same ticket the first.
[[nodiscard]] std::vector<const Record*> InTicketOrder(const RunFacts& facts);

class Lineage {
 public:
  // `facts` and `excused` must outlive the object: it keeps pointers into them.
  Lineage(const RunFacts& facts, const Excused& excused);

  [[nodiscard]] const RunFacts& facts() const { return facts_; }
  [[nodiscard]] const StepClock& clock() const { return clock_; }
  [[nodiscard]] const std::vector<ValueNode>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Origin>& origins() const { return origins_; }
  [[nodiscard]] const std::vector<ReachEvent>& events() const { return events_; }
  [[nodiscard]] const std::vector<Sending>& sendings() const { return sendings_; }
  [[nodiscard]] const Site* FindSite(uint32_t id) const;
  // The ops before the value with this ticket; null where they were not kept.
  [[nodiscard]] const TrailFact* FindTrail(uint64_t value) const;
  // The kernels that its op ran; null where they are not known.
  [[nodiscard]] const KernelsFact* FindKernels(uint64_t value) const;

 private:
  // Parameters and what else keeps a bad value from one step to the next.
  struct Poison {
    int any = -1;  // origin of the first bad one; -1: all clean
    std::map<std::string, int, std::less<>> by_name;
    void Add(const std::string& name, int origin);
  };
  struct Best {
    int origin = -1;
    int via = -1;
    Because because = Because::kUnseen;
  };

  void Index(const std::vector<const Record*>& records);
  void Walk(const std::vector<const Record*>& records);
  void AddFirstReaches();
  void OnValue(const Record& record);
  void OnPass(const Record& record);
  void OnUpdate(const Record& record);
  void OnEscape(const Record& record);
  void OnCollective(const Record& record);

  Best BestSource(const Record& record,
                  const google::protobuf::RepeatedPtrField<RecordSource>& sources, int consumer);
  Best FromSource(const Record& record, const RecordSource& source, int consumer);
  Best FromExternal(const Record& record, const RecordSource& source, int consumer);
  Best FromCollective(const Record& record, const RecordSource& source, int consumer);
  int Inherited(const Record& record, uint32_t target, const std::string& name) const;
  int ResolveValue(const RecordSource& source, const Record& consumer);
  Best Assumed(const Record& record) const;
  int AddSuppressed(const RecordSource& source, const Site& site, const Record& consumer);
  int AddOrigin(Origin origin);
  int NoLongerMask(int origin);
  int NoLongerExact(int origin);
  int OwnOrigin(int node, Origin::Strength strength, bool exact);
  int UnseenOrigin(const Record& record, int node, const RecordSource* source);
  Best AfterBadRoot(const Record& record, int node, Best own) const;
  Best OriginOfClass(const Record& record, int node);
  Best OriginOfSpread(const Record& record, int node);
  Best NanAmong(const Record& record, int consumer);
  Best OriginOfExternal(const Record& record, int node);
  int AssumedPoison(const Record& record) const;
  void PoisonParameters(const Record& record, const std::string& name, int origin);
  bool IsHabit(const ValueNode& node) const;
  bool IsEarlierStep(const Clocks& a, const Clocks& b) const;
  int LastGradientOrigin() const;
  void AddEvent(ReachEvent event);
  void AddEventsOf(const Record& record, wire::Reach reach,
                   const google::protobuf::RepeatedPtrField<RecordSource>& bad, uint32_t count,
                   int fallback);

  const RunFacts& facts_;
  const Excused& excused_;
  StepClock clock_;
  std::unordered_map<uint32_t, const Site*> sites_;
  std::unordered_map<uint64_t, const TrailFact*> trails_;     // by value
  std::unordered_map<uint64_t, const KernelsFact*> kernels_;  // by value
  std::unordered_map<uint64_t, const CollectiveFact*>
      collective_by_output_;  // by the received value
  std::map<std::pair<std::string, uint64_t>, const CollectiveFact*> collective_by_sequence_;
  std::set<std::pair<std::string, std::string>> roots_;  // (op, layer) of every backward root

  std::vector<ValueNode> nodes_;
  std::unordered_map<uint64_t, int> node_by_value_;
  std::unordered_map<uint32_t, int> last_node_of_site_;
  std::vector<Origin> origins_;
  std::vector<ReachEvent> events_;
  std::vector<Sending> sendings_;
  Poison parameters_;
  int64_t poisoned_in_ = -1;  // iteration in which the first of them went bad
  Poison buffers_;
  Poison gradients_;
  std::unordered_map<uint64_t, Best>
      bad_root_of_pass_;  // pass -> its bad root and where that came from
};

}  // namespace nanwatch
