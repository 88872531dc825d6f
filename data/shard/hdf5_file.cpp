#include "data/shard/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/signal_stack.h"

namespace trireme {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) { throw DataError(path + ": " + what); }

// The innermost complaint of libhdf5. std::bad_alloc if memory ran out in this turn: what libhdf5 says then is misleading.
std::string hdf5_reason() {
  if (errno == ENOMEM) throw std::bad_alloc();
  std::string reason = "refused by HDF5";
  const auto keep_first = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) += std::string(" (") + error->desc + ")";
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  // A system call that failed: "... errno = 28, error message = 'No space left on device', ...".
  constexpr std::string_view kSystem = "error message = '";
  if (const size_t at = reason.find(kSystem); at != std::string::npos)
    return reason.substr(at + kSystem.size(), reason.find('\'', at + kSystem.size()) - at - kSystem.size());
  return reason;
}

// One thread's turn with libhdf5, which knows no threads. It prints nothing then: its complaints become exceptions. Without memory
// it may call itself without end.
class Hdf5Turn {
 public:
  Hdf5Turn() : turn_(one_at_a_time()) {
    errno = 0;
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    if (errno == ENOMEM) throw std::bad_alloc();  // the first call of all opens the library, and may hide that this failed
    errno = 0;
  }
  ~Hdf5Turn() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  Hdf5Turn(const Hdf5Turn&) = delete;
  Hdf5Turn& operator=(const Hdf5Turn&) = delete;

 private:
  static std::mutex& one_at_a_time() {
    // Files that a full disk kept it from closing, libhdf5 would try to close when the program ends, and crash.
    static const herr_t kNothingAtExit = H5dont_atexit();
    static std::mutex mutex;
    (void)kNothingAtExit;
    return mutex;
  }
  SignalStack stack_;  // first: the first call of all opens the library
  std::lock_guard<std::mutex> turn_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

// Any HDF5 identifier, closed at the end of the scope.
class Id {
 public:
  Id(hid_t id, const std::string& path, const std::string& what) : id_(id) {
    if (id < 0) fail(path, what + " " + hdf5_reason());
  }
  ~Id() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }
  // For the file itself: closing writes, so it can fail.
  herr_t close() { return H5Fclose(std::exchange(id_, -1)); }

 private:
  hid_t id_;
};

void ok(herr_t status, const std::string& path, const std::string& what) {
  if (status < 0) fail(path, what + " " + hdf5_reason());
}

constexpr std::array kTypes{Hdf5Type::u8,  Hdf5Type::u16, Hdf5Type::u32, Hdf5Type::u64,
                            Hdf5Type::i32, Hdf5Type::i64, Hdf5Type::f32, Hdf5Type::bf16};

hid_t copy_of_file_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8:
      return H5Tcopy(H5T_STD_U8LE);
    case Hdf5Type::u16:
      return H5Tcopy(H5T_STD_U16LE);
    case Hdf5Type::u32:
      return H5Tcopy(H5T_STD_U32LE);
    case Hdf5Type::u64:
      return H5Tcopy(H5T_STD_U64LE);
    case Hdf5Type::i32:
      return H5Tcopy(H5T_STD_I32LE);
    case Hdf5Type::i64:
      return H5Tcopy(H5T_STD_I64LE);
    case Hdf5Type::f32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case Hdf5Type::bf16:
      break;
  }
  const hid_t bf16 = H5Tcopy(H5T_IEEE_F32LE);  // sign bit 15, exponent 7..14, mantissa 0..6
  H5Tset_fields(bf16, 15, 7, 8, 0, 7);
  H5Tset_precision(bf16, 16);
  H5Tset_size(bf16, 2);
  H5Tset_ebias(bf16, 127);
  return bf16;
}

int64_t bytes_in(const std::string& path, const std::string& name, Hdf5Type type, const std::vector<int64_t>& shape) {
  int64_t bytes = bytes_of(type);
  bool empty = false;
  for (const int64_t n : shape) {
    if (n < 0) fail(path, text("dataset '", name, "' has a dim of ", n));
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, n, &bytes)) {
      fail(path, text("dataset '", name, "' does not fit 63 bits of bytes"));
    }
  }
  return empty ? 0 : bytes;
}

// Larger in larger files: up to 1 MiB for striped file systems, while at most about 1/16 of the file is lost to gaps.
int64_t alignment_for(int64_t total, int64_t datasets) {
  const int64_t affordable = std::clamp<int64_t>(total / (16 * std::max<int64_t>(datasets, 1)), 4096, 1 << 20);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(affordable)));
}

