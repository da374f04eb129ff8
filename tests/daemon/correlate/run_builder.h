// SPDX-License-Identifier: Apache-2.0
// A small language in which tests tell what happened in a run:
//
//   RunBuilder run;
//   run.Value(1).Produce("aten::sqrt").At("valves.main").Step(5).Nan(4, 8);
//   run.Value(2).Propagate("aten::mean").From(1);
//   run.Pass(3).Root(2).Leaf("fc.weight", 2);
//   run.Update(4).Parameter("fc.weight", 2);
//   Verdict verdict = Correlate({run.Build()});
//
// The number is the ticket. Steps hold on until the next Step(). Sites are made and numbered by
// Build().
#pragma once

#include <limits>
#include <list>
#include <string>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "verdict.pb.h"

namespace nanwatch {

class RunBuilder;

class ValueBuilder {
 public:
  ValueBuilder(RunBuilder& run, Record record) : run_(run), record_(std::move(record)) {}

  ValueBuilder& Produce(const std::string& op) { return Class(wire::FindingClass::kProduce, op); }
  ValueBuilder& InfToNan(const std::string& op) { return Class(wire::FindingClass::kInfToNan, op); }
  ValueBuilder& Scalar(const std::string& op) { return Class(wire::FindingClass::kScalar, op); }
  ValueBuilder& Propagate(const std::string& op) {
    return Class(wire::FindingClass::kPropagate, op);
  }
  ValueBuilder& External(const std::string& op) { return Class(wire::FindingClass::kExternal, op); }
  ValueBuilder& Received(const std::string& op) { return Class(wire::FindingClass::kReceived, op); }

  ValueBuilder& At(const std::string& layer, const std::string& type = "");
  ValueBuilder& Backward(const std::string& node);
  ValueBuilder& Optimizer(const std::string& param);
  ValueBuilder& Phase(wire::Phase phase);
  ValueBuilder& Line(const std::string& source);
  ValueBuilder& CalledBy(const std::string& line);
  ValueBuilder& Step(uint32_t step);
  // `kinds`: what the op read of it, where that was read.
  ValueBuilder& From(uint64_t value, uint8_t kinds = 0);
  ValueBuilder& FromOutside(wire::Target target, const std::string& name,
                            uint8_t kinds = wire::kHasNan);
  ValueBuilder& WriterUnseen();  // of the source given last
  // A tensor in this file of shared memory, which the program computes with.
  ValueBuilder& FromSharedMemory(uint64_t file);
  ValueBuilder& FromCollective(const std::string& group, uint64_t sequence);
  ValueBuilder& FromUnknown();
  ValueBuilder& Input(uint32_t index);  // of the source given last
  ValueBuilder& Nan(uint64_t bad = 1, int64_t numel = 8);
  ValueBuilder& PosInf(uint64_t bad = 1, int64_t numel = 8);
  ValueBuilder& NegInf(uint64_t bad = 1, int64_t numel = 8);
  ValueBuilder& Output(const RecordTensor& tensor);
  ValueBuilder& Input(const RecordTensor& tensor);
  ValueBuilder& WroteParameter(const std::string& name);
  ValueBuilder& WroteBuffer(const std::string& name);
  ValueBuilder& WroteState();
  ValueBuilder& InPass(uint64_t pass);
  ValueBuilder& InputsUnseen();
  ValueBuilder& Flag(uint32_t flag);  // of wire::ValueRecord
  ValueBuilder& Inexact();
  ValueBuilder& NeedsGradient();
  ValueBuilder& WithoutGradients();  // made under torch.no_grad
  ValueBuilder& Recompute();
  ValueBuilder& Suppressed();           // no record of it was kept; its site was
  ValueBuilder& Times(uint64_t count);  // its site counted this many

 private:
  friend class RunBuilder;
  ValueBuilder& Class(wire::FindingClass finding_class, const std::string& op);
  RecordTensor& FirstOutput(int64_t numel);

