#include "ops/append_kv/work.h"
#include "ops/arguments.h"

namespace ps::detail {

void append_kv_portable(const AppendWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "append_kv");
}
void advance_lengths_portable(const AppendWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "append_kv");
}

}  // namespace ps::detail
