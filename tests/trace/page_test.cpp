#include "penstock/trace/page.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "support/page_data.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;
using test::data_of;

TEST(Page, IsWholeWithoutSections) {
  const Page page({.title = "a <b> & \"c\""});
  const std::string html = page.html();
  EXPECT_EQ(html.find("{{"), std::string::npos);
  EXPECT_NE(html.find("a &lt;b&gt; &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(data_of(page)["title"], "a <b> & \"c\"");
  EXPECT_TRUE(data_of(page)["sections"].empty());
}

TEST(Page, DataCannotEndItsScript) {
  Page page;
  page.add(PageFacts{.title = "</script><script>alert(1)</script>", .rows = {{"{{js}}", "\xff"}}});
  const std::string html = page.html();
  EXPECT_EQ(html.find("<script>alert(1)"), std::string::npos);
  EXPECT_EQ(data_of(page)["sections"][0]["title"], "</script><script>alert(1)</script>");
  EXPECT_EQ(data_of(page)["sections"][0]["rows"][0][0], "{{js}}");
}

TEST(Page, TimelinesAreLanesOfDifferences) {
  Page page;
  page.add(PageTimelines{.title = "t",
                         .runs = {{"one",
                                   {{Engine::compute, "b", 0, 1500, 2500},
                                    {Engine::upload, "a", 0, 1000, 1400},
                                    {Engine::upload, "a", 1, 1450, 1450},
                                    {Engine::compute, "b", 1, 2600, 2500}}},
                                  {"none", {}}}});
  const Json runs = data_of(page)["sections"][0]["runs"];
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["total_ns"], 1500);
  ASSERT_EQ(runs[0]["lanes"].size(), 2u);
  const Json &a = runs[0]["lanes"][0], &b = runs[0]["lanes"][1];
  EXPECT_EQ(a["engine"], "upload");
  EXPECT_EQ(a["items"], (Json{0, 1}));
  EXPECT_EQ(a["begin_ns"], (Json{0, 450}));
  EXPECT_EQ(a["length_ns"], (Json{400, 0}));
  EXPECT_EQ(b["begin_ns"], (Json{500, 1100}));
  EXPECT_EQ(b["length_ns"], (Json{1000, 0}));  // what ends before it begins has no length
  EXPECT_TRUE(runs[1]["lanes"].empty());
}

TEST(Page, TheLongestTimesDoNotOverflow) {
  constexpr std::int64_t far = std::int64_t{1} << 60;
  Page page;
  page.add(PageTimelines{
      .runs = {{"r", {{Engine::disk, "s", 0, -far, far}, {Engine::disk, "s", 1, far, far}}}}});
  EXPECT_EQ(data_of(page)["sections"][0]["runs"][0]["total_ns"], 2 * far);
}

TEST(Page, NumbersThatAreNoneAreNull) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  Page page;
  page.add(PageTable{.columns = {{.name = "a"}, {.name = "b", .share = true}},
                     .rows = {{"x", nan}, {"y", 0.5}}});
  page.add(PagePlot{.series = {{"s", {{1, nan}, {2, 3}}}}});
  const Json sections = data_of(page)["sections"];
  EXPECT_EQ(sections[0]["rows"].dump(), R"([["x",null],["y",0.5]])");
  EXPECT_EQ(sections[1]["series"][0]["points"].dump(), "[[1.0,null],[2.0,3.0]]");
}

TEST(Page, ARowThatDoesNotFitIsRefused) {
  Page page;
  EXPECT_THROW(page.add(PageTable{.columns = {{.name = "a"}}, .rows = {{"x", "y"}}}),
               InvalidArgument);
  EXPECT_TRUE(data_of(page)["sections"].empty());
}

TEST(Page, ARooflineTellsSlopesFromRoofs) {
  Page page;
  page.add(PageRoofline{.ceilings = {{.name = "memory", .bytes_per_second = 4e12},
                                     {.name = "tensor cores", .flops = 8e14}},
                        .work = {{.name = "gemm", .intensity = 300, .flops = 7e14}}});
  const Json section = data_of(page)["sections"][0];
  EXPECT_FALSE(section["ceilings"][0].contains("flops"));
  EXPECT_FALSE(section["ceilings"][1].contains("bytes_per_second"));
  EXPECT_EQ(section["points"][0]["intensity"], 300);
}

}  // namespace
}  // namespace ps
