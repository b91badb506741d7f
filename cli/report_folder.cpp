#include "report_folder.h"

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text_file.h"
#include "penstock/measure/page.h"

namespace ps::cli {

ReportFolder::ReportFolder(const std::filesystem::path& folder)
    : json_(folder / "report.json"), page_(folder / "report.html") {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError(error.value(), "create", folder.string());
}

void ReportFolder::write(const std::string& report_json, const std::string& title) const {
  write_text(json_, report_json + "\n");
  Page page = make_page(title);
  add_document(page, report_json, json_.string());
  write_text(page_, page.html());
}

std::string ReportFolder::text() const {
  return fmt::format("report: {}\npage:   {}\n", json_.string(), page_.string());
}

}  // namespace ps::cli
