// SPDX-License-Identifier: Apache-2.0
// Which tenant each daemon belongs to: the one that its first row came from. Of postgres.cc alone.
#pragma once

#include <map>
#include <pqxx/pqxx>
#include <set>
#include <span>
#include <string>

#include "daemon/fleet/fleet_row.h"
#include "daemon/gather/postgres.h"

namespace nanwatch {

// One thread an object.
class DaemonOwners {
 public:
  // Claims the daemons that are new, and gives those of another tenant than rows of theirs say.
  // What is claimed holds when the transaction is committed: call Remember then.
  [[nodiscard]] std::set<DaemonOfTenant> Claim(pqxx::work& transaction,
                                               std::span<const FleetRow> rows);
  void Remember();

 private:
  void AskFor(const std::map<std::string, std::string>& unknown, pqxx::work& transaction);
  [[nodiscard]] const std::string& OwnerOf(const std::string& daemon) const;

  std::map<std::string, std::string> owners_;   // as far as they were asked for
  std::map<std::string, std::string> claimed_;  // likewise, in the transaction that runs
};

}  // namespace nanwatch