void write_attribute(hid_t group, const Hdf5Attribute& attribute, const std::string& path) {
  const std::string what = "attribute '" + attribute.name + "'";
  const Id scalar(H5Screate(H5S_SCALAR), path, what);
  const auto* number = std::get_if<int64_t>(&attribute.value);
  const Id type(H5Tcopy(number != nullptr ? H5T_STD_I64LE : H5T_C_S1), path, what);
  std::string words;
  if (number == nullptr) {
    words = std::get<std::string>(attribute.value);
    ok(H5Tset_size(type, words.size() + 1), path, what);
    ok(H5Tset_cset(type, H5T_CSET_UTF8), path, what);
  }
  const Id id(H5Acreate2(group, attribute.name.c_str(), type, scalar, H5P_DEFAULT, H5P_DEFAULT), path, what);
  ok(number != nullptr ? H5Awrite(id, H5T_NATIVE_INT64, number) : H5Awrite(id, type, words.c_str()), path, what);
}

Hdf5Dataset write_dataset(hid_t file, hid_t plist, const Hdf5Spec& spec, const std::string& path) {
  const std::string what = "dataset '" + spec.name + "'";
  const int64_t bytes = bytes_in(path, spec.name, spec.type, spec.shape);
  const std::vector<hsize_t> dims(spec.shape.begin(), spec.shape.end());
  const Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), path, what);
  const Id type(copy_of_file_type(spec.type), path, what);
  const Id id(H5Dcreate2(file, spec.name.c_str(), type, space, H5P_DEFAULT, plist, H5P_DEFAULT), path, what);
  const haddr_t offset = bytes > 0 ? H5Dget_offset(id) : 0;
  if (offset == HADDR_UNDEF) fail(path, what + " was given no space by HDF5");
  return {spec.name, spec.type, spec.shape, static_cast<int64_t>(offset), bytes};
}

Hdf5Dataset read_dataset(hid_t file, const std::string& name, const std::string& path, int64_t file_bytes) {
  const std::string what = "'" + name + "'";
  const Id id(H5Oopen(file, name.c_str(), H5P_DEFAULT), path, what);
  if (H5Iget_type(id) != H5I_DATASET) fail(path, what + " is not a dataset");
  const Id plist(H5Dget_create_plist(id), path, what), space(H5Dget_space(id), path, what), type(H5Dget_type(id), path, what);
  if (H5Pget_layout(plist) != H5D_CONTIGUOUS) fail(path, what + " is not contiguous");
  if (H5Pget_external_count(plist) != 0) fail(path, what + " keeps its bytes in another file");

  const auto* known = std::find_if(kTypes.begin(), kTypes.end(), [&](Hdf5Type candidate) {
    const Id expected(copy_of_file_type(candidate), path, what);
    return H5Tequal(type, expected) > 0;
  });
  if (known == kTypes.end()) fail(path, what + " has a foreign element type");

  const int dims = H5Sget_simple_extent_ndims(space);
  if (dims < 1 || dims > 8) fail(path, text(what, " has ", dims, " dims; 1 to 8 are known"));
  std::vector<hsize_t> extent(static_cast<size_t>(dims));
  H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  Hdf5Dataset dataset{name, *known, {extent.begin(), extent.end()}, 0, 0};
  dataset.bytes = bytes_in(path, name, dataset.type, dataset.shape);
  const haddr_t offset = dataset.bytes > 0 ? H5Dget_offset(id) : 0;
  if (offset == HADDR_UNDEF || offset > static_cast<haddr_t>(file_bytes) ||
      dataset.bytes > file_bytes - static_cast<int64_t>(offset)) {
    fail(path, text(what, " lies beyond the end of the file"));
  }
  dataset.offset = static_cast<int64_t>(offset);
  return dataset;
}

Hdf5Attribute read_attribute(hid_t group, hsize_t index, const std::string& path) {
  const Id id(H5Aopen_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, index, H5P_DEFAULT, H5P_DEFAULT), path, "attribute");
  std::string name(static_cast<size_t>(std::max<ssize_t>(H5Aget_name(id, 0, nullptr), 0)), '\0');
  H5Aget_name(id, name.size() + 1, name.data());
  const std::string what = "attribute '" + name + "'";
  const Id type(H5Aget_type(id), path, what), space(H5Aget_space(id), path, what);
  if (H5Sget_simple_extent_type(space) != H5S_SCALAR) fail(path, what + " is not a scalar");
  if (H5Tget_class(type) == H5T_INTEGER) {
    int64_t number = 0;
    ok(H5Aread(id, H5T_NATIVE_INT64, &number), path, what);
    return {name, number};
  }
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) fail(path, what + " is neither integer nor string");
  std::string words(H5Tget_size(type), '\0');
  ok(H5Aread(id, type, words.data()), path, what);
  return {name, std::string(words.c_str())};
}

