#include "daemon/report/coverage_text.h"

#include <array>
#include <cstdio>
#include <map>

#include "daemon/report/text_layout.h"
#include "daemon/report/text_report.h"

namespace nanwatch {
namespace {

struct Reason {
  std::string_view name;
  std::string_view meaning;
};
constexpr std::array<Reason, 16> kReasons = {{
    {"sparse", "compressed sparse tensors (CSR and the like): their values are not read yet"},
    {"quantized", "quantised tensors: they hold integers"},
    {"nested", "nested (jagged) tensors"},
    {"meta", "meta tensors: they have no memory"},
    {"fake", "fake tensors and wrapper subclasses without memory of their own"},
    {"functorch", "tensors inside vmap, grad or functionalisation"},
    {"other_device", "tensors neither on the CPU nor on a CUDA device that is checked"},
    {"uninitialised", "freshly allocated memory: nobody has written it yet"},
    {"async", "receive buffers that were not filled yet"},
    {"auxiliary", "outputs that hold non-finite values by definition"},
    {"written_unseen",
     "arguments written by ops that return nothing; the update's end looks at them"},
    {"too_deep", "calls nested deeper than are followed"},
    {"opaque", "tensors in an opaque layout (mkldnn), or off their alignment on a GPU"},
    {"after_poisoned", "steps, not tensors: parameters were bad, so nothing was checked"},
    {"gpu_not_ready",
     "tensors on a GPU whose checks had not begun or have ended, or captured before they had"},
    {"gpu_busy",
     "tensors on a GPU while as many checks were under way, or in CUDA graphs, as there is room "
     "for"},
}};

std::string_view MeaningOf(const std::string& name) {
  for (const Reason& reason : kReasons) {
    if (reason.name == name) return reason.meaning;
  }
  return "a reason that this version has no word for";
}

std::string Percent(double percent) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", percent);
  return text.data();
}

std::string Line(std::string_view name, const std::string& value, std::string_view meaning = "") {
  std::string line(name);
  line.resize(20, ' ');
  line += std::string(value.size() < 16 ? 16 - value.size() : 0, ' ') + value;
  if (!meaning.empty()) line += "   " + std::string(meaning);
  return line + "\n";
}

// " (12 full, 100 canary, 18 idle)"; "" where all steps were watched in one way.
std::string ByLevel(const Coverage& coverage) {
  if (coverage.steps_watched().size() < 2) return "";
  std::string text;
  for (const char* level : {"full", "layer", "canary", "idle"}) {
    const auto found = coverage.steps_watched().find(level);
    if (found == coverage.steps_watched().end()) continue;
    text += (text.empty() ? " (" : ", ") + Glued(Grouped(found->second) + " " + level);
  }
  return text + ")";
}

}  // namespace

std::string WatchedText(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage();
  std::string text = Counted(coverage.steps(), "step") + ByLevel(coverage) + ", " +
                     Counted(coverage.tensors_checked(), "tensor") + ", " +
                     Counted(coverage.lost_events(), "record") + " lost";
  if (!coverage.unchecked().empty()) {
    text += ", " + Counted(coverage.unchecked().size(), "kind") + " of tensor unchecked " +
            Glued("(nanwatch report " + ShortId(verdict.run().id()) + " --coverage)");
  }
  if (coverage.has_overhead_percent())
    text += "; " + Glued("overhead " + Percent(coverage.overhead_percent()));
  return text;
}

std::string ShortId(const std::string& id) { return Printable(id.substr(0, 8)); }

std::string CoverageReport(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage();
  std::string text = Line("steps", Grouped(coverage.steps()));
  for (const char* level : {"full", "layer", "canary", "idle"}) {
    const auto found = coverage.steps_watched().find(level);
    if (found == coverage.steps_watched().end()) continue;
    text += Line("  at level " + std::string(level), Grouped(found->second));
  }
  text += Line("ops seen", Grouped(coverage.ops_seen()));
  text += Line("tensors checked", Grouped(coverage.tensors_checked()));
  text += Line("bytes checked", Grouped(coverage.bytes_checked()));
  text += Line(
      "records lost", Grouped(coverage.lost_events()),
      coverage.lost_events() > 0 ? "dropped, torn or damaged: the verdict may lack something" : "");
  text += Line("overhead", coverage.has_overhead_percent() ? Percent(coverage.overhead_percent())
                                                           : "not measured");
  if (coverage.unchecked().empty()) return text + "every tensor that was met was checked\n";
  text += "\nnot checked, in tensors:\n";
  const std::map<std::string, uint64_t> sorted(coverage.unchecked().begin(),
                                               coverage.unchecked().end());
  for (const auto& [name, count] : sorted)
    text += Line("  " + Printable(name), Grouped(count), MeaningOf(name));
  return text;
}

}  // namespace nanwatch
