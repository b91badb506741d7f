// Keys and values lie in pages, in any order, so that sequences can grow without being moved. The
// table of pages is in device memory: a thread looks up the page of a row when it asks for the row,
// two blocks of keys before they are multiplied. A page that does not exist counts as zeros.
#include "decode/support/equal_cuts.cuh"

namespace {

using namespace ladder::decode;

// The row of a key; negative if its page does not exist.
class PagedRows {
 public:
  __device__ PagedRows(const Problem& p, unsigned sequence)
      : problem_(p), pages_(p.pages + std::size_t{sequence} * p.table_width) {}

  __device__ std::int64_t operator()(unsigned key) const {
    const unsigned number = problem_.page_rows.divide(key), rows = problem_.page_rows.value();
    const auto page = static_cast<unsigned>(pages_[number]);  // a negative one is too large
    if (page >= problem_.page_count) return -1;
    return std::int64_t{page} * rows + key - std::int64_t{number} * rows;
  }

 private:
  const Problem& problem_;
  const int* pages_;
};

std::vector<Variant> variants() {
  return {{.label = "bf16, pages",
           .paged = true,
           .run = run_equal_cuts<PagedRows>,
           .use = use_of<compute_part<PagedRows>>}};
}

const ladder::Instructions machine{.holds = {"HMMA.16816", "LDGSTS.128", "REDUX.SUM"}};
PENSTOCK_DECODE_RUNG("paged", "The keys of a sequence are in pages, which a page table lists.",
                     machine, variants);

}  // namespace
