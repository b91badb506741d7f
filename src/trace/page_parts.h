// The files of src/trace/page, embedded by the build.
#pragma once

#include <string_view>

namespace ps::detail {

extern const std::string_view page_html, page_css, page_js;

}  // namespace ps::detail
