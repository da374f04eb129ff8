// SPDX-License-Identifier: Apache-2.0
// The verb `completion`, and the scripts that it prints.
#include "tools/shell_completion.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kCompletionHelp[] =
    "Examples:\n"
    "  source <(nanwatch completion bash)\n"
    "  nanwatch completion zsh > ~/.zsh/completions/_nanwatch\n"
    "  nanwatch completion fish > ~/.config/fish/completions/nanwatch.fish\n"
    "\n"
    "Exit status: 0 printed, 2 wrong use.";

struct Option {
  std::vector<std::string> names;  // "--level"
  std::string what;                // "" for what takes no value, "file", or the values it may have
  bool takes_value = false;
  std::string description;
};

struct Verb {
  std::string name;
  std::string description;
  std::vector<std::string> below;  // "ls" of "capsule"
  std::vector<Option> options;
};

// "off|op" is a list of values; other kinds of value have a name.
std::string ValuesOf(const std::string& type) {
  static const std::map<std::string, std::string> kNamed = {
      {"LEVEL", "idle canary sampled full auto"},
      {"FORMAT", "csv jsonl trace tensorboard prometheus"},
      {"FILE", "file"},
      {"PYTHON", "file"},
      {"DIR", "file"},
  };
  if (const auto named = kNamed.find(type); named != kNamed.end()) return named->second;
  const bool is_list = type.find('|') != std::string::npos && type.find('@') == std::string::npos;
  if (!is_list) return "";
  std::string values = type;
  std::replace(values.begin(), values.end(), '|', ' ');
  return values;
}

std::vector<Option> OptionsOf(const CLI::App& app) {
  std::vector<Option> options;
  for (const CLI::Option* option : app.get_options()) {
    Option mine;
    for (const std::string& name : option->get_snames()) mine.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) mine.names.push_back("--" + name);
    if (mine.names.empty()) continue;  // it has a place, not a name
    mine.takes_value = option->get_items_expected_max() != 0;
    const std::string type = option->get_type_name();
    if (mine.takes_value) mine.what = ValuesOf(type.substr(0, type.find(':')));
    mine.description = option->get_description();
    options.push_back(std::move(mine));
  }
  return options;
}

std::vector<Verb> VerbsOf(const CLI::App& app) {
  std::vector<Verb> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    Verb mine{verb->get_name(), verb->get_description(), {}, OptionsOf(*verb)};
    for (const CLI::App* below : verb->get_subcommands([](const CLI::App*) { return true; })) {
      mine.below.push_back(below->get_name());
      for (Option& option : OptionsOf(*below)) {
        const bool known = std::any_of(mine.options.begin(), mine.options.end(),
                                       [&](const Option& o) { return o.names == option.names; });
        if (!known) mine.options.push_back(std::move(option));
      }
    }
    verbs.push_back(std::move(mine));
  }
  return verbs;
}