Id file_access(const std::string& path) { return Id(H5Pcreate(H5P_FILE_ACCESS), path, "property list"); }

}  // namespace

int64_t bytes_of(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8:
      return 1;
    case Hdf5Type::u16:
    case Hdf5Type::bf16:
      return 2;
    case Hdf5Type::u64:
    case Hdf5Type::i64:
      return 8;
    default:
      return 4;
  }
}

const char* name_of(Hdf5Type type) {
  constexpr std::array words{"u8", "u16", "u32", "u64", "i32", "i64", "f32", "bf16"};
  return words[static_cast<size_t>(type)];
}

std::vector<Hdf5Dataset> create_hdf5(const std::string& path, const std::vector<Hdf5Spec>& specs,
                                     const std::vector<Hdf5Attribute>& attributes, int64_t user_block) {
  const Hdf5Turn turn;
  const bool power = std::has_single_bit(static_cast<uint64_t>(user_block));
  if (user_block != 0 && (user_block < 4096 || !power)) fail(path, text("a user block of ", user_block, " bytes"));
  int64_t total = 0;
  for (const Hdf5Spec& spec : specs) {
    if (spec.name.empty() || spec.name == "." || spec.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      fail(path, "'" + spec.name + "' is not a name for a dataset");
    if (__builtin_add_overflow(total, bytes_in(path, spec.name, spec.type, spec.shape), &total))
      fail(path, "the datasets together do not fit 63 bits of bytes");
  }
  const Id creation(H5Pcreate(H5P_FILE_CREATE), path, "property list"), access = file_access(path);
  ok(H5Pset_userblock(creation, static_cast<hsize_t>(user_block)), path, "user block");
  // HDF5 wants whole blocks in front of an aligned object.
  const int64_t wanted = alignment_for(total, static_cast<int64_t>(specs.size()));
  const int64_t alignment = user_block == 0 ? wanted : std::min(wanted, user_block);
  ok(H5Pset_alignment(access, 4096, static_cast<hsize_t>(alignment)), path, "alignment");
  Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), path, "cannot be created:");

  const Id plist(H5Pcreate(H5P_DATASET_CREATE), path, "property list");
  ok(H5Pset_layout(plist, H5D_CONTIGUOUS), path, "layout");
  ok(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY), path, "allocation");
  ok(H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER), path, "fill");
  ok(H5Pset_obj_track_times(plist, false), path, "times");  // equal content gives equal files
  for (const Hdf5Attribute& attribute : attributes) write_attribute(file, attribute, path);
  std::vector<Hdf5Dataset> datasets;
  for (const Hdf5Spec& spec : specs) datasets.push_back(write_dataset(file, plist, spec, path));
  ok(file.close(), path, "cannot be written:");
  return datasets;
}

Hdf5Layout read_hdf5_layout(const std::string& path) {
  const Hdf5Turn turn;
  const int64_t file_bytes = File::open_to_read(path).size();
  const Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), path, "is not a readable HDF5 file:");
  H5G_info_t group{};
  ok(H5Gget_info(file, &group), path, "root group");
  Hdf5Layout layout;
  for (hsize_t i = 0; i < group.nlinks; ++i) {
    const ssize_t length = H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, nullptr, 0, H5P_DEFAULT);
    if (length < 0) fail(path, "name of a link: " + hdf5_reason());
    std::string name(static_cast<size_t>(length), '\0');
    H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size() + 1, H5P_DEFAULT);
    H5L_info_t link{};
    ok(H5Lget_info(file, name.c_str(), &link, H5P_DEFAULT), path, "'" + name + "'");
    if (link.type != H5L_TYPE_HARD) fail(path, "'" + name + "' is a link to elsewhere");
    layout.datasets.push_back(read_dataset(file, name, path, file_bytes));
  }
  const Id root(H5Gopen2(file, "/", H5P_DEFAULT), path, "root group");
  const int attributes = H5Aget_num_attrs(root);
  for (int i = 0; i < attributes; ++i) layout.attributes.push_back(read_attribute(root, static_cast<hsize_t>(i), path));
  return layout;
}

}  // namespace trireme
