// SPDX-License-Identifier: Apache-2.0
// The variables with which launchers give each rank its number. One table, for the observer
// (shim/host/process_identity.cc) and for `nanwatch run` (tools/launch_turn.cc). Constants only.
#pragma once

namespace nanwatch::wire {

struct RankVariables {
  const char* rank;
  const char* local_rank;
  const char* world_size;
};

inline constexpr RankVariables kSlurmRank = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"};

// In order of trust: torchrun inside a step of Slurm sets its own variables beside Slurm's. The
// first launcher that names a rank is believed for the local rank and the world size too.
inline constexpr RankVariables kRankVariables[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
    kSlurmRank,
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
};

// How many times the launcher has started the job again; the first that is set counts.
inline constexpr const char* kAttemptVariables[] = {"TORCHELASTIC_RESTART_COUNT",
                                                    "SLURM_RESTART_COUNT"};

}  // namespace nanwatch::wire