// For single quotes: a description in one line, without what ends the quotes.
std::string Plain(std::string text, std::string_view also_without = "") {
  std::erase_if(text, [&](char c) {
    return c == '\'' || c == '\\' || also_without.find(c) != std::string_view::npos;
  });
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string NamesOf(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  names.reserve(verbs.size());
  for (const Verb& verb : verbs) names.push_back(verb.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string AllNames(const std::vector<Option>& options) {
  std::vector<std::string> names;
  for (const Option& option : options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

std::string ForBash(const std::vector<Verb>& verbs, const std::vector<Option>& own) {
  std::string script = fmt::format(
      "# bash completion of nanwatch; made by 'nanwatch completion bash'\n"
      "_nanwatch() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} i\n"
      "  local verb=${{COMP_WORDS[1]}}\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} {}' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      // What follows "--" is another program's.
      "  for ((i = 2; i < COMP_CWORD; ++i)); do\n"
      "    [[ $verb == run && ${{COMP_WORDS[i]}} == -- ]] || continue\n"
      "    if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi\n"
      "    return\n"
      "  done\n"
      "  case $verb:$before in\n",
      NamesOf(verbs), AllNames(own));
  for (const Verb& verb : verbs) {
    if (!verb.below.empty()) {
      script +=
          fmt::format("    {0}:{0}) COMPREPLY=($(compgen -W '{1}' -- \"$word\")); return ;;\n",
                      verb.name, fmt::join(verb.below, " "));
    }
    for (const Option& option : verb.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> cases;
      for (const std::string& name : option.names) cases.push_back(verb.name + ":" + name);
      const std::string reply =
          option.what.empty() ? ""
          : option.what == "file"
              ? "COMPREPLY=($(compgen -f -- \"$word\")); "
              : fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\")); ", option.what);
      script += fmt::format("    {}) {}return ;;\n", fmt::join(cases, "|"), reply);
    }
  }
  script += "  esac\n  case $verb in\n";
  for (const Verb& verb : verbs) {
    script += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n", verb.name,
                          AllNames(verb.options));
  }
  return script + "  esac\n}\ncomplete -o default -F _nanwatch nanwatch\n";
}

std::string ForZsh(const std::vector<Verb>& verbs, const std::vector<Option>& own) {
  const auto specification = [](const Option& option) {
    std::string specs;
    for (const std::string& name : option.names) {
      std::string action;
      if (option.takes_value && option.what == "file") action = ":file:_files";
      if (option.takes_value && option.what.empty()) action = ":value: ";
      if (option.takes_value && !option.what.empty() && option.what != "file")
        action = ":value:(" + option.what + ")";
      specs +=
          fmt::format(" \\\n        '{}[{}]{}'", name, Plain(option.description, "[]:"), action);
    }
    return specs;
  };
  std::string script =
      "#compdef nanwatch\n"
      "# zsh completion of nanwatch; made by 'nanwatch completion zsh'\n"
      "_nanwatch() {\n"
      "  local -a verbs\n"
      "  verbs=(\n";
  for (const Verb& verb : verbs) {
    script += "    '" + verb.name + ":" + Plain(verb.description, ":") + "'\n";
  }
  script += "  )\n  if ((CURRENT == 2)); then\n    _describe verb verbs\n    _arguments";
  for (const Option& option : own) script += specification(option);
  script +=
      "\n    return\n  fi\n"
      "  local verb=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT -= 1))\n"
      "  case $verb in\n";
  for (const Verb& verb : verbs) {
    script += "    " + verb.name + ")\n      _arguments";
    if (!verb.below.empty())
      script += fmt::format(" \\\n        '1:what:({})'", fmt::join(verb.below, " "));
    if (verb.name == "run") script += " \\\n        '*::command:_normal'";
    for (const Option& option : verb.options) script += specification(option);
    script += "\n      ;;\n";
  }
  return script +
         "  esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then _nanwatch \"$@\"; "
         "else compdef _nanwatch nanwatch; fi\n";
}

std::string ForFish(const std::vector<Verb>& verbs, const std::vector<Option>& own) {
  const auto line = [](const std::string& condition, const Option& option) {
    std::string names;
    for (const std::string& name : option.names)
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    std::string value;
    if (option.takes_value) value = option.what == "file" ? " -r -F" : " -x";
    if (!option.what.empty() && option.what != "file") value += " -a '" + option.what + "'";
    return fmt::format("complete -c nanwatch -n {}{}{} -d '{}'\n", condition, names, value,
                       Plain(option.description));
  };
  std::string script =
      "# fish completion of nanwatch; made by 'nanwatch completion fish'\n"
      "complete -c nanwatch -f\n";
  for (const Option& option : own) script += line("__fish_use_subcommand", option);
  for (const Verb& verb : verbs) {
    script += fmt::format("complete -c nanwatch -n __fish_use_subcommand -a {} -d '{}'\n",
                          verb.name, Plain(verb.description));
    const std::string chosen = "'__fish_seen_subcommand_from " + verb.name + "'";
    if (!verb.below.empty()) {
      script +=
          fmt::format("complete -c nanwatch -n {} -a '{}'\n", chosen, fmt::join(verb.below, " "));
    }
    for (const Option& option : verb.options) script += line(chosen, option);
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, Shell shell) {
  const std::vector<Verb> verbs = VerbsOf(app);
  const std::vector<Option> own = OptionsOf(app);
  switch (shell) {
    case Shell::kBash:
      return ForBash(verbs, own);
    case Shell::kZsh:
      return ForZsh(verbs, own);
    case Shell::kFish:
      return ForFish(verbs, own);
  }
  return "";
}

void AddCompletionVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb =
      app.add_subcommand("completion", "Print what completes this command line in a shell.");
  SetHelp(*verb, "nanwatch completion bash|zsh|fish", kCompletionHelp);
  verb->require_subcommand(1);
  const auto add = [&](const char* name, Shell shell) {
    CLI::App* added = verb->add_subcommand(name, std::string("For ") + name + ".");
    SetHelp(*added, std::string("nanwatch completion ") + name, "");
    added->callback([&app, &call, shell] {
      call.chosen = [&app, shell] { return PrintAndExit(CompletionScript(app, shell), kExitOk); };
    });
  };
  add("bash", Shell::kBash);
  add("zsh", Shell::kZsh);
  add("fish", Shell::kFish);
}

}  // namespace nanwatch
