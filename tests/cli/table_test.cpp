#include "table.h"

#include <gtest/gtest.h>

namespace ps::cli {
namespace {

TEST(Table, AlignsItsColumns) {
  Table table({Align::left, Align::right, Align::left});
  table.row({"a", "10", "x"});
  table.row({"long", "5", "y"});
  EXPECT_EQ(table.text(0), "a     10  x\nlong   5  y\n");
}

TEST(Table, IndentsAndLeavesNoBlanksAtTheEnd) {
  Table table({Align::left, Align::left});
  table.row({"a"});
  table.row({"bb", "c"});
  EXPECT_EQ(table.text(2), "  a\n  bb  c\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({Align::left, Align::left});
  table.row({"\xc2\xb5s", "1"});
  table.row({"ms", "2"});
  EXPECT_EQ(table.text(0), "\xc2\xb5s  1\nms  2\n");
}

TEST(Table, OfNothingIsNothing) { EXPECT_EQ(Table({Align::left}).text(), ""); }

}  // namespace
}  // namespace ps::cli
