// What a page's script finds in it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "penstock/trace/page.h"

namespace ps::test {

inline nlohmann::ordered_json data_of(const Page& page) {
  const std::string html = page.html();
  const std::string tag = "id=\"data\">";
  const std::size_t begin = html.find(tag) + tag.size();
  return nlohmann::ordered_json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

}  // namespace ps::test
