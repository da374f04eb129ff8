// SPDX-License-Identifier: Apache-2.0
// The verb `run` on the command line.
#include <memory>

#include "tools/help_layout.h"
#include "tools/run.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kHelp[] = "Run a command, watch it, and report what went wrong when it ends.";

constexpr char kRunHelp[] =
    "The command runs as it does without nanwatch: same output, same signals, same exit status. "
    "nanwatch\n"
    "  prints one line before it and a report after it, both on stderr.\n"
    "\n"
    "Examples:\n"
    "  nanwatch run -- python train.py --epochs 3\n"
    "  nanwatch run --verdict verdict.json -- torchrun --nproc-per-node 2 train.py\n"
    "  nanwatch run --level canary --budget 1 -- python train.py\n"
    "  nanwatch run --capsule op -- python train.py; nanwatch replay\n"
    "  nanwatch run --ignore 'op=aten::log layer=encoder.mask*' -- python train.py\n"
    "\n"
    "Levels: idle (loaded, checks nothing), canary (gradients, parameters, optimizer state and "
    "loss,\n"
    "  once a step), sampled (every op; of large results a part), full (every op), auto (the most "
    "that\n"
    "  stays within --budget).\n"
    "\n"
    "Rules: a rule is a list of FIELD=GLOB, with the fields op, layer, phase, class and pattern. "
    "An\n"
    "  incident whose origin matches all of them is expected. ';' or a new line starts the next "
    "rule, # a\n"
    "  comment. --ignore @FILE reads rules from a file. Rules of NANWATCH_IGNORE apply as well.\n"
    "\n"
    "Exit status: the command's own, or its signal; 126 when it cannot be executed, 127 when there "
    "is no\n"
    "  such command, 2 for wrong use; then nothing was started.\n"
    "\n"
    "Environment: NANWATCH_LEVEL, NANWATCH_BUDGET, NANWATCH_STATS, NANWATCH_MEASURE,\n"
    "  NANWATCH_ON_ANOMALY, NANWATCH_CAPSULE (like the flags, which win); NANWATCH_KERNELS=1,\n"
    "  NANWATCH_VET_CHECKPOINTS=1; NANWATCH_IGNORE (rules, or @FILE);\n"
    "  NANWATCH_JOB (one id for processes that belong together; default: a new one); NANWATCH_DIR\n"
    "  (segments), NANWATCH_STATE_DIR (database and logs); NANWATCH=0 (do not watch); NO_COLOR.\n"
    "  Section [run] of nanwatch.toml has the same settings ('nanwatch config').";

}  // namespace

void AddRunVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("run", kHelp);
  SetHelp(*verb, "nanwatch run [OPTIONS] -- COMMAND [ARGUMENTS...]", kRunHelp);
  auto options = std::make_shared<RunOptions>();
  verb->add_option("--level", options->level, "How much is checked (see Levels)")
      ->type_name("LEVEL");
  verb->add_option("--budget", options->budget,
                   "What watching may cost, as a percentage of step time")
      ->type_name("PERCENT");
  verb->add_option("--stats", options->stats,
                   "Take a snapshot of each parameter every N steps (default 100; 0: never); see "
                   "'nanwatch report --stats'")
      ->type_name("N");
  verb->add_option("--measure", options->measure,
                   "Leave up to this percentage of steps unchecked to measure what the checks "
                   "cost, for example 1 (default 0: never)")
      ->type_name("PERCENT");
  verb->add_flag("--kernels", options->kernels,
                 "On a GPU: list the kernels of the origin's op, with their times (uses CUPTI; not "
                 "while a profiler runs)");
  verb->add_flag("--vet-checkpoints", options->vet_checkpoints,
                 "Read what the program saves (torch.save, safetensors), and report the last clean "
                 "checkpoint; not yet on a GPU");
  verb->add_option("--capsule", options->capsule,
                   "op: keep what is needed to run the origin's op again ('nanwatch replay'): its "
                   "inputs, which may be data or weights; not yet on a GPU (default off)")
      ->type_name("off|op");
  verb->add_option("--capsule-limit", options->capsule_limit,
                   "How large a capsule may be (default 64M)")
      ->type_name("SIZE");
  verb->add_option(
          "--verdict", options->verdict_path,
          "Write the verdict document to this file when the command has ended; '-' is stdout")
      ->type_name("FILE");
  verb->add_option("--on-anomaly", options->on_anomaly,
                   "continue (default), or stop: raise an error before an update by gradients that "
                   "are not finite")
      ->type_name("continue|stop");
  verb->add_option("--ignore", options->ignore,
                   "A rule for incidents that this job may have (see Rules); can be repeated")
      ->type_name("RULE|@FILE")
      ->allow_extra_args(false);
  verb->add_flag("--json", options->json, "Print the report as JSON");
  verb->callback([options, &call] {
    options->command = call.command;
    for (const ConfiguredValue& value : call.configuration.values) {
      const char* const variable = value.setting->variable;
      options->configured[variable] = NameOfSetting(call.configuration, variable);
    }
    call.chosen = [options] { return RunCommand(*options); };
  });
}

}  // namespace nanwatch
