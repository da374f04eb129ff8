// SPDX-License-Identifier: Apache-2.0
// Where `tail` reads jobs: from what is known on this host, or from a gatherer.
#pragma once

#include <string>
#include <vector>

#include "daemon/http/http_client.h"
#include "fleet.pb.h"
#include "tools/observations.h"

namespace nanwatch {

class TailSource {
 public:
  virtual ~TailSource() = default;
  // Of its processes, with findings.
  virtual std::vector<RunFacts> FactsOf(const std::string& job) = 0;
  // Why something is missing in what FactsOf gave last, else ok.
  [[nodiscard]] virtual Status missing() const = 0;
  // On these facts, which FactsOf gave last.
  virtual Verdict VerdictOn(const std::string& job, const std::vector<RunFacts>& facts) = 0;
};

class HostSource final : public TailSource {
 public:
  explicit HostSource(Observations& observations) : observations_(observations) {}
  std::vector<RunFacts> FactsOf(const std::string& job) override;
  [[nodiscard]] Status missing() const override { return observations_.facts_status(); }
  Verdict VerdictOn(const std::string& job, const std::vector<RunFacts>& facts) override;

 private:
  Observations& observations_;
};

class FleetSource final : public TailSource {
 public:
  explicit FleetSource(HttpClientOptions fleet) : fleet_(std::move(fleet)) {}
  // Asks anew; what FactsOf gives is of the last time that went well.
  [[nodiscard]] Status Ask(const std::string& job);
  [[nodiscard]] bool is_live() const { return facts_.live(); }
  [[nodiscard]] const FleetVerdict& verdict() const { return facts_.verdict(); }
  std::vector<RunFacts> FactsOf(const std::string& job) override;
  [[nodiscard]] Status missing() const override { return Status(); }
  Verdict VerdictOn(const std::string& job, const std::vector<RunFacts>& facts) override;

 private:
  HttpClientOptions fleet_;
  FleetFacts facts_;
};

}  // namespace nanwatch
