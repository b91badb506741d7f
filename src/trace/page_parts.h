// The page's files, from src/trace/page, as the build embeds them.
#pragma once

#include <string_view>

namespace ps::detail {

extern const std::string_view page_html, page_css, page_js;

}  // namespace ps::detail
