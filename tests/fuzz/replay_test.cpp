// Everything that the fuzzers found worth keeping, again, in every build.
#include <gtest/gtest.h>

#include <filesystem>

#include "fuzz/targets.h"
#include "support/temporary_directory.h"

namespace ps::fuzz {
namespace {

void replay(const char* name, int (*target)(const std::uint8_t*, std::size_t)) {
  std::size_t files = 0;
  const std::filesystem::path corpus = PENSTOCK_FUZZ_CORPUS;
  for (const auto& file : std::filesystem::directory_iterator(corpus / name)) {
    SCOPED_TRACE(file.path());
    const std::string text = test::read_text(file.path());
    EXPECT_EQ(target(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()), 0);
    ++files;
  }
  EXPECT_GT(files, 10U);
}

TEST(FuzzCorpus, Limits) { replay("limits", limits); }
TEST(FuzzCorpus, Choices) { replay("choices", choices); }
TEST(FuzzCorpus, Decompress) { replay("decompress", decompress); }
TEST(FuzzCorpus, Document) { replay("document", document); }
TEST(FuzzCorpus, Safetensors) { replay("safetensors", safetensors); }
TEST(FuzzCorpus, WeightIndex) { replay("weight_index", weight_index); }

}  // namespace
}  // namespace ps::fuzz
