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
  EXPECT_FALSE(a.contains("rows")) << "none of them overlap";
  EXPECT_TRUE(runs[1]["lanes"].empty());
}

TEST(Page, OverlappingIntervalsOfALaneHaveDifferentRows) {
  PageRun run{.name = "r",
              .entries = {{Engine::disk, "read", 0, 0, 40},
                          {Engine::disk, "read", 1, 10, 50},
                          {Engine::disk, "read", 2, 20, 30},
                          {Engine::disk, "read", 3, 40, 60},
                          {Engine::compute, "c", 0, 0, 100}}};
  run.kernels = {{.name = "k",
                  .stage = "c",
                  .roles = {.names = {"loads"},
                            .spans = {{.tile = 0, .begin_ns = 10, .end_ns = 30},
                                      {.tile = 1, .begin_ns = 20, .end_ns = 40}}}}};
  Page page;
  page.add(PageTimelines{.runs = {run}});
  const Json shown = data_of(page)["sections"][0]["runs"][0];
  EXPECT_EQ(shown["lanes"][0]["rows"].dump(), "[0,1,2,0]");
  EXPECT_FALSE(shown["lanes"][1].contains("rows"));
  EXPECT_EQ(shown["kernels"][0]["lanes"][0]["rows"].dump(), "[0,1]");
}

TEST(Page, LostRecordsStandWithTheirRun) {
  Page page;
  page.add(PageTimelines{.runs = {{.name = "whole"}, {.name = "cut", .lost_records = 3}}});
  const Json runs = data_of(page)["sections"][0]["runs"];
  EXPECT_FALSE(runs[0].contains("lost_records"));
  EXPECT_EQ(runs[1]["lost_records"], 3);
}

// Two kernels of one item, of which the second was traced, in a run that began at 1000 ns.
PageRun traced_run() {
  return {
      .name = "traced",
      .entries = {{Engine::compute, "work", 4, 5000, 6000},
                  {Engine::upload, "work", 4, 5000, 9000},
                  {Engine::compute, "work", 4, 7000, 9000},
                  {Engine::upload, "up", 0, 1000, 1400}},
      .kernels = {
          {.name = "gemm",
           .stage = "work",
           .item = 4,
           .roles = {
               .names = {"loader", "compute"},
               .spans =
                   {{.block = 9, .sm = 2, .role = 1, .tile = 7, .begin_ns = 7800, .end_ns = 8500},
                    {.block = 9, .sm = 2, .role = 0, .tile = 8, .begin_ns = 7600, .end_ns = 7700},
                    {.block = 9, .sm = 2, .role = 0, .tile = 7, .begin_ns = 7200, .end_ns = 7500}},
               .kernel = {7100, 8900},
               .error = {.max_ns = 40, .median_ns = 10},
               .place_ns = 100,
               .lost = 3}}}};
}

TEST(Page, AKernelsRolesAreLanesOfItsOwnAndKnowTheirBar) {
  Page page;
  page.add(PageTimelines{.runs = {traced_run()}});
  const Json run = data_of(page)["sections"][0]["runs"][0];
  ASSERT_EQ(run["lanes"].size(), 3U) << "roles are no engines";
  ASSERT_EQ(run["kernels"].size(), 1U);
  const Json& kernel = run["kernels"][0];
  EXPECT_EQ(kernel["name"], "gemm");
  // Of the item's two, the one that it shares time with.
  const Json& lane = run["lanes"][kernel["bar"]["lane"].get<std::size_t>()];
  EXPECT_EQ(lane["engine"], "compute");
  EXPECT_EQ(kernel["bar"]["index"], 1);
  EXPECT_EQ(kernel["begin_ns"], 6100);
  EXPECT_EQ(kernel["end_ns"], 7900);
  EXPECT_EQ(kernel["error"].dump(), R"({"max_ns":40.0,"median_ns":10.0,"place_ns":100.0})");
  EXPECT_EQ(kernel["lost"], 3);
  ASSERT_EQ(kernel["lanes"].size(), 2U);
  EXPECT_EQ(kernel["lanes"][0].dump(),
            R"({"role":"loader","block":9,"sm":2,"items":[7,8],"begin_ns":[6200,400],)"
            R"("length_ns":[300,100]})");
  EXPECT_EQ(kernel["lanes"][1]["role"], "compute");
}

TEST(Page, AKernelWithoutABarOrARoleWithoutANameIsRefused) {
  PageRun no_bar = traced_run(), no_name = traced_run(), no_compute = traced_run();
  no_bar.kernels[0].item = 5;
  no_name.kernels[0].roles.names.pop_back();
  no_compute.kernels[0].stage = "up";
  for (const PageRun& run : {no_bar, no_name, no_compute}) {
    Page page;
    try {
      page.add(PageTimelines{.runs = {run}});
      ADD_FAILURE() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "kernels") << error.what();
    }
    EXPECT_TRUE(data_of(page)["sections"].empty());
  }
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
