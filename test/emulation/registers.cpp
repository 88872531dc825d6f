#include "test/emulation/registers.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <string_view>
#include <vector>

#include "test/emulation/grid.h"

namespace trireme::emulation {
namespace {

constexpr size_t kWarp = 32, kUnit = 8, kThreads = 2048, kMostBlocks = 32;  // of a multiprocessor

size_t registers_there_are() { return fact("TRIREME_EMULATED_REGISTERS", 65536); }

// Address at which this program is loaded.
uintptr_t base_address() {
  uintptr_t base = 0;
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void* to) { return *static_cast<uintptr_t*>(to) = info->dlpi_addr, 1; }, &base);
  return base;
}

// This program's file.
std::string_view own_file() {
  static const std::string_view bytes = [] {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (file < 0 || fstat(file, &facts) != 0) return std::string_view();
    const auto length = static_cast<size_t>(facts.st_size);
    void* const at = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return at == MAP_FAILED ? std::string_view() : std::string_view(static_cast<const char*>(at), length);
  }();
  return bytes;
}

// Mangled name of the function at a place in this program, static ones too, which no dladdr() knows; "" if there is none.
std::string function_at(uintptr_t place) {
  const char* const bytes = own_file().data();
  if (bytes == nullptr) return "";
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(bytes);
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(bytes + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* const names = bytes + sections[sections[i].sh_link].sh_offset;
    const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(bytes + sections[i].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s)
      if (symbols[s].st_value == place && ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC) return names + symbols[s].st_name;
  }
  return "";
}

// "rmsnorm_forward<float, 8>" of "void trireme::(anonymous namespace)::rmsnorm_forward<float, 8>(...)".
std::string short_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> words(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (words == nullptr) return mangled;
  std::string name =
      std::regex_replace(words.get(), std::regex(R"((\(anonymous namespace\)|trireme)::|^void |\(unsigned char\))"), "");
  return name.substr(0, name.find('('));
}

struct Kernel {
  std::string name{};
  size_t registers = 0;  // on the architecture that needs most; 0 if the page does not list it
  std::string architecture{};
  bool expected = false;  // on the page, as a kernel of the product
};

class Kernels {
 public:
  const Kernel& find(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto place = reinterpret_cast<uintptr_t>(address) - base_address();
    const auto [known, added] = kernels_.try_emplace(place);
    if (added) {
      const std::string mangled = function_at(place);
      known->second = listed(short_name(mangled));
      known->second.expected = mangled.starts_with("_ZN7trireme");
    }
    return known->second;
  }

 private:
  Kernel listed(const std::string& name) {
    if (rows_.empty()) read_page();
    const auto row = rows_.find(name);
    return row == rows_.end() ? Kernel{.name = name} : row->second;
  }
  // Rows such as: | `adamw.cu` | `adamw<false>` | 40 | 40 | 45 |
  void read_page() {
    std::ifstream page(TRIREME_SOURCE "/docs/gpu/registers.md");
    std::vector<std::string> architectures;
    for (std::string line; std::getline(page, line);) {
      std::vector<std::string> cells;
      std::istringstream in(line);
      for (std::string cell; std::getline(in, cell, '|');) {
        const size_t begin = cell.find_first_not_of(" `"), end = cell.find_last_not_of(" `");
        cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
      }
      if (cells.size() < 4) continue;
      if (cells[1] == "source") architectures.assign(cells.begin() + 3, cells.end());
      if (!cells[1].ends_with(".cu")) continue;
      Kernel& kernel = rows_[cells[2]];
      kernel.name = cells[2];
      for (size_t i = 3; i < cells.size() && i - 3 < architectures.size(); ++i)
        if (const size_t registers = std::strtoul(cells[i].c_str(), nullptr, 10); registers > kernel.registers)
          kernel.registers = registers, kernel.architecture = architectures[i - 3];
    }
  }

  std::mutex mutex_;
  std::map<uintptr_t, Kernel> kernels_;
  std::map<std::string, Kernel> rows_;
};

Kernels& kernels() {
  static Kernels all;
  return all;
}

// Registers that a block takes: they are given to warps in units.
size_t registers_of(const Kernel& kernel, size_t threads) {
  return (kernel.registers + kUnit - 1) / kUnit * kUnit * ((threads + kWarp - 1) / kWarp * kWarp);
}

}  // namespace

std::string lacking_registers(const void* kernel, size_t threads) {
  const Kernel& known = kernels().find(kernel);
  if (known.expected && known.registers == 0)
    return known.name + " is not in docs/gpu/registers.md, which scripts/kernel_registers.sh writes";
  if (registers_of(known, threads) <= registers_there_are()) return "";
  return known.name + ": a block of " + std::to_string(threads) + " threads with " + std::to_string(known.registers) +
         " registers each (" + known.architecture + "); a multiprocessor has " + std::to_string(registers_there_are());
}

int blocks_at_once(const void* kernel, size_t threads, size_t shared_bytes) {
  size_t blocks = std::min(kMostBlocks, kThreads / threads);
  if (const size_t each = registers_of(kernels().find(kernel), threads); each > 0)
    blocks = std::min(blocks, registers_there_are() / each);
  if (shared_bytes > 0) blocks = std::min(blocks, most_shared() / shared_bytes);
  return static_cast<int>(blocks);
}

}  // namespace trireme::emulation
