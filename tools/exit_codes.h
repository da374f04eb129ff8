// SPDX-License-Identifier: Apache-2.0
// Every exit status of `nanwatch`, in one place; `nanwatch --help` prints the same table.
#pragma once

namespace nanwatch {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed =
      1,  // it could not do what was asked: a database that cannot be opened, an unknown run
  kExitUsage = 2,       // wrong use of the command line; nothing was started
  kExitAnomaly = 2,     // `report --check`: the verdict is anomaly
  kExitCannotTell = 3,  // `report --check`: the verdict is unknown, or no run was found; `replay`
  kExitNotReproduced = 2,  // `replay`: every run gave finite numbers
  // `report` says this for wrong use, where 2 would read as an anomaly. (EX_USAGE of sysexits.h.)
  kExitUsageOfReport = 64,
  kExitNotExecutable = 126,  // `run`: the command is there but cannot be executed
  kExitNotFound = 127,       // `run`: no such command
};

inline constexpr char kExitCodesHelp[] =
    "Exit codes:\n"
    "  run       the command's own status, or its signal; 126 not executable, 127 not found,\n"
    "            2 wrong use (nothing was started)\n"
    "  report    --check: 0 clean or expected, 2 anomaly, 3 unknown (too little was watched\n"
    "            to say); without --check 0, 1 no such run; 64 wrong use\n"
    "  replay    0 reproduced, 2 not reproduced, 3 cannot tell, 1 no such capsule\n"
    "  doctor    0 usable, 1 not\n"
    "  others    0 done, 1 could not be done, 2 wrong use\n";

}  // namespace nanwatch
