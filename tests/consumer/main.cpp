#include <penstock/base/units.h>
#include <penstock/host/pipeline.h>
#include <penstock/measure/yardstick.h>
#include <penstock/ops/iterate.h>

#include <cstdio>

int main() {
  const std::size_t chunk = 4 * ps::MiB, chunks = 16;
  const ps::Device device = ps::Device::best();  // the first GPU, else the CPU
  const ps::Yardstick data(device, chunks * chunk);
  const auto piece = [&](ps::MemoryView whole, const ps::Item& item) {
    return whole.sub(item.index() * chunk, chunk);
  };

  ps::Pipeline pipeline({.device = device, .depth = 4});
  const auto work = pipeline.ring("work", {.memory = ps::Memory::device, .bytes = chunk});
  const auto upload = pipeline.stage("upload", {.uses = {work}}, [&](ps::Item& item) {
    ps::copy(item.slot(work), piece(data.input(), item), item.stream());
  });
  const auto compute =
      pipeline.stage("compute", {.after = {upload}, .uses = {work}}, [&](ps::Item& item) {
        const ps::TensorView x = ps::floats(item.slot(work));
        ps::iterate({.in = x, .out = x, .rounds = 100}, item.stream());
      });
  pipeline.stage("download", {.after = {compute}, .uses = {work}}, [&](ps::Item& item) {
    ps::copy(piece(data.output(), item), item.slot(work), item.stream());
  });

  const ps::RunReport report = pipeline.run({.items = chunks});
  data.check_output(100);
  std::printf("%zu chunks in %.1f ms\n", chunks, report.seconds * 1e3);
}
