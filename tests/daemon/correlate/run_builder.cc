// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/correlate/run_builder.h"
#include "proto/wire/escape_flags.h"

#include <map>

#include "proto/wire/escape_flags.h"

namespace nanwatch {
namespace {

RecordSource ValueSource(uint64_t value) {
  RecordSource source;
  source.set_kind(static_cast<uint32_t>(wire::SourceKind::kValue));
  source.set_value(value);
  return source;
}

std::string SiteKey(Site site) {
  site.clear_id();
  site.clear_count();
  site.clear_first_ticket();
  site.clear_last_ticket();
  site.clear_first_clocks();
  site.clear_last_clocks();
  return site.SerializeAsString();
}

void ForEachSource(Record& record, const auto& fn) {
  if (record.has_value())
    for (auto& source : *record.mutable_value()->mutable_sources()) fn(source);
  if (record.has_pass())
    for (auto& source : *record.mutable_pass()->mutable_bad()) fn(source);
  if (record.has_update())
    for (auto& source : *record.mutable_update()->mutable_bad()) fn(source);
  if (record.has_escape()) fn(*record.mutable_escape()->mutable_source());
  if (record.has_collective()) fn(*record.mutable_collective()->mutable_input());
}

}  // namespace

Clocks OptimizerClocks(std::initializer_list<uint32_t> steps) {
  Clocks clocks;
  for (const uint32_t count : steps) {
    clocks.add_optimizer_steps(count);
    clocks.set_optimizer_ranges(clocks.optimizer_ranges() + count);
  }
  clocks.set_optimizer_count(static_cast<uint32_t>(steps.size()));
  return clocks;
}

RecordTensor Tensor(std::initializer_list<int64_t> shape, const std::string& name) {
  RecordTensor tensor;
  tensor.set_element_type(static_cast<uint32_t>(wire::ElementType::kFloat32));
  tensor.set_ndim(static_cast<uint32_t>(shape.size()));
  tensor.set_name(name);
  tensor.set_first_bad(-1);
  int64_t numel = 1;
  for (const int64_t size : shape) {
    tensor.add_shape(size);
    numel *= size;
  }
  tensor.set_numel(numel);
  return tensor;
}

// ---- values

ValueBuilder& ValueBuilder::Class(wire::FindingClass finding_class, const std::string& op) {
  site_.set_finding_class(static_cast<uint32_t>(finding_class));
  site_.set_op(op);
  return *this;
}
ValueBuilder& ValueBuilder::Flag(uint32_t flag) {
  record_.mutable_value()->set_flags(record_.value().flags() | flag);
  return *this;
}
ValueBuilder& ValueBuilder::At(const std::string& layer, const std::string& type) {
  site_.set_layer(layer);
  site_.set_layer_type(type);
  return *this;
}
ValueBuilder& ValueBuilder::Phase(wire::Phase phase) {
  site_.set_phase(static_cast<uint32_t>(phase));
  return *this;
}
ValueBuilder& ValueBuilder::Backward(const std::string& node) {
  site_.set_node(node);
  return Phase(wire::Phase::kBackward);
}
ValueBuilder& ValueBuilder::Optimizer(const std::string& param) {
  record_.mutable_value()->set_param(param);
  site_.set_param(param);
  Flag(wire::ValueRecord::kWroteParameter | wire::ValueRecord::kInOptimizerRange);
  return Phase(wire::Phase::kOptimizer);
}
ValueBuilder& ValueBuilder::Line(const std::string& source) {
  site_.set_source(source);
  return *this;
}
ValueBuilder& ValueBuilder::CalledBy(const std::string& line) {
  site_.add_callers(line);
  return *this;
}
ValueBuilder& ValueBuilder::Step(uint32_t step) {
  run_.Step(step);
  *record_.mutable_clocks() = run_.clocks_;
  return *this;
}
ValueBuilder& ValueBuilder::From(uint64_t value, uint8_t kinds) {
  RecordSource& source = *record_.mutable_value()->add_sources();
  source = ValueSource(value);
  source.set_kinds(kinds);
  return *this;
}
ValueBuilder& ValueBuilder::FromOutside(wire::Target target, const std::string& name,
                                        uint8_t kinds) {
  RecordSource& source = *record_.mutable_value()->add_sources();
  source.set_kind(static_cast<uint32_t>(wire::SourceKind::kExternal));
  source.set_target(static_cast<uint32_t>(target));
  source.set_name(name);
  source.set_kinds(kinds);
  return *this;
}
ValueBuilder& ValueBuilder::WriterUnseen() {
  record_.mutable_value()
      ->mutable_sources(record_.value().sources_size() - 1)
      ->set_flags(wire::Source::kWriterUnseen);
  return *this;
}
ValueBuilder& ValueBuilder::Input(uint32_t index) {
  record_.mutable_value()->mutable_sources(record_.value().sources_size() - 1)->set_input(index);
  return *this;
}

ValueBuilder& ValueBuilder::FromSharedMemory(uint64_t file) {
  FromOutside(wire::Target::kInputData, "");
  record_.mutable_value()->mutable_sources(record_.value().sources_size() - 1)->set_value(file);
  return *this;
}

ValueBuilder& ValueBuilder::FromCollective(const std::string& group, uint64_t sequence) {
  RecordSource& source = *record_.mutable_value()->add_sources();
  source.set_kind(static_cast<uint32_t>(wire::SourceKind::kCollective));
  source.set_name(group);
  source.set_value(sequence);
  return *this;
}
ValueBuilder& ValueBuilder::FromUnknown() {
  RecordSource& source = *record_.mutable_value()->add_sources();
  source.set_kind(static_cast<uint32_t>(wire::SourceKind::kUnknown));
  return *this;
}
RecordTensor& ValueBuilder::FirstOutput(int64_t numel) {
  if (record_.value().outputs().empty()) *record_.mutable_value()->add_outputs() = Tensor({numel});
  return *record_.mutable_value()->mutable_outputs(0);
}
ValueBuilder& ValueBuilder::Nan(uint64_t bad, int64_t numel) {
  FirstOutput(numel).set_nan(bad);
  return *this;
}
ValueBuilder& ValueBuilder::PosInf(uint64_t bad, int64_t numel) {
  FirstOutput(numel).set_pos_inf(bad);
  return *this;
}
ValueBuilder& ValueBuilder::NegInf(uint64_t bad, int64_t numel) {
  FirstOutput(numel).set_neg_inf(bad);
  return *this;
}
ValueBuilder& ValueBuilder::Output(const RecordTensor& tensor) {
  *record_.mutable_value()->add_outputs() = tensor;
  return *this;
}
ValueBuilder& ValueBuilder::Input(const RecordTensor& tensor) {
  const int index = record_.value().inputs_size();
  RecordTensor& input = *record_.mutable_value()->add_inputs();
  input = tensor;
  input.set_index(static_cast<uint32_t>(index));
  return *this;
}
ValueBuilder& ValueBuilder::WroteParameter(const std::string& name) {
  record_.mutable_value()->set_param(name);
  return Flag(wire::ValueRecord::kWroteParameter);
}
ValueBuilder& ValueBuilder::WroteBuffer(const std::string& name) {
  record_.mutable_value()->set_param(name);
  return Flag(wire::ValueRecord::kWroteBuffer);
}
ValueBuilder& ValueBuilder::WroteState() {
  return Flag(wire::ValueRecord::kWroteOptimizerState | wire::ValueRecord::kInOptimizerRange);
}
ValueBuilder& ValueBuilder::InPass(uint64_t pass) {
  record_.mutable_value()->set_pass(pass);
  return *this;
}
ValueBuilder& ValueBuilder::InputsUnseen() {
  record_.mutable_value()->set_flags(record_.value().flags() & ~wire::ValueRecord::kInputsSeen);
  return *this;
}
ValueBuilder& ValueBuilder::Inexact() { return Flag(wire::ValueRecord::kInexact); }
ValueBuilder& ValueBuilder::NeedsGradient() { return Flag(wire::ValueRecord::kNeedsGradient); }

ValueBuilder& ValueBuilder::WithoutGradients() {
  site_.set_flags(wire::ValueRecord::kWithoutGradients);
  return Flag(wire::ValueRecord::kWithoutGradients);
}

ValueBuilder& ValueBuilder::Recompute() {
  site_.set_flags(wire::ValueRecord::kRecompute);
  return Flag(wire::ValueRecord::kRecompute);
}
ValueBuilder& ValueBuilder::Suppressed() {
  suppressed_ = true;
  return *this;
}
ValueBuilder& ValueBuilder::Times(uint64_t count) {
  site_.set_count(count);
  return *this;
}

// ---- passes and updates

PassBuilder& PassBuilder::Number(uint64_t pass) {
  record_.mutable_pass()->set_pass(pass);
  return *this;
}
PassBuilder& PassBuilder::Scaled() {
  record_.mutable_pass()->set_flags(record_.pass().flags() | wire::PassRecord::kScaled);
  return *this;
}
PassBuilder& PassBuilder::Root(uint64_t value) {
  record_.mutable_pass()->set_root_value(value);
  record_.mutable_pass()->set_flags(record_.pass().flags() | wire::PassRecord::kRootBad);
  return *this;
}
PassBuilder& PassBuilder::RootMadeBy(const std::string& op, const std::string& layer) {
  record_.mutable_pass()->set_root_op(op);
  record_.mutable_pass()->set_root_layer(layer);
  return *this;
}
PassBuilder& PassBuilder::Leaf(const std::string& name, uint64_t value) {
  PassFact& pass = *record_.mutable_pass();
  RecordSource& source = *pass.add_bad();
  source = ValueSource(value);
  source.set_name(name);
  pass.set_leaves_bad(pass.leaves_bad() + 1);
  return *this;
}

UpdateBuilder& UpdateBuilder::AddBad(const std::string& name, RecordSource source) {
  source.set_name(name);
  UpdateFact& update = *record_.mutable_update();
  const bool is_state = source.target() == static_cast<uint32_t>(wire::Target::kOptimizerState);
  update.set_states_bad(update.states_bad() + (is_state ? 1 : 0));
  update.set_parameters_bad(update.parameters_bad() + (is_state ? 0 : 1));
  *update.add_bad() = std::move(source);
  return *this;
}
UpdateBuilder& UpdateBuilder::Parameter(const std::string& name, uint64_t value) {
  RecordSource source = ValueSource(value);
  source.set_target(static_cast<uint32_t>(wire::Target::kParameter));
  return AddBad(name, std::move(source));
}
UpdateBuilder& UpdateBuilder::UnknownParameter(const std::string& name) {
  RecordSource source;
  source.set_kind(static_cast<uint32_t>(wire::SourceKind::kUnknown));
  return AddBad(name, std::move(source));
}
UpdateBuilder& UpdateBuilder::State(const std::string& name, uint64_t value) {
  RecordSource source = ValueSource(value);
  source.set_target(static_cast<uint32_t>(wire::Target::kOptimizerState));
  return AddBad(name, std::move(source));
}
UpdateBuilder& UpdateBuilder::Skipped() {
  record_.mutable_update()->set_flags(wire::UpdateRecord::kSkipped);
  return *this;
}
UpdateBuilder& UpdateBuilder::AllClean() {
  record_.mutable_update()->set_flags(wire::UpdateRecord::kScanned);
  return *this;
}

// ---- the run

RunBuilder::RunBuilder() {
  facts_.mutable_run()->set_nonce(0x7f3a);
  facts_.mutable_run()->set_program("train.py");
  facts_.mutable_run()->set_torch_version("2.11.0");
  facts_.mutable_run()->set_world_size(1);
  facts_.mutable_state()->set_ops_seen(1000);
  facts_.mutable_state()->set_tensors_checked(900);
  Step(0);
}

Record& RunBuilder::Add(uint64_t ticket) {
  Record& record = records_.emplace_back();
  record.set_ticket(ticket);
  *record.mutable_clocks() = clocks_;
  record.set_time_ns(now_ns_);
  return record;
}

ValueBuilder& RunBuilder::Value(uint64_t ticket) {
  Record record;
  record.set_ticket(ticket);
  *record.mutable_clocks() = clocks_;
  record.set_time_ns(now_ns_);
  record.mutable_value()->set_flags(wire::ValueRecord::kInputsSeen);
  ValueBuilder& value = values_.emplace_back(*this, std::move(record));
  value.Phase(wire::Phase::kForward);
  return value;
}

PassBuilder RunBuilder::Pass(uint64_t ticket) {
  Record& record = Add(ticket);
  record.mutable_pass()->set_pass(++passes_);
  record.mutable_pass()->set_flags(wire::PassRecord::kEnded);
  return PassBuilder(*this, record);
}

UpdateBuilder RunBuilder::Update(uint64_t ticket) {
  Record& record = Add(ticket);
  record.mutable_update();
  return UpdateBuilder(record);
}

CheckpointFact& RunBuilder::Saved(uint64_t ticket, const std::string& file, uint32_t bad) {
  CheckpointFact& saved = *Add(ticket).mutable_checkpoint();
  saved.set_file(file);
  saved.set_read(2);
  saved.set_bad(bad);
  if (bad > 0) saved.set_first_bad("fc.weight");
  if (bad > 0) saved.set_kinds(wire::kHasNan);
  return saved;
}

void RunBuilder::ScalerSkip(uint64_t ticket, double scale, uint32_t skips_in_a_row) {
  ScalerFact& scaler = *Add(ticket).mutable_scaler();
  scaler.set_scale_before(scale);
  scaler.set_scale_after(scale / 2);
  scaler.set_flags(wire::ScalerRecord::kSkipped | wire::ScalerRecord::kScaleKnown);
  scaler.set_skips_in_a_row(skips_in_a_row);
  clocks_.set_scaler_skips(clocks_.scaler_skips() + 1);
}

void RunBuilder::Kill(uint64_t ticket, const std::string& op, uint64_t value) {
  Site& site = *facts_.add_sites();
  site.set_id(static_cast<uint32_t>(1000 + ticket));
  site.set_op(op);
  site.set_finding_class(static_cast<uint32_t>(wire::FindingClass::kKilled));
  KillFact& kill = *Add(ticket).mutable_kill();
  kill.set_site(site.id());
  *kill.add_sources() = ValueSource(value);
}

void RunBuilder::Escape(uint64_t ticket, uint64_t value, bool at_root) {
  EscapeFact& escape = *Add(ticket).mutable_escape();
  *escape.mutable_source() = ValueSource(value);
  escape.set_flags(at_root ? 1 : 0);
}

void RunBuilder::LevelChanged(uint64_t ticket, wire::Level to, wire::LevelRecord::Why why) {
  LevelFact& level = *Add(ticket).mutable_level();
  level.set_to(static_cast<uint32_t>(to));
  level.set_why(static_cast<uint32_t>(why));
}

void RunBuilder::End(uint64_t ticket, bool failed, bool by_bad_value) {
  EndFact& end = *Add(ticket).mutable_end();
  end.set_failed(failed);
  end.set_failed_by_bad_value(by_bad_value);
}

void RunBuilder::Read(uint64_t ticket, uint64_t value, double number) {
  Escape(ticket, value, /*at_root=*/false);
  records_.back().mutable_escape()->set_value(number);
}

void RunBuilder::ReadMany(uint64_t ticket, uint64_t value) {
  Read(ticket, value);
  records_.back().mutable_escape()->set_flags(wire::kReadWithOthers);
}

void RunBuilder::Tested(uint64_t ticket, uint64_t value) {
  Read(ticket, value);
  records_.back().mutable_escape()->set_flags(wire::kAskedOnly);
}

void RunBuilder::CollectiveIn(uint64_t ticket, const std::string& group, uint64_t sequence,
                              uint64_t value) {
  CollectiveFact& fact = *Add(ticket).mutable_collective();
  fact.set_op("c10d::allreduce_");
  fact.set_group(group);
  fact.set_sequence(sequence);
  fact.set_flags(wire::CollectiveRecord::kInputBad | wire::CollectiveRecord::kInputSeen);
  *fact.mutable_input() = ValueSource(value);
}

void RunBuilder::CollectiveOut(uint64_t ticket, const std::string& group, uint64_t sequence,
                               uint64_t value) {
  CollectiveFact& fact = *Add(ticket).mutable_collective();
  fact.set_op("c10d::allreduce_");
  fact.set_group(group);
  fact.set_sequence(sequence);
  fact.set_flags(wire::CollectiveRecord::kOutputBad | wire::CollectiveRecord::kInputSeen);
  fact.set_output_value(value);
}

void RunBuilder::FirstReach(wire::Reach reach, uint64_t value) {
  FirstReachFact& fact = *facts_.add_reach();
  fact.set_reach(static_cast<uint32_t>(reach));
  fact.set_value(value);
  fact.set_ticket(value);
  *fact.mutable_clocks() = clocks_;
}

RunBuilder& RunBuilder::Rank(int rank, int world_size) {
  facts_.mutable_run()->set_rank(rank);
  facts_.mutable_run()->set_world_size(world_size);
  facts_.mutable_run()->set_nonce(0x7f3a + static_cast<uint64_t>(rank));
  return *this;
}

RunBuilder& RunBuilder::Step(uint32_t step) {
  const uint32_t skips = clocks_.scaler_skips();
  clocks_ = OptimizerClocks({step});
  clocks_.set_scaler_skips(skips);
  return *this;
}

RunBuilder& RunBuilder::Clock(const Clocks& clocks) {
  clocks_ = clocks;
  return *this;
}

RunBuilder& RunBuilder::Ended(const Clocks& clocks) {
  *facts_.mutable_state()->mutable_clocks() = clocks;
  return *this;
}

RunBuilder& RunBuilder::ExitCode(int code) {
  facts_.mutable_state()->set_exit_code(code);
  return *this;
}

RunBuilder& RunBuilder::Boot(const std::string& boot_id) {
  facts_.mutable_run()->set_boot_id(boot_id);
  return *this;
}

RunBuilder& RunBuilder::Pid(int pid) {
  facts_.mutable_run()->set_pid(pid);
  facts_.mutable_run()->set_nonce(static_cast<uint64_t>(pid));
  return *this;
}

RunBuilder& RunBuilder::Now(uint64_t time_ns) {
  now_ns_ = time_ns;
  return *this;
}

RunFacts RunBuilder::Build() const {
  RunFacts facts = facts_;
  std::map<std::string, Site*> sites;
  std::map<uint64_t, uint32_t> site_of_value;
  for (const ValueBuilder& value : values_) {
    Site made = value.site_;
    for (const RecordTensor& output : value.record_.value().outputs()) {
      made.set_kinds(made.kinds() | (output.nan() ? wire::kHasNan : 0) |
                     (output.pos_inf() ? wire::kHasPosInf : 0) |
                     (output.neg_inf() ? wire::kHasNegInf : 0));
    }
    Site*& site = sites[SiteKey(made)];
    if (site == nullptr) {
      site = facts.add_sites();
      *site = made;
      site->set_count(0);
      site->set_id(static_cast<uint32_t>(facts.sites_size()));
      site->set_first_ticket(value.record_.ticket());
      *site->mutable_first_clocks() = value.record_.clocks();
    }
    site->set_count(site->count() + std::max<uint64_t>(1, made.count()));
    site_of_value[value.record_.ticket()] = site->id();
    if (value.suppressed_) continue;
    Record& record = *facts.add_records();
    record = value.record_;
    record.mutable_value()->set_site(site->id());
  }
  for (const Record& record : records_) *facts.add_records() = record;
  for (Record& record : *facts.mutable_records()) {
    ForEachSource(record, [&](RecordSource& source) {
      const bool is_value = source.kind() == static_cast<uint32_t>(wire::SourceKind::kValue);
      if (is_value && site_of_value.contains(source.value()))
        source.set_site(site_of_value[source.value()]);
    });
    if (record.has_pass() && site_of_value.contains(record.pass().root_value())) {
      record.mutable_pass()->set_root_site(site_of_value[record.pass().root_value()]);
    }
  }
  if (!facts.state().has_clocks()) *facts.mutable_state()->mutable_clocks() = clocks_;
  return facts;
}

}  // namespace nanwatch