  RunBuilder& run_;
  Record record_;
  Site site_;
  bool suppressed_ = false;
};

class PassBuilder {
 public:
  PassBuilder(RunBuilder& run, Record& record) : run_(run), record_(record) {}
  PassBuilder& Root(uint64_t value);
  PassBuilder& RootMadeBy(const std::string& op, const std::string& layer);
  PassBuilder& Leaf(const std::string& name, uint64_t value);
  PassBuilder& Number(uint64_t pass);
  PassBuilder& Scaled();

 private:
  RunBuilder& run_;
  Record& record_;
};

class UpdateBuilder {
 public:
  explicit UpdateBuilder(Record& record) : record_(record) {}
  UpdateBuilder& Parameter(const std::string& name, uint64_t value);
  UpdateBuilder& UnknownParameter(const std::string& name);
  UpdateBuilder& State(const std::string& name, uint64_t value);
  UpdateBuilder& Skipped();
  UpdateBuilder& AllClean();

 private:
  // A state where `source` says so, else a parameter.
  UpdateBuilder& AddBad(const std::string& name, RecordSource source);

  Record& record_;
};

class RunBuilder {
 public:
  RunBuilder();

  ValueBuilder& Value(uint64_t ticket);
  PassBuilder Pass(uint64_t ticket);
  UpdateBuilder Update(uint64_t ticket);
  void ScalerSkip(uint64_t ticket, double scale, uint32_t skips_in_a_row);
  // The op made something finite of the value.
  void Kill(uint64_t ticket, const std::string& op, uint64_t value);
  void Escape(uint64_t ticket, uint64_t value, bool at_root);
  void LevelChanged(uint64_t ticket, wire::Level to, wire::LevelRecord::Why why);
  // `failed`: by an exception.
  void End(uint64_t ticket, bool failed, bool by_bad_value = false);
  // Python read the value, which is NaN, or this number.
  void Read(uint64_t ticket, uint64_t value,
            double number = std::numeric_limits<double>::quiet_NaN());
  // Python read all values of it at once: NaN, and it may be many.
  void ReadMany(uint64_t ticket, uint64_t value);
  // The program asked whether it is finite.
  void Tested(uint64_t ticket, uint64_t value);
  void CollectiveIn(uint64_t ticket, const std::string& group, uint64_t sequence, uint64_t value);
  void CollectiveOut(uint64_t ticket, const std::string& group, uint64_t sequence, uint64_t value);
  void FirstReach(wire::Reach reach, uint64_t value);
  // The program saved two tensors, of which so many are bad.
  CheckpointFact& Saved(uint64_t ticket, const std::string& file, uint32_t bad = 0);

  RunBuilder& Rank(int rank, int world_size = 2);
  RunBuilder& Step(uint32_t step);  // of the only optimizer
  RunBuilder& Clock(const Clocks& clocks);
  RunBuilder& Ended(const Clocks& clocks);  // the last clocks of the run
  RunBuilder& ExitCode(int code);
  RunBuilder& Boot(const std::string& boot_id);
  RunBuilder& Pid(int pid);
  RunBuilder& Now(uint64_t time_ns);  // of the records from here on

  [[nodiscard]] RunFacts Build() const;

 private:
  friend class PassBuilder;
  friend class ValueBuilder;
  Record& Add(uint64_t ticket);

  RunFacts facts_;
  Clocks clocks_;
  uint64_t now_ns_ = 0;
  std::list<Record> records_;
  std::list<ValueBuilder> values_;
  uint64_t passes_ = 0;
};

[[nodiscard]] Clocks OptimizerClocks(std::initializer_list<uint32_t> steps);

// A float32 tensor with some bad elements, for statistics.
[[nodiscard]] RecordTensor Tensor(std::initializer_list<int64_t> shape,
                                  const std::string& name = "");

}  // namespace nanwatch
