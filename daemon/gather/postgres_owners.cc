// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/postgres_owners.h"

#include "daemon/gather/postgres_call.h"

namespace nanwatch {
namespace {

constexpr size_t kDaemonsKnownMax = 100'000;

// In one order everywhere, so that gatherers that claim the same wait for each other and do not
// block each other.
constexpr char kClaimDaemons[] =
    "INSERT INTO nanwatch.daemon (daemon, tenant) SELECT daemon, tenant"
    " FROM UNNEST(CAST($1 AS uuid[]), CAST($2 AS text[])) AS claim (daemon, tenant)"
    " ORDER BY daemon ON CONFLICT DO NOTHING";

constexpr char kOwners[] =
    "SELECT daemon, tenant FROM nanwatch.daemon WHERE daemon = ANY (CAST($1 AS uuid[]))";

}  // namespace

std::set<DaemonOfTenant> DaemonOwners::Claim(pqxx::work& transaction,
                                             std::span<const FleetRow> rows) {
  claimed_.clear();
  std::map<std::string, std::string> unknown;
  for (const FleetRow& row : rows) {
    if (!owners_.contains(row.daemon)) unknown.try_emplace(row.daemon, row.tenant);
  }
  if (!unknown.empty()) AskFor(unknown, transaction);
  std::set<DaemonOfTenant> foreign;
  for (const FleetRow& row : rows) {
    if (OwnerOf(row.daemon) != row.tenant) foreign.emplace(row.daemon, row.tenant);
  }
  return foreign;
}

void DaemonOwners::Remember() {
  if (owners_.size() + claimed_.size() > kDaemonsKnownMax) owners_.clear();
  owners_.merge(claimed_);
}

void DaemonOwners::AskFor(const std::map<std::string, std::string>& unknown,
                          pqxx::work& transaction) {
  std::string daemons, tenants;
  for (const auto& [daemon, tenant] : unknown) {
    AddToArray(daemons, daemon);
    AddToArray(tenants, tenant);
  }
  daemons += '}';
  tenants += '}';
  transaction.exec_params(kClaimDaemons, daemons, tenants);
  for (const auto& row : transaction.exec_params(kOwners, daemons))
    claimed_.emplace(row[0].as<std::string>(), row[1].as<std::string>());
}

const std::string& DaemonOwners::OwnerOf(const std::string& daemon) const {
  const auto known = owners_.find(daemon);
  return known != owners_.end() ? known->second : claimed_.at(daemon);
}

}  // namespace nanwatch
