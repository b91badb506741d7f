// Where a command leaves its report: report.json and report.html in one folder.
#pragma once

#include <filesystem>
#include <string>

namespace ps::cli {

class ReportFolder {
 public:
  // Makes the folder, so that what cannot be written fails before anything is measured. Throws
  // SystemError naming it.
  explicit ReportFolder(const std::filesystem::path& folder);

  void write(const std::string& report_json, const std::string& title) const;
  std::string text() const;  // what was written, a line each

 private:
  std::filesystem::path json_, page_;
};

}  // namespace ps::cli
