#include "options.h"

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/device.h"

namespace ps::cli {

void add_device_option(CLI::App& command, std::string& device) {
  command
      .add_option("--device", device, "cpu, cuda, cuda:1, ... or best: the first GPU, else the CPU")
      ->capture_default_str()
      ->check([](const std::string& text) -> std::string {
        try {
          Device::parse(text);
          return {};
        } catch (const InvalidArgument& error) {
          return error.what();
        }
      });
}

void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print one JSON document instead of text");
}

void add_bytes_option(CLI::App& command, const std::string& flag, std::size_t& bytes,
                      const std::string& help) {
  command
      .add_option_function<std::string>(
          flag,
          [&bytes, flag](const std::string& text) {
            try {
              bytes = parse_bytes(text, flag);
            } catch (const InvalidArgument& error) {
              throw CLI::ValidationError(error.what());
            }
          },
          help)
      ->type_name("SIZE")
      ->default_str(bytes == 0 ? "" : format_bytes(bytes));
}

}  // namespace ps::cli
