#include "decode/support/library.h"

namespace ladder::decode {

ps::AttentionOptions library_options(const Problem& p, ps::Place place) {
  const auto view = [&](const void* data, ps::DType type,
                        std::initializer_list<std::int64_t> shape) {
    return ps::TensorView(const_cast<void*>(data), type, shape, place);
  };
  const auto rows = static_cast<std::int64_t>(p.rows);
  ps::AttentionOptions options{
      .q = view(p.q, ps::DType::bf16, {p.sequences, 1, p.heads_q, dim}),
      .out = view(p.out, ps::DType::bf16, {p.sequences, 1, p.heads_q, dim}),
      .scale = p.scale,
      .lengths_k = view(p.lengths, ps::DType::i32, {p.sequences}),
      .workspace = p.workspace};
  if (p.pages == nullptr) {
    options.k = view(p.k, ps::DType::bf16, {rows, p.heads_k, dim});
    options.v = view(p.v, ps::DType::bf16, {rows, p.heads_k, dim});
    options.cu_k = view(p.starts, ps::DType::i32, {p.sequences + 1});
  } else {
    const std::int64_t page_rows = p.page_rows.value();
    options.k = view(p.k, ps::DType::bf16, {p.page_count, page_rows, p.heads_k, dim});
    options.v = view(p.v, ps::DType::bf16, {p.page_count, page_rows, p.heads_k, dim});
    options.pages = view(p.pages, ps::DType::i32, {p.sequences, p.table_width});
  }
  return options;
}

}  // namespace ladder::decode
