// Fuzzes manifest.json: the bytes as they are, or, if they begin with 'f', as the body after a
// right digest. What is accepted reads back. After a 'p', the bytes are a piece table.
#include <algorithm>

#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_table.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/json_mutator.h"

using namespace trireme;

namespace {

void read_table(std::string_view table) {
  Manifest manifest;
  manifest.tensors = {{.name = "a", .dtype = Dtype::f32, .shape = {3, 5}}, {.name = "b", .dtype = Dtype::bf16, .shape = {7}}};
  manifest.files = {{.name = "shard-00000.h5", .bytes = 5000, .table_at = 4000, .table_bytes = 1000}};
  FileEntry& file = manifest.files[0];
  parse_piece_table(table, manifest, file);
  const std::string written = piece_table(manifest, file);
  parse_piece_table(written, manifest, file);
  fuzz::must_hold(piece_table(manifest, file) == written, "a piece table that was written reads back");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(fuzz::words(data, size));
  if (text.starts_with('f')) {
    text.erase(0, 1);
    text = "{\"digest\":\"" + hex(digest(text.data(), static_cast<int64_t>(text.size()))) + "\",\n\"manifest\":" + text + "}\n";
  }
  try {
    if (text.starts_with('p')) return read_table(std::string_view(text).substr(1)), 0;
    const Manifest manifest = parse_manifest(text);
    if (std::ranges::any_of(manifest.files, &FileEntry::known)) return 0;  // of version 1, which is only read
    const std::string written = write_manifest(manifest);
    fuzz::must_hold(write_manifest(parse_manifest(written)) == written, "a manifest that was written reads back");
  } catch (const CheckpointError&) {
  }
  return 0;
}
