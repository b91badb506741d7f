// penstock report: turns results files into an HTML page.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "options.h"
#include "penstock/base/text_file.h"
#include "penstock/base/units.h"
#include "penstock/measure/page.h"
#include "penstock/trace/perfetto.h"
#include "program.h"

namespace ps::cli {
namespace {

constexpr std::size_t largest_document = 256 * MiB;

struct ReportCommand {
  std::vector<std::string> files;
  std::string output = "report.html";
  std::string title = "Penstock report";
  std::string perfetto;
  bool json = false;
};

void run(const ReportCommand& command) {
  Page page = make_page(command.title);
  std::vector<PageRun> runs;
  for (const std::string& file : command.files) {
    const std::string text = read_text(file, largest_document);
    add_document(page, text, file);
    for (PageRun& run : timelines_in(text, file)) {
      if (command.files.size() > 1) run.name = file + ": " + run.name;
      runs.push_back(std::move(run));
    }
  }
  const std::string html = page.html();
  write_text(command.output, html);
  if (!command.perfetto.empty()) write_text(command.perfetto, perfetto_json(runs));
  if (command.json) {
    const nlohmann::ordered_json summary = {{"page", command.output}, {"bytes", html.size()}};
    fmt::print("{}\n", summary.dump(1));
  } else {
    fmt::print("page: {} ({})\n", command.output, format_bytes(html.size()));
    if (!command.perfetto.empty()) fmt::print("trace: {}\n", command.perfetto);
  }
}

}  // namespace

void add_report(Program& program) {
  const auto options = std::make_shared<ReportCommand>();
  CLI::App& command = *program.app().add_subcommand(
      "report", "Writes one self-contained HTML page with timelines, tables and plots of results");
  command
      .add_option("files", options->files,
                  "Result files: build/demo/report.json, bench/results/*.json, ...")
      ->type_name("FILE")
      ->required();
  command.add_option("--output", options->output, "The page to write")
      ->type_name("FILE")
      ->capture_default_str();
  command.add_option("--title", options->title, "Title of the page")->capture_default_str();
  command.add_option("--perfetto", options->perfetto, "Also write a trace for Perfetto")
      ->type_name("FILE");
  add_json_flag(command, options->json);
  command.footer(
      "Examples:\n"
      "  penstock report build/demo/report.json\n"
      "  penstock report bench/results/*.json --output results.html\n"
      "  penstock report build/demo/report.json --perfetto trace.json");
  command.callback([&program, options] { program.chosen([options] { run(*options); }); });
}

}  // namespace ps::cli
