#include <string_view>

#include "fuzz/targets.h"
#include "penstock/base/error.h"
#include "penstock/measure/page.h"
#include "penstock/trace/perfetto.h"

namespace ps::fuzz {

int document(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Page page;
  try {
    add_document(page, text, "file");
    if (page.html().empty()) __builtin_trap();
  } catch (const InvalidArgument&) {
  }
  try {
    perfetto_json(timelines_in(text, "file"));
  } catch (const InvalidArgument&) {
  }
  return 0;
}

}  // namespace ps::fuzz
